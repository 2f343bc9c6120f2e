//! The page of a port under weighted fair queueing: each class's worst delay over one class's share.

use crate::html::{Page, escape};
use crate::number::significant;
use crate::svg::{INKS, LinePlot, LineSeries};
use serde::Serialize;

/// Worst delays along a line of mixes, as `isolane wfq delay --json` prints them.
#[derive(Clone, Debug, Serialize)]
pub struct WfqDelays {
    /// Version of this form.
    pub version: u32,
    /// Weight of each class, the most important first.
    pub weights: Vec<f64>,
    /// Average load in line rates.
    pub load: f64,
    /// Highest rate of a burst in line rates.
    pub burst: f64,
    /// How the classes after the first divide what it leaves, as parts of 1.
    pub rest: Vec<f64>,
    /// Period in microseconds, where one was given; delays are then in microseconds too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period_us: Option<f64>,
    /// Shares of the first class at which no class waits longer than the next lower one, as intervals.
    pub admissible_share: Vec<[f64; 2]>,
    /// What each class but the lowest is admitted at least, in line rates.
    pub guaranteed_line_rates: Vec<f64>,
    /// Largest share of the first class without any delay.
    pub undelayed_share_max: f64,
    /// Evenly spaced points.
    pub points: Vec<WfqPoint>,
}

/// One mix.
#[derive(Clone, Debug, Serialize)]
pub struct WfqPoint {
    /// Share of the first class.
    pub share: f64,
    /// Worst delay of each class, in periods.
    pub delay_periods: Vec<f64>,
    /// The same in microseconds, where a period was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_us: Option<Vec<f64>>,
    /// Which case of the closed form holds; two classes only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub case: Option<String>,
}

/// The whole file.
pub(crate) fn page(delays: &WfqDelays) -> String {
    let weights: Vec<String> = delays.weights.iter().map(f64::to_string).collect();
    let title = format!("Worst delay under weights {}", weights.join(":"));
    let lede = format!(
        "Load {} of the line on average, {} while a burst arrives. No class waits longer than a lower one while the \
         first class has {} of the traffic.",
        significant(delays.load, 3),
        significant(delays.burst, 3),
        intervals(&delays.admissible_share)
    );
    let body = format!(
        "<main id=\"main\">\n<header>\n<p class=\"kicker\">Weighted fair queueing</p>\n<h1>{}</h1>\n\
         <p class=\"lede\">{}</p>\n</header>\n<section>\n<h2>Worst delay of each class</h2>\n{}\n</section>\n</main>\n",
        escape(&title),
        escape(&lede),
        plot(delays)
    );
    Page {
        title: &title,
        description: &lede,
        body: &body,
        footer: "Made by Isolane from the exact fluid solution. Everything is in this file; it needs no network.",
        ..Page::default()
    }
    .render()
}

/// Intervals in words: `0 to 0.800`.
pub fn intervals(intervals: &[[f64; 2]]) -> String {
    let words: Vec<String> = intervals
        .iter()
        .map(|[from, to]| format!("{} to {}", significant(*from, 3), significant(*to, 3)))
        .collect();
    match words.is_empty() {
        true => "no share".to_owned(),
        false => words.join(" or "),
    }
}

fn plot(delays: &WfqDelays) -> String {
    let values = |class: usize| {
        let point = |point: &WfqPoint| match &point.delay_us {
            Some(delay_us) => delay_us[class],
            None => point.delay_periods[class],
        };
        // A line's values begin one step from the left end; the value there is that of a class without traffic.
        delays.points.iter().skip(1).map(point).collect()
    };
    let series = delays
        .weights
        .iter()
        .enumerate()
        .map(|(class, weight)| LineSeries {
            name: format!("class {class} (weight {weight})"),
            ink: class % INKS,
            values: values(class),
        });
    let steps = delays.points.len().saturating_sub(1).max(1);
    LinePlot {
        label: "worst delay of each class over the share of the first class".to_owned(),
        y_title: match delays.period_us {
            Some(_) => "worst delay, us".to_owned(),
            None => "worst delay, periods".to_owned(),
        },
        x_title: "share of the first class".to_owned(),
        x_step: 1.0 / steps as f64,
        series: series.collect(),
        width: 860.0,
        height: 360.0,
        ..LinePlot::default()
    }
    .render()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_read_as_a_sentence() {
        assert_eq!(intervals(&[]), "no share");
        assert_eq!(
            intervals(&[[0.0, 0.8], [0.95, 1.0]]),
            "0 to 0.800 or 0.950 to 1.00"
        );
    }
}
