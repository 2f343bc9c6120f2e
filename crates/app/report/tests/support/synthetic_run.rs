//! A made-up run on an RDMA NIC: plausible in shape, from arithmetic alone.

use super::{noise, with_a_gap};
use isolane_rdma_scenario::model::{Class, Host};
use isolane_study_results::rdma::{HostCounters, LatencyResult, RunResult, TenantResult};

/// A run of a latency tenant beside two others.
pub(crate) fn run(policy: &str) -> RunResult {
    let calm = policy != "none";
    let tenant = |index: u64, name: &str, class: Class, goodput: f64, p99: f64| TenantResult {
        application: None,
        name: name.to_owned(),
        class,
        declared_class: if index == 2 { Class::Auto } else { class },
        offered_gbps: (index == 0).then_some(goodput),
        goodput_gbps: goodput,
        wire_gbps: goodput * 1.05,
        message_rate_per_s: goodput * 1e9
            / 8.0
            / if class == Class::Latency {
                16.0
            } else {
                65_536.0
            },
        control_rate_per_s: 0.0,
        share: goodput / 97.0,
        latency_us: Some(LatencyResult {
            samples: 50_000,
            min: p99 * 0.4,
            mean: p99 * 0.6,
            p50: p99 * 0.55,
            p99,
            p999: p99 * 1.4,
            max: p99 * 2.0,
            steady: true,
        }),
        policy_cores: if calm { 0.35 } else { 0.0 },
        errors: 0,
        queue_pair_gbps: [goodput * 0.9, goodput, goodput * 1.1],
        goodput_series_gbps: (0..60)
            .map(|point| goodput * (0.95 + 0.1 * noise([index, point, 7, 7])))
            .collect(),
        p99_series_us: with_a_gap(
            true,
            (0..60)
                .map(|point| p99 * (0.8 + 0.4 * noise([index, point, 8, 8])))
                .collect(),
        ),
    };
    let counters = |host| HostCounters {
        host,
        values: [
            ("tx_vport_rdma_unicast_bytes".to_owned(), 61_234_567_890),
            ("icm_cache_miss".to_owned(), 4_321),
        ]
        .into(),
        ratios: [
            ("pcie_tx_utilisation".to_owned(), 0.61),
            ("mtt_miss_ratio".to_owned(), 0.002),
        ]
        .into(),
    };
    RunResult {
        version: isolane_study_results::rdma::RESULT_VERSION,
        scenario: "latency-vs-bulk".to_owned(),
        profile: "cx5-100g-roce".to_owned(),
        policy: policy.to_owned(),
        on_sale: isolane_rdma_scenario::stack::is_on_sale(policy),
        seed: 1,
        testbed: "sim".to_owned(),
        measured_s: 0.006,
        tenants: vec![
            tenant(
                0,
                "web",
                Class::Latency,
                0.11,
                if calm { 3.1 } else { 19.0 },
            ),
            tenant(
                1,
                "bulk (32 pairs)",
                Class::Bandwidth,
                if calm { 42.0 } else { 55.0 },
                410.0,
            ),
            tenant(
                2,
                "messages",
                Class::Throughput,
                if calm { 31.0 } else { 24.0 },
                35.0,
            ),
        ],
        counters: vec![counters(Host::A), counters(Host::B)],
        policy_state: if calm {
            [
                ("safe_util_gbps".to_owned(), 78.25),
                ("tokens_per_s".to_owned(), 1_950_000.0),
            ]
            .into()
        } else {
            Default::default()
        },
        sample_us: 100.0,
        settling: None,
    }
}
