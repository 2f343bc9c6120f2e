//! The page of a port under weighted fair queueing: each class's worst delay over one class's share.

use crate::html::{Opening, Page, escape, figure, table};
use crate::number::{percent, significant};
use crate::svg::{Bar, BarPlot, BarRow, INKS, LinePlot, LineSeries, Mark};
use serde::Serialize;

/// Worst delays along a line of mixes, as `isolane net delay --json` prints them.
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
    let verdict = verdict(delays);
    let about = format!(
        "The load is {} of the line on average and {} while a burst arrives.{}",
        percent(delays.load),
        percent(delays.burst),
        match delays.period_us {
            Some(us) => format!(" A period is {} µs.", significant(us, 3)),
            None => " Delays are in periods, from one burst's start to the next one's.".to_owned(),
        }
    );
    // One mix is no line.
    let plot = match delays.points.len() {
        1 => bars(delays),
        _ => plot(delays),
    };
    let opening = Opening {
        kicker: "Weighted fair queueing",
        title: &title,
        verdict: &verdict,
        about: &about,
        plot: &figure("wfq-delay", &escape(&plot_words(delays)), &plot),
    };
    let body = format!(
        "<main id=\"main\">\n{}<section>\n<h2>What each class can count on</h2>\n{}\n</section>\n\
         <section>\n<h2>Worst delay, by the mix</h2>\n<p>{}</p>\n{}\n</section>\n</main>\n",
        opening.render(),
        classes(delays),
        escape(&format!("In {}; a row per share of class 0.", unit(delays))),
        mixes(delays),
    );
    Page {
        title: &title,
        description: &verdict,
        body: &body,
        footer: "Made by Isolane from the exact fluid solution. Everything is in this file; it needs no network.",
        ..Page::default()
    }
    .render()
}

/// The share of the first class up to which no class waits longer than a lower class, and by how much beyond it.
fn verdict(delays: &WfqDelays) -> String {
    let shares = intervals(&delays.admissible_share);
    let holds =
        format!("No class waits longer than a lower one while class 0 has {shares} of the traffic");
    let longer = |point: &WfqPoint| -> Option<(f64, usize, usize)> {
        let delays = worst(point);
        let pairs = (0..delays.len())
            .flat_map(|class| (class + 1..delays.len()).map(move |low| (class, low)));
        let of = |(class, low): (usize, usize)| (delays[class] - delays[low], class, low);
        pairs.map(of).max_by(|one, other| one.0.total_cmp(&other.0))
    };
    let most = delays
        .points
        .iter()
        .filter_map(|point| Some((longer(point)?, point.share)))
        .max_by(|one, other| one.0.0.total_cmp(&other.0.0));
    match most {
        Some(((by, class, low), share)) if by > 0.0 => format!(
            "{holds}; with a share of {} class {class} waits {} {} longer than class {low}.",
            significant(share, 3),
            significant(by, 3),
            unit(delays)
        ),
        _ => format!("{holds}."),
    }
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

const WIDTH: f64 = 420.0;
/// Rows of the table of mixes, at most.
const ROWS: usize = 20;

/// The worst delays of a mix, in microseconds where a period was given.
fn worst(point: &WfqPoint) -> &[f64] {
    point.delay_us.as_ref().unwrap_or(&point.delay_periods)
}

fn unit(delays: &WfqDelays) -> &'static str {
    match delays.period_us {
        Some(_) => "µs",
        None => "periods",
    }
}

fn class_name(delays: &WfqDelays, class: usize) -> String {
    format!("class {class} (weight {})", delays.weights[class])
}

/// Where classes begin to wait longer than lower ones: the end of the first admissible interval.
fn inversion(delays: &WfqDelays) -> Option<f64> {
    let [from, to] = *delays.admissible_share.first()?;
    (from == 0.0 && to < 1.0).then_some(to)
}

fn plot_words(delays: &WfqDelays) -> String {
    let first = "Longest that a bit waits, over the share that the first class has of the traffic.";
    match inversion(delays) {
        None => first.to_owned(),
        Some(share) => format!(
            "{first} Beyond {} a class waits longer than a lower one.",
            significant(share, 3)
        ),
    }
}

