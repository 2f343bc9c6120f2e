//! Checks that hold the repository to its own rules, where the compiler cannot.
//!
//! Problem: layering, purity and honesty of the documents erode one small exception at a time. Method: read the
//! whole tree once ([`tree::Tree`]), run every check over it, and report each breach with its file, line, rule
//! and reason ([`finding::Finding`]). Limits: sources are masked, not parsed, so the bans here are the second
//! net behind the lints of `clippy.toml`. The rules are those of `STYLE.md` and `ARCHITECTURE.md`.
//!
//! * `rooms` - every crate and the crates that it may use; [`diagram`] - the same for ARCHITECTURE.md;
//! * [`layers`] - the manifests follow the table, and every crate root says what it is;
//! * [`sources`] - bans in pure crates, file length, module comments, unfinished work, foreign paths;
//! * [`circles`] - no circle of files; [`callers`] - no module without a caller; both read `modules`;
//! * [`documents`] - links, paths, make targets and the changelog;
//! * `promises` - every guarantee of the threat model has a test.
#![forbid(unsafe_code)]

pub mod callers;
pub mod circles;
pub mod diagram;
pub mod documents;
pub mod finding;
pub mod layers;
mod mask;
mod modules;
pub mod promises;
mod room;
mod rooms;
pub mod sources;
pub mod tree;

#[cfg(test)]
mod bad_inputs;

use finding::Finding;
use tree::Tree;

/// Every breach of every rule, in the order of path, line and rule.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = layers::check(tree);
    findings.extend(sources::check(tree));
    findings.extend(circles::check(tree));
    findings.extend(callers::check(tree));
    findings.extend(documents::check(tree));
    findings.extend(promises::check(tree));
    findings.sort();
    findings
}
