//! What a terminal shows of runs on a network.

use super::remarks;
use crate::text::{Table, counted, fitted, number, optional};
use isolane_network_scenario::model::{CallSlo, FabricScenario};
use isolane_study_results::network::{ClassResult, FabricResult, LatencySummary, PortResult};
use std::fmt::Write;

/// Rows of a list that a terminal shows.
const PORTS_SHOWN: usize = 5;
const PAIRS_SHOWN: usize = 40;

/// Everything about `results`: one run, or the runs of a comparison, each of its scenario.
pub(crate) fn runs(
    scenarios: &[FabricScenario],
    results: &[FabricResult],
    verbose: bool,
) -> String {
    let compare = results.len() > 1;
    let (scenario, first) = (&scenarios[0], &results[0]);
    let policies: Vec<&str> = results
        .iter()
        .map(|result| result.policy.as_str())
        .collect();
    let mut transports: Vec<&str> = Vec::new();
    for result in results {
        if !transports.contains(&result.transport.as_str()) {
            transports.push(&result.transport);
        }
    }
    let mut text = format!(
        "{}: {} at {} under {} over {}, seed {}, {} measured after {}\n\n",
        first.scenario,
        counted(first.hosts as u64, "host"),
        scenario.topology.host_rate,
        policies.join(", "),
        transports.join(", "),
        first.seed,
        scenario.duration,
        scenario.warmup,
    );
    text.push_str(&classes(scenarios, results));
    for (scenario, result) in scenarios.iter().zip(results) {
        let under = match compare {
            true => format!(" ({})", result.policy),
            false => String::new(),
        };
        list(
            &mut text,
            &format!("Notes{under}"),
            &remarks::notes(scenario, result),
        );
        let _ = writeln!(text, "\nPackets{under}\n  {}", packets(result));
        if verbose || !compare {
            if !result.ports.fullest.is_empty() {
                let _ = writeln!(text, "\nFullest ports{under}");
                text.push_str(&ports(&result.ports.fullest));
            }
            if !result.pairs.is_empty() {
                let _ = writeln!(text, "\nPairs{under}");
                text.push_str(&pairs(result));
            }
        }
        if verbose && !result.policy_state.is_empty() {
            let _ = writeln!(text, "\nFigures of {}", result.policy);
            text.push_str(&figures(result));
        }
    }
    text
}

fn list(text: &mut String, heading: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{heading}");
    for line in lines {
        let _ = writeln!(text, "  {line}");
    }
}

/// A row per class, and per policy in a comparison.
fn classes(scenarios: &[FabricScenario], results: &[FabricResult]) -> String {
    let compare = results.len() > 1;
    let figures = [
        "calls",
        "requested %",
        "ran %",
        "admitted %",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "p99.9 us/MTU",
        "objective",
        "met %",
        "goodput Gb/s",
    ];
    let (columns, names) = match compare {
        true => ("llrrrrrrrrlrr", &["class", "policy"][..]),
        false => ("lrrrrrrrrlrr", &["class"][..]),
    };
    let mut table = Table::new(columns, &[names, &figures].concat()).keys(names.len());
    for index in 0..results[0].classes.len() {
        for (scenario, result) in scenarios.iter().zip(results) {
            let class = &result.classes[index];
            let mut row = vec![class.name.clone()];
            if compare {
                row.push(result.policy.clone());
            }
            row.extend(cells(class, scenario.classes[index].slo.as_ref()));
            table.row(row);
        }
    }
    fitted(&table)
}

fn cells(class: &ClassResult, slo: Option<&CallSlo>) -> [String; 11] {
    let latency = |of: fn(&LatencySummary) -> f64| optional(class.rnl_us.as_ref().map(of));
    [
        class.issued.to_string(),
        percent(class.asked_share),
        percent(class.ran_share),
        percent(class.admitted_share),
        latency(|summary| summary.p50),
        latency(|summary| summary.p99),
        latency(|summary| summary.p999),
        optional(class.rnl_per_mtu_us.as_ref().map(|summary| summary.p999)),
        slo.map_or_else(|| "-".to_owned(), objective),
        class
            .ran_met_slo_share
            .map_or_else(|| "-".to_owned(), percent),
        number(class.goodput_gbps),
    ]
}

/// `99.9 % in 15us/MTU`.
pub(crate) fn objective(slo: &CallSlo) -> String {
    let per = if slo.per_mtu { "/MTU" } else { "" };
    format!("{} % in {}{per}", slo.percentile, slo.target)
}

/// A share in percent: two digits behind the point, so that 99.9 and 99.95 differ.
fn percent(share: f64) -> String {
    format!("{:.2}", share * 100.0)
}

/// What happened to the packets, in one line.
pub(crate) fn packets(result: &FabricResult) -> String {
    let counts = &result.packets;
    let dropped: u64 = counts.dropped.values().sum();
    let mut parts = vec![
        format!("{} sent, {} of them data", counts.sent, counts.data),
        format!("{} repeated", counts.repeated),
    ];
    parts.push(match dropped {
        0 => "none dropped".to_owned(),
        _ => {
            let reasons: Vec<String> = counts
                .dropped
                .iter()
                .filter(|(_, count)| **count > 0)
                .map(|(reason, count)| format!("{count} {reason}"))
                .collect();
            format!("{dropped} dropped ({})", reasons.join(", "))
        }
    });
    if counts.marked > 0 {
        parts.push(format!("{} marked", counts.marked));
    }
    if counts.pauses > 0 {
        parts.push(format!("{} pause frames", counts.pauses));
    }
    if counts.in_flight > 0 {
        parts.push(format!("{} still in flight", counts.in_flight));
    }
    parts.push(format!("{} events", counts.events));
    parts.join(", ")
}

fn ports(list: &[PortResult]) -> String {
    let headings = ["port", "largest queue KiB", "busy %", "dropped", "paused %"];
    let mut table = Table::new("lrrrr", &headings);
    for port in list.iter().take(PORTS_SHOWN) {
        table.row(vec![
            port.name.clone(),
            number(port.queue_max_bytes as f64 / 1024.0),
            number(port.utilisation * 100.0),
            port.dropped.to_string(),
            number(port.paused_share * 100.0),
        ]);
    }
    fitted(&table)
}

fn pairs(result: &FabricResult) -> String {
    let headings = [
        "from",
        "to",
        "class",
        "calls",
        "admitted %",
        "p50 us",
        "p99.9 us",
        "admit probability",
        "goodput Gb/s",
    ];
    let mut table = Table::new("rrlrrrrrr", &headings);
    for pair in result.pairs.iter().take(PAIRS_SHOWN) {
        let latency = pair.rnl_us.as_ref();
        let share = pair.admitted as f64 / pair.issued.max(1) as f64;
        table.row(vec![
            pair.from.to_string(),
            pair.to.to_string(),
            pair.class.clone(),
            pair.issued.to_string(),
            percent(share),
            optional(latency.map(|summary| summary.p50)),
            optional(latency.map(|summary| summary.p999)),
            optional(pair.admit_probability.map(|summary| summary.mean)),
            number(pair.goodput_gbps),
        ]);
    }
    let mut text = fitted(&table);
    let more = result.pairs.len().saturating_sub(PAIRS_SHOWN);
    if more > 0 {
        let _ = writeln!(text, "  ... and {more} more: --json has all");
    }
    text
}

fn figures(result: &FabricResult) -> String {
    let mut table = Table::new("lr", &["figure", "value"]);
    for (name, value) in &result.policy_state {
        table.row(vec![name.clone(), number(*value)]);
    }
    fitted(&table)
}