fn plot(delays: &WfqDelays) -> String {
    // A line's values begin one step from the left end; the value there is that of a class without traffic.
    let values = |class: usize| {
        let points = delays.points.iter().skip(1);
        points.map(|point| worst(point)[class]).collect()
    };
    let series = (0..delays.weights.len()).map(|class| LineSeries {
        name: class_name(delays, class),
        // Grey is left to what is no class.
        ink: 1 + class % (INKS - 1),
        values: values(class),
    });
    let steps = delays.points.len().saturating_sub(1).max(1);
    LinePlot {
        label: "worst delay of each class over the share of the first class".to_owned(),
        y_title: format!("worst delay, {}", unit(delays)),
        x_title: "share of the first class".to_owned(),
        x_step: 1.0 / steps as f64,
        series: series.collect(),
        mark: inversion(delays).map(|at| Mark {
            name: "inversion".to_owned(),
            at,
        }),
        width: WIDTH,
        height: 260.0,
        ..LinePlot::default()
    }
    .render()
}

/// The classes of one mix.
fn bars(delays: &WfqDelays) -> String {
    let worst = worst(&delays.points[0]);
    let bars = worst.iter().enumerate().map(|(class, delay)| Bar {
        name: format!("class {class}"),
        ink: 1 + class % (INKS - 1),
        value: *delay,
        text: format!("{} {}", significant(*delay, 3), unit(delays)),
    });
    BarPlot {
        label: "worst delay of each class".to_owned(),
        x_title: format!("worst delay, {}", unit(delays)),
        x_max: 0.0,
        rows: vec![BarRow {
            name: format!(
                "share of class 0: {}",
                significant(delays.points[0].share, 3)
            ),
            bars: bars.collect(),
            bound: None,
        }],
        width: WIDTH,
    }
    .render()
}

/// A row for each class: its weight, what it is admitted at least, its longest delay and where.
fn classes(delays: &WfqDelays) -> String {
    let row = |class: usize| {
        let at_least = delays.guaranteed_line_rates.get(class);
        let longest = delays
            .points
            .iter()
            .max_by(|a, b| worst(a)[class].total_cmp(&worst(b)[class]))?;
        Some(vec![
            class.to_string(),
            delays.weights[class].to_string(),
            at_least.map_or("–".to_owned(), |rate| percent(*rate)),
            significant(worst(longest)[class], 4),
            significant(longest.share, 3),
        ])
    };
    let longest = format!("longest, {}", unit(delays));
    let columns = ["class", "weight", "at least", &longest, "at share"];
    let label = "what each class can count on";
    let rows = (0..delays.weights.len()).filter_map(row);
    format!(
        "<p>At least: what the class is admitted at least, of the line. Longest: its longest delay, and the share of class 0 \
         at which it occurs.</p>\n{}",
        table(label, &columns, 1, rows)
    )
}

fn mixes(delays: &WfqDelays) -> String {
    let of = |class: usize| format!("class {class}");
    let two = delays.points.iter().any(|point| point.case.is_some());
    let mut columns = vec!["share".to_owned()];
    columns.extend(two.then(|| "case".to_owned()));
    columns.extend((0..delays.weights.len()).map(of));
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let every = (delays.points.len().saturating_sub(1))
        .div_ceil(ROWS)
        .max(1);
    let rows = delays.points.iter().step_by(every).map(|point| {
        let mut cells = vec![significant(point.share, 3)];
        cells.extend(point.case.as_deref().map(escape));
        cells.extend(worst(point).iter().map(|delay| significant(*delay, 4)));
        cells
    });
    table(
        "worst delay by the mix",
        &columns,
        1 + usize::from(two),
        rows,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic_wfq::delays;

    #[test]
    fn a_page_has_the_plot_its_inversion_and_both_tables() {
        let page = page(&delays(&[0.0, 0.5, 1.0]));
        for part in [
            "inversion",
            "Beyond 0.800 a class waits longer than a lower one.",
            "<th scope=\"row\">0</th><td class=\"n\">4</td><td class=\"n\">32%</td>",
            "while class 0 has 0 to 0.800 of the traffic; with a share of 1.00 class 0 waits 1.00 periods longer than class 1.",
            "both &lt;wait&gt;",
            "data-save=\"png\"",
        ] {
            assert!(page.contains(part), "{part}");
        }
    }

    #[test]
    fn one_mix_has_bars_and_no_line() {
        let page = page(&delays(&[0.5]));
        assert!(page.contains("class=\"bar f1\"") && !page.contains("class=\"line"));
        assert!(page.contains("<th scope=\"row\">0.500</th>"));
    }

    #[test]
    fn intervals_read_as_a_sentence() {
        assert_eq!(intervals(&[]), "no share");
        assert_eq!(
            intervals(&[[0.0, 0.8], [0.95, 1.0]]),
            "0 to 0.800 or 0.950 to 1.00"
        );
    }
}
