//! The binary as tests call it: what it must end with, and what it must say.
//!
//! Limits: the output is text, and nothing is coloured.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test program uses its part"
)]

use std::process::{Command, Output};

/// The binary with these arguments, not started.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_isolane"));
    command.args(arguments).env("NO_COLOR", "1");
    command
}

/// Demands that what has ended ended with `code`; returns stdout and stderr.
pub(crate) fn ended(output: Output, code: i32) -> (String, String) {
    let stdout = String::from_utf8(output.stdout).unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{stdout}\n{stderr}");
    (stdout, stderr)
}

/// Runs and demands `code`; returns stdout and stderr.
pub(crate) fn check(arguments: &[&str], code: i32) -> (String, String) {
    eprintln!("isolane {}", arguments.join(" "));
    ended(command(arguments).output().unwrap(), code)
}

/// Demands exit code 2, nothing on stdout, and one line on stderr that has every part.
pub(crate) fn refuses(arguments: &[&str], parts: &[&str]) {
    let (stdout, stderr) = check(arguments, 2);
    let lines = stderr.lines().count();
    assert_eq!((stdout.as_str(), lines), ("", 1), "{arguments:?}: {stderr}");
    has_all(&stderr, parts);
}

/// Demands every part in the text.
pub(crate) fn has_all(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}
