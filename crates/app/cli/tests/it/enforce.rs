//! `isolane rdma enforce` where there is no RDMA: files are checked, mistakes say what is wrong, and the machine is named.

use isolane_common_linux::skip::does_not_apply;
use std::path::Path;
use std::process::{Command, Output};

const GOOD: &str =
    "[[tenant]]\nname = \"web\"\nuser = 7\nguarantee = { control_requests_per_s = 9 }\n";

fn isolane(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_isolane"))
        .args(arguments)
        .current_dir(directory)
        .output()
        .expect("the program of this package runs")
}

/// Exit code and standard error of `isolane rdma enforce` with a file of this text.
fn enforce(text: &str, more: &[&str]) -> (Option<i32>, String) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("p.toml");
    std::fs::write(file, text).expect("a file in a directory of ours");
    let arguments: Vec<&str> = ["rdma", "enforce", "p.toml"]
        .iter()
        .chain(more)
        .copied()
        .collect();
    let output = isolane(directory.path(), &arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

#[test]
fn a_file_is_checked_without_a_device() {
    assert_eq!(enforce(GOOD, &["--check"]), (Some(0), String::new()));
}

#[test]
fn mistakes_of_the_file_name_line_and_remedy() {
    let (code, said) = enforce(&GOOD.replace('9', "0"), &[]);
    assert_eq!(code, Some(2));
    assert!(
        said.contains("p.toml:4: tenant \"web\": control_requests_per_s = 0"),
        "{said}"
    );
    let (code, said) = enforce(GOOD, &["--tenant", "wob"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("did you mean web?"), "{said}");
    let (code, said) = enforce(GOOD, &["--check", "--once", "--duration", "1s"]);
    assert_eq!(code, Some(2), "{said}");
}

#[test]
fn an_unknown_device_or_none_is_said_before_anything_is_done() {
    if Path::new("/sys/class/infiniband").exists() {
        does_not_apply("this machine has RDMA");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("sockets");
    let (code, said) = enforce(GOOD, &["--once", "--directory", place.to_str().unwrap()]);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("RDMA"), "{said}");
    assert!(!place.exists());
}

#[test]
fn a_program_is_not_started_without_an_enforcer() {
    let directory = tempfile::tempdir().unwrap();
    let output = isolane(
        directory.path(),
        &[
            "rdma",
            "run",
            "--enforce",
            "--enforce-directory",
            "nowhere",
            "--",
            "true",
        ],
    );
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains("no enforcer at nowhere/clients/enforce.sock"),
        "{said}"
    );
}

#[test]
fn the_seccomp_profile_compares_the_low_half_of_the_command() {
    let directory = tempfile::tempdir().unwrap();
    let output = isolane(directory.path(), &["rdma", "enforce", "--print-seccomp"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("SCMP_CMP_MASKED_EQ") && text.contains("/run/isolane/clients/enforce.sock")
    );
}
