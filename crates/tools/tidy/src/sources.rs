//! What a source file must have and must not have.
//!
//! Bans in pure crates look at code outside tests; marks of unfinished work, foreign paths and host names are
//! searched in every text, comments included.

use crate::finding::{Finding, Rule};
use crate::mask::{code_only, without_tests};
use crate::rooms::ROOMS;
use crate::tree::Tree;

/// More lines than this and a file holds more than one idea.
const LINES_MAX: usize = 600;

/// Files that may be longer: path, lines allowed, reason.
const LONG_FILES: &[(&str, usize, &str)] = &[];

/// What the sources of pure crates do not mention outside tests, and what to use instead.
const PURE_BANS: &[(&str, &str)] = &[
    (
        "std::time",
        "take an isolane_common_quantities::units::Instant",
    ),
    (
        "SystemTime",
        "take an isolane_common_quantities::units::Instant",
    ),
    (
        "Instant::now",
        "take an isolane_common_quantities::units::Instant",
    ),
    ("std::fs", "let the caller pass the text"),
    ("fs::", "let the caller pass the text"),
    ("std::env", "take an argument"),
    ("env::", "take an argument"),
    (
        "std::thread",
        "one run is one thread; the caller starts many",
    ),
    ("thread::", "one run is one thread; the caller starts many"),
    ("std::process", "return an error"),
    ("std::net", "leave it to an adapter"),
    ("HashMap", "use BTreeMap: its order is the same in each run"),
    ("HashSet", "use BTreeSet: its order is the same in each run"),
    (
        "RandomState",
        "use a named stream of isolane_common_quantities::rng",
    ),
    (
        "OsRng",
        "use a named stream of isolane_common_quantities::rng",
    ),
    (
        "thread_rng",
        "use a named stream of isolane_common_quantities::rng",
    ),
    ("println!", "return the text"),
    ("eprintln!", "return the text"),
    ("print!", "return the text"),
    ("eprint!", "return the text"),
];

// Spelled in halves, so that this file does not breach its own rules.
const UNFINISHED_CODE: [&str; 3] = [
    concat!("to", "do!"),
    concat!("unimpl", "emented!"),
    concat!("db", "g!"),
];
const UNFINISHED_MARKS: [&str; 3] = [
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("TO", "DO"),
];
const OUTSIDE_PATHS: [&str; 5] = [
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/Us", "ers/"),
    concat!("../sha", "red"),
];
const REGISTRY_HOSTS: [&str; 6] = [
    concat!("crates", ".io"),
    concat!("npmjs", ".org"),
    concat!("pypi", ".org"),
    concat!("deb.debian", ".org"),
    concat!("proxy.golang", ".org"),
    concat!("rubygems", ".org"),
];

/// Written by tools or by others: not ours to word.
const FOREIGN_TEXTS: [&str; 2] = ["Cargo.lock", "LICENSE"];

/// The rules for texts over every file.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.files() {
        if FOREIGN_TEXTS.contains(&path) {
            continue;
        }
        check_text(path, text, &mut findings);
        if path.ends_with(".rs") {
            check_rust(path, text, &mut findings);
        } else if text.starts_with("#!") && text.lines().next().is_some_and(names_a_shell) {
            check_shell(path, text, &mut findings);
        }
    }
    check_exceptions(tree, LONG_FILES, &mut findings);
    findings
}

fn check_text(path: &str, text: &str, findings: &mut Vec<Finding>) {
    report_each(text, &UNFINISHED_MARKS, |line, mark| {
        let message = format!("`{mark}`");
        findings.push(Finding::new(Rule::Unfinished, path, line, message));
    });
    report_each(text, &OUTSIDE_PATHS, |line, prefix| {
        let message = format!("a path that begins with `{prefix}`");
        findings.push(Finding::new(Rule::OutsidePath, path, line, message));
    });
    report_each(text, &REGISTRY_HOSTS, |line, host| {
        let message = format!("the host name `{host}`");
        findings.push(Finding::new(Rule::RegistryHost, path, line, message));
    });
}

