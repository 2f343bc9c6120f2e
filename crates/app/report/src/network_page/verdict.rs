//! The first sentence about runs on a network, and the plot that shows it.
//!
//! Classes with an objective come first: which keep it under which policy, as the share of the calls that ran in the
//! class and were in time. Without an objective the sentence gives the 99th percentile of latency, and where no call ended
//! the goodput.

use super::Run;
use crate::html::{figure, listed};
use crate::number::{bit_rate, fixed, time};
use crate::svg::{Bar, BarPlot, BarRow, INKS};
use isolane_study_results::network::ClassResult;

const WIDTH: f64 = 420.0;

/// What the page's first sentence and plot are about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Subject {
    /// Calls in time, of those that ran in a class with an objective, percent.
    InTime,
    /// 99th percentile of latency, microseconds.
    Latency,
    /// Payload, Gb/s.
    Goodput,
}

impl Subject {
    fn of(runs: &[Run<'_>]) -> Self {
        let classes = || runs.iter().flat_map(|run| &run.result.classes);
        if runs[0]
            .scenario
            .classes
            .iter()
            .any(|class| class.slo.is_some())
        {
            return Self::InTime;
        }
        match classes().any(|class| class.rnl_us.is_some()) {
            true => Self::Latency,
            false => Self::Goodput,
        }
    }

    fn value(self, class: &ClassResult) -> Option<f64> {
        match self {
            // A class in which no call ended in time kept nothing.
            Self::InTime => Some(100.0 * class.ran_met_slo_share.unwrap_or(0.0)),
            Self::Latency => class.rnl_us.map(|latency| latency.p99),
            Self::Goodput => Some(class.goodput_gbps),
        }
    }

    fn text(self, value: f64) -> String {
        match self {
            Self::InTime => format!("{}%", fixed(value, 2)),
            Self::Latency => time(value),
            Self::Goodput => bit_rate(value),
        }
    }
}

/// A class: name, place, and of an objective its percentile in percent and its words.
type Shown<'a> = (&'a str, usize, Option<(f64, String)>);

/// The classes that the sentence and the plot are about.
fn classes<'a>(runs: &[Run<'a>], subject: Subject) -> Vec<Shown<'a>> {
    let all = runs[0].scenario.classes.iter().enumerate();
    all.filter_map(|(index, class)| {
        let slo = class.slo.map(|slo| {
            let per = if slo.per_mtu { " per MTU" } else { "" };
            (
                slo.percentile,
                format!("{}{per}", time(slo.target.as_us_f64())),
            )
        });
        let shown = subject != Subject::InTime || slo.is_some();
        shown.then_some((class.name.as_str(), index, slo))
    })
    .collect()
}

pub(super) fn sentence(runs: &[Run<'_>]) -> String {
    let subject = Subject::of(runs);
    let parts: Vec<String> = classes(runs, subject)
        .into_iter()
        .map(|(name, index, slo)| {
            let of: Vec<(&str, f64)> = runs
                .iter()
                .filter_map(|run| {
                    let value = subject.value(run.result.classes.get(index)?)?;
                    Some((run.result.policy.as_str(), value))
                })
                .collect();
            match slo {
                Some((percentile, target)) if subject == Subject::InTime => {
                    kept(name, percentile, &target, &of)
                }
                _ => got(subject, name, &of),
            }
        })
        .collect();
    format!("{}.", parts.join("; "))
}

/// Under which policies a class keeps its objective.
fn kept(name: &str, percentile: f64, target: &str, of: &[(&str, f64)]) -> String {
    let with = |wanted: bool| -> Vec<String> {
        of.iter()
            .filter(|(_, value)| (*value >= percentile) == wanted)
            .map(|(policy, value)| format!("{policy} ({})", Subject::InTime.text(*value)))
            .collect()
    };
    let (keeps, misses) = (with(true), with(false));
    let objective = format!("its objective ({percentile}% of its calls within {target})");
    match (keeps.is_empty(), misses.is_empty()) {
        (false, true) => format!("{name} keeps {objective} under {}", listed(&keeps)),
        (true, _) => format!("{name} misses {objective} under {}", listed(&misses)),
        (false, false) => format!(
            "{name} keeps {objective} under {} and misses it under {}",
            listed(&keeps),
            listed(&misses)
        ),
    }
}

/// What a class got under each policy.
fn got(subject: Subject, name: &str, of: &[(&str, f64)]) -> String {
    let what = match subject {
        Subject::Goodput => "goodput",
        _ => "p99 latency",
    };
    let values: Vec<String> = of
        .iter()
        .map(|(policy, value)| format!("{} under {policy}", subject.text(*value)))
        .collect();
    match values.is_empty() {
        true => format!("{name} ends no call"),
        false => format!("{name} has a {what} of {}", listed(&values)),
    }
}

/// The plot of the verdict, as a figure.
pub(super) fn plot(runs: &[Run<'_>]) -> String {
    let subject = Subject::of(runs);
    let (caption, axis) = match subject {
        Subject::InTime => (
            "<b>Calls in time</b> of those that ran in a class; the line is the objective",
            "calls in time, % of those that ran in the class",
        ),
        Subject::Latency => (
            "<b>99th percentile latency</b> of every class's calls",
            "p99 latency, µs",
        ),
        Subject::Goodput => ("<b>Goodput</b> of every class", "goodput, Gb/s"),
    };
    let rows = classes(runs, subject)
        .into_iter()
        .map(|(name, index, slo)| BarRow {
            name: match &slo {
                Some((percentile, target)) => format!("{name}: {percentile}% within {target}"),
                None => name.to_owned(),
            },
            bars: runs
                .iter()
                .enumerate()
                .filter_map(|(order, run)| {
                    let value = subject.value(run.result.classes.get(index)?)?;
                    Some(Bar {
                        name: run.result.policy.clone(),
                        ink: order % INKS,
                        value,
                        text: subject.text(value),
                    })
                })
                .collect(),
            bound: match subject {
                Subject::InTime => slo.map(|(percentile, _)| percentile),
                _ => None,
            },
        });
    let plot = BarPlot {
        label: axis.to_owned(),
        x_title: axis.to_owned(),
        x_max: match subject {
            Subject::InTime => 100.0,
            _ => 0.0,
        },
        rows: rows.collect(),
        width: WIDTH,
    };
    let stem = format!("{}-verdict", runs[0].result.scenario);
    figure(&stem, caption, &plot.render())
}
