//! An application over time: latency or bandwidth against its objective, near memory, processor time.
//!
//! A line for each policy, all on one time axis that begins with the run, warm-up included; where it did not run the line
//! has a gap. The figure of its own objective comes first.

use super::{gigabytes, plain};
use crate::html::figure;
use crate::svg::{INKS, LinePlot, LineSeries, Mark, Rule};
use isolane_study_results::memory::{MemAppPoint, MemAppResult, MemResult};

const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 230.0;

/// What a figure shows.
struct Subject {
    stem: &'static str,
    caption: &'static str,
    axis: &'static str,
    of: fn(&MemAppPoint) -> f64,
    least: f64,
    rule: Option<Rule>,
}

fn subject(
    stem: &'static str,
    caption: &'static str,
    axis: &'static str,
    of: fn(&MemAppPoint) -> f64,
) -> Subject {
    Subject {
        stem,
        caption,
        axis,
        of,
        least: 0.0,
        rule: None,
    }
}

/// The figures of application `index`, as markup; nothing without a series.
pub(super) fn of(results: &[MemResult], index: usize) -> String {
    let Some(app) = results.first().and_then(|run| run.apps.get(index)) else {
        return String::new();
    };
    let figures = subjects(results, app, index)
        .into_iter()
        .filter_map(|subject| {
            let plot = plot(results, app, &subject)?;
            let stem = format!("{}-{}", app.name, subject.stem);
            let caption = format!("<b>{}</b>", subject.caption);
            Some(figure(&stem, &caption, &plot))
        });
    figures.collect()
}

fn subjects(results: &[MemResult], app: &MemAppResult, index: usize) -> Vec<Subject> {
    let limit = |sign: &str, value: f64| Rule {
        name: format!("{sign} {}", plain(value)),
        value,
    };
    let latency = Subject {
        rule: app.slo_latency_ns.map(|ns| limit("≤", ns)),
        ..subject("latency", "Latency of its loads", "latency, ns", |point| {
            point.latency_ns
        })
    };
    let bandwidth = Subject {
        rule: app.slo_bandwidth_gb_per_s.map(|rate| limit("≥", rate)),
        ..subject("bandwidth", "Bandwidth", "bandwidth, GB/s", |point| {
            point.bandwidth_gb_per_s
        })
    };
    let mut profiles = results
        .iter()
        .filter_map(|run| run.apps.get(index)?.profile);
    let memory = Subject {
        rule: profiles
            .next()
            .filter(|profile| profile.admissible)
            .map(|profile| Rule {
                name: format!("alone {}", gigabytes(profile.local_bytes)),
                value: profile.local_bytes as f64 / 1e9,
            }),
        ..subject(
            "near-memory",
            "Near memory it holds",
            "near memory, GB",
            |point| point.local_bytes as f64 / 1e9,
        )
    };
    let processor = Subject {
        least: 100.0,
        ..subject(
            "cpu-limit",
            "Processor time it may use",
            "% of its cores",
            |point| point.cpu_share * 100.0,
        )
    };
    match app.slo_bandwidth_gb_per_s {
        Some(_) => vec![bandwidth, latency, memory, processor],
        None => vec![latency, bandwidth, memory, processor],
    }
}

fn plot(results: &[MemResult], app: &MemAppResult, subject: &Subject) -> Option<String> {
    let step = results.iter().find_map(step)?;
    let first = results.first()?;
    let series = results.iter().enumerate().map(|(ink, run)| LineSeries {
        name: run.policy.clone(),
        ink: ink % INKS,
        // The first point is of the moment zero, where nothing has passed yet.
        values: run
            .series
            .iter()
            .skip(1)
            .map(|point| point.apps.get(&app.name).map_or(f64::NAN, subject.of))
            .collect(),
    });
    let series: Vec<LineSeries> = series
        .filter(|line| line.values.iter().any(|value| value.is_finite()))
        .collect();
    if series.is_empty() {
        return None;
    }
    let plot = LinePlot {
        label: format!("{} of {} over time", subject.caption, app.name),
        y_title: subject.axis.to_owned(),
        x_title: "time, s".to_owned(),
        x_step: step,
        y_max: subject.least,
        series,
        rules: subject.rule.iter().cloned().collect(),
        mark: (first.warmup_s > 0.0).then(|| Mark {
            name: "measured from here".to_owned(),
            at: first.warmup_s,
        }),
        width: WIDTH,
        height: HEIGHT,
        ..LinePlot::default()
    };
    Some(plot.render())
}

/// Seconds between two points.
fn step(run: &MemResult) -> Option<f64> {
    match run.series.as_slice() {
        [first, second, ..] => Some(second.at_s - first.at_s),
        _ => None,
    }
}
