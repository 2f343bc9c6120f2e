//! The language against small made-up runs.

use super::*;
use crate::audit::{AuditRequest, Finding, Findings};
use crate::world::{RunOutcome, World};
use expect_test::{Expect, expect};
use isolane_rdma_scenario::catalogue::Column;
use isolane_rdma_scenario::model::{Class, Host, Scenario};
use isolane_study_results::network::FabricResult;
use isolane_study_results::rdma::{HostCounters, LatencyResult, RunResult, TenantResult};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A world of formulas only.
pub(crate) struct NoWorld;

impl World for NoWorld {
    fn scenario(&self, _: &str, _: &str) -> Result<Scenario, String> {
        Err("no scenarios here".to_owned())
    }
    fn run(&self, _: &Scenario) -> Result<RunResult, String> {
        Err("no runs here".to_owned())
    }
    fn network(&self, _: &str, _: &str) -> Result<FabricResult, String> {
        Err("no networks here".to_owned())
    }
    fn audit(&self, _: &AuditRequest, _: &mut dyn FnMut(usize, usize)) -> Result<Findings, String> {
        Err("no audits here".to_owned())
    }
    fn model(&self, _: &str, name: &str, arguments: &[(String, f64)]) -> Result<f64, String> {
        Ok(name.len() as f64 + arguments.iter().map(|(_, value)| value).sum::<f64>())
    }
    fn parameter(&self, _: &str, _: &str, _: &str) -> Result<f64, String> {
        Ok(7.0)
    }
    fn network_bytes(&self, request: &RequestBytes) -> Result<u64, String> {
        Ok(request.payload + 98)
    }
    fn pcie_bytes(&self, request: &RequestBytes) -> Result<u64, String> {
        Ok(request.payload + 160 / request.post_list)
    }
}

fn tenant(name: &str, goodput_gbps: f64, p50: Option<f64>) -> TenantResult {
    TenantResult {
        application: None,
        name: name.to_owned(),
        class: Class::Auto,
        declared_class: Class::Auto,
        offered_gbps: None,
        goodput_gbps,
        wire_gbps: goodput_gbps * 1.1,
        message_rate_per_s: 1e6,
        control_rate_per_s: 0.0,
        share: 0.5,
        latency_us: p50.map(|p50| LatencyResult {
            samples: 10,
            min: p50,
            mean: p50,
            p50,
            p99: 2.0 * p50,
            p999: 3.0 * p50,
            max: 4.0 * p50,
            steady: true,
        }),
        policy_cores: 0.0,
        errors: 0,
        queue_pair_gbps: [1.0, 2.0, 4.0],
        goodput_series_gbps: Vec::new(),
        p99_series_us: Vec::new(),
    }
}

pub(crate) fn run() -> RunResult {
    RunResult {
        version: 1,
        scenario: "s".to_owned(),
        profile: "p".to_owned(),
        policy: "none".to_owned(),
        on_sale: true,
        seed: 1,
        testbed: "sim".to_owned(),
        measured_s: 1.0,
        tenants: vec![
            tenant("small", 1.0, Some(1.5)),
            tenant("bulk-1", 10.0, Some(100.0)),
            tenant("bulk-2", 30.0, Some(200.0)),
            tenant("starved", 0.0, None),
        ],
        counters: vec![HostCounters {
            host: Host::A,
            values: BTreeMap::from([("tx_bytes".to_owned(), 42)]),
            ratios: BTreeMap::from([("mtt_miss_ratio".to_owned(), 0.25)]),
        }],
        policy_state: BTreeMap::from([("safe_util_gbps".to_owned(), 24.0)]),
        sample_us: 1.0,
        settling: None,
    }
}

/// One cell of each kind.
pub(crate) fn findings() -> Findings {
    let cell = |column, victim: &str, violated| Finding {
        column,
        victim: victim.to_owned(),
        attacker: "a".to_owned(),
        violated,
    };
    Findings {
        cells: vec![
            cell(Column::PuData, "kept", Some(false)),
            cell(Column::PuData, "hurt", Some(true)),
            cell(Column::PuData, "none", None),
            cell(Column::CacheData, "hurt", Some(true)),
        ],
    }
}

fn evaluate(text: &str) -> String {
    let expression = match parse(text) {
        Ok(expression) => expression,
        Err(error) => return format!("syntax: {error}"),
    };
    let run = RunOutcome::Hosts(Box::new(run()));
    let evaluation = Evaluation {
        runs: Runs::from([("r", &run)]),
        audits: Audits::from([("table", findings())]),
        world: &NoWorld,
    };
    match evaluation.value(&expression) {
        Ok(Value::Number(number)) => format!("{number}"),
        Ok(Value::Truth(truth)) => format!("{truth}"),
        Err(error) => format!("error: {error}"),
    }
}

