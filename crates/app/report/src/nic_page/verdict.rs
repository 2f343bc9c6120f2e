//! The first sentence of a study of cards, and the plot that shows it.
//!
//! One configuration under one load is about its flows: what the slowest gets of a fair share. Several configurations are
//! compared by their unfairness within a millisecond under the largest number of flows, and clusters by how far apart a
//! host's connections end.

use crate::html::{escape, figure};
use crate::number::{bit_rate, fixed, percent, significant};
use crate::svg::{Bar, BarPlot, BarRow, LinePlot, LineSeries, Rule};
use isolane_study_results::ethernet::NicResult;
use isolane_study_results::ethernet::summary::{Cell, Load, quantile};

const WIDTH: f64 = 420.0;
/// Flows up to which each has a bar of its own; more are a line.
const BARS_MAX: usize = 16;

/// The sentence and its figure.
pub(super) fn opening(results: &[NicResult], cells: &[Cell]) -> (String, String) {
    let flows = |cell: &&Cell| matches!(cell.load, Load::Flows(_));
    let of_flows: Vec<&Cell> = cells.iter().filter(flows).collect();
    match (of_flows.last(), cells.last()) {
        (Some(last), _) => {
            let alike: Vec<&Cell> = of_flows
                .iter()
                .copied()
                .filter(|cell| cell.load == last.load)
                .collect();
            match alike.as_slice() {
                [one] => flows_of(results, one),
                several => compared(
                    several,
                    "within a millisecond two flows differ by up to",
                    "NFM over 1 ms, fair shares",
                    |cell| Some(cell.nfm_1ms),
                    |value| format!("{} fair shares", fixed(value, 2)),
                ),
            }
        }
        (None, Some(last)) => {
            let alike: Vec<&Cell> = cells.iter().filter(|cell| cell.load == last.load).collect();
            compared(
                &alike,
                "the connections of the median host end within",
                "last completion less the first, median host, ms",
                |cell| quantile(&cell.spread_ms, 0.5),
                |value| format!("{} ms", significant(value, 3)),
            )
        }
        (None, None) => (String::new(), String::new()),
    }
}

/// Configurations under one load by one figure; less is better.
fn compared(
    cells: &[&Cell],
    what: &str,
    axis: &str,
    of: impl Fn(&Cell) -> Option<f64>,
    text: impl Fn(f64) -> String,
) -> (String, String) {
    let load = cells[0].load.words();
    let mut values: Vec<(&str, f64)> = cells
        .iter()
        .filter_map(|cell| Some((cell.config.as_str(), of(cell)?)))
        .collect();
    let bars = values.iter().map(|(config, value)| Bar {
        name: (*config).to_owned(),
        ink: super::plots::ink(config),
        value: *value,
        text: text(*value),
    });
    let plot = BarPlot {
        label: format!("{axis}, with {load}"),
        x_title: axis.to_owned(),
        x_max: 0.0,
        rows: vec![BarRow {
            name: load.clone(),
            bars: bars.collect(),
            bound: None,
        }],
        width: WIDTH,
    };
    let caption = format!(
        "<b>How uneven</b> the flows are with {}; less is better",
        escape(&load)
    );
    let figure = figure("nic-verdict", &caption, &plot.render());
    values.sort_by(|one, other| one.1.total_cmp(&other.1));
    let sentence = match values.as_slice() {
        [] => format!("With {load}, no connection ended."),
        [(config, value)] => format!("With {load}, {what} {} under {config}.", text(*value)),
        [(best, least), .., (worst, most)] => format!(
            "With {load}, {what} {} under {best}, the most even configuration, and {} under {worst}, the least even.",
            text(*least),
            text(*most)
        ),
    };
    (sentence, figure)
}

/// The flows of one configuration: each one's goodput, means over the runs, the slowest first.
fn flows_of(results: &[NicResult], cell: &Cell) -> (String, String) {
    let runs: Vec<&NicResult> = results
        .iter()
        .filter(|run| run.config == cell.config)
        .collect();
    let mut goodputs = vec![
        0.0;
        runs.iter()
            .map(|run| run.flow_gbps.len())
            .max()
            .unwrap_or(0)
    ];
    for run in &runs {
        let mut sorted = run.flow_gbps.clone();
        sorted.sort_by(f64::total_cmp);
        for (sum, value) in goodputs.iter_mut().zip(sorted) {
            *sum += value / runs.len() as f64;
        }
    }
    let fair = goodputs.iter().sum::<f64>() / goodputs.len().max(1) as f64;
    let (slowest, fastest) = match goodputs.as_slice() {
        [] => (0.0, 0.0),
        all => (all[0], all[all.len() - 1]),
    };
    let of_fair = |value: f64| percent(value / fair.max(f64::MIN_POSITIVE));
    let sentence = format!(
        "Under {}, the slowest of {} flows gets {} ({} of a fair share) and the fastest {} ({}).",
        cell.config,
        goodputs.len(),
        bit_rate(slowest),
        of_fair(slowest),
        bit_rate(fastest),
        of_fair(fastest)
    );
    let caption = "<b>Goodput of each flow.</b> The slowest is first; the line is a fair share";
    (
        sentence,
        figure("nic-verdict", caption, &goodput_plot(&goodputs, fair)),
    )
}

fn goodput_plot(goodputs: &[f64], fair: f64) -> String {
    let label = "Goodput of each flow, the slowest first".to_owned();
    if goodputs.len() > BARS_MAX {
        return LinePlot {
            label,
            y_title: "goodput, Gb/s".to_owned(),
            x_title: "flows, the slowest first".to_owned(),
            x_step: 1.0,
            series: vec![LineSeries {
                name: "flow".to_owned(),
                ink: 1,
                values: goodputs.to_vec(),
            }],
            rules: vec![Rule {
                name: "fair".to_owned(),
                value: fair,
            }],
            width: WIDTH,
            height: 240.0,
            ..LinePlot::default()
        }
        .render();
    }
    let bars = goodputs.iter().enumerate().map(|(index, goodput)| Bar {
        name: format!("{}", index + 1),
        ink: 1,
        value: *goodput,
        text: bit_rate(*goodput),
    });
    BarPlot {
        label,
        x_title: "goodput, Gb/s".to_owned(),
        x_max: 0.0,
        rows: vec![BarRow {
            name: "flows, the slowest first".to_owned(),
            bars: bars.collect(),
            bound: Some(fair),
        }],
        width: WIDTH,
    }
    .render()
}
