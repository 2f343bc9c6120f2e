//! Networks as a user meets them: `isolane sim`, `isolane sweep`, traces, pages, messages.
#![allow(clippy::unwrap_used)]

use crate::support::{check, refuses};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Four hosts that call each other for a fifth of a millisecond.
fn scenario(directory: &Path) -> String {
    let path = directory.join("four.toml");
    let text = "duration = \"200us\"\nwarmup = \"20us\"\n\
                [fabric]\ntopology = \"single-switch\"\nhosts = 4\n\
                [[class]]\nname = \"high\"\nweight = 4\nslo = { target = \"15us\", per_mtu = false }\n\
                [[class]]\nname = \"low\"\n\
                [[traffic]]\nname = \"all\"\npattern = \"all-to-all\"\nmix = [0.5, 0.5]\nsizes = \"8KiB\"\nload = 0.5\n";
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_network_prints_a_line_per_class_and_whether_it_met_its_objective() {
    let directory = tempfile::tempdir().unwrap();
    let file = scenario(directory.path());
    let (stdout, _) = check(&["sim", &file], 0);
    for part in [
        "four: 4 hosts at",
        "high",
        "meets its objective",
        "switch->host",
        "none dropped",
    ] {
        assert!(stdout.contains(part), "{part:?} is not in {stdout}");
    }
    let (compared, _) = check(
        &[
            "sim",
            &file,
            "--policies",
            "none,aequitas",
            "--set",
            "floor=0.2",
        ],
        0,
    );
    assert!(compared.contains("Notes (aequitas)"), "{compared}");
}

#[test]
fn commands_for_rdma_hosts_say_which_ones_take_a_network() {
    let directory = tempfile::tempdir().unwrap();
    let file = scenario(directory.path());
    let parts = ["scenario of a network", "isolane sim", "isolane sweep"];
    refuses(&["recommend", &file], &parts);
    refuses(&["audit", "--scenario", &file], &parts);
    refuses(&["explain", "--scenario", &file, "--victim", "a"], &parts);
}

#[test]
fn json_pairs_series_and_page_are_there_on_request() {
    let directory = tempfile::tempdir().unwrap();
    let file = scenario(directory.path());
    let out = directory.path().join("out");
    let page = ["--report", out.to_str().unwrap()];
    let (stdout, _) = check(
        &[
            &["sim", &file, "--json", "--per-pair", "--series"],
            &page[..],
        ]
        .concat(),
        0,
    );
    let result: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(result["pairs"].as_array().unwrap().len(), 4 * 3 * 2);
    assert!(!result["series"]["values"].as_object().unwrap().is_empty());
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("The requested mix"));
    let plain: Value = serde_json::from_str(&check(&["sim", &file, "--json"], 0).0).unwrap();
    assert!(plain["pairs"].is_null() && plain["series"].is_null());
    let (list, _) = check(&["sim", &file, "--json", "--policies", "none,spq"], 0);
    let list: Value = serde_json::from_str(&list).unwrap();
    assert_eq!(list[1]["policy"], "spq");
}

#[test]
fn a_trace_has_as_many_records_as_it_says() {
    let directory = tempfile::tempdir().unwrap();
    let file = scenario(directory.path());
    let trace = directory.path().join("t.pcap");
    let path = trace.to_str().unwrap();
    let (_, stderr) = check(&["sim", &file, "--trace", path, "--trace-packets", "10"], 0);
    assert!(stderr.contains("the first 10 packets"), "{stderr}");
    let bytes = fs::read(&trace).unwrap();
    assert_eq!(bytes.len(), 24 + 10 * (16 + 54));
    let port = ["--trace-port", "switch->host7"];
    refuses(
        &[&["sim", &file, "--trace", path], &port[..]].concat(),
        &["did you mean switch->host"],
    );
}

#[test]
fn options_of_the_other_kind_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = scenario(directory.path());
    refuses(
        &["sim", &file, "--profile", "cx5-100g-roce"],
        &["--profile", "network"],
    );
    refuses(
        &["sim", &file, "--target", "verbs:a,b"],
        &["--target", "network"],
    );
    refuses(
        &["sim", &file, "--policy", "aequitos"],
        &["did you mean aequitas?"],
    );
    refuses(
        &["sim", &file, "--set", "traffic.al.load=1"],
        &["did you mean all?"],
    );
    refuses(
        &["sim", &file, "--set", "traffic.all.load=-1"],
        &["load = -1", "0 to 1000"],
    );
    refuses(
        &["sim", &file, "--set", "class.high.slo.target=1us"],
        &["below what an idle network takes"],
    );
    let hosts = directory.path().join("two.toml");
    fs::write(
        &hosts,
        "profile = \"cx5-100g-roce\"\n[[tenant]]\nname = \"a\"\nperftest = \"ib_write_lat\"\n",
    )
    .unwrap();
    refuses(
        &["sim", hosts.to_str().unwrap(), "--per-pair"],
        &["--per-pair", "RDMA hosts"],
    );
    refuses(
        &["sweep", hosts.to_str().unwrap()],
        &["sweeps are of networks"],
    );
}

