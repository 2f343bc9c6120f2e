//! `--target` and `isolane rdma agent` as a user without RDMA meets them. Devices are tested in the lab.
#![allow(clippy::unwrap_used)]

use crate::support::{self, ended};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

const SCENARIO: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../../scenarios/justitia/latency-vs-bulk.toml"
);

fn command(arguments: &[&str]) -> Command {
    let mut command = support::command(arguments);
    command.env_remove("ISOLANE_SSH");
    command
}

/// Demands `code` and one line on stderr with every one of `parts`.
fn refuses(arguments: &[&str], code: i32, parts: &[&str]) {
    let (stdout, stderr) = ended(&command(arguments).output().unwrap(), code);
    assert_eq!(stdout, "");
    let last = stderr.lines().last().unwrap_or_default();
    support::has_all(last, parts);
}

#[test]
fn malformed_targets_are_bad_input() {
    for (target, part) in [
        ("r0,r1", "verbs:"),
        ("verbs:r0", "one device"),
        ("verbs:r0,-oProxyCommand=x:r1", "host"),
        ("verbs:nodea:18:r0,nodeb:r1", "--identity"),
    ] {
        let code = if part == "--identity" { 3 } else { 2 };
        refuses(&["sim", SCENARIO, "--target", target], code, &[part]);
    }
    refuses(
        &["sim", SCENARIO, "--identity", "x"],
        2,
        &["--target verbs"],
    );
}

#[test]
fn a_machine_without_the_device_is_reported_in_one_line() {
    let devices = std::fs::read_dir("/sys/class/infiniband").map(Iterator::count);
    let (code, part) = match devices.unwrap_or(0) {
        0 => (3, "isolane rdma doctor"),
        _ => (2, "it has"),
    };
    let target = "verbs:isolane-none0,isolane-none1";
    refuses(&["sim", SCENARIO, "--target", target], code, &[part]);
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("audit");
    let arguments = [
        "audit",
        "--quick",
        "--target",
        target,
        "--report",
        out.to_str().unwrap(),
    ];
    refuses(&arguments, code, &[part]);
}

#[test]
fn devices_that_cannot_be_identified_are_bad_input() {
    let identify = |profile: &str, target: &str, part: &str| {
        let arguments = ["rdma", "calibrate", profile, "--identify", target];
        refuses(&arguments, 2, &["--identify", part]);
    };
    identify("soft-roce", "r0,r1", "verbs:");
    identify("soft-roce", "verbs:r0,r0", "need 2 hosts");
    identify("cx5-100g-roce", "verbs:r0,r1", "soft-roce");
}

#[test]
fn policies_of_other_hardware_are_refused_before_anything_starts() {
    let target = ["--target", "verbs:isolane-none0,isolane-none1"];
    for (policy, part) in [("hw-tc", "doctor"), ("palos", "--target sim")] {
        let arguments = [&["sim", SCENARIO, "--policy", policy][..], &target].concat();
        refuses(&arguments, 2, &[policy, part]);
    }
}

#[test]
fn ssh_is_the_program_that_the_environment_names() {
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("ssh");
    std::fs::write(
        &script,
        "#!/bin/sh\necho \"called with $*\" >&2\nexit 255\n",
    )
    .unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let arguments = ["sim", SCENARIO, "--target", "verbs:nodea:r0,nodea:r1"];
    let output = command(&arguments)
        .env("ISOLANE_SSH", &script)
        .output()
        .unwrap();
    let (_, stderr) = ended(&output, 3);
    let call = "called with -T -o BatchMode=yes -- nodea isolane rdma agent --stdio";
    assert!(stderr.contains(call), "{stderr}");
}

#[test]
fn an_agent_greets_and_ends_with_its_input() {
    let mut child = command(&["rdma", "agent", "--stdio"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let hello = "{\"kind\":\"hello\",\"version\":3,\"program\":\"test\"}\n";
    child
        .stdin
        .take()
        .unwrap()
        .write_all(hello.as_bytes())
        .unwrap();
    let (stdout, stderr) = ended(&child.wait_with_output().unwrap(), 0);
    assert!(stdout.contains("\"kind\":\"welcome\""), "{stdout}{stderr}");
    let (_, stderr) = ended(&command(&["rdma", "agent"]).output().unwrap(), 2);
    assert!(stderr.contains("--stdio"), "{stderr}");
}

#[test]
fn an_authority_is_made_once_and_certificates_are_private() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("certificates");
    let place = place.to_str().unwrap();
    let init = [
        "rdma",
        "agent",
        "init",
        place,
        "controller",
        "nodea",
        "--json",
    ];
    let (stdout, _) = ended(&command(&init).output().unwrap(), 0);
    let made: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(made["directories"].as_array().unwrap().len(), 2);
    let key = Path::new(place).join("nodea/key.pem");
    let mode = std::fs::metadata(&key).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    refuses(&["rdma", "agent", "init", place, "nodea"], 3, &["key.pem"]);
    refuses(&["rdma", "agent", "init", place, "../x"], 2, &["host name"]);
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let identity = Path::new(place).join("nodea");
    let listen = [
        "rdma",
        "agent",
        "--listen",
        "127.0.0.1:0",
        "--identity",
        identity.to_str().unwrap(),
    ];
    refuses(&listen, 3, &["chmod 600"]);
}
