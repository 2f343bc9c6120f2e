//! Figures of a study: bars of unfairness, of ping times and of processor time, and distributions of clusters.
//!
//! Sixteen configurations in one plot say nothing, so figures show those that differ in one thing, as the paper's do
//! (titan, figures 2 to 6): [`GROUPS`]. Axes of unfairness are shared by all figures of one interval.

use crate::html::{escape, figure};
use crate::number::{fixed, significant};
use crate::svg::{Bar, BarPlot, BarRow, INKS, LinePlot, LineSeries};
use isolane_study_results::ethernet::summary::{Cell, Load, loads};

const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 250.0;
/// Points of a distribution: as fine as a pixel of the plot.
const POINTS: usize = 240;

/// Which configurations are side by side: section, heading, difference, names.
#[rustfmt::skip]
const GROUPS: [(&str, &str, &str, &[&str]); 6] = [
    ("linux", "Linux' own settings", "Queues are chosen by a hash in all of these.", &["C1", "C2", "C3", "C4", "C5", "C6", "C7", "C8", "C9"]),
    ("assignment", "Who gets which queue", "A hash (C6) against the queue with the fewest flows (T1).", &["C6", "T1"]),
    ("weights", "Queues by weight", "The card serves queues in turn (T1) or by the number of their flows (T2).", &["T1", "T2"]),
    (
        "segments",
        "Smaller segments where queues are shared",
        "Segments stay whole (T2) or shrink to 16 KiB while flows share queues (T3).",
        &["T2", "T3"],
    ),
    ("pools", "Queues of processors", "The same with queues that belong to processors.", &["XPS", "TX1", "TX2", "TX3"]),
    (
        "today",
        "What people use today, and ours",
        "The kernel's queueing disciplines, the study's best setting, and Titan's with a queue for small packets.",
        &["fq_codel", "fq", "cake", "C6", "isolane"],
    ),
];

/// Every figure that `cells` have values for.
pub(super) fn all(cells: &[Cell]) -> String {
    let flows: Vec<&Cell> = cells
        .iter()
        .filter(|cell| matches!(cell.load, Load::Flows(_)))
        .collect();
    let mut out = String::new();
    let highest = |of: fn(&Cell) -> f64| flows.iter().map(|cell| of(cell)).fold(0.0, f64::max);
    let ends = (highest(|cell| cell.nfm_1ms), highest(|cell| cell.nfm_1s));
    for (id, title, lede, names) in GROUPS {
        out.push_str(&group(id, title, lede, names, &flows, ends));
    }
    out.push_str(&costs(&flows));
    for load in loads(cells) {
        if let Load::Hosts(hosts) = load {
            let of_load: Vec<&Cell> = cells.iter().filter(|cell| cell.load == load).collect();
            out.push_str(&distributions(hosts, &of_load));
        }
    }
    out
}

/// Unfairness over both intervals, of the configurations `names`; nothing where fewer than two of them ran.
fn group(
    id: &str,
    title: &str,
    lede: &str,
    names: &[&str],
    cells: &[&Cell],
    ends: (f64, f64),
) -> String {
    let members: Vec<&Cell> = cells
        .iter()
        .copied()
        .filter(|cell| names.contains(&cell.config.as_str()))
        .collect();
    let ran = names
        .iter()
        .filter(|name| members.iter().any(|cell| cell.config == **name));
    if ran.count() < 2 {
        return String::new();
    }
    let plot = |interval: &str, end: f64, of: fn(&Cell) -> f64| {
        bars(
            &format!("{title}: unfairness over {interval}"),
            "NFM, fair shares",
            end,
            &members,
            ink,
            &|cell| Some((of(cell), fixed(of(cell), 2))),
        )
    };
    let short = plot("a millisecond", ends.0, |cell| cell.nfm_1ms);
    let long = plot("a second", ends.1, |cell| cell.nfm_1s);
    format!(
        "<section id=\"{id}\"><h2>{}</h2><p>{}</p><div class=\"multiples\">{}{}</div></section>\n",
        escape(title),
        escape(lede),
        figure(&format!("{id}-1ms"), "<b>Unfairness over 1 ms</b>", &short),
        figure(&format!("{id}-1s"), "<b>Unfairness over 1 s</b>", &long)
    )
}