fn check(texts: &[&str], expected: Expect) {
    let lines: Vec<String> = texts
        .iter()
        .map(|text| format!("{text}  ->  {}\n", evaluate(text)))
        .collect();
    expected.assert_eq(&lines.concat());
}

#[test]
fn operators_bind_as_in_arithmetic() {
    check(
        &[
            "1 + 2 * 3",
            "(1 + 2) * 3",
            "8 / 4 / 2",
            "2 - 3 - 4",
            "-2 * -3",
            "1e3 + 1_000",
            "min(3, 1, 2) + max(1, 2)",
        ],
        expect![[r#"
            1 + 2 * 3  ->  7
            (1 + 2) * 3  ->  9
            8 / 4 / 2  ->  1
            2 - 3 - 4  ->  -5
            -2 * -3  ->  6
            1e3 + 1_000  ->  2000
            min(3, 1, 2) + max(1, 2)  ->  3
        "#]],
    );
}

#[test]
fn measurements_name_runs_tenants_and_fields() {
    check(
        &[
            "r:small.latency_us.p99 / r:small.latency_us.p50",
            "r:bulk-1.goodput_gbps - r:small.goodput_gbps",
            "sum(r:bulk*.goodput_gbps)",
            "mean(r:bulk*.goodput_gbps)",
            "highest(r:bulk*.goodput_gbps) / lowest(r:bulk*.goodput_gbps)",
            "jain(r:bulk*.goodput_gbps)",
            "r:small.queue_pair_gbps.max_over_min",
            "counter(r, a, tx_bytes)",
            "ratio(r, a, mtt_miss_ratio)",
            "state(r, safe_util_gbps)",
            "parameter(\"cx5-100g-roce\", link, rate_gbps)",
        ],
        expect![[r#"
            r:small.latency_us.p99 / r:small.latency_us.p50  ->  2
            r:bulk-1.goodput_gbps - r:small.goodput_gbps  ->  9
            sum(r:bulk*.goodput_gbps)  ->  40
            mean(r:bulk*.goodput_gbps)  ->  20
            highest(r:bulk*.goodput_gbps) / lowest(r:bulk*.goodput_gbps)  ->  3
            jain(r:bulk*.goodput_gbps)  ->  0.8
            r:small.queue_pair_gbps.max_over_min  ->  4
            counter(r, a, tx_bytes)  ->  42
            ratio(r, a, mtt_miss_ratio)  ->  0.25
            state(r, safe_util_gbps)  ->  24
            parameter("cx5-100g-roce", link, rate_gbps)  ->  7
        "#]],
    );
}

#[test]
fn orderings_are_true_or_false() {
    check(
        &[
            "1 < 2",
            "2 <= 2 and 3 > 4",
            "r:bulk-2.goodput_gbps >= r:bulk-1.goodput_gbps",
        ],
        expect![[r#"
            1 < 2  ->  true
            2 <= 2 and 3 > 4  ->  false
            r:bulk-2.goodput_gbps >= r:bulk-1.goodput_gbps  ->  true
        "#]],
    );
}

#[test]
fn request_bytes_have_defaults() {
    check(
        &[
            "network_bytes(payload=29)",
            "pcie_bytes(payload=29)",
            "pcie_bytes(payload=29, post_list=16, verb=send, transport=ud, profile=\"cx3\")",
            "network_bytes(payload=29, verb=\"fetch-add\")",
        ],
        expect![[r#"
            network_bytes(payload=29)  ->  127
            pcie_bytes(payload=29)  ->  189
            pcie_bytes(payload=29, post_list=16, verb=send, transport=ud, profile="cx3")  ->  39
            network_bytes(payload=29, verb="fetch-add")  ->  127
        "#]],
    );
}

#[test]
fn mistakes_are_named() {
    check(
        &[
            "",
            "1 +",
            "1 2",
            "foo(1)",
            "sun(r:bulk*.goodput_gbps)",
            "r:small",
            "r:small.goodput_gpbs",
            "r:bulk*.goodput_gbps",
            "r:smal.goodput_gbps",
            "q:small.goodput_gbps",
            "r:starved.latency_us.p50",
            "r:small.offered_gbps",
            "1 / 0",
            "(1 < 2) + 1",
            "1 and 2",
            "counter(r, c, x)",
            "counter(r, b, x)",
            "counter(r, a, tx_byte)",
            "state(r, safe_util)",
            "network_bytes(verb=write)",
            "network_bytes(payload=1.5)",
            "network_bytes(payload=1, verb=raed)",
            "network_bytes(paylod=1)",
            "\"x",
            "1 $ 2",
            "2e",
        ],
        expect![[r#"
              ->  syntax: a number, a measurement (label:tenant.field) or a function was expected here (character 1 of the metric)
            1 +  ->  syntax: a number, a measurement (label:tenant.field) or a function was expected here (character 4 of the metric)
            1 2  ->  syntax: an operator was expected here (character 3 of the metric)
            foo(1)  ->  syntax: unknown name "foo" (character 1 of the metric)
            sun(r:bulk*.goodput_gbps)  ->  syntax: unknown name "sun", did you mean "sum"? (character 1 of the metric)
            r:small  ->  syntax: "r" begins a measurement: write label:tenant.field (character 1 of the metric)
            r:small.goodput_gpbs  ->  syntax: unknown field "goodput_gpbs", did you mean "goodput_gbps"? (character 1 of the metric)
            r:bulk*.goodput_gbps  ->  syntax: "bulk*" may name several tenants: wrap it in sum, mean, lowest, highest or jain (character 1 of the metric)
            r:smal.goodput_gbps  ->  error: run "r" has no tenant "smal": it has small, bulk-1, bulk-2, starved
            q:small.goodput_gbps  ->  error: no run is labelled "q"
            r:starved.latency_us.p50  ->  error: tenant "starved" completed no measured message in run "r"
            r:small.offered_gbps  ->  error: tenant "small" is a closed loop: it offers what it gets
            1 / 0  ->  error: 1 divided by zero
            (1 < 2) + 1  ->  syntax: a comparison is no number to calculate with (character 12 of the metric)
            1 and 2  ->  syntax: `and` is allowed between comparisons only (character 8 of the metric)
            counter(r, c, x)  ->  error: run "r" has no counters of that host
            counter(r, b, x)  ->  error: run "r" has no counters of that host
            counter(r, a, tx_byte)  ->  error: run "r" has no counter "tx_byte", did you mean "tx_bytes"?
            state(r, safe_util)  ->  error: the policy of run "r" has no figure "safe_util", did you mean "safe_util_gbps"?
            network_bytes(verb=write)  ->  syntax: payload= is missing (character 25 of the metric)
            network_bytes(payload=1.5)  ->  syntax: a whole number up to 2^31 was expected here (character 23 of the metric)
            network_bytes(payload=1, verb=raed)  ->  syntax: "raed" is none of write, read, send, fetch-add, compare-swap, did you mean "read"? (character 31 of the metric)
            network_bytes(paylod=1)  ->  syntax: unknown argument "paylod", did you mean "payload"? (character 15 of the metric)
            "x  ->  syntax: a quoted name that does not end (character 1 of the metric)
            1 $ 2  ->  syntax: unexpected '$' (character 3 of the metric)
            2e  ->  syntax: "2e" is not a number (character 1 of the metric)
        "#]],
    );
}

#[test]
fn deep_nesting_is_refused() {
    let deep = format!(
        "{}1{}",
        "(".repeat(DEPTH_MAX + 1),
        ")".repeat(DEPTH_MAX + 1)
    );
    assert!(parse(&deep).unwrap_err().message.contains("nesting"));
    let long = "1+".repeat(TEXT_MAX) + "1";
    assert!(parse(&long).unwrap_err().message.contains("longer"));
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in ".{0,200}") {
        let _ = parse(&text);
    }

    #[test]
    fn no_mix_of_tokens_panics(parts in prop::collection::vec(prop::sample::select(vec![
        "r:small.goodput_gbps", "r:x.latency_us.p50", "min", "sum", "(", ")", "-", "+", "*", "/", "<", "and",
        "1", "0", "1e308", ",", "=", "payload", "network_bytes", "counter", "r", "a", "\"", "é", ":", ".",
    ]), 0..40)) {
        let _ = evaluate(&parts.concat());
        let _ = evaluate(&parts.join(" "));
    }

    /// Sums and products of small integers agree with the same sums worked out directly.
    #[test]
    fn sums_agree_with_direct_arithmetic(terms in prop::collection::vec((0i64..100, 0i64..100), 1..20)) {
        let text: Vec<String> = terms.iter().map(|(a, b)| format!("{a}*{b}")).collect();
        let expected: i64 = terms.iter().map(|(a, b)| a * b).sum();
        prop_assert_eq!(evaluate(&text.join(" + ")), expected.to_string());
    }
}

#[test]
fn cells_of_an_audit_are_counted() {
    check(
        &[
            "violations(table)",
            "judged(table)",
            "violations(table) / judged(table)",
            "violations(tabel)",
            "violations(",
        ],
        expect![[r#"
            violations(table)  ->  2
            judged(table)  ->  3
            violations(table) / judged(table)  ->  0.6666666666666666
            violations(tabel)  ->  error: no audit is labelled "tabel"
            violations(  ->  syntax: an audit's label was expected here (character 12 of the metric)
        "#]],
    );
}