#[test]
fn a_sweep_has_the_same_bytes_for_any_number_of_workers_and_shards() {
    let directory = tempfile::tempdir().unwrap();
    let file = scenario(directory.path());
    let common = [
        "sweep",
        &file,
        "--vary",
        "traffic.all.load=0.3,0.6",
        "--vary",
        "policy.name=none,spq",
        "--seeds",
        "2",
    ];
    let with = |more: &[&str]| check(&[&common[..], more].concat(), 0).0;
    let whole = with(&["--json", "--jobs", "1"]);
    assert_eq!(whole, with(&["--json", "--jobs", "3"]));
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (one, two) = (path("1.json"), path("2.json"));
    fs::write(&one, with(&["--json", "--shard", "1/2"])).unwrap();
    fs::write(&two, with(&["--json", "--shard", "2/2"])).unwrap();
    assert_eq!(
        whole,
        check(&["sweep", "--merge", &two, &one, "--json"], 0).0
    );
    refuses(
        &["sweep", "--merge", &two],
        &["4 of 8 points missing (0, 2, 4, 6)"],
    );
    refuses(&["sweep", "--merge", &two, &two], &["give each shard once"]);
    // A parameter counts for the points whose policy has it.
    let policies = [
        "--vary",
        "policy.name=none,aequitas",
        "--set",
        "floor=0.2",
        "--json",
    ];
    check(&[&["sweep", &file], &policies[..]].concat(), 0);
    let csv = with(&["--csv"]);
    assert_eq!(csv.lines().count(), 1 + 8 * 2);
}

#[test]
fn a_sweep_that_was_stopped_goes_on_to_the_same_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let file = scenario(directory.path());
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (whole, stopped) = (path("whole.json"), path("stopped.json"));
    let sweep =
        |out: &str, seeds: &str| check(&["sweep", &file, "--seeds", seeds, "--out", out], 0);
    sweep(&whole, "3");
    let document: Value = serde_json::from_str(&fs::read_to_string(&whole).unwrap()).unwrap();
    // What a stopped sweep leaves: the line that says which sweep it is, a finished point, half of another.
    let mut header = document.clone();
    header["points"] = Value::Array(Vec::new());
    let text = fs::read_to_string(&whole).unwrap();
    let order = |value: &Value| serde_json::to_string(value).unwrap();
    assert!(
        text.starts_with("{\n  \"version\""),
        "fields keep their order"
    );
    let header = format!(
        "{{\"version\":{},\"scenario\":{},\"keys\":[],\"digest\":{},\"points_total\":3,\"points\":[]}}\n",
        header["version"], header["scenario"], header["digest"]
    );
    let part = format!("{header}{}\n{{\"index\":2,", order(&document["points"][1]));
    fs::write(format!("{stopped}.part"), part).unwrap();
    let (_, stderr) = sweep(&stopped, "3");
    assert!(stderr.contains("1 of 3 points done already"), "{stderr}");
    assert_eq!(fs::read(&whole).unwrap(), fs::read(&stopped).unwrap());
    refuses(
        &["sweep", &file, "--seeds", "2", "--out", &stopped],
        &["not of this sweep"],
    );
}

#[test]
fn sweeps_say_what_is_wrong_before_they_run() {
    let directory = tempfile::tempdir().unwrap();
    let file = scenario(directory.path());
    refuses(
        &["sweep", &file, "--vary", "traffic.all.load=0.5,lots"],
        &["load = \"lots\"", "with traffic.all.load set"],
    );
    refuses(
        &["sweep", &file, "--vary", "traffic.all.load"],
        &["KEY=VALUE"],
    );
    refuses(&["sweep", &file, "--vary", "seed=1,2"], &["--seeds"]);
    for more in [&[][..], &["--set", "traffic.all.load=0.4"]] {
        let words = [&["sweep", file.as_str()], more].concat();
        refuses(&words, &["nothing varies", "--vary KEY=VALUE", "--seeds"]);
    }
    check(&["sweep", &file, "--shard", "3/2"], 2);
}

#[test]
fn schemas_and_parameters_of_networks_are_printed() {
    for document in ["network", "network-result"] {
        let (stdout, _) = check(&["catalog", "schema", document], 0);
        assert!(serde_json::from_str::<Value>(&stdout).unwrap()["properties"].is_object());
    }
    let (stdout, _) = check(&["catalog", "policies", "--networks"], 0);
    for part in [
        "aequitas",
        "decrement_per_mtu",
        "dcqcn",
        "alpha_interval_us",
    ] {
        assert!(stdout.contains(part), "{part}");
    }
}
