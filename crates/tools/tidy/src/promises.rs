//! Every guarantee of the threat model has a test that exists.
//!
//! Method: in each row of the table under `## Guarantees`, the last column names tests in code spans: functions of Rust, Python
//! and Go, and files with tests, proofs of the lab and scripts of `make test` among them. A function must be defined somewhere
//! in the tree, a file must hold a test, and a row must name one of either.
//! Limits: whether the test shows the guarantee is for the reviewer to say.

use crate::finding::{Finding, Rule};
use crate::tree::Tree;
use std::collections::BTreeSet;

const PATH: &str = "docs/internals/threat-model.md";

/// The rule over the threat model, where there is one.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let Some(text) = tree.text(PATH) else {
        return Vec::new();
    };
    let tests = tests(tree);
    let mut findings = Vec::new();
    for (line, row) in rows(text) {
        let spans: Vec<&str> = code_spans(row.rsplit('|').nth(1).unwrap_or_default()).collect();
        if spans.is_empty() {
            let message = "this guarantee names no test".to_owned();
            findings.push(Finding::new(Rule::Promise, PATH, line, message));
        }
        for span in spans {
            if !is_there(tree, &tests, span) {
                let message = format!("there is no test `{span}`");
                findings.push(Finding::new(Rule::Promise, PATH, line, message));
            }
        }
    }
    findings
}

/// Rows of the table of guarantees with their line numbers, without its head.
fn rows(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .skip_while(|(_, line)| *line != "## Guarantees")
        .skip(1)
        .take_while(|(_, line)| !line.starts_with("## "))
        .filter(|(_, line)| line.starts_with('|'))
        .skip(2)
        .map(|(index, line)| (index + 1, line))
}

fn code_spans(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// Names of all test functions.
fn tests(tree: &Tree) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    for (path, text) in tree.files() {
        let [attribute, define] = match path.rsplit('.').next() {
            Some("rs") => ["#[test]", "fn "],
            Some("py") => ["", "def test_"],
            Some("go") => ["", "func Test"],
            _ => continue,
        };
        let mut is_test = attribute.is_empty();
        for line in text.lines().map(str::trim) {
            is_test |= line == attribute;
            let Some(name) = line.strip_prefix(define).filter(|_| is_test) else {
                continue;
            };
            names.insert(name.split('(').next().unwrap_or_default());
            is_test = attribute.is_empty();
        }
    }
    names
}

/// Whether `span` names a test, a file with tests, or a directory.
fn is_there(tree: &Tree, tests: &BTreeSet<&str>, span: &str) -> bool {
    if !span.contains('/') {
        let prefixes = ["test_", "Test"];
        let name = prefixes.iter().find_map(|prefix| span.strip_prefix(prefix));
        return tests.contains(name.unwrap_or(span));
    }
    let marks = ["#[test]", "def test_", "func Test", "fn main()"];
    let holds_test = |path: &str, text: &str| {
        let is_script = path.starts_with("lab/proofs/") || path.starts_with(".ci/");
        // A test without a harness has a `main`.
        is_script
            || path.contains("/tests/") && text.contains(marks[3])
            || marks[..3].iter().any(|mark| text.contains(mark))
    };
    let suffix = format!("/{span}");
    let mut files = tree.files();
    files.any(|(path, text)| (path == span || path.ends_with(&suffix)) && holds_test(path, text))
        || tree.has(span) && tree.text(span).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "# Threats\n\n## Guarantees\n\n| asset | test |\n|---|---|\n";

    fn findings(row: &str) -> Vec<String> {
        let model = format!("{HEAD}{row}\n\n## Gaps\n\n| no guarantee | |\n");
        let tree = Tree::from_files(&[
            (PATH, &model),
            ("a/src/b.rs", "#[test]\nfn it_holds() {}\nfn helper() {}\n"),
            ("python/tests/test_c.py", "def test_it_holds_too(x):\n"),
            ("go/d_test.go", "func TestItHolds(t *testing.T) {\n"),
            ("a/tests/e.rs", "fn main() {}\n"),
            ("lab/proofs/f", "#!/usr/bin/env python3\n"),
        ]);
        let found = check(&tree);
        found.into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn a_guarantee_names_tests_that_exist() {
        for row in [
            "| x | `it_holds`, `test_it_holds_too` |",
            "| x | `a/src/b.rs`: `it_holds` |",
            "| x | `src/b.rs` |",
            "| x | `a/src`: `it_holds` |",
            "| x | `TestItHolds`, `go/d_test.go`, `a/tests/e.rs`, `lab/proofs/f` |",
        ] {
            assert_eq!(findings(row), [""; 0], "{row}");
        }
        assert_eq!(
            findings("| x | by review |"),
            ["this guarantee names no test"]
        );
        assert_eq!(findings("| x | `helper` |"), ["there is no test `helper`"]);
        assert_eq!(findings("| x | `gone.rs/x` |").len(), 1);
    }
}
