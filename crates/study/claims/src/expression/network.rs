//! Numbers of a run on a network, by name.
//!
//! What a measurement `label:name.field` may name of such a run:
//!
//! * a class, by its name: `high.rnl_us.p999`, with the fields of its JSON result;
//! * a pair of hosts and a class, where the scenario reports pairs: `pair-0-2-high.goodput_gbps`;
//! * `network`, the whole of it: `network.goodput_gbps`, `network.dropped`.
//!
//! Units end the names, as in the JSON form. A series is reached by its name through [`SeriesPart`].

use super::SeriesPart;
use crate::error::nearest;
use isolane_common_toml_input::glob;
use isolane_study_results::network::{FabricResult, PairResult};
use serde::Serialize;
use serde_json::Value;

/// The name of the whole network in a measurement.
const WHOLE: &str = "network";

/// The number `field` of what is called `name`.
pub(super) fn value(run: &FabricResult, name: &str, field: &str) -> Result<f64, String> {
    let mut found = matching(run, name, field)?;
    match found.pop() {
        Some(value) => Ok(value),
        None => {
            let classes = run.classes.iter().map(|class| class.name.as_str());
            let names: Vec<&str> = classes.chain([WHOLE]).collect();
            let hint = nearest(name, names.iter().copied());
            Err(match (name.starts_with("pair-"), run.pairs.is_empty()) {
                (true, true) => format!("{name} needs per_pair = true in the scenario"),
                (true, false) => format!("the network has no {name}: write pair-FROM-TO-CLASS"),
                _ => format!(
                    "the network has no {name:?}, but {}{hint}",
                    names.join(", ")
                ),
            })
        }
    }
}

/// The number `field` of everything whose name matches `pattern`.
pub(super) fn matching(run: &FabricResult, pattern: &str, field: &str) -> Result<Vec<f64>, String> {
    let mut values = Vec::new();
    for class in &run.classes {
        if glob::matches(pattern, &class.name) {
            values.push(number(class, &class.name, field)?);
        }
    }
    if values.is_empty() && pattern == WHOLE {
        values.push(whole(run, field)?);
    }
    if pattern.starts_with("pair-") {
        for pair in &run.pairs {
            let name = pair_name(pair);
            if glob::matches(pattern, &name) {
                values.push(number(pair, &name, field)?);
            }
        }
    }
    Ok(values)
}

/// One number of the series `name`.
pub(super) fn series(run: &FabricResult, name: &str, part: SeriesPart) -> Result<f64, String> {
    let series = run.series.as_ref();
    let series = series.ok_or("the run has no series: give the scenario a sample_interval")?;
    let values = series.values.get(name).ok_or_else(|| {
        let names = series.values.keys().map(String::as_str);
        format!("the run has no series {name:?}{}", nearest(name, names))
    })?;
    let known: Vec<f64> = values.iter().copied().flatten().collect();
    let (Some(first), Some(last)) = (known.first(), known.last()) else {
        return Err(format!("nothing was measured in series {name:?}"));
    };
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    Ok(match part {
        SeriesPart::First => *first,
        SeriesPart::Last => *last,
        SeriesPart::Mean => mean(&known),
        SeriesPart::Min => known.iter().copied().fold(f64::INFINITY, f64::min),
        SeriesPart::Max => known.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        SeriesPart::SettledUs { within } => {
            let end = mean(&known[known.len() / 2..]);
            let outside = |value: &Option<f64>| {
                value.is_none_or(|value| (value - end).abs() > within * end.abs())
            };
            let unsettled = values.iter().rposition(outside);
            unsettled.map_or(0.0, |place| (place + 1) as f64 * series.interval_us)
        }
    })
}

fn pair_name(pair: &PairResult) -> String {
    format!("pair-{}-{}-{}", pair.from, pair.to, pair.class)
}

/// The number at a dotted path of `value`'s JSON form.
fn number(value: &impl Serialize, name: &str, field: &str) -> Result<f64, String> {
    let json = serde_json::to_value(value).map_err(|error| error.to_string())?;
    let mut place = Some(&json);
    for part in field.split('.') {
        place = match place {
            Some(Value::Null) => return Err(format!("{name} measured nothing for {field}")),
            Some(inner) => inner.get(part),
            None => None,
        };
    }
    match place {
        Some(Value::Number(number)) => Ok(number.as_f64().unwrap_or(f64::NAN)),
        Some(Value::Null) => Err(format!("{name} has no {field} in this run")),
        _ => Err(format!(
            "{name} has no {field}: it belongs to something else"
        )),
    }
}

