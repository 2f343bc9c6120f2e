//! `isolane claims` as a user calls it.
#![allow(clippy::unwrap_used)]

use crate::support::text;
use std::process::{Command, Output};

fn claims(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_isolane"))
        .arg("claims")
        .args(arguments)
        .output()
        .unwrap()
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
fn why_shows_misses_alone_with_what_their_checks_measured() {
    let only = "bus-shares-of-example,pcie-bytes-29";
    let shown = text(&claims(&["--only", only, "--why"]).stdout);
    assert!(
        shown.contains("; with the change 1.333x: confirmed\n"),
        "{shown}"
    );
    assert!(
        shown.ends_with("1 miss: 1 confirmed, 0 refuted, 0 of unknown cause\n"),
        "{shown}"
    );
    let json = claims(&["--only", only, "--why", "--json", "--fail-on-miss"]);
    assert!(json.status.success(), "no reason is refuted");
    let list: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(list.as_array().unwrap().len(), 1, "the other claim holds");
    assert_eq!(list[0]["confirmed"], true);
    assert_eq!(list[0]["within"], false);
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
fn a_figure_selects_its_claims() {
    let output = claims(&["--only", "justitia/*", "--figure", "5", "--list"]);
    assert!(output.status.success());
    let listed = text(&output.stdout);
    let ids: Vec<&str> = listed
        .lines()
        .filter_map(|line| line.split("  ").next())
        .collect();
    assert_eq!(
        ids,
        [
            "justitia/fig5-ib-unfair-sizes",
            "justitia/fig5-iwarp-unfair-sizes",
            "justitia/fig5-roce-unfair-sizes"
        ]
    );
    let output = claims(&["--only", "collie/*", "--table", "9"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("these tables: 3.2"));
}

#[test]
fn the_list_names_every_claim_without_running_any() {
    let output = claims(&["--list"]);
    assert!(output.status.success());
    assert!(text(&output.stdout).contains("justitia/fig3-ib-median  "));
    assert!(text(&output.stdout).lines().count() > 100);
}

/// A directory as `lab/run` leaves it: one proof with two of the quantities that claims name.
fn lab(folder: &std::path::Path) -> String {
    let results = r#"{"mode": "full", "proofs": [{"name": "latency", "verdict": "passed", "reason": "", "seconds": 9.0, "lines": [
        {"quantity": "alone_p99", "value": "2000", "unit": "us", "expectation": "-", "verdict": "measured"},
        {"quantity": "p99_next_to_1_none", "value": "8800", "unit": "us", "expectation": "-", "verdict": "measured"}]}]}"#;
    std::fs::write(folder.join("results.json"), results).unwrap();
    let log = "[    0.000000] Linux version 6.1.0-9-amd64 (gcc)\n[    0.3] rcu: restricting CPUs to nr_cpu_ids=2.\n";
    std::fs::write(folder.join("latency.kernel.log"), log).unwrap();
    folder.to_str().unwrap().to_owned()
}

#[test]
fn claims_on_real_devices_are_held_against_what_the_lab_measured() {
    let folder = tempfile::tempdir().unwrap();
    let directory = lab(folder.path());
    let output = claims(&["--lab", &directory, "--only", "lab-tail-harm-rxe", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let list: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(list.as_array().unwrap().len(), 1);
    assert_eq!(list[0]["device"], "Soft-RoCE (rdma_rxe)");
    assert_eq!(list[0]["ours"], 4.4);
    assert_eq!(list[0]["within"], true);
    // What was not measured is a miss with the remedy, not a pass.
    let output = claims(&["--lab", &directory, "--fail-on-miss"]);
    assert_eq!(output.status.code(), Some(1));
    let table = text(&output.stdout);
    assert!(
        table.contains("`lab/run --only shares` measures it"),
        "{table}"
    );
    assert!(
        table.contains("the proof measured no p99_next_to_2_none"),
        "{table}"
    );
    let page = text(&claims(&["--lab", &directory, "--markdown"]).stdout);
    assert!(
        page.contains("| latency | full | Linux 6.1.0-9-amd64, 2 emulated processors |"),
        "{page}"
    );
}

#[test]
fn wrong_directories_of_the_lab_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let directory = lab(folder.path());
    for (arguments, said) in [
        (
            vec!["--lab", "/nowhere"],
            "--lab /nowhere: there is no results.json",
        ),
        (
            vec!["--lab", &directory, "--lab", &directory],
            "it has the proof \"latency\" once more",
        ),
        (
            vec!["--lab", &directory, "--only", "fig3-ib-median"],
            "none of these claims is about a real device",
        ),
    ] {
        let output = claims(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let stderr = text(&output.stderr);
        assert!(stderr.contains(said), "{arguments:?}: {stderr}");
    }
    std::fs::write(folder.path().join("results.json"), "{").unwrap();
    let output = claims(&["--lab", &directory]);
    assert!(text(&output.stderr).contains("no results of lab/run"));
}
