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
    command
        .args(arguments)
        .env("NO_COLOR", "1")
        .env_remove("COLUMNS");
    command
}

/// Demands that what has ended ended with `code`; returns stdout and stderr.
pub(crate) fn ended(output: &Output, code: i32) -> (String, String) {
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{stdout}\n{stderr}");
    (stdout, stderr)
}

/// Runs and demands `code`; returns stdout and stderr.
pub(crate) fn check(arguments: &[&str], code: i32) -> (String, String) {
    eprintln!("isolane {}", arguments.join(" "));
    ended(&command(arguments).output().unwrap(), code)
}

/// Demands exit code 2, nothing on stdout, and one line on stderr that has every part.
pub(crate) fn refuses(arguments: &[&str], parts: &[&str]) {
    let (stdout, stderr) = check(arguments, 2);
    let lines = stderr.lines().count();
    assert_eq!((stdout.as_str(), lines), ("", 1), "{arguments:?}: {stderr}");
    has_all(&stderr, parts);
}

/// What a program printed.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Exit code, stdout and stderr of the binary with these arguments.
pub(crate) fn outcome(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = command(arguments).output().unwrap();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// Demands every part in the text.
pub(crate) fn has_all(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}
