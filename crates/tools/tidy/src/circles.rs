//! No circle of files: a reader understands a file after those that it uses.
//!
//! An arrow leads from a file to each file of its crate that it names by `crate::`, `super::`, `self::` or by the name
//! of a module. A name that another file passes on by `pub use` leads to the file that has it. Arrows from an inner module
//! to those around it do not count: it is a part of theirs. Two files may use each other; more may not.
//! Limits: a method that a file calls without a path leads nowhere, so `impl` blocks of one type in several files are
//! free.

use crate::finding::{Finding, Rule};
use crate::modules::{self, Module, Path};
use crate::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};

/// Files that may use each other in a circle.
const PAIR: usize = 2;

/// Circles that are still there: crate, a file of it, how many files. The list only shrinks.
const KNOWN: &[(&str, &str, usize)] = &[];

/// The rule over every crate.
pub fn check(tree: &Tree) -> Vec<Finding> {
    check_but(tree, KNOWN)
}

pub(crate) fn check_but(tree: &Tree, known: &[(&str, &str, usize)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut needed = BTreeSet::new();
    let crates = modules::of_crates(tree);
    for (folder, modules) in &crates {
        for circle in circles(modules) {
            let files: Vec<&str> = circle
                .iter()
                .map(|path| modules[path].file.as_str())
                .collect();
            let exception = known.iter().position(|(of, file, _)| {
                of == folder && files.iter().any(|one| one.ends_with(file))
            });
            let allowed = exception.map_or(PAIR, |at| known[at].2);
            needed.extend(exception);
            if files.len() != allowed {
                let inside = format!("crates/{folder}/src/");
                let names: Vec<&str> = files
                    .iter()
                    .map(|file| file.trim_start_matches(&inside))
                    .collect();
                let message = format!(
                    "a circle of {} files where {allowed} are listed: {}",
                    files.len(),
                    names.join(" ")
                );
                findings.push(Finding::new(Rule::Circle, files[0], 1, message));
            }
        }
    }
    for (at, (folder, file, _)) in known.iter().enumerate() {
        if !needed.contains(&at) && crates.contains_key(*folder) {
            let message =
                format!("the circle of crates/{folder} at {file} is gone: take it off the list");
            findings.push(Finding::new(
                Rule::StaleException,
                "crates/tools/tidy/src/circles.rs",
                1,
                message,
            ));
        }
    }
    findings
}

/// Sets of more than two modules that use each other.
fn circles(modules: &BTreeMap<Path, Module>) -> Vec<BTreeSet<Path>> {
    let arrows = arrows(modules);
    let reached: BTreeMap<&Path, BTreeSet<&Path>> = modules
        .keys()
        .map(|path| (path, reach(&arrows, path)))
        .collect();
    let mut done = BTreeSet::new();
    let mut found = Vec::new();
    for path in modules.keys() {
        if done.contains(path) {
            continue;
        }
        let circle: BTreeSet<Path> = reached[path]
            .iter()
            .filter(|other| reached[**other].contains(path))
            .map(|other| (*other).clone())
            .collect();
        done.extend(circle.iter().cloned());
        if circle.len() > PAIR {
            found.push(circle);
        }
    }
    found
}

fn reach<'a>(arrows: &'a BTreeMap<Path, BTreeSet<Path>>, from: &'a Path) -> BTreeSet<&'a Path> {
    let mut seen = BTreeSet::new();
    let mut open = vec![from];
    while let Some(path) = open.pop() {
        for next in arrows.get(path).into_iter().flatten() {
            if seen.insert(next) {
                open.push(next);
            }
        }
    }
    seen
}

fn arrows(modules: &BTreeMap<Path, Module>) -> BTreeMap<Path, BTreeSet<Path>> {
    let uses: BTreeMap<&Path, Vec<modules::Use>> = modules
        .iter()
        .map(|(path, module)| (path, modules::uses(&module.code)))
        .collect();
    let mut passed_on: BTreeMap<Path, Path> = BTreeMap::new();
    for (path, uses) in &uses {
        for one in uses.iter().filter(|one| one.is_public) {
            if let Some(target) = absolute(modules, path, &one.path) {
                passed_on.insert(
                    [&path[..], std::slice::from_ref(&one.name)].concat(),
                    target,
                );
            }
        }
    }
    let mut arrows: BTreeMap<Path, BTreeSet<Path>> = BTreeMap::new();
    for (path, module) in modules {
        let named = uses[path]
            .iter()
            .filter(|one| !one.is_public)
            .map(|one| one.path.clone());
        let public: BTreeSet<&Path> = uses[path]
            .iter()
            .filter(|one| one.is_public)
            .map(|one| &one.path)
            .collect();
        let inline = modules::paths(&module.code)
            .into_iter()
            .filter(|one| !public.contains(one));
        for one in named.chain(inline) {
            let Some(target) = absolute(modules, path, &one) else {
                continue;
            };
            let file = file_of(modules, &passed_on, &target);
            if !path.starts_with(&file) {
                arrows.entry(path.clone()).or_default().insert(file);
            }
        }
    }
    arrows
}

/// `path`, which `from` names, from the root of the crate; none if it leads outside.
fn absolute(modules: &BTreeMap<Path, Module>, from: &Path, path: &[String]) -> Option<Path> {
    let (first, rest) = path.split_first()?;
    match first.as_str() {
        "crate" => Some(rest.to_vec()),
        "self" => Some([from, rest].concat()),
        "super" => {
            let ups = path.iter().take_while(|part| *part == "super").count();
            let base = &from[..from.len().checked_sub(ups)?];
            Some([base, &path[ups..]].concat())
        }
        _ => {
            let own = [&from[..], std::slice::from_ref(first)].concat();
            modules
                .contains_key(&own)
                .then(|| [&own[..], rest].concat())
        }
    }
}

/// The module that has what `path` names, through what modules pass on.
fn file_of(
    modules: &BTreeMap<Path, Module>,
    passed_on: &BTreeMap<Path, Path>,
    path: &[String],
) -> Path {
    /// More steps than any chain of `pub use` has.
    const STEPS: usize = 8;
    let mut path = path.to_vec();
    for _ in 0..STEPS {
        let end = (0..=path.len())
            .rev()
            .find(|end| modules.contains_key(&path[..*end]));
        let module = path[..end.unwrap_or(0)].to_vec();
        let name = &path[..path.len().min(module.len() + 1)];
        match passed_on.get(name) {
            Some(target) if *target != path => path = target.clone(),
            _ => return module,
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    const CIRCLE: [(&str, &str); 5] = [
        (
            "crates/a/b/src/lib.rs",
            "pub mod c;\nmod d;\nmod e;\npub use c::C;\n",
        ),
        ("crates/a/b/src/c/mod.rs", "mod f;\nuse crate::d::D;\n"),
        ("crates/a/b/src/c/f.rs", "use super::C;\n"),
        ("crates/a/b/src/d.rs", "fn d() { crate::e::e(); }\n"),
        (
            "crates/a/b/src/e.rs",
            "use crate::C;\n#[cfg(test)]\nmod tests { use crate::c::f; }\n",
        ),
    ];

    fn messages(known: &[(&str, &str, usize)]) -> Vec<String> {
        let found = check_but(&Tree::from_files(&CIRCLE), known);
        found.into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn a_circle_is_found_through_what_the_root_passes_on() {
        let expected = "a circle of 3 files where 2 are listed: c/mod.rs d.rs e.rs";
        assert_eq!(messages(&[]), [expected]);
    }

    #[test]
    fn a_listed_circle_may_not_change_its_size() {
        assert!(messages(&[("a/b", "d.rs", 3)]).is_empty());
        let expected = "a circle of 3 files where 4 are listed: c/mod.rs d.rs e.rs";
        assert_eq!(messages(&[("a/b", "d.rs", 4)]), [expected]);
    }

    #[test]
    fn an_exception_without_a_circle_is_stale() {
        let found = messages(&[("a/b", "d.rs", 3), ("a/b", "y.rs", 3)]);
        assert_eq!(
            found,
            ["the circle of crates/a/b at y.rs is gone: take it off the list"]
        );
    }
}
