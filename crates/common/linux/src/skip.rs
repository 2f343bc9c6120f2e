//! Tests that need more than every machine has, such as root, namespaces or a program.

use std::fmt::Display;

/// Prints why a test does not run here. Panics in CI (the variable `CI` is set and not empty), where every test must run:
/// otherwise a test that did not run would count as passed.
#[track_caller]
pub fn skip(reason: impl Display) {
    let is_ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
    assert!(!is_ci, "must run in CI: {reason}");
    eprintln!("skipped: {reason}");
}

/// Prints why a test does not apply to this machine, in CI too: the test needs something to be absent that is there, or
/// hardware, or a part of the kernel or of the compiler that no package installs.
pub fn does_not_apply(reason: impl Display) {
    eprintln!("skipped: {reason}");
}
