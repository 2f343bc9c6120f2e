//! Tables of runs of tiered memory: applications side by side, why limits changed, tiers and the whole machine.

use super::{gigabytes, objective};
use crate::html::{escape, table};
use crate::number::{fixed, percent, significant, time, whole};
use isolane_study_results::memory::{MemAppResult, MemChange, MemResult};
use std::collections::BTreeMap;

/// Changes that the page lists for each application and policy, the last ones; the JSON has all.
const CHANGES_MAX: usize = 8;

const DASH: &str = "–";

/// One row for each application and policy.
pub(super) fn comparison(results: &[MemResult]) -> String {
    let columns = [
        "application",
        "policy",
        "verdict",
        "objective",
        "met",
        "latency, ns",
        "GB/s",
        "throughput",
        "one takes",
        "near, GB",
        "far, GB",
        "CPU limit",
    ];
    let mut rows = Vec::new();
    let count = results.first().map_or(0, |run| run.apps.len());
    for index in 0..count {
        for run in results {
            if let Some(app) = run.apps.get(index) {
                rows.push(row(app, &run.policy));
            }
        }
    }
    format!(
        "<section id=\"comparison\"><h2>Side by side</h2><p>Means over the measured time. An objective is met while the mean \
         of a second is within 5 % of it.</p>{}</section>\n",
        table("applications side by side", &columns, 4, rows)
    )
}

fn row(app: &MemAppResult, policy: &str) -> Vec<String> {
    let mut cells = vec![
        escape(&app.name),
        escape(policy),
        escape(app.verdict_words().unwrap_or(DASH)),
        objective(app).unwrap_or_else(|| DASH.to_owned()),
    ];
    if app.ran_s <= 0.0 {
        cells.resize(12, DASH.to_owned());
        return cells;
    }
    let met = match objective(app) {
        Some(_) => percent(app.slo_met_share),
        None => DASH.to_owned(),
    };
    cells.extend([
        met,
        app.latency_ns
            .map_or(DASH.to_owned(), |ns| significant(ns, 4)),
        significant(app.bandwidth_gb_per_s, 3),
        format!(
            "{} {}/s",
            significant(app.throughput, 3),
            escape(&app.operation)
        ),
        app.operation_us.map_or(DASH.to_owned(), time),
        gigabytes(app.local_bytes),
        gigabytes(app.far_bytes),
        percent(app.cpu_share),
    ]);
    cells
}

/// Why limits changed, for each policy that sets some: how often for each reason, and the last changes.
pub(super) fn changes(results: &[MemResult]) -> String {
    let several = results.len() > 1;
    let mut out = String::new();
    for (index, run) in results
        .iter()
        .enumerate()
        .filter(|(_, run)| !run.changes.is_empty())
    {
        let under = match several {
            true => format!(" under {}", escape(&run.policy)),
            false => String::new(),
        };
        out.push_str(&format!(
            "<section id=\"changes-{index}\"><h2>Why limits changed{under}</h2><p>{} changes in all. The table has the last \
             {CHANGES_MAX} of each application; near memory without a limit is shown as a dash.</p>{}{}</section>\n",
            whole(run.changes.len() as u64),
            counts(run),
            last(run)
        ));
    }
    out
}

/// How often limits of each application changed for each reason.
fn counts(run: &MemResult) -> String {
    let mut counts: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for change in &run.changes {
        *counts.entry((&change.app, &change.reason)).or_default() += 1;
    }
    let lines: String = run
        .apps
        .iter()
        .filter_map(|app| {
            let of = counts.iter().filter(|((name, _), _)| *name == app.name);
            let reasons: Vec<String> = of
                .map(|((_, reason), count)| format!("{} ({count})", escape(reason)))
                .collect();
            (!reasons.is_empty()).then(|| {
                format!(
                    "<div><dt>{}</dt><dd>{}</dd></div>",
                    escape(&app.name),
                    reasons.join("; ")
                )
            })
        })
        .collect();
    format!("<dl class=\"open\">{lines}</dl>")
}

fn last(run: &MemResult) -> String {
    let mut shown: Vec<&MemChange> = Vec::new();
    for app in &run.apps {
        let own = run.changes.iter().filter(|change| change.app == app.name);
        let own: Vec<&MemChange> = own.collect();
        shown.extend(&own[own.len().saturating_sub(CHANGES_MAX)..]);
    }
    let rows = shown.into_iter().map(|change| {
        vec![
            escape(&change.app),
            escape(&change.reason),
            fixed(change.at_s, 1),
            change.local_limit_bytes.map_or(DASH.to_owned(), gigabytes),
            percent(change.cpu_share),
        ]
    });
    let columns = ["application", "why", "at, s", "near limit, GB", "CPU limit"];
    let label = format!("last changes under {}", run.policy);
    table(&label, &columns, 2, rows)
}

/// Tiers and the whole machine, a row for each policy.
pub(super) fn machine(results: &[MemResult]) -> String {
    let mut rows = Vec::new();
    for run in results {
        for tier in &run.tiers {
            rows.push(vec![
                escape(&tier.name),
                escape(&run.policy),
                significant(tier.latency_ns, 4),
                significant(tier.bandwidth_gb_per_s, 3),
                percent(tier.utilisation),
                gigabytes(tier.used_bytes),
                percent(tier.queue_full_share),
            ]);
        }
    }
    let columns = [
        "tier",
        "policy",
        "latency, ns",
        "GB/s",
        "of its bandwidth",
        "memory used, GB",
        "queue full",
    ];
    let tiers = table("tiers", &columns, 2, rows);
    let rows = results.iter().map(|run| {
        let all = &run.machine_wide;
        let count = |name: &str| whole(all.counts.get(name).copied().unwrap_or(0));
        vec![
            escape(&run.policy),
            percent(all.slots_busy_share),
            significant(all.slot_wait_ns, 3),
            significant(all.hint_faults_per_s, 3),
            count("promoted_pages"),
            count("demoted_pages"),
            count("actions"),
        ]
    });
    let columns = [
        "policy",
        "request slots in use",
        "wait for a slot, ns",
        "hint faults per s",
        "pages promoted",
        "pages demoted",
        "actions",
    ];
    let whole_machine = table("the whole machine", &columns, 1, rows);
    let healthy = results.first().map_or(String::new(), |run| {
        let all = &run.machine_wide;
        format!(
            "<p>By the microbenchmarks up to {} GB/s of the near tier and {} hint faults per second are healthy: beyond, an \
             application that is sensitive to latency loses a tenth.</p>",
            significant(all.healthy_local_gb_per_s, 3),
            significant(all.healthy_hint_faults_per_s, 3)
        )
    });
    format!(
        "<section id=\"tiers\"><h2>Tiers</h2>{tiers}</section>\n<section id=\"machine\"><h2>The whole machine</h2>{healthy}\
         {whole_machine}</section>\n"
    )
}
