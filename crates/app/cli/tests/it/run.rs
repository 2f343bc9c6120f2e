//! `isolane rdma run` as a user meets it: on a machine without daemon or devices the program runs all the same.
#![allow(clippy::unwrap_used)]

use crate::support::text;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

/// Runs with an empty file as the shim (which the loader ignores with a complaint) unless the test says otherwise.
fn run(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_isolane"));
    command.args(["rdma", "run"]).args(arguments);
    for name in [
        "ISOLANE_SHIM",
        "ISOLANE_SOCKET",
        "ISOLANE_CLASS",
        "LD_PRELOAD",
    ] {
        command.env_remove(name);
    }
    command.envs(environment.iter().copied());
    command.output().unwrap()
}

const NO_SHIM: (&str, &str) = ("ISOLANE_SHIM", "/nonexistent/libisolane_shim.so");
const NO_DAEMON: (&str, &str) = ("ISOLANE_SOCKET", "/nonexistent/isolaned.sock");

#[test]
fn the_exit_status_is_the_programs_own() {
    let output = run(
        &["--", "sh", "-c", "echo out; exit 42"],
        &[NO_SHIM, NO_DAEMON],
    );
    assert_eq!(output.status.code(), Some(42));
    assert_eq!(text(&output.stdout), "out\n");
    let stderr = text(&output.stderr);
    assert_eq!(stderr.lines().count(), 2, "{stderr}");
    assert!(
        stderr.contains("preload library /nonexistent/libisolane_shim.so is not there"),
        "{stderr}"
    );
    assert!(
        stderr.contains(
            "no daemon listens at /nonexistent/isolaned.sock; start isolaned; the program runs unpaced"
        ),
        "{stderr}"
    );
}

#[test]
fn a_program_that_is_not_there_ends_in_127_and_one_that_is_none_in_126() {
    let missing = run(&["no-such-program-here"], &[NO_SHIM]);
    assert_eq!(missing.status.code(), Some(127));
    assert!(text(&missing.stderr).contains("no such program"));
    let misspelt = run(&["--clas", "latency", "--", "true"], &[NO_SHIM]);
    assert_eq!(misspelt.status.code(), Some(127));
    assert!(text(&misspelt.stderr).contains("--clas: neither an option of isolane rdma run"));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("text");
    fs::write(&file, "hello").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let none = run(&[file.to_str().unwrap()], &[NO_SHIM]);
    assert_eq!(none.status.code(), Some(126), "{}", text(&none.stderr));
}

#[test]
fn the_program_gets_the_environment_that_it_was_given() {
    let directory = tempfile::tempdir().unwrap();
    let shim = directory.path().join("libisolane_shim.so");
    fs::write(&shim, "").unwrap();
    let shim = shim.to_str().unwrap();
    let arguments = [
        "--class",
        "latency",
        "--tenant",
        "cache",
        "--weight",
        "3",
        "--socket",
        "/s",
        "--",
        "/usr/bin/env",
    ];
    let output = run(&arguments, &[("ISOLANE_SHIM", shim)]);
    let stdout = text(&output.stdout);
    for line in [
        "ISOLANE_CLASS=latency",
        "ISOLANE_TENANT=cache",
        "ISOLANE_WEIGHT=3",
        "ISOLANE_SOCKET=/s",
        &format!("LD_PRELOAD={shim}"),
    ] {
        assert!(
            stdout.lines().any(|shown| shown == line),
            "{line} is not in {stdout}"
        );
    }
}

#[test]
fn a_dry_run_says_in_json_what_is_in_the_way() {
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("job");
    fs::write(&script, "#!/nonexistent/interpreter\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let output = run(
        &["--dry-run", "--json", "--", script.to_str().unwrap(), "-x"],
        &[NO_SHIM, NO_DAEMON],
    );
    assert_eq!(output.status.code(), Some(0));
    let plan: Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    assert_eq!(plan["paced"], false);
    assert_eq!(plan["arguments"][0], "-x");
    let kinds: Vec<&str> = plan["obstacles"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| finding["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["unreadable", "no-shim", "no-daemon"]);
}

#[test]
fn require_does_not_start_what_would_run_unpaced() {
    let output = run(&["--require", "--", "echo", "hello"], &[NO_SHIM, NO_DAEMON]);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(text(&output.stdout), "");
    assert!(text(&output.stderr).contains("not started because of --require"));
}

#[test]
fn wrong_usage_names_value_and_range() {
    for (arguments, part) in [
        (
            ["--class", "fast"],
            "must be latency, throughput, bandwidth or auto",
        ),
        (["--weight", "0"], "from 1 to 1048576"),
        (
            ["--tenant", "a b"],
            "must be a name of 1 to 64 bytes without spaces",
        ),
    ] {
        let output = run(&[arguments[0], arguments[1], "--", "true"], &[]);
        assert_eq!(output.status.code(), Some(2));
        assert!(
            text(&output.stderr).contains(part),
            "{}",
            text(&output.stderr)
        );
    }
}
