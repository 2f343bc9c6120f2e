//! The baselines on whole networks: every call is accounted for, the same seed gives the same bytes, unknown parameters
//! are refused, and the orderings that each design is built for show in calls, not only in single flows.

use isolane_network_scenario::{FabricOverrides, parse_with};
use isolane_network_simulator::run::{Observers, run};
use isolane_study_results::network::FabricResult;

const POLICIES: [&str; 5] = ["pfabric", "qjump", "d3", "pdq", "homa"];

/// Storage sizes, bursts over the line rate, three classes.
const NETWORK: &str = include_str!("../data/baselines.toml");

const ONE_SWITCH: &str = "topology = \"single-switch\"\nhosts = 8";
const FAT_TREE: &str = "topology = \"fat-tree\"\nk = 4";

/// A run of [`NETWORK`], with some of its text replaced.
fn results(policy: &str, from: &str, to: &str) -> FabricResult {
    assert!(NETWORK.contains(from), "{from}");
    let overrides = FabricOverrides {
        policy: Some(policy.to_owned()),
        ..FabricOverrides::default()
    };
    let scenario = parse_with(&NETWORK.replace(from, to), "baselines.toml", &overrides);
    let scenario = scenario.unwrap_or_else(|error| panic!("{error}"));
    let outcome = run(&scenario, Observers::default()).unwrap_or_else(|error| panic!("{error}"));
    outcome.result
}

fn check_accounts(policy: &str, result: &FabricResult) {
    for class in &result.classes {
        let name = format!("{policy}, class {}", class.name);
        let ended = class.rnl_us.map_or(0, |latency| latency.count);
        assert!(class.issued > 100, "{name}: {} calls", class.issued);
        assert_eq!(
            ended + class.terminated + class.unfinished,
            class.issued,
            "{name}"
        );
        assert_eq!(class.unfinished, 0, "{name}");
        let gives_up = ["d3", "pdq"].contains(&policy);
        assert!(gives_up || class.terminated == 0, "{name}");
        assert_eq!(class.downgraded, 0, "{name}");
    }
}

#[test]
fn every_call_ends_and_is_counted_once() {
    for policy in POLICIES {
        check_accounts(policy, &results(policy, "", ""));
    }
}

/// More hops, equal-cost ways, and answers that come back through other switches.
#[test]
fn every_call_ends_on_a_fat_tree_too() {
    for policy in POLICIES {
        check_accounts(policy, &results(policy, ONE_SWITCH, FAT_TREE));
    }
}

/// Buffers of three packets (and pFabric's of two products) lose packets; nothing else is lost with them.
#[test]
fn every_call_ends_with_tiny_buffers() {
    let mut dropped = 0;
    for policy in POLICIES {
        let result = results(policy, "512KiB", "15KiB");
        check_accounts(policy, &result);
        dropped += result.packets.dropped.values().sum::<u64>();
    }
    assert!(dropped > 1_000, "{dropped}");
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    for policy in POLICIES {
        let text =
            |result: FabricResult| serde_json::to_string(&result).expect("results are plain data");
        assert_eq!(
            text(results(policy, "", "")),
            text(results(policy, "", "")),
            "{policy}"
        );
    }
}

#[test]
fn a_parameter_of_another_policy_is_refused() {
    let text = NETWORK.replace("name = \"none\"", "name = \"pfabric\"\nrtt_packets = 10");
    let error = parse_with(&text, "baselines.toml", &FabricOverrides::default());
    let error = error.expect_err("Homa's parameter").to_string();
    assert!(error.contains("rtt_packets"), "{error}");
    assert!(error.contains("window_packets"), "{error}");
}

/// A parameter may be set together with the policy that has it, by name or by path.
#[test]
fn parameters_of_the_requested_policy_are_taken() {
    for name in ["window_packets", "policy.window_packets"] {
        let overrides = FabricOverrides {
            policy: Some("pfabric".to_owned()),
            settings: vec![(name.to_owned(), "8".to_owned())],
            ..FabricOverrides::default()
        };
        let scenario = parse_with(NETWORK, "baselines.toml", &overrides);
        let scenario = scenario.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(scenario.policy.parameters["window_packets"], 8.0, "{name}");
    }
}
