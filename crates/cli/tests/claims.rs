//! `isolane claims` as a user calls it.
#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

fn claims(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_isolane"))
        .arg("claims")
        .args(arguments)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn json_is_a_list_of_what_scripts_need_and_the_same_every_time() {
    let arguments = ["--only", "network-bytes-29,packet-round-robin", "--json"];
    let (first, second) = (claims(&arguments), claims(&arguments));
    assert!(first.status.success(), "{}", text(&first.stderr));
    assert_eq!(first.stdout, second.stdout);
    let list: serde_json::Value = serde_json::from_slice(&first.stdout).unwrap();
    let list = list.as_array().unwrap();
    assert_eq!(list.len(), 2);
    for key in [
        "id",
        "system",
        "kind",
        "published",
        "ours",
        "tolerance",
        "within",
        "reason",
    ] {
        assert!(list.iter().all(|claim| claim.get(key).is_some()), "{key}");
    }
    assert_eq!(list[0]["id"], "network-bytes-29");
    assert_eq!(list[0]["ours"], 127.0);
    assert_eq!(list[0]["within"], true);
}

#[test]
fn markdown_goes_to_a_file_or_to_stdout() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("CLAIMS.md");
    let file = file.to_str().unwrap();
    let written = claims(&["--only", "pcie-bytes-29", "--markdown", file]);
    assert!(written.status.success(), "{}", text(&written.stderr));
    let printed = claims(&["--only", "pcie-bytes-29", "--markdown"]);
    assert_eq!(
        std::fs::read_to_string(file).unwrap(),
        text(&printed.stdout)
    );
    assert!(text(&printed.stdout).starts_with("# Claims\n"));
}

#[test]
fn a_selection_of_nothing_is_a_usage_error() {
    let output = claims(&["--only", "packet-round-robbin"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("did you mean \"packet-round-robin\""));
    let output = claims(&["--json", "--markdown"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn the_list_names_every_claim_without_running_any() {
    let output = claims(&["--list"]);
    assert!(output.status.success());
    assert!(text(&output.stdout).contains("justitia/fig3-ib-median  "));
    assert!(text(&output.stdout).lines().count() > 100);
}
