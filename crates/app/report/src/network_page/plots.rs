//! Plots of a network's runs: latency per class with its objective, the mix, time series.
//!
//! Axes are shared by all runs of a page. Series of pairs and ports can be many: the page draws the first few of a kind and
//! says how many there are; the JSON beside it has all.

use super::Run;
use crate::html::{escape, figure};
use crate::number::{percent, time};
use crate::svg::{Bar, BarPlot, BarRow, Dot, DotPlot, DotRow, INKS, LinePlot, LineSeries, Rule};
use isolane_study_results::network::{ClassResult, LatencySummary};
use std::collections::BTreeMap;

const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 230.0;
/// Lines of one plot.
const LINES_MAX: usize = 8;

/// Every plot that the runs have values for.
pub(super) fn all(runs: &[Run<'_>]) -> String {
    let mut out = String::new();
    let per_mtu = |wanted: bool| move |run: &Run<'_>| latency(run, runs, wanted);
    let has_objective = |wanted: bool| {
        let classes = &runs[0].scenario.classes;
        classes
            .iter()
            .any(|class| class.slo.is_some_and(|slo| slo.per_mtu == wanted))
    };
    let mark = match runs[0]
        .scenario
        .classes
        .iter()
        .any(|class| class.slo.is_some())
    {
        true => " A bar across a line is the class's objective.",
        false => "",
    };
    // Whole calls unless every objective is per MTU.
    if has_objective(false) || !has_objective(true) {
        let title = "Network latency of calls, by the class they ran in";
        let lede = format!("Percentiles of whole calls.{mark}");
        out.push_str(&multiples("latency", title, &lede, runs, per_mtu(false)));
    }
    if has_objective(true) {
        let title = "Network latency per MTU, by the class calls ran in";
        let lede = format!("A call's latency divided by its MTUs.{mark}");
        out.push_str(&multiples(
            "latency-per-mtu",
            title,
            &lede,
            runs,
            per_mtu(true),
        ));
    }
    let lede = "Parts of the payload: which class calls requested, which they ran in, and how much of what requested \
                a class ran there in time.";
    let title = "The requested mix, and the mix that ran";
    out.push_str(&multiples("mix", title, lede, runs, |run| {
        Some(mix(run, runs))
    }));
    for (kind, count) in kinds(runs) {
        let (title, axis) = words(kind);
        let lede = match count > LINES_MAX {
            true => format!("The first {LINES_MAX} of {count}; the JSON has all."),
            false => String::new(),
        };
        let id = format!("series-{}", kind.replace(['_', '/'], "-"));
        out.push_str(&multiples(&id, &title, &lede, runs, |run| {
            lines(run, runs, kind, &axis)
        }));
    }
    out
}

fn multiples(
    id: &str,
    title: &str,
    lede: &str,
    runs: &[Run<'_>],
    plot: impl Fn(&Run<'_>) -> Option<String>,
) -> String {
    let figures: String = runs
        .iter()
        .filter_map(|run| {
            let stem = format!("{}-{}-{id}", run.result.scenario, run.result.policy);
            let caption = format!("<b>{}</b>", escape(&run.result.policy));
            plot(run).map(|plot| figure(&stem, &caption, &plot))
        })
        .collect();
    if figures.is_empty() {
        return String::new();
    }
    let lede = match lede {
        "" => String::new(),
        lede => format!("<p>{}</p>", escape(lede)),
    };
    format!(
        "<section id=\"{}\"><h2>{}</h2>{lede}<div class=\"multiples\">{figures}</div></section>\n",
        escape(id),
        escape(title)
    )
}

/// The style sheet's colour of a class: grey is left to what is no class.
fn ink(index: usize) -> usize {
    1 + index % (INKS - 1)
}

fn summary(class: &ClassResult, per_mtu: bool) -> Option<LatencySummary> {
    match per_mtu {
        true => class.rnl_per_mtu_us,
        false => class.rnl_us,
    }
    .filter(|summary| summary.count > 0 && summary.p50 > 0.0)
}

fn latency(run: &Run<'_>, runs: &[Run<'_>], per_mtu: bool) -> Option<String> {
    let rows: Vec<DotRow> = run
        .result
        .classes
        .iter()
        .enumerate()
        .filter_map(|(index, class)| {
            let latency = summary(class, per_mtu)?;
            let slo = run.scenario.classes.get(index).and_then(|class| class.slo);
            let slo = slo.filter(|slo| slo.per_mtu == per_mtu);
            let bound = slo.map(|slo| slo.target.as_us_f64());
            let objective = slo.map_or_else(String::new, |slo| {
                let target = time(slo.target.as_us_f64());
                format!(", {}% in {target}", slo.percentile)
            });
            let points = [
                ("p50", latency.p50),
                ("p99", latency.p99),
                ("p99.9", latency.p999),
            ];
            Some(DotRow {
                name: format!("{}: p99.9 {}{objective}", class.name, time(latency.p999)),
                ink: ink(index),
                dots: Dot::all(points, time),
                bound,
            })
        })
        .collect();
    if rows.is_empty() {
        return None;
    }
    let everywhere = || {
        let classes = runs.iter().flat_map(|run| &run.result.classes);
        classes.filter_map(|class| summary(class, per_mtu))
    };
    let low = everywhere()
        .map(|one| one.p50)
        .fold(f64::INFINITY, f64::min);
    let high = everywhere().map(|one| one.p999).fold(low, f64::max);
    let plot = DotPlot {
        label: format!("Under {}: latency percentiles per class", run.result.policy),
        x_title: match per_mtu {
            true => "latency per MTU, µs (logarithmic)",
            false => "latency, µs (logarithmic)",
        }
        .to_owned(),
        x_range: (low, high),
        rows,
        width: WIDTH,
    };
    Some(plot.render())
}

fn mix(run: &Run<'_>, runs: &[Run<'_>]) -> String {
    let rows = run.result.classes.iter().enumerate().map(|(index, class)| {
        let bar = |name: &str, ink: usize, share: f64| Bar {
            name: name.to_owned(),
            ink,
            value: share * 100.0,
            text: percent(share),
        };
        let mut bars = vec![
            bar("asked", 0, class.asked_share),
            bar("ran", ink(index), class.ran_share),
        ];
        if let Some(met) = class.met_slo_bytes_share {
            bars.push(bar("in time", ink(index), met * class.asked_share));
        }
        BarRow {
            name: class.name.clone(),
            bars,
            bound: None,
        }
    });
    let most = runs
        .iter()
        .flat_map(|run| &run.result.classes)
        .map(|class| class.asked_share.max(class.ran_share))
        .fold(0.0, f64::max);
    BarPlot {
        label: format!("Under {}: part of the payload per class", run.result.policy),
        x_title: "part of all payload, %".to_owned(),
        x_max: most * 100.0,
        rows: rows.collect(),
        width: WIDTH,
    }
    .render()
}

/// Kinds of series over all runs, with the most that a run has of each; those of classes first.
fn kinds<'a>(runs: &[Run<'a>]) -> Vec<(&'a str, usize)> {
    let mut most: BTreeMap<&str, usize> = BTreeMap::new();
    for run in runs {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let series = run.result.series.iter().flat_map(|series| &series.values);
        for (name, _) in series {
            *counts.entry(kind_of(name)).or_default() += 1;
        }
        for (kind, count) in counts {
            let entry = most.entry(kind).or_default();
            *entry = count.max(*entry);
        }
    }
    let order = |kind: &str| {
        ["rnl", "goodput", "ran", "admit", "outstanding", "queue"]
            .iter()
            .position(|prefix| kind.starts_with(prefix))
            .unwrap_or(usize::MAX)
    };
    let mut kinds: Vec<_> = most.into_iter().collect();
    kinds.sort_by_key(|(kind, _)| (order(kind), *kind));
    kinds
}