/// A group of bars for each load.
fn bars(
    label: &str,
    axis: &str,
    end: f64,
    cells: &[&Cell],
    ink_of: fn(&str) -> usize,
    of: &dyn Fn(&Cell) -> Option<(f64, String)>,
) -> String {
    let mut rows: Vec<BarRow> = Vec::new();
    for cell in cells {
        let Some((value, text)) = of(cell) else {
            continue;
        };
        let bar = Bar {
            name: cell.config.clone(),
            ink: ink_of(&cell.config),
            value,
            text,
        };
        let heading = cell.load.words();
        match rows.last_mut() {
            Some(row) if row.name == heading => row.bars.push(bar),
            _ => rows.push(BarRow {
                name: heading,
                bars: vec![bar],
                bound: None,
            }),
        }
    }
    BarPlot {
        label: label.to_owned(),
        x_title: axis.to_owned(),
        x_max: end,
        rows,
        width: WIDTH,
    }
    .render()
}

/// Grey is what the others are measured against: the study's best Linux setting.
const BASE: usize = 0;

/// The ink of a configuration, the same in every figure that shows it. There are fewer inks than configurations:
/// configurations that are seldom in one figure share an ink, for example Titan's with and without queues of
/// processors.
pub(super) fn ink(config: &str) -> usize {
    match config {
        "C6" => BASE,
        "T1" | "TX1" | "C2" | "fq" => 1,
        "T2" | "TX2" | "C3" | "cake" => 2,
        "T3" | "TX3" | "C4" => 3,
        "isolane" | "C5" => 4,
        "C1" => 5,
        "XPS" | "C7" => 6,
        _ => INKS - 1,
    }
}

/// The inks of lines, which only their colour distinguishes where they cross: a used ink is replaced by a free one.
fn inks(configs: &[&str]) -> Vec<usize> {
    let mut taken = Vec::new();
    for config in configs {
        let own = ink(config);
        let free = (0..INKS).find(|other| !taken.contains(other));
        taken.push(match taken.contains(&own) {
            true => free.unwrap_or(own),
            false => own,
        });
    }
    taken
}

/// Pings and processor time of every configuration, a figure for each load.
fn costs(cells: &[&Cell]) -> String {
    let names: Vec<&str> = {
        let mut names: Vec<&str> = Vec::new();
        for cell in cells {
            if !names.contains(&cell.config.as_str()) {
                names.push(&cell.config);
            }
        }
        names
    };
    if names.len() < 2 {
        return String::new();
    }
    let mut figures = String::new();
    let highest = |of: fn(&Cell) -> f64| cells.iter().map(|cell| of(cell)).fold(0.0, f64::max);
    let ping_end = highest(|cell| cell.ping_p90_us.unwrap_or(0.0) / 1e3);
    let cpu_end = highest(|cell| cell.cpu_percent);
    let owned: Vec<Cell> = cells.iter().map(|cell| (*cell).clone()).collect();
    for load in loads(&owned) {
        let of_load: Vec<&Cell> = cells
            .iter()
            .copied()
            .filter(|cell| cell.load == load)
            .collect();
        let words = load.words();
        let ping = bars(
            &format!("90th percentile of pings with {words}"),
            "ping p90, ms",
            ping_end,
            &of_load,
            |_| BASE,
            &|cell| {
                let ms = cell.ping_p90_us? / 1e3;
                Some((ms, significant(ms, 3)))
            },
        );
        let cpu = bars(
            &format!("processor time with {words}"),
            "busy processors, % of one",
            cpu_end,
            &of_load,
            |_| BASE,
            &|cell| Some((cell.cpu_percent, fixed(cell.cpu_percent, 0))),
        );
        let stem = words.replace(' ', "-");
        figures.push_str(&figure(&format!("ping-{stem}"), "<b>Pings</b>", &ping));
        figures.push_str(&figure(
            &format!("cpu-{stem}"),
            "<b>Processor time</b>",
            &cpu,
        ));
    }
    format!(
        "<section id=\"costs\"><h2>What it costs</h2><p>The 90th percentile of pings beside the flows, and the processor \
         time of the sending host.</p><div class=\"multiples\">{figures}</div></section>\n"
    )
}

