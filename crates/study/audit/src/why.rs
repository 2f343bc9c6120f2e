//! Why a cell has its verdict, in one sentence.

use crate::cell::{Exhausted, Expected, JudgedMetric, Settling, Verdict};
use crate::predicate::{Judgement, with_unit};
use isolane_common_quantities::settle::SAMPLES;
use isolane_common_quantities::units::Duration;
use std::fmt::Write;

/// The cell in one sentence.
pub(crate) fn why(
    expected: &Expected,
    judgement: &Judgement,
    exhausted: Option<&Exhausted>,
) -> String {
    let got = match judgement.measured {
        Some(measured) if expected.metric == JudgedMetric::P99Us => {
            format!("a p99 of {}", with_unit(expected.metric, measured))
        }
        Some(measured) => with_unit(expected.metric, measured),
        None => "nothing".to_owned(),
    };
    let alone = with_unit(expected.metric, expected.solo);
    let owed = &expected.rule;
    match (judgement.kept, exhausted) {
        (true, _) => format!("got {got}, owed {owed}"),
        (false, None) => format!("got {got} instead of {alone}, owed {owed}; no counter shows why"),
        (false, Some(exhausted)) => {
            format!("got {got} instead of {alone}: {}", exhausted.evidence)
        }
    }
}

/// Adds to `why` what limits the verdict: a run that did not settle, or a percentile of few samples and its bounds.
pub(crate) fn note_settling(
    why: &mut String,
    verdict: Verdict,
    expected: &Expected,
    settling: &Settling,
    cap: Option<Duration>,
) {
    if verdict == Verdict::NotSettled {
        let cap = cap.map_or(0.0, |cap| cap.as_us_f64() / 1e3);
        *why = format!("not settled within {cap:.0} ms of simulated time; {why}");
    }
    if expected.metric == JudgedMetric::P99Us && settling.samples < SAMPLES {
        let bound = |name: &str, us: Option<f64>| {
            us.map(|us| format!(" {name} {}", with_unit(JudgedMetric::P99Us, us)))
        };
        let bounds = [
            bound("at least", settling.p99_low_us),
            bound("at most", settling.p99_high_us),
        ];
        let bounds: Vec<String> = bounds.into_iter().flatten().collect();
        let _ = write!(why, "; {} messages: p99 is", settling.samples);
        match bounds.is_empty() {
            true => why.push_str(" not bounded"),
            false => {
                let _ = write!(why, "{} with 99 % confidence", bounds.join(" and"));
            }
        }
    }
}