/// What a series is of: the same figure of a class and of a pair are two kinds.
fn kind_of(name: &str) -> &str {
    let (figure, rest) = name.split_once('/').unwrap_or((name, ""));
    match rest.split_once('/') {
        Some(_) if figure != "admit" => &name[..=figure.len()],
        _ => figure,
    }
}

/// Title and axis of a kind.
fn words(kind: &str) -> (String, String) {
    if let Some(figure) = kind.strip_suffix('/') {
        let (title, axis) = words(figure);
        return (format!("{title}, of pairs"), axis);
    }
    let known = [
        (
            "ran_share",
            "Part of the payload that ran in each class over time",
            "part of the payload",
        ),
        (
            "rnl_p50_us",
            "Median latency over time",
            "median latency, µs",
        ),
        (
            "rnl_p99_us",
            "99th percentile of latency over time",
            "p99 latency, µs",
        ),
        (
            "rnl_p999_us",
            "99.9th percentile of latency over time",
            "p99.9 latency, µs",
        ),
        ("goodput_gbps", "Goodput over time", "goodput, Gb/s"),
        ("admit", "Admit probability over time", "admit probability"),
        ("queue_bytes", "Queues over time", "queue, bytes"),
    ];
    let found = known.iter().find(|(name, ..)| *name == kind);
    match found {
        Some((_, title, axis)) => ((*title).to_owned(), (*axis).to_owned()),
        None => (
            format!("{} over time", kind.replace('_', " ")),
            kind.replace('_', " "),
        ),
    }
}

