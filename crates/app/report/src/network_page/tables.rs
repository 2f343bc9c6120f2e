//! Tables of a network's runs.

use super::Run;
use crate::html::{escape, table};
use crate::number::{bit_rate, fixed, percent, significant, time, whole};
use isolane_study_results::network::{ClassResult, FabricResult, LatencySummary, PortResult};

/// Pairs that the page lists; the JSON has all.
const PAIRS_MAX: usize = 200;

fn dash(value: Option<String>) -> String {
    value.unwrap_or_else(|| "–".to_owned())
}

/// A share with enough digits to distinguish 99.9 from 99.95.
fn fine(share: f64) -> String {
    format!("{}%", fixed(share * 100.0, 2))
}

/// One row per class and policy.
pub(super) fn comparison(runs: &[Run<'_>]) -> String {
    let columns = [
        "class",
        "policy",
        "ran",
        "p50",
        "p99",
        "p99.9",
        "in time",
        "asked and in time",
        "goodput",
    ];
    let mut rows = Vec::new();
    for index in 0..runs[0].result.classes.len() {
        for run in runs {
            let Some(class) = run.result.classes.get(index) else {
                continue;
            };
            let latency = |of: fn(&LatencySummary) -> f64| {
                dash(class.rnl_us.as_ref().map(|summary| time(of(summary))))
            };
            rows.push(vec![
                escape(&class.name),
                escape(&run.result.policy),
                percent(class.ran_share),
                latency(|summary| summary.p50),
                latency(|summary| summary.p99),
                latency(|summary| summary.p999),
                dash(class.ran_met_slo_share.map(fine)),
                dash(class.met_slo_share.map(fine)),
                bit_rate(class.goodput_gbps),
            ]);
        }
    }
    format!(
        "<section id=\"comparison\"><h2>Side by side</h2>{}</section>\n",
        table("classes under each policy", &columns, 2, rows)
    )
}

pub(super) fn details(run: &Run<'_>, index: usize, several: bool) -> String {
    let result = run.result;
    let under = match several {
        true => format!(" under {}", escape(&result.policy)),
        false => String::new(),
    };
    let section = |id: &str, title: &str, body: &str| match body {
        "" => String::new(),
        body => format!("<section id=\"{id}-{index}\"><h2>{title}{under}</h2>{body}</section>\n"),
    };
    [
        section("classes", "Classes", &classes(&result.classes)),
        section("packets", "Packets", &packets(result)),
        section("ports", "Fullest ports", &ports(&result.ports.fullest)),
        section("busiest", "Busiest ports", &ports(&result.ports.busiest)),
        section("pairs", "Pairs", &pairs(result)),
        section("policy", "The policy's own figures", &figures(result)),
    ]
    .concat()
}

fn classes(classes: &[ClassResult]) -> String {
    let columns = [
        "class",
        "calls",
        "admitted",
        "downgraded",
        "given up",
        "unfinished",
        "asked",
        "ran",
        "p50",
        "p99",
        "p99.9",
        "longest",
        "p99.9 per MTU",
        "in time",
        "asked and in time",
        "outstanding p99",
        "goodput",
    ];
    let rows = classes.iter().map(|class| {
        let latency = |of: fn(&LatencySummary) -> f64| {
            dash(class.rnl_us.as_ref().map(|summary| time(of(summary))))
        };
        vec![
            escape(&class.name),
            whole(class.issued),
            fine(class.admitted_share),
            whole(class.downgraded),
            whole(class.terminated),
            whole(class.unfinished),
            percent(class.asked_share),
            percent(class.ran_share),
            latency(|summary| summary.p50),
            latency(|summary| summary.p99),
            latency(|summary| summary.p999),
            latency(|summary| summary.max),
            dash(class.rnl_per_mtu_us.map(|summary| time(summary.p999))),
            dash(class.ran_met_slo_share.map(fine)),
            dash(class.met_slo_share.map(fine)),
            significant(class.outstanding_p99, 3),
            bit_rate(class.goodput_gbps),
        ]
    });
    table("classes", &columns, 1, rows)
}

fn packets(result: &FabricResult) -> String {
    let counts = &result.packets;
    let mut rows = vec![
        ("sent".to_owned(), counts.sent),
        ("data".to_owned(), counts.data),
        ("delivered".to_owned(), counts.delivered),
        ("in flight at the end".to_owned(), counts.in_flight),
        ("sent again".to_owned(), counts.repeated),
        ("marked".to_owned(), counts.marked),
        ("pause frames".to_owned(), counts.pauses),
    ];
    let dropped = counts.dropped.iter();
    rows.extend(dropped.map(|(reason, count)| (format!("dropped: {reason}"), *count)));
    let rows = rows
        .into_iter()
        .map(|(name, count)| vec![escape(&name), whole(count)]);
    table("packets", &["packets", "count"], 1, rows)
}

fn ports(list: &[PortResult]) -> String {
    if list.is_empty() {
        return String::new();
    }
    let columns = ["port", "largest queue", "busy", "dropped", "paused"];
    let rows = list.iter().map(|port| {
        vec![
            escape(&port.name),
            format!(
                "{} KiB",
                significant(port.queue_max_bytes as f64 / 1024.0, 3)
            ),
            percent(port.utilisation),
            whole(port.dropped),
            percent(port.paused_share),
        ]
    });
    table("ports", &columns, 1, rows)
}

fn pairs(result: &FabricResult) -> String {
    if result.pairs.is_empty() {
        return String::new();
    }
    let columns = [
        "pair",
        "class",
        "calls",
        "admitted",
        "p50",
        "p99.9",
        "admit probability",
        "goodput",
    ];
    let rows = result.pairs.iter().take(PAIRS_MAX).map(|pair| {
        let share = pair.admitted as f64 / pair.issued.max(1) as f64;
        vec![
            format!("{} → {}", pair.from, pair.to),
            escape(&pair.class),
            whole(pair.issued),
            fine(share),
            dash(pair.rnl_us.map(|summary| time(summary.p50))),
            dash(pair.rnl_us.map(|summary| time(summary.p999))),
            dash(
                pair.admit_probability
                    .map(|summary| significant(summary.mean, 3)),
            ),
            bit_rate(pair.goodput_gbps),
        ]
    });
    let mut out = table("pairs of hosts", &columns, 2, rows);
    let more = result.pairs.len().saturating_sub(PAIRS_MAX);
    if more > 0 {
        out.push_str(&format!(
            "<p>{} more pairs are in the JSON beside this page.</p>",
            whole(more as u64)
        ));
    }
    out
}

fn figures(result: &FabricResult) -> String {
    if result.policy_state.is_empty() {
        return String::new();
    }
    let rows = result.policy_state.iter().map(|(name, value)| {
        let value = match value.fract() == 0.0 {
            true => fixed(*value, 0),
            false => significant(*value, 4),
        };
        vec![format!("<code>{}</code>", escape(name)), value]
    });
    table("the policy's figures", &["figure", "value"], 1, rows)
}
