//! What the documents promise must be there: links, paths, make targets, systemd units, the changelog.
//!
//! Limits: inline links `[text](target)` are checked, reference links are not used here. A path counts as named
//! when a token begins with one of our directories and holds no pattern sign; names that begin with `my-` are the
//! reader's own files.

use crate::diagram;
use crate::finding::{Finding, Rule};
use crate::tree::Tree;
use std::collections::BTreeSet;

/// Directories whose paths documents may name only if they exist.
const FOLDERS: [&str; 6] = [
    "scenarios/",
    "profiles/",
    "claims/",
    "crates/",
    "docs/",
    ".ci/",
];

/// The changelog is history: paths in it may be gone.
const CHANGELOG: &str = "CHANGELOG.md";

/// The rules for documents over every Markdown file.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let targets = make_targets(tree.text("Makefile").unwrap_or_default());
    for (path, text) in tree.files().filter(|(path, _)| path.ends_with(".md")) {
        check_links(tree, path, text, &mut findings);
        if path != CHANGELOG {
            check_paths(tree, path, text, &mut findings);
            check_targets(&targets, path, text, &mut findings);
        }
    }
    let naming =
        |path: &str| path.ends_with(".md") && path != CHANGELOG || path.starts_with("packaging/");
    for (path, text) in tree.files().filter(|(path, _)| naming(path)) {
        check_units(tree, path, text, &mut findings);
    }
    check_changelog(tree, &mut findings);
    check_architecture(tree, &mut findings);
    check_profiles(tree, &mut findings);
    findings
}

fn check_links(tree: &Tree, path: &str, text: &str, findings: &mut Vec<Finding>) {
    for (line, prose) in prose_lines(text) {
        for target in link_targets(&prose) {
            if let Some(problem) = link_problem(tree, path, target) {
                let message = format!("link to `{target}`: {problem}");
                findings.push(Finding::new(Rule::BrokenLink, path, line, message));
            }
        }
    }
}

/// What is wrong with a link from `path` to `target`, if anything.
fn link_problem(tree: &Tree, path: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let resolved = if file.is_empty() {
        path.to_owned()
    } else {
        match resolve(path, file) {
            Some(resolved) => resolved,
            None => return Some("it leaves the repository".to_owned()),
        }
    };
    if !tree.has(&resolved) {
        return Some(format!("there is no `{resolved}`"));
    }
    let headings = headings(tree.text(&resolved).unwrap_or_default());
    let lost = !anchor.is_empty() && resolved.ends_with(".md") && !headings.contains(anchor);
    lost.then(|| format!("`{resolved}` has no heading `#{anchor}`"))
}

/// `target` seen from the directory of the file `from`; `None` when it leads out of the tree.
fn resolve(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// The anchors of a Markdown text: headings in lower case, spaces as dashes, other signs left out.
fn headings(text: &str) -> BTreeSet<String> {
    let slug = |title: &str| {
        let kept = title.trim().chars().filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c.to_ascii_lowercase()),
            _ => None,
        });
        kept.collect::<String>()
    };
    text.lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| slug(line.trim_start_matches('#')))
        .collect()
}

/// Lines outside fenced code, with inline code blanked, and their numbers.
fn prose_lines(text: &str) -> Vec<(usize, String)> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            let outside_code = line.split('`').step_by(2);
            lines.push((index + 1, outside_code.collect::<Vec<_>>().join("_")));
        }
    }
    lines
}

fn link_targets(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("](").filter_map(|(start, open)| {
        let rest = &line[start + open.len()..];
        let target = &rest[..rest.find(')')?];
        target.split_whitespace().next()
    })
}

fn check_paths(tree: &Tree, path: &str, text: &str, findings: &mut Vec<Finding>) {
    let separator = |c: char| !(c.is_ascii_alphanumeric() || "._-/*<>{}$".contains(c));
    for (index, line) in text.lines().enumerate() {
        for token in line.split(separator) {
            let named = token.trim_end_matches('.');
            let ours = FOLDERS.iter().any(|folder| named.starts_with(folder));
            let pattern = named.contains(['*', '<', '>', '{', '}', '$']);
            let readers_own = named.contains("/my-");
            if ours && !pattern && !readers_own && !tree.has(named) {
                let message = format!("there is no `{named}`");
                findings.push(Finding::new(Rule::MissingPath, path, index + 1, message));
            }
        }
    }
}

fn make_targets(makefile: &str) -> BTreeSet<&str> {
    makefile
        .lines()
        .filter(|line| !line.starts_with(['\t', ' ', '#', '.']))
        .filter_map(|line| line.split_once(':'))
        .filter(|(_, rest)| !rest.starts_with('='))
        .flat_map(|(names, _)| names.split_whitespace())
        .collect()
}

