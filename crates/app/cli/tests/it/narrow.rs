//! What a terminal of 60 columns shows: no line is wider, except commands to copy.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use isolane_common_linux::skip::skip;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

const WIDTH: usize = 60;

/// The lines that the binary with these arguments shows on a terminal of [`WIDTH`] columns; none without `script`.
fn shown(arguments: &[&str]) -> Option<Vec<String>> {
    let directory = tempfile::tempdir().unwrap();
    // `script` runs a shell, whose words must not be quoted.
    let program = directory.path().join("isolane");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_isolane"), &program).unwrap();
    let line = format!(
        "stty columns {WIDTH} && {} {} 2>/dev/null",
        program.display(),
        arguments.join(" ")
    );
    let output = Command::new("script")
        .args(["--quiet", "--command", &line, "/dev/null"])
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .current_dir(directory.path())
        .output();
    let Ok(output) = output else {
        skip("script (util-linux) is not installed");
        return None;
    };
    let text = String::from_utf8(output.stdout).unwrap();
    Some(
        text.lines()
            .map(|line| line.trim_end().to_owned())
            .collect(),
    )
}

fn check(arguments: &[&str], part: &str) {
    let Some(lines) = shown(arguments) else {
        return;
    };
    let all = lines.join("\n");
    assert!(all.contains(part), "{part:?} is not in {all}");
    for line in &lines {
        let is_command = line.contains(" && ") || line.contains("   # ");
        assert!(
            is_command || line.chars().count() <= WIDTH,
            "{line:?} in {all}"
        );
    }
}

#[test]
fn a_pipe_is_as_wide_as_columns_says() {
    let lines = |columns: Option<&str>| {
        let words = ["net", "delay", "--weights", "8:4"];
        let mut command = super::support::command(&words);
        command.envs(columns.map(|columns| ("COLUMNS", columns)));
        let (text, _) = super::support::ended(&command.output().unwrap(), 0);
        text.lines().map(|line| line.chars().count()).max().unwrap()
    };
    let whole = lines(None);
    assert!(whole > WIDTH, "{whole}");
    assert!(lines(Some("60")) <= WIDTH);
    for unset in ["", "0", "wide"] {
        assert_eq!(lines(Some(unset)), whole, "{unset:?}");
    }
}

#[test]
fn doctors_are_as_narrow_as_the_terminal() {
    check(&["rdma", "doctor"], " ok, ");
    check(&["mem", "doctor"], "What can be measured:");
}

#[test]
fn lists_and_sentences_are_as_narrow_as_the_terminal() {
    check(
        &["net", "delay", "--weights", "8:4"],
        "is admitted at least",
    );
    check(&["catalog", "workloads"], "Cache-QPC_ib_write_bw");
    check(&["catalog", "profiles", "cx5-100g-roce"], "Gb/s");
    check(&["catalog", "policies", "justitia"], "target_us");
    check(&["claims", "--only", "collie/*", "--why"], "misses");
}

#[test]
fn studies_are_as_narrow_as_the_terminal() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let root = fs::canonicalize(root).unwrap();
    let file = |path: &str| root.join(path).to_str().unwrap().to_owned();
    check(
        &[
            "explain",
            "lat_ib_write_16",
            "BW-1MB_ib_write_bw",
            "--duration",
            "300us",
        ],
        "Chain of causes",
    );
    let mixed = file("scenarios/recommend/mixed-tenants.toml");
    check(
        &[
            "recommend",
            &mixed,
            "--seeds",
            "1",
            "--policies",
            "none,justitia",
        ],
        "What each policy cannot protect against",
    );
    check(
        &["sim", &file("scenarios/examples/cx5-mixed.toml")],
        "Notes",
    );
    check(
        &[
            "sim",
            &file("scenarios/aequitas/slo-compliance.toml"),
            "--duration",
            "1ms",
        ],
        "Packets",
    );
    check(&["--help"], "Exit codes:");
}
