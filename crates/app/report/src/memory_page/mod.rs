//! The page of one run of tiered memory, or of one scenario under several policies side by side.
//!
//! Everything is static: tables and SVG. Each application has its own section: its objective, and over time what it
//! got, how much near memory it held and how much processor time it could use, a line for each policy. A policy keeps its
//! colour on the whole page. Then who was refused and why, and why limits changed.
//!
//! * [`verdict`] - the first sentence and its plot;
//! * [`plots`] - an application's figures over time; [`tables`] - figures side by side, tiers, changes of limits.

mod plots;
mod tables;
#[cfg(test)]
mod tests;
mod verdict;

use crate::html::{Opening, Page, escape, nothing};
use crate::number::significant;
use isolane_study_results::memory::{MemAppResult, MemResult};
use std::collections::BTreeSet;

/// The whole file; `remarks` has what there is to say of each run.
pub(crate) fn page(results: &[MemResult], remarks: &[Vec<String>]) -> String {
    let Some(first) = results.first() else {
        return nothing();
    };
    let verdict = verdict::sentence(results);
    let mut body = opening(results, &verdict);
    body.push_str(&notes(results, remarks));
    body.push_str(&tables::comparison(results));
    for index in 0..first.apps.len() {
        body.push_str(&application(results, index));
    }
    body.push_str(&tables::changes(results));
    body.push_str(&tables::machine(results));
    let body = format!("<main id=\"main\">\n{body}</main>\n");
    let source = format!(
        "results in JSON form {}. Nanoseconds and bandwidths are those of the model",
        first.version
    );
    let title = format!("{} on {}", first.scenario, first.machine);
    Page::plain(&title, &verdict, &body, &source)
}

fn sentence(results: &[MemResult]) -> String {
    let first = &results[0];
    let policies: Vec<&str> = results.iter().map(|run| run.policy.as_str()).collect();
    let applications = match first.apps.len() {
        1 => "1 application".to_owned(),
        several => format!("{several} applications"),
    };
    let after = match first.warmup_s > 0.0 {
        true => format!(" after {} s", plain(first.warmup_s)),
        false => String::new(),
    };
    format!(
        "{applications} under {}, {} s measured{after}",
        policies.join(", "),
        plain(first.measured_s)
    )
}

fn opening(results: &[MemResult], verdict: &str) -> String {
    let first = &results[0];
    let seeds: BTreeSet<u64> = results.iter().map(|run| run.seed).collect();
    let seeds: Vec<String> = seeds.iter().map(u64::to_string).collect();
    let tiers: Vec<String> = first
        .tiers
        .iter()
        .map(|tier| {
            format!(
                "{} {} GB",
                escape(&tier.name),
                gigabytes(tier.capacity_bytes)
            )
        })
        .collect();
    let kicker = format!(
        "{} · {} · seed {}",
        escape(&first.machine),
        tiers.join(" · "),
        seeds.join(", ")
    );
    Opening {
        kicker: &kicker,
        title: &first.scenario,
        verdict,
        about: &format!("{}.", sentence(results)),
        plot: &verdict::plot(results),
    }
    .render()
}

/// Who may not run and why, who runs with less than it needs, and what of the scenario has no effect.
fn notes(results: &[MemResult], remarks: &[Vec<String>]) -> String {
    let mut lines = Vec::new();
    for (index, run) in results.iter().enumerate() {
        let policy = escape(&run.policy);
        for app in &run.apps {
            let Some(reason) = &app.verdict_reason else {
                continue;
            };
            let verdict = match app.is_refused() {
                true => "rejects",
                false => "admits on best effort",
            };
            lines.push(format!(
                "<li><b>{policy}</b> {verdict} <b>{}</b>: {}.</li>",
                escape(&app.name),
                escape(reason)
            ));
        }
        for remark in remarks.get(index).into_iter().flatten() {
            lines.push(format!("<li>{}.</li>", escape(remark)));
        }
    }
    match lines.is_empty() {
        true => String::new(),
        false => format!(
            "<section id=\"notes\"><h2>In words</h2><ul class=\"notes\">{}</ul></section>\n",
            lines.concat()
        ),
    }
}

/// One application under every policy.
fn application(results: &[MemResult], index: usize) -> String {
    let Some(app) = results.first().and_then(|run| run.apps.get(index)) else {
        return String::new();
    };
    let mut about = vec![
        format!("{}, priority {}", escape(&app.kind), app.priority),
        objective_in_words(app),
    ];
    let profiles = results
        .iter()
        .filter_map(|run| run.apps.get(index)?.profile);
    if let Some(profile) = profiles.into_iter().next() {
        about.push(match profile.admissible {
            true => format!(
                "alone it needs {} GB of near memory and {} % of its processor time",
                gigabytes(profile.local_bytes),
                significant(profile.cpu_share * 100.0, 3)
            ),
            false => "not even alone can it have that here".to_owned(),
        });
    }
    let figures = plots::of(results, index);
    let figures = match figures.is_empty() {
        true => "<p>No points over time were recorded.</p>".to_owned(),
        false => format!("<div class=\"multiples\">{figures}</div>"),
    };
    format!(
        "<section id=\"app-{index}\"><h2>{}</h2><p>{}.</p>{figures}</section>\n",
        escape(&app.name),
        about.join("; ")
    )
}

/// The objective of the application, in words.
fn objective_in_words(app: &MemAppResult) -> String {
    match objective(app) {
        Some(text) => format!("objective: {text}"),
        None => "no objective".to_owned(),
    }
}

/// The objective with its unit.
fn objective(app: &MemAppResult) -> Option<String> {
    match (app.slo_latency_ns, app.slo_bandwidth_gb_per_s) {
        (Some(ns), _) => Some(format!("≤ {} ns", plain(ns))),
        (_, Some(rate)) => Some(format!("≥ {} GB/s", plain(rate))),
        _ => None,
    }
}

/// Four significant digits at most, as people write an objective or a time.
fn plain(value: f64) -> String {
    let text = significant(value, 4);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

fn gigabytes(bytes: u64) -> String {
    significant(bytes as f64 / 1e9, 3)
}
