//! `isolane rdma doctor` on any machine: the report states whether there are devices, and the exit status follows it.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

use isolane_common_linux::skip::does_not_apply;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn doctor(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_isolane"))
        .args(["rdma", "doctor"])
        .args(arguments)
        .output()
        .unwrap()
}

fn has_devices() -> bool {
    let folder = Path::new("/sys/class/infiniband").read_dir();
    folder.is_ok_and(|mut entries| entries.next().is_some())
}

#[test]
fn the_exit_code_says_what_the_report_says() {
    let output = doctor(&["--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["version"], 1);
    assert_eq!(report["rdma"], has_devices());
    let checks = report["checks"].as_array().unwrap();
    let fails = checks.iter().any(|check| check["verdict"] == "fail");
    let expected = match (has_devices(), fails) {
        (false, _) => 3,
        (true, true) => 1,
        (true, false) => 0,
    };
    assert_eq!(output.status.code(), Some(expected));
}

#[test]
fn without_rdma_the_way_to_a_software_device_is_shown() {
    if has_devices() {
        does_not_apply("this machine has RDMA devices");
        return;
    }
    let output = doctor(&[]);
    assert_eq!(output.status.code(), Some(3));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("rdma link add rxe0 type rxe netdev"),
        "{text}"
    );
}

/// Where there is no device at all, that is what is wrong with the machine, and not the name.
#[test]
fn an_unknown_device_is_bad_input_where_there_are_others() {
    let output = doctor(&["--device", "none9"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("none9"), "{said}");
    let expected = if has_devices() { 2 } else { 3 };
    assert_eq!(output.status.code(), Some(expected), "{said}");
}