fn whole(run: &FabricResult, field: &str) -> Result<f64, String> {
    let packets = &run.packets;
    let queues = run.ports.fullest.iter().map(|port| port.queue_max_bytes);
    Ok(match field {
        "goodput_gbps" => run.goodput_gbps,
        "utilisation" => run.utilisation,
        "measured_s" => run.measured_s,
        "hosts" => f64::from(run.hosts),
        "sent" => packets.sent as f64,
        "delivered" => packets.delivered as f64,
        "dropped" => packets.dropped.values().sum::<u64>() as f64,
        "in_flight" => packets.in_flight as f64,
        "data" => packets.data as f64,
        "repeated" => packets.repeated as f64,
        "marked" => packets.marked as f64,
        "pauses" => packets.pauses as f64,
        "queue_max_bytes" => queues.max().unwrap_or(0) as f64,
        _ => {
            return Err(format!(
                "network has no {field}: it belongs to something else"
            ));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Evaluation, Value as Outcome, parse, tests::NoWorld};
    use crate::world::RunOutcome;
    use expect_test::expect;
    use isolane_study_results::network::{
        ClassResult, FabricResult, FabricSeries, LatencySummary, PacketCounts, PairResult,
        PortCounts,
    };
    use std::collections::BTreeMap;

    fn class(name: &str, p999: Option<f64>, admitted: u64) -> ClassResult {
        ClassResult {
            name: name.to_owned(),
            issued: 100,
            admitted,
            downgraded: 100 - admitted,
            terminated: 0,
            unfinished: 0,
            asked_share: 0.5,
            ran_share: 0.25,
            admitted_share: admitted as f64 / 100.0,
            rnl_us: p999.map(|p999| LatencySummary {
                min: 1.0,
                mean: 2.0,
                p50: 3.0,
                p99: 4.0,
                p999,
                max: 6.0,
                count: 10,
            }),
            rnl_per_mtu_us: None,
            met_slo_share: None,
            met_slo_bytes_share: None,
            ran_met_slo_share: Some(0.999),
            goodput_gbps: 10.0,
            outstanding_p50: 1.0,
            outstanding_p99: 2.0,
        }
    }

    fn pair(from: u32, goodput_gbps: f64) -> PairResult {
        PairResult {
            from,
            to: 2,
            class: "high".to_owned(),
            issued: 5,
            admitted: 4,
            goodput_gbps,
            rnl_us: None,
            admit_probability: None,
        }
    }

    fn run() -> FabricResult {
        let admit = [0.0, 1.0, 0.4, 0.5, 0.5, 0.5, 0.5, 0.5].map(Some);
        FabricResult {
            version: 1,
            scenario: "s".to_owned(),
            policy: "aequitas".to_owned(),
            transport: "swift".to_owned(),
            seed: 1,
            hosts: 3,
            measured_s: 0.5,
            simulated_s: 1.0,
            classes: vec![class("high", Some(15.0), 80), class("low", None, 100)],
            utilisation: 0.9,
            goodput_gbps: 20.0,
            packets: PacketCounts {
                dropped: BTreeMap::from([("a".to_owned(), 2), ("b".to_owned(), 3)]),
                ..PacketCounts::default()
            },
            ports: PortCounts::default(),
            policy_state: BTreeMap::from([("p_admit_min".to_owned(), 0.1)]),
            pairs: vec![pair(0, 6.0), pair(1, 2.0)],
            series: Some(FabricSeries {
                interval_us: 10.0,
                values: BTreeMap::from([
                    ("admit/0->2/high".to_owned(), admit.to_vec()),
                    ("empty".to_owned(), vec![None]),
                ]),
            }),
        }
    }

    fn evaluate(text: &str) -> String {
        let run = RunOutcome::Network(Box::new(run()));
        let evaluation = Evaluation {
            runs: [("r", &run)].into(),
            audits: BTreeMap::new(),
            world: &NoWorld,
        };
        let parsed = parse(text).map_err(|error| format!("syntax: {error}"));
        match parsed.and_then(|formula| evaluation.value(&formula)) {
            Ok(Outcome::Number(number)) => number.to_string(),
            Ok(Outcome::Truth(truth)) => truth.to_string(),
            Err(error) => error,
        }
    }

    #[test]
    fn classes_pairs_the_whole_and_series_have_numbers() {
        let texts = [
            "r:high.rnl_us.p999",
            "r:high.admitted_share",
            "r:high.ran_met_slo_share",
            "sum(r:*.issued)",
            "r:pair-1-2-high.goodput_gbps",
            "jain(r:pair-*-2-high.goodput_gbps)",
            "r:network.dropped",
            "r:network.goodput_gbps",
            "state(r, p_admit_min)",
            "series(r, 'admit/0->2/high', last)",
            "series(r, 'admit/0->2/high', max)",
            "settled_us(r, 'admit/0->2/high', 0.1)",
            "settled_us(r, 'admit/0->2/high', 0.2)",
            "settled_us(r, 'admit/0->2/high', 2)",
        ];
        let lines: String = texts
            .map(|text| format!("{text}  ->  {}\n", evaluate(text)))
            .concat();
        expect![[r#"
            r:high.rnl_us.p999  ->  15
            r:high.admitted_share  ->  0.8
            r:high.ran_met_slo_share  ->  0.999
            sum(r:*.issued)  ->  200
            r:pair-1-2-high.goodput_gbps  ->  2
            jain(r:pair-*-2-high.goodput_gbps)  ->  0.8
            r:network.dropped  ->  5
            r:network.goodput_gbps  ->  20
            state(r, p_admit_min)  ->  0.1
            series(r, 'admit/0->2/high', last)  ->  0.5
            series(r, 'admit/0->2/high', max)  ->  1
            settled_us(r, 'admit/0->2/high', 0.1)  ->  30
            settled_us(r, 'admit/0->2/high', 0.2)  ->  20
            settled_us(r, 'admit/0->2/high', 2)  ->  0
        "#]]
        .assert_eq(&lines);
    }

    #[test]
    fn what_a_run_does_not_have_is_named() {
        let texts = [
            "r:low.rnl_us.p999",
            "r:high.met_slo_share",
            "r:hgih.issued",
            "r:high.dropped",
            "r:network.issued",
            "r:pair-1-3-high.issued",
            "r:pair-1-2-high.rnl_us.p50",
            "sum(r:pair-7-*.issued)",
            "r:high.latency_us.p50",
            "counter(r, a, tx_bytes)",
            "series(r, 'admit/0->3/high', last)",
            "series(r, empty, last)",
            "series(r, empty, lats)",
        ];
        let lines: String = texts
            .map(|text| format!("{text}  ->  {}\n", evaluate(text)))
            .concat();
        expect![[r#"
            r:low.rnl_us.p999  ->  low measured nothing for rnl_us.p999
            r:high.met_slo_share  ->  high has no met_slo_share in this run
            r:hgih.issued  ->  the network has no "hgih", but high, low, network, did you mean "high"?
            r:high.dropped  ->  high has no dropped: it belongs to something else
            r:network.issued  ->  network has no issued: it belongs to something else
            r:pair-1-3-high.issued  ->  the network has no pair-1-3-high: write pair-FROM-TO-CLASS
            r:pair-1-2-high.rnl_us.p50  ->  pair-1-2-high measured nothing for rnl_us.p50
            sum(r:pair-7-*.issued)  ->  nothing of run "r" matches "pair-7-*"
            r:high.latency_us.p50  ->  high has no latency_us.p50: it belongs to something else
            counter(r, a, tx_bytes)  ->  run "r" is one of a network: it has no NICs
            series(r, 'admit/0->3/high', last)  ->  the run has no series "admit/0->3/high", did you mean "admit/0->2/high"?
            series(r, empty, last)  ->  nothing was measured in series "empty"
            series(r, empty, lats)  ->  syntax: "lats" is none of first, last, mean, min, max, did you mean "last"? (character 18 of the metric)
        "#]].assert_eq(&lines);
    }
}