fn check_rust(path: &str, text: &str, findings: &mut Vec<Finding>) {
    let comment = text
        .lines()
        .next()
        .and_then(|line| line.strip_prefix("//!"));
    if comment.is_none_or(|comment| comment.trim().is_empty()) {
        let message = "the first line is not a `//!` comment";
        findings.push(Finding::new(Rule::ModuleComment, path, 1, message));
    }
    let lines = text.lines().count();
    if lines > lines_allowed(path) {
        let message = format!("{lines} lines, more than {}", lines_allowed(path));
        findings.push(Finding::new(Rule::FileLength, path, lines, message));
    }
    let code = code_only(text);
    report_each(&code, &UNFINISHED_CODE, |line, macro_name| {
        let message = format!("`{macro_name}`");
        findings.push(Finding::new(Rule::Unfinished, path, line, message));
    });
    report_each(&code, &["#[ignore]"], |line, _| {
        let message = "`#[ignore]` without a reason: write `#[ignore = \"why\"]`";
        findings.push(Finding::new(Rule::SilentIgnore, path, line, message));
    });
    if is_pure(path) {
        check_pure(path, &without_tests(&code), findings);
    }
}

fn check_pure(path: &str, code: &str, findings: &mut Vec<Finding>) {
    for (ban, instead) in PURE_BANS {
        report_each(code, &[ban], |line, _| {
            let message = format!("`{ban}` in a pure crate: {instead}");
            findings.push(Finding::new(Rule::PureBan, path, line, message));
        });
    }
}

/// True for sources of pure crates that are not tests.
fn is_pure(path: &str) -> bool {
    let in_pure_crate = ROOMS.iter().any(|room| {
        room.kind.is_pure()
            && path
                .strip_prefix("crates/")
                .and_then(|path| path.strip_prefix(room.folder))
                .is_some_and(|path| path.starts_with("/src/"))
    });
    let test = path.ends_with("tests.rs") || path.contains("/tests/");
    in_pure_crate && !test
}

fn lines_allowed(path: &str) -> usize {
    LONG_FILES
        .iter()
        .find(|(long, _, _)| *long == path)
        .map_or(LINES_MAX, |(_, lines, _)| *lines)
}

pub(crate) fn check_exceptions(
    tree: &Tree,
    exceptions: &[(&str, usize, &str)],
    findings: &mut Vec<Finding>,
) {
    for (path, _, reason) in exceptions {
        let lines = tree.text(path).map_or(0, |text| text.lines().count());
        if lines <= LINES_MAX {
            let message = format!("exception for {lines} lines is not needed ({reason})");
            findings.push(Finding::new(Rule::StaleException, path, 1, message));
        }
    }
}

fn names_a_shell(first_line: &str) -> bool {
    first_line.ends_with("sh")
}

fn check_shell(path: &str, text: &str, findings: &mut Vec<Finding>) {
    if !text.lines().any(|line| line == "set -euo pipefail") {
        let message = "no `set -euo pipefail`";
        findings.push(Finding::new(Rule::ShellStrict, path, 1, message));
    }
}

/// Calls `report` with line and pattern for every line that holds one of `patterns` as whole words.
fn report_each<'a>(text: &str, patterns: &[&'a str], mut report: impl FnMut(usize, &'a str)) {
    for (index, line) in text.lines().enumerate() {
        for pattern in patterns {
            if has_word(line, pattern) {
                report(index + 1, pattern);
            }
        }
    }
}

/// True when `line` holds `word` and no letter or digit continues it on a side where it ends in one.
fn has_word(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        let after = line[start + word.len()..].chars().next();
        let begins_inside = before.is_some_and(part);
        let ends_inside = word.ends_with(part) && after.is_some_and(part);
        !begins_inside && !ends_inside
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_inside_another_word_is_not_found() {
        assert!(has_word("use std::fs;", "std::fs"));
        assert!(has_word("use std::fs::read;", "fs::"));
        assert!(!has_word("let offs::x", "fs::"));
        assert!(!has_word("MyHashMapper", "HashMap"));
    }

    #[test]
    fn tests_of_pure_crates_are_free() {
        assert!(is_pure("crates/common/quantities/src/units.rs"));
        assert!(!is_pure("crates/common/quantities/src/stats/tests.rs"));
        assert!(!is_pure("crates/rdma/policy/tests/facts.rs"));
        assert!(!is_pure("crates/app/cli/src/main.rs"));
    }

    #[test]
    fn banned_words_in_tests_and_comments_of_a_pure_crate_are_free() {
        let text = "//! HashMap is banned.\nfn f() {}\n#[cfg(test)]\nmod tests { use std::fs; }\n";
        let tree = Tree::from_files(&[("crates/common/quantities/src/f.rs", text)]);
        assert_eq!(check(&tree), []);
    }
}
