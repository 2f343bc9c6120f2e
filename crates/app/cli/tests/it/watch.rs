//! `isolane rdma watch` on a copy of a machine's `/sys`, and on this machine.
#![allow(clippy::unwrap_used)]

use crate::support::text;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_isolane"));
    command.args(["rdma", "watch"]).args(arguments);
    command
}

fn watch(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

/// A Broadcom card at rest, whose port has a rate of 25 Gb/s.
fn tree() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let device = directory.path().join("sys/class/infiniband/bnxt_re0");
    let port = device.join("ports/1");
    let files = [
        ("state", "4: ACTIVE"),
        ("rate", "25 Gb/sec (1X EDR)"),
        ("hw_counters/tx_bytes", "4000"),
        ("hw_counters/rx_bytes", "9000"),
        ("hw_counters/rx_roce_discards", "3"),
    ];
    for (name, content) in files {
        let path = port.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    fs::create_dir_all(device.join("device")).unwrap();
    std::os::unix::fs::symlink("../../bnxt_en", device.join("device/driver")).unwrap();
    directory
}

fn at(root: &Path) -> Vec<&str> {
    vec!["--interval", "100ms", "--root", root.to_str().unwrap()]
}

#[test]
fn a_copied_tree_shows_ports_and_limits_without_users() {
    let tree = tree();
    let output = watch(&[at(tree.path()), vec!["--count", "1"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    let (_, after_rates) = shown.split_once('\n').unwrap();
    let want = "
Ports
  port        driver   state    Gb/s  sent Gb/s  received Gb/s  sent packets/s  received packets/s
  bnxt_re0/1  bnxt_re  active  25.00          0              0               -                   -

Limits, the nearest first
  of          limit    used   most  unit  used %    source
  bnxt_re0/1  send        0  25.00  Gb/s     0.0    rate of the port
  bnxt_re0/1  receive     0  25.00  Gb/s     0.0    rate of the port

Signs of congestion, loss or a slow host
  none

Users
  unknown: a copy of /sys has no list of RDMA objects
";
    assert_eq!(after_rates, want);
}

#[test]
fn anomalies_without_users_are_wrong_usage() {
    for other in [vec!["--no-users"], vec!["--root", "/"]] {
        let output = watch(&[vec!["--anomalies", "known.toml"], other.clone()].concat());
        assert_eq!(output.status.code(), Some(2), "{other:?}");
        let error = text(&output.stderr);
        assert!(error.contains("do not go together"), "{error}");
    }
}

#[test]
fn json_has_one_line_for_each_view() {
    let tree = tree();
    let output = watch(&[at(tree.path()), vec!["--count", "2", "--json"]].concat());
    let lines = text(&output.stdout);
    let views: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(views.len(), 2);
    for view in views {
        assert_eq!(
            (&view["version"], &view["ports"][0]["driver"]),
            (&1.into(), &"bnxt_re".into())
        );
        assert_eq!(view["limits"][0]["used_percent"], 0.0);
        assert!(view["seconds"].as_f64().unwrap() >= 0.1);
    }
}

/// Starts the command, waits for its first view, interrupts it, and returns its exit code.
fn interrupted(more: &[&str]) -> Option<i32> {
    let tree = tree();
    let mut child = command(&[at(tree.path()), more.to_vec()].concat())
        .arg("--json")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    reader.read_line(&mut line).unwrap();
    let id = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    child.wait().unwrap().code()
}

#[test]
fn interrupting_is_the_end_of_a_watch_without_count_and_breaks_off_one_with_it() {
    assert_eq!(interrupted(&[]), Some(0));
    assert_eq!(interrupted(&["--count", "100000"]), Some(130));
}

#[test]
fn without_a_device_one_line_reports_it_and_the_exit_code_is_3() {
    let empty = tempfile::tempdir().unwrap();
    let output = watch(&[at(empty.path()), vec!["--count", "1"]].concat());
    let said = text(&output.stderr);
    assert_eq!(
        (output.status.code(), said.lines().count()),
        (Some(3), 1),
        "{said}"
    );
    assert!(
        said.contains("isolane rdma doctor says how to get one"),
        "{said}"
    );
}

#[test]
fn wrong_arguments_are_bad_input() {
    let tree = tree();
    let cases: [(&[&str], &str); 4] = [
        (&["--device", "mlx5_0"], "bnxt_re0"),
        (&["--count", "0"], "from 1 to 1000000000"),
        (&["--profile", "cx5-100g-roc"], "cx5-100g-roce"),
        (&["--root", "/nonexistent"], "must be a directory"),
    ];
    for (arguments, said) in cases {
        let root = match arguments[0] {
            "--root" => Vec::new(),
            _ => at(tree.path()),
        };
        let output = watch(&[root, arguments.to_vec()].concat());
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(said), "{arguments:?}: {stderr}");
    }
}

#[test]
fn a_profile_adds_its_message_rate_as_a_limit() {
    let tree = tree();
    let counters = tree
        .path()
        .join("sys/class/infiniband/bnxt_re0/ports/1/hw_counters");
    fs::write(counters.join("tx_pkts"), "5").unwrap();
    let more = vec!["--count", "1", "--json", "--profile", "cx5-100g-roce"];
    let output = watch(&[at(tree.path()), more].concat());
    let view: Value = serde_json::from_slice(&output.stdout).unwrap();
    let limits = view["limits"].as_array().unwrap();
    let found = limits
        .iter()
        .find(|limit| limit["what"] == "messages, at most")
        .unwrap();
    assert_eq!(
        (&found["source"], &found["limit"]),
        (&"profile cx5-100g-roce".into(), &90.9e6.into())
    );
}
