//! A made-up run on a network: plausible in shape, the same every time.

use isolane_network_scenario::model::FabricScenario;
use isolane_network_scenario::parse;
use isolane_study_results::network::{
    ClassResult, FabricResult, FabricSeries, LatencySummary, PacketCounts, PortCounts, PortResult,
};
use std::collections::BTreeMap;

const SCENARIO: &str = include_str!("synthetic-fabric.toml");

pub(crate) fn scenario() -> FabricScenario {
    parse(SCENARIO, "f.toml").expect("the scenario is valid")
}

fn summary(p50: f64) -> LatencySummary {
    LatencySummary {
        min: p50 / 2.0,
        mean: p50,
        p50,
        p99: p50 * 2.0,
        p999: p50 * 4.0,
        max: p50 * 8.0,
        count: 1_000,
    }
}

fn class(name: &str, p50: f64) -> ClassResult {
    ClassResult {
        name: name.to_owned(),
        issued: 1_000,
        admitted: 900,
        downgraded: 100,
        terminated: 0,
        unfinished: 0,
        asked_share: 0.7,
        ran_share: 0.6,
        admitted_share: 0.9,
        rnl_us: Some(summary(p50)),
        rnl_per_mtu_us: Some(summary(p50 / 7.0)),
        met_slo_share: Some(0.89),
        met_slo_bytes_share: Some(0.89),
        ran_met_slo_share: Some(0.999),
        goodput_gbps: 42.0,
        outstanding_p50: 1.0,
        outstanding_p99: 3.0,
    }
}

pub(crate) fn result(policy: &str) -> FabricResult {
    FabricResult {
        version: 1,
        scenario: "3-node <b>".to_owned(),
        policy: policy.to_owned(),
        transport: "swift".to_owned(),
        seed: 1,
        hosts: 3,
        measured_s: 0.01,
        simulated_s: 0.012,
        classes: vec![class("high", 5.0), class("low", 50.0)],
        utilisation: 0.9,
        goodput_gbps: 84.0,
        packets: PacketCounts {
            dropped: BTreeMap::from([("buffer-full".to_owned(), 3)]),
            ..PacketCounts::default()
        },
        ports: PortCounts {
            fullest: vec![PortResult {
                name: "switch->host2".to_owned(),
                queue_max_bytes: 300_000,
                utilisation: 0.95,
                dropped: 3,
                paused_share: 0.0,
            }],
            busiest: Vec::new(),
        },
        policy_state: BTreeMap::from([("admit_probability_mean".to_owned(), 0.9)]),
        pairs: Vec::new(),
        series: Some(FabricSeries {
            interval_us: 100.0,
            values: BTreeMap::from([
                (
                    "rnl_p99_us/high".to_owned(),
                    vec![Some(10.0), None, Some(12.0)],
                ),
                (
                    "goodput_gbps/0->2/low".to_owned(),
                    vec![Some(0.5), Some(1.0)],
                ),
                (
                    "goodput_gbps/low".to_owned(),
                    vec![Some(1.0), Some(2.0), Some(3.0)],
                ),
            ]),
        }),
    }
}
