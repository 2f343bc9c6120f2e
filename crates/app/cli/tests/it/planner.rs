//! `isolane edge` hands everything to a Python that has the package, and says how to get one.
#![allow(clippy::unwrap_used)]

use crate::support::text;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

fn isolane(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_isolane"))
        .args(arguments)
        .env_remove("ISOLANE_PYTHON")
        .envs(environment.iter().copied())
        .output()
        .unwrap()
}

/// An interpreter that has every package, prints its arguments, and exits with 7.
fn stand_in(directory: &Path) -> String {
    let file = directory.join("python");
    fs::write(
        &file,
        "#!/bin/sh\n[ \"$1\" = -c ] && exit 0\nprintf '%s\\n' \"$@\"\nexit 7\n",
    )
    .unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn words_and_status_pass_through() {
    let directory = tempfile::tempdir().unwrap();
    let python = stand_in(directory.path());
    for (arguments, expected) in [
        (
            &[
                "edge", "plan", "q.yaml", "--infra", "t.yaml", "--json", "--help",
            ][..],
            "-m\nisolane.planner\nplan\nq.yaml\n--infra\nt.yaml\n--json\n--help\n",
        ),
        (
            &["edge", "run", "plan.json"],
            "-m\nisolane.pipeline\nrun\nplan.json\n",
        ),
        (&["edge", "plan"], "-m\nisolane.planner\nplan\n"),
    ] {
        let output = isolane(arguments, &[("ISOLANE_PYTHON", &python)]);
        assert_eq!(output.status.code(), Some(7), "{arguments:?}");
        assert_eq!(text(&output.stdout), expected, "{arguments:?}");
    }
    let named = isolane(
        &["edge", "plan", "--python", &python, "q.yaml"],
        &[("ISOLANE_PYTHON", "/nonexistent")],
    );
    assert_eq!(named.status.code(), Some(7));
    assert_eq!(text(&named.stdout), "-m\nisolane.planner\nplan\nq.yaml\n");
}

#[test]
fn without_the_package_it_says_how_to_install_it() {
    for command in ["plan", "run"] {
        let output = isolane(
            &["edge", command, "x", "--python", "/nonexistent/python"],
            &[],
        );
        assert_eq!(output.status.code(), Some(3));
        let stderr = text(&output.stderr);
        assert!(stderr.contains("tried /nonexistent/python"), "{stderr}");
        assert!(stderr.contains("pip install './python[plan]'"), "{stderr}");
        assert!(output.stdout.is_empty());
    }
    let nameless = isolane(&["edge", "plan", "--python"], &[]);
    assert_eq!(nameless.status.code(), Some(2));
}

#[test]
fn help_needs_no_python() {
    for (words, shown) in [
        (&["edge", "plan", "--help"][..], "--searcher NAME"),
        (&["edge", "watch", "-h"], "isolane edge watch"),
        (&["edge", "run", "--help"], "--move OPERATOR=TIER@S"),
    ] {
        let output = isolane(words, &[("ISOLANE_PYTHON", "/nonexistent/python")]);
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        let stdout = text(&output.stdout);
        for part in [shown, "tried /nonexistent/python", "make python"] {
            assert!(stdout.contains(part), "{words:?}: no {part:?} in {stdout}");
        }
    }
}

#[test]
fn what_an_interpreter_lacks_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("python");
    fs::write(&file, "#!/bin/sh\necho numpy\nexit 9\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    let output = isolane(
        &["edge", "plan", "q.yaml", "--python", file.to_str().unwrap()],
        &[],
    );
    assert_eq!(output.status.code(), Some(3));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("python (lacks numpy)"), "{stderr}");
}
