//! `isolane rpc lab` from the command line: what it refuses, and that it leaves nothing behind.
//!
//! The lab itself takes most of a minute and root; `.ci/languages lab` runs it.
#![allow(clippy::unwrap_used)]

use isolane_common_linux::namespaces;
use isolane_common_linux::skip::skip;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

fn lab(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_isolane"))
        .args(["rpc", "lab"])
        .args(arguments)
        .output()
        .unwrap()
}

fn check(arguments: &str, code: i32, part: &str) {
    let words: Vec<&str> = arguments.split(' ').collect();
    let output = lab(&words);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments} {stderr}");
    assert!(stderr.contains(part), "{part:?} is not in {stderr}");
    assert_eq!(output.stdout, b"");
}

#[test]
fn what_cannot_be_run_is_refused_with_the_remedy() {
    check("--percentile 100", 2, "--percentile 100");
    check("--line-mbit 1", 2, "--line-mbit 1 ");
    check(
        "--line-mbit -5",
        2,
        "--line-mbit -5: must be a whole number",
    );
    check("--seed -1", 2, "--seed -1: must be a whole number");
    check("--clients cobol", 2, "--clients cobol: must be one of rust");
}

#[test]
fn a_machine_that_cannot_gets_a_remedy() {
    let root = Command::new("id").arg("-u").output().unwrap();
    if root.stdout != b"0\n" {
        return check("--quick", 3, "run it with sudo");
    }
    check("--quick --clients rust --report /proc/lab", 3, "/proc/lab");
    check(
        "--clients go --go /nonexistent/lab",
        3,
        "go build ./cmd/isolane-rpc-lab",
    );
    check(
        "--clients cpp --cpp /nonexistent/lab",
        3,
        ".ci/languages cpp",
    );
    check(
        "--clients java --java /nonexistent/lab.jar",
        3,
        ".ci/languages java",
    );
    check(
        "--clients python --python /nonexistent/python",
        3,
        "--python",
    );
}

/// A worker whose controller is gone ends, instead of calling for ever.
#[test]
fn a_worker_without_a_job_ends_with_the_reason() {
    for role in ["client", "server"] {
        let mut worker = Command::new(env!("CARGO_BIN_EXE_isolane"))
            .args(["rpc", "lab-worker", role])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        worker.stdin.take().unwrap().write_all(b"no job\n").unwrap();
        let output = worker.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{stderr}");
        assert!(stderr.contains("got no document"), "{stderr}");
    }
}

#[test]
fn ctrl_c_of_a_terminal_reaches_only_the_lab() {
    if !namespaces::is_root() {
        skip("needs root");
        return;
    }
    // A terminal sends the signal to the whole process group.
    let mut lab = Command::new(env!("CARGO_BIN_EXE_isolane"))
        .args(["rpc", "lab", "--quick", "--clients", "rust"])
        .process_group(0)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(lab.stderr.take().unwrap()).lines();
    let line = said.find(|line| line.as_ref().unwrap().starts_with("run 1 of 3"));
    assert!(line.is_some(), "the lab ended before its first run");
    while !has_worker(lab.id()) {
        std::thread::yield_now();
    }
    let group = rustix::process::Pid::from_child(&lab);
    rustix::process::kill_process_group(group, rustix::process::Signal::INT).unwrap();
    let rest: Vec<String> = said.map(Result::unwrap).collect();
    assert_eq!(lab.wait().unwrap().code(), Some(130), "{rest:?}");
}

/// Whether a child of the lab is a client or a server. Panics if the lab has ended.
fn has_worker(lab: u32) -> bool {
    let children = std::fs::read_to_string(format!("/proc/{lab}/task/{lab}/children")).unwrap();
    let mut lines = children
        .split_whitespace()
        .filter_map(|child| std::fs::read_to_string(format!("/proc/{child}/cmdline")).ok());
    lines.any(|line| line.contains("lab-worker"))
}