fn lines(run: &Run<'_>, runs: &[Run<'_>], kind: &str, axis: &str) -> Option<String> {
    let all = run.result.series.as_ref()?;
    let of_kind = all.values.iter().filter(|(name, _)| kind_of(name) == kind);
    let series: Vec<LineSeries> = of_kind
        .take(LINES_MAX)
        .enumerate()
        .map(|(order, (name, values))| {
            let short = name.split_once('/').map_or(name.as_str(), |(_, rest)| rest);
            let class = run
                .result
                .classes
                .iter()
                .position(|class| class.name == short);
            LineSeries {
                name: short.to_owned(),
                ink: ink(class.unwrap_or(order)),
                values: values
                    .iter()
                    .map(|value| value.unwrap_or(f64::NAN))
                    .collect(),
            }
        })
        .collect();
    if series.is_empty() {
        return None;
    }
    let everywhere = runs.iter().filter_map(|run| run.result.series.as_ref());
    let y_max = everywhere
        .flat_map(|series| &series.values)
        .filter(|(name, _)| kind_of(name) == kind)
        .flat_map(|(_, values)| values.iter().flatten())
        .copied()
        .filter(|value| value.is_finite())
        .fold(0.0, f64::max);
    let points = series.iter().map(|one| one.values.len()).max().unwrap_or(0);
    let milliseconds = all.interval_us * points as f64 >= 2_000.0;
    let (x_title, per_unit) = match milliseconds {
        true => ("time, ms", 1_000.0),
        false => ("time, µs", 1.0),
    };
    let plot = LinePlot {
        label: format!("Under {}: {axis} over time", run.result.policy),
        y_title: axis.to_owned(),
        x_title: x_title.to_owned(),
        x_step: all.interval_us / per_unit,
        y_max,
        series,
        rules: rules(run, kind),
        width: WIDTH,
        height: HEIGHT,
        ..LinePlot::default()
    };
    Some(plot.render())
}

/// Objectives of whole calls across lines of their latency.
fn rules(run: &Run<'_>, kind: &str) -> Vec<Rule> {
    if !kind.starts_with("rnl_p9") {
        return Vec::new();
    }
    let classes = run.scenario.classes.iter();
    classes
        .filter_map(|class| {
            let slo = class.slo.filter(|slo| !slo.per_mtu)?;
            Some(Rule {
                name: format!("objective of {}", class.name),
                value: slo.target.as_us_f64(),
            })
        })
        .collect()
}
