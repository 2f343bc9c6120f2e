//! Several policies from the command line: `--policies all`, `recommend`, `policies`, and what they refuse.
#![allow(clippy::unwrap_used)]

use crate::support::{check, refuses};
use serde_json::Value;
use std::fs;
use std::path::Path;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// A scenario of two tenants with these lines each.
fn scenario(directory: &Path, top: &str, first: &str, second: &str) -> String {
    let path = directory.join("own.toml");
    let text = format!(
        "duration = \"200us\"\nwarmup = \"50us\"\n{top}\n\
         [[tenant]]\nname = \"cache\"\nperftest = \"ib_write_lat -s 16\"\n{first}\n\
         [[tenant]]\nname = \"backup\"\nperftest = \"ib_write_bw -s 1048576 -q 4\"\n{second}\n"
    );
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

const CX5: &str = "profile = \"cx5-100g-roce\"";
const P99: &str = "slo = { p99_max = \"1600ns\" }";

/// One pair, quickly.
fn audit<'a>(out: &'a str, profile: &'a str, policies: &'a str) -> Vec<&'a str> {
    vec![
        "audit",
        "--profile",
        profile,
        "--policies",
        policies,
        "--victims",
        "lat_ib_write_16",
        "--attackers",
        "BW-1MB_ib_write_bw",
        "--seeds",
        "1",
        "--duration",
        "100us",
        "--warmup",
        "50us",
        "--report",
        out,
    ]
}

#[test]
fn an_audit_of_all_policies_leaves_out_what_the_device_lacks_and_reports_it() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("all");
    let all = audit(out.to_str().unwrap(), "t62100-40g-iwarp", "all");
    let (stdout, stderr) = check(&[&all[..], &["--json"]].concat(), 0);
    assert!(
        stderr.contains("left out sriov: t62100-40g-iwarp has no virtual function"),
        "{stderr}"
    );
    assert!(stderr.contains("left out harmonic:"), "{stderr}");
    let result = json(&stdout);
    let left: Vec<&str> = result["policies_left_out"]
        .as_array()
        .unwrap()
        .iter()
        .map(|left| left["policy"].as_str().unwrap())
        .collect();
    for policy in ["sriov", "hw-tc+sriov", "harmonic"] {
        assert!(left.contains(&policy), "{policy} is not in {left:?}");
    }
    let policies = result["policies"].as_array().unwrap();
    assert!(policies.contains(&"none".into()) && !policies.contains(&"sriov".into()));
    assert_eq!(result["summaries"][0]["columns"][0]["column"], "bandwidth");
    assert!(result["summaries"][0]["figures"]["utilisation"].is_number());
    let text = check(&[&all[..], &["--force"]].concat(), 0).0;
    assert!(
        text.starts_with("Which isolation should I buy or build?"),
        "{text}"
    );
    assert!(
        !text.contains("victim  "),
        "matrices only on request: {text}"
    );
    let matrices = check(&[&all[..], &["--force", "--matrix"]].concat(), 0).0;
    assert!(
        matrices.contains("policy justitia on t62100-40g-iwarp"),
        "{matrices}"
    );
}

#[test]
fn a_policy_that_the_device_lacks_is_refused_when_it_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("named");
    let out = out.to_str().unwrap();
    let named = |policies| audit(out, "t62100-40g-iwarp", policies);
    refuses(
        &named("none,sriov"),
        &["sriov: t62100-40g-iwarp has no virtual function support"],
    );
    refuses(
        &named("harmonic"),
        &["congestion notifications", "choose a RoCE profile"],
    );
    refuses(
        &named("justitia+lite"),
        &["both control when work requests reach the RDMA NIC"],
    );
    refuses(&named("sriov+justitia"), &["one function"]);
    refuses(
        &named("palos+plaos"),
        &["\"plaos\": unknown", "did you mean palos?"],
    );
    refuses(
        &named("plaos"),
        &["isolane: policy plaos: unknown; did you mean palos?"],
    );
    let cx5 = |policies| audit(out, "cx5-100g-roce", policies);
    refuses(&cx5("sriov+hw-tc,hw-tc+sriov"), &["twice"]);
}

#[test]
fn all_policies_are_for_commands_that_compare_every_one() {
    let directory = tempfile::tempdir().unwrap();
    let file = scenario(directory.path(), CX5, "", "");
    refuses(
        &["sim", &file, "--policies", "all"],
        &[
            "isolane: policy all: only isolane audit and isolane recommend take it; must be one of none,",
        ],
    );
}