fn check_targets(targets: &BTreeSet<&str>, path: &str, text: &str, findings: &mut Vec<Finding>) {
    for (index, line) in text.lines().enumerate() {
        let at_start = line.strip_prefix("make ");
        let in_code = line.split('`').skip(1).step_by(2);
        let commands = in_code.filter_map(|code| code.strip_prefix("make "));
        for command in at_start.into_iter().chain(commands) {
            let target: &str = command.split_whitespace().next().unwrap_or_default();
            let plain = target.chars().all(|c| c.is_ascii_lowercase() || c == '-');
            let prose = at_start.is_some() && !fenced(text, index);
            if plain && !prose && !targets.contains(target) {
                let message = format!("there is no `make {target}`");
                findings.push(Finding::new(Rule::MissingTarget, path, index + 1, message));
            }
        }
    }
}

/// True when the line with this index is inside fenced code.
fn fenced(text: &str, index: usize) -> bool {
    let fences = text
        .lines()
        .take(index)
        .filter(|line| line.trim_start().starts_with("```"));
    fences.count() % 2 == 1
}

/// A unit is named as `isolane-x.service`; `isolane-x@eth0.service` names the template `isolane-x@.service`.
fn check_units(tree: &Tree, path: &str, text: &str, findings: &mut Vec<Finding>) {
    let separator = |c: char| !(c.is_ascii_alphanumeric() || "._-@*".contains(c));
    for (index, line) in text.lines().enumerate() {
        for token in line.split(separator) {
            let named = token.strip_suffix(".service");
            let Some(named) = named.filter(|named| named.starts_with("isolane")) else {
                continue;
            };
            let unit = match named.split_once('@') {
                Some((template, _)) => format!("{template}@.service"),
                None => format!("{named}.service"),
            };
            if !unit.contains('*') && !tree.has(&format!("packaging/units/{unit}.in")) {
                let message = format!("there is no unit `{unit}` in packaging/units");
                findings.push(Finding::new(Rule::MissingUnit, path, index + 1, message));
            }
        }
    }
}

fn check_changelog(tree: &Tree, findings: &mut Vec<Finding>) {
    let text = tree.text(CHANGELOG).unwrap_or_default();
    if !text.lines().any(|line| line.trim() == "## [Unreleased]") {
        let message = "no heading `## [Unreleased]`";
        findings.push(Finding::new(Rule::Changelog, CHANGELOG, 1, message));
    }
}

fn check_architecture(tree: &Tree, findings: &mut Vec<Finding>) {
    const PATH: &str = "ARCHITECTURE.md";
    let text = tree.text(PATH).unwrap_or_default();
    let generated = text
        .split_once(diagram::BEGIN)
        .and_then(|(_, rest)| rest.split_once(diagram::END))
        .map(|(generated, _)| generated);
    if generated != Some(&diagram::text()) {
        let message = "the tables of rooms are not those of crates/tools/tidy/src/rooms.rs; \
                       run `cargo run -p isolane-tools-tidy --example rooms`";
        findings.push(Finding::new(Rule::UndocumentedRoom, PATH, 1, message));
    }
}

/// Device names end with what their link carries.
const LINK_LAYERS: [&str; 3] = ["-roce", "-ib", "-iwarp"];

/// README.md names every device profile, and no other.
fn check_profiles(tree: &Tree, findings: &mut Vec<Finding>) {
    const PATH: &str = "README.md";
    let profiles: BTreeSet<&str> = tree
        .files()
        .filter_map(|(path, _)| path.strip_prefix("profiles/")?.strip_suffix(".toml"))
        .collect();
    let separator = |c: char| !(c.is_ascii_alphanumeric() || c == '-');
    let mut named = BTreeSet::new();
    for (index, line) in tree.text(PATH).unwrap_or_default().lines().enumerate() {
        for token in line.split(separator) {
            let device = LINK_LAYERS.iter().any(|layer| token.ends_with(layer));
            if device && named.insert(token) && !profiles.contains(token) {
                let message = format!("there is no profile `{token}`");
                findings.push(Finding::new(Rule::ProfileList, PATH, index + 1, message));
            }
        }
    }
    for profile in profiles.difference(&named) {
        let message = format!("profile `{profile}` is not named");
        findings.push(Finding::new(Rule::ProfileList, PATH, 1, message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_resolve_from_the_folder_of_their_file() {
        assert_eq!(
            resolve("docs/a/b.md", "../c.md").as_deref(),
            Some("docs/c.md")
        );
        assert_eq!(resolve("a.md", "./b/").as_deref(), Some("b"));
        assert_eq!(resolve("a.md", "../b"), None);
    }

    #[test]
    fn links_in_code_are_text() {
        let text = "```\n[a](b)\n```\n`[a](c)` and [a](d \"title\")\n";
        let lines = prose_lines(text);
        let found: Vec<&str> = lines
            .iter()
            .flat_map(|(_, line)| link_targets(line))
            .collect();
        assert_eq!(found, ["d"]);
    }

    #[test]
    fn anchors_are_headings_in_lower_case() {
        let found = headings("# One two: `three`!\ntext\n## Four-five\n");
        assert_eq!(
            found,
            ["one-two-three", "four-five"].map(String::from).into()
        );
    }

    #[test]
    fn variables_and_phony_lists_are_no_make_targets() {
        let found = make_targets(".PHONY: demo\nOUT := out\ndemo test: build\n\tcargo build:x\n");
        assert_eq!(found, ["demo", "test"].into());
    }
}