/// Parts of connections and of hosts that ended, or spread, within a time.
fn distributions(hosts: u32, cells: &[&Cell]) -> String {
    let words = format!("{hosts} hosts");
    let spread = distribution(
        &format!("{words}: part of the hosts whose connections end this close together"),
        "last completion less the first, ms",
        "part of the hosts, %",
        cells,
        |cell| &cell.spread_ms,
    );
    let ends = distribution(
        &format!("{words}: part of the connections that end by then"),
        "completion time, ms",
        "part of the connections, %",
        cells,
        |cell| &cell.completion_ms,
    );
    let figures: String = [
        (
            "spread",
            "<b>How close together a host's connections end</b>",
            spread,
        ),
        ("completions", "<b>When connections end</b>", ends),
    ]
    .into_iter()
    .filter_map(|(stem, caption, plot)| Some(figure(&format!("{stem}-{hosts}"), caption, &plot?)))
    .collect();
    match figures.is_empty() {
        true => figures,
        false => format!(
            "<section id=\"cluster-{hosts}\"><h2>A cluster of {words}, all to all</h2><p>Lines further left are better, and \
             steeper ones more even.</p><div class=\"multiples wide\">{figures}</div></section>\n"
        ),
    }
}

fn distribution(
    label: &str,
    x_title: &str,
    y_title: &str,
    cells: &[&Cell],
    of: fn(&Cell) -> &Vec<f64>,
) -> Option<String> {
    let last = cells
        .iter()
        .filter_map(|cell| of(cell).last().copied())
        .fold(0.0, f64::max);
    if last <= 0.0 {
        return None;
    }
    let step = last / POINTS as f64;
    let ended: Vec<&&Cell> = cells.iter().filter(|cell| !of(cell).is_empty()).collect();
    let configs: Vec<&str> = ended.iter().map(|cell| cell.config.as_str()).collect();
    let series = ended.iter().zip(inks(&configs)).map(|(cell, ink)| {
        let times = of(cell);
        let part = |point: usize| {
            let until = point as f64 * step * (1.0 + 1e-12);
            100.0 * times.partition_point(|time| *time <= until) as f64 / times.len() as f64
        };
        LineSeries {
            name: cell.config.clone(),
            ink,
            values: (1..=POINTS).map(part).collect(),
        }
    });
    let plot = LinePlot {
        label: label.to_owned(),
        y_title: y_title.to_owned(),
        x_title: x_title.to_owned(),
        x_step: step,
        y_max: 100.0,
        series: series.collect(),
        width: WIDTH * 1.3,
        height: HEIGHT,
        ..LinePlot::default()
    };
    Some(plot.render())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Goal: a figure's configurations have different inks. Nine of Linux' have eight inks, so one pair shares an ink
    /// there.
    #[test]
    fn configurations_of_a_figure_have_inks_of_their_own() {
        for (id, _, _, names) in GROUPS {
            let inks: BTreeSet<usize> = names.iter().map(|name| ink(name)).collect();
            let least = names.len().min(INKS);
            assert!(inks.len() >= least, "{id}: {inks:?}");
        }
        let lines = inks(&["C1", "C6", "T1", "TX1", "isolane"]);
        let different: BTreeSet<&usize> = lines.iter().collect();
        assert_eq!((lines[1], different.len()), (BASE, 5), "{lines:?}");
    }
}