#[test]
fn recommend_ranks_policies_and_says_what_each_cannot_protect_against() {
    let directory = tempfile::tempdir().unwrap();
    let file = scenario(
        directory.path(),
        CX5,
        P99,
        "slo = { goodput_min = \"20Gb/s\" }",
    );
    let ask = [
        "recommend",
        &file,
        "--policies",
        "none,justitia",
        "--seeds",
        "1",
    ];
    let (stdout, _) = check(&ask, 0);
    assert!(
        stdout.contains("What each policy cannot protect against"),
        "{stdout}"
    );
    let found = json(&check(&[&ask[..], &["--json"]].concat(), 0).0);
    assert_eq!(found["policies"].as_array().unwrap().len(), 2);
    let of = |name: &str| {
        let policies = found["policies"].as_array().unwrap();
        policies
            .iter()
            .find(|one| one["policy"] == name)
            .unwrap()
            .clone()
    };
    let miss = &of("none")["misses"][0];
    assert_eq!(
        miss["tenant"], "cache",
        "a small message waits behind large ones"
    );
    assert_eq!(miss["attackers"][0], "backup");
    let out = directory.path().join("out");
    let out = out.to_str().unwrap();
    let (_, stderr) = check(&[&ask[..], &["--report", out]].concat(), 0);
    assert!(stderr.contains("report.html"), "{stderr}");
    let html = fs::read_to_string(Path::new(out).join("report.html")).unwrap();
    assert!(html.contains("What each policy cannot protect against"));
}

#[test]
fn recommend_can_fail_when_the_best_policy_misses() {
    let directory = tempfile::tempdir().unwrap();
    let file = scenario(directory.path(), CX5, "slo = { p99_max = \"100ns\" }", "");
    let ask = ["recommend", &file, "--policies", "none", "--seeds", "1"];
    let (stdout, _) = check(&ask, 0);
    assert!(stdout.contains("even when it is alone"), "{stdout}");
    check(&[&ask[..], &["--fail-on-violation"]].concat(), 1);
}

#[test]
fn recommend_refuses_what_has_no_answer() {
    let directory = tempfile::tempdir().unwrap();
    let ask = |top: &str, first: &str, second: &str, parts: &[&str]| {
        let file = scenario(directory.path(), top, first, second);
        refuses(&["recommend", &file, "--policies", "none"], parts);
    };
    let much = "slo = { goodput_min = \"60Gb/s\" }";
    ask(
        CX5,
        much,
        much,
        &[
            "cache 60.00Gb/s + backup 60.00Gb/s = 120.00Gb/s",
            "of payload",
        ],
    );
    let promised = "guarantee = { rate = \"60Gb/s\" }";
    ask(
        CX5,
        promised,
        promised,
        &["guaranteed rates add up", "120.00Gb/s"],
    );
    ask(CX5, "weight = 0", "", &["weight = 0: must be 1 to 1000000"]);
    let file = scenario(directory.path(), CX5, P99, "");
    refuses(
        &["recommend", &file, "--policies", "plaos"],
        &["did you mean palos?"],
    );
    let file = scenario(directory.path(), "profile = \"t62100-40g-iwarp\"", P99, "");
    refuses(
        &["recommend", &file, "--policies", "sriov"],
        &["virtual function"],
    );
}

#[test]
fn policies_are_listed_with_what_they_control_and_need() {
    let (list, _) = check(&["catalog", "policies"], 0);
    for part in [
        "palos",
        "the RDMA NIC's transmit scheduler",
        "a virtual function per tenant",
        "--policies all compares: none,",
    ] {
        assert!(list.contains(part), "{part}\n{list}");
    }
    let (one, _) = check(&["catalog", "policies", "hw-tc+justitia"], 0);
    assert!(
        one.contains("target_us") && one.contains("rate_limit"),
        "{one}"
    );
    assert!(one.contains("honours tenants' weights"), "{one}");
    let value = json(&check(&["catalog", "policies", "--json"], 0).0);
    assert_eq!(value["parts"][0]["name"], "none");
    assert_eq!(value["all"][0], "none");
    refuses(
        &["catalog", "policies", "justicia"],
        &["did you mean justitia?"],
    );
}
