//! `isolane sim` on tiered memory from the command line: reports, refused applications, and what it refuses itself.
#![allow(clippy::unwrap_used)]

use crate::support::check;
use serde_json::Value;
use std::fs;

const CONTENTION: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../../scenarios/mercury/contention.toml"
);

fn sim(file: &str, more: &[&str], code: i32) -> (String, String) {
    check(&[&["sim", file], more].concat(), code)
}

#[test]
fn a_report_has_points_and_the_output_is_as_without_it() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().to_str().unwrap();
    let plain = ["--policies", "tpp,mercury", "--json"];
    let (without, _) = sim(CONTENTION, &plain, 0);
    let (with, said) = sim(CONTENTION, &[&plain[..], &["--report", out]].concat(), 0);
    assert_eq!(with, without);
    assert!(said.contains("report.html"), "{said}");
    let page = fs::read_to_string(directory.path().join("report.html")).unwrap();
    assert!(page.contains("Why limits changed under mercury"));
    let runs = fs::read_to_string(directory.path().join("result.json")).unwrap();
    let runs: Value = serde_json::from_str(&runs).unwrap();
    assert!(runs[1]["series"].as_array().unwrap().len() > 200);
    assert!(!runs[1]["changes"].as_array().unwrap().is_empty());
    for app in runs[1]["apps"].as_array().unwrap() {
        let names = [
            "latency_ns",
            "bandwidth_gb_per_s",
            "throughput",
            "slo_met_share",
            "local_bytes",
        ];
        assert!(names.iter().all(|name| app[name].is_number()), "{app}");
    }
}

#[test]
fn an_application_without_an_objective_has_met_none() {
    let saturated = CONTENTION.replace("mercury/contention", "tiering/saturated");
    let (shown, _) = sim(&saturated, &["--policy", "tpp", "--duration", "1s"], 0);
    let row = shown.lines().find(|line| line.contains(" tpp "));
    let words: Vec<&str> = row.unwrap().split_whitespace().collect();
    // Name, policy, latency, GB/s, two words of throughput, objective, met.
    assert_eq!(&words[6..8], ["-", "-"], "{shown}");
}

#[test]
fn a_refused_application_gets_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("late.toml");
    let text = fs::read_to_string(CONTENTION).unwrap();
    let text = text.replace("priority = 2", "priority = 2\nstart = \"10s\"");
    fs::write(&path, text.replace("200ns", "130ns")).unwrap();
    let file = path.to_str().unwrap();
    let (shown, _) = sim(file, &["--policy", "fcfs"], 0);
    assert!(
        shown.contains("redis: rejected: 10.1 GB of near memory short"),
        "{shown}"
    );
    let (json, _) = sim(file, &["--policy", "fcfs", "--json"], 0);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["apps"][0]["verdict"], "refused");
    assert!(json["apps"][0]["verdict_reason"].is_string());
}

#[test]
fn what_a_policy_ignores_is_remarked_on_and_wrong_options_are_refused() {
    let (_, said) = sim(CONTENTION, &["--policy", "static"], 0);
    assert!(said.contains("nothing differs from tpp"), "{said}");
    sim(CONTENTION, &["--policy", "weighted"], 0);
    let wrong: [(&[&str], &str); 4] = [
        (&["--policy", "justitia"], "--policy justitia: "),
        (&["--policies", "tpp,mercry"], "did you mean mercury?"),
        (&["--duration", "5ms"], "steps of 100ms"),
        (&["--profile", "cx5-100g-roce"], "--profile: "),
    ];
    for (options, part) in wrong {
        let (_, said) = sim(CONTENTION, options, 2);
        assert!(said.contains(part), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    sim(CONTENTION, &["--duration", "2400s"], 0);
}

/// Common mistakes in a scenario: each error has file, line, value and what is allowed.
#[test]
fn mistakes_in_a_scenario_are_reported_with_their_place() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("wrong.toml");
    let text = fs::read_to_string(CONTENTION).unwrap();
    let wrong = [
        (
            "slo_latency = \"160ns\"",
            "slo_latency = \"160\"",
            "has no unit",
        ),
        (
            "slo_latency = \"160ns\"",
            "slo_bandwidth = \"40Gb/s\"",
            "bits",
        ),
        (
            "working_set = \"20GB\"",
            "working_set = \"20\"",
            "has no unit",
        ),
        ("priority = 2", "priority = 1", "priority"),
        ("priority = 2", "prioritty = 2", "did you mean priority?"),
        (
            "kind = \"redis\"",
            "kind = \"reddis\"",
            "did you mean redis?",
        ),
        (
            "name = \"tpp\"",
            "name = \"mercry\"",
            "did you mean mercury?",
        ),
        ("cores = 16", "cores = 160", "cores"),
    ];
    for (right, mistake, part) in wrong {
        assert!(text.contains(right), "{right}");
        fs::write(&path, text.replacen(right, mistake, 1)).unwrap();
        let (_, said) = sim(path.to_str().unwrap(), &[], 2);
        assert!(said.contains(part), "{mistake}: {said}");
        assert!(said.contains("wrong.toml:"), "{mistake}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn policies_and_machines_of_tiered_memory_are_shown() {
    let (shown, _) = check(&["catalog", "policies", "mercury"], 0);
    assert!(
        shown.starts_with("mercury: limits by objectives"),
        "{shown}"
    );
    let (all, _) = check(&["catalog", "policies", "--memory", "--json"], 0);
    let all: Value = serde_json::from_str(&all).unwrap();
    assert_eq!(all.as_array().unwrap().len(), 8);
    let (shown, _) = check(&["catalog", "policies", "colloid"], 0);
    assert!(shown.starts_with("colloid: Colloid (SOSP 2024)"), "{shown}");
    let (shown, _) = check(&["catalog", "profiles", "xeon-6330"], 0);
    assert!(shown.contains("cpu.request_slots"), "{shown}");
    let (list, _) = check(&["catalog", "profiles"], 0);
    assert!(list.contains("genoa-cxl"), "{list}");
}
