//! The page of a study of network cards: what each configuration costs, and how even it is.
//!
//! Everything is static: tables shaped like the paper's (titan, tables 3 and 5), bars of unfairness by configuration and
//! number of flows (its figures 2 to 6), and for clusters the distributions of completion times and of their spread (its
//! figures 7 and 8). A configuration keeps its colour within a figure; axes of one kind are shared.
//!
//! * [`verdict`] - the first sentence and its plot; [`plots`] - the figures; the tables are here.

mod plots;
#[cfg(test)]
mod tests;
mod verdict;

use crate::html::{Opening, Page, escape, nothing};
use crate::number::{fixed, significant};
use isolane_ethernet_scenario::config;
use isolane_study_results::ethernet::NicResult;
use isolane_study_results::ethernet::summary::{self, Cell, Load, cells, loads, quantile};
use std::collections::BTreeSet;

/// The whole file.
pub(crate) fn page(results: &[NicResult]) -> String {
    let Some(first) = results.first() else {
        return nothing();
    };
    let cells = cells(results);
    let title = "How evenly a network card shares";
    let (verdict, plot) = verdict::opening(results, &cells);
    let mut body = Opening {
        kicker: &escape(&testbeds(results)),
        title,
        verdict: &verdict,
        about: &lede(results, &cells),
        plot: &plot,
    }
    .render();
    body.push_str(&not_done(&cells));
    let mut explain = true;
    for load in loads(&cells) {
        let of_load: Vec<&Cell> = cells.iter().filter(|cell| cell.load == load).collect();
        body.push_str(&match load {
            Load::Flows(_) => table(load, &of_load, std::mem::take(&mut explain)),
            Load::Hosts(_) => cluster_table(load, &of_load),
        });
    }
    body.push_str(&plots::all(&cells));
    body.push_str(&configurations(&cells));
    let body = format!("<main id=\"main\">\n{body}</main>\n");
    let footer = format!(
        "Made by Isolane from results in JSON form {}. Everything is in this file; it needs no network.",
        first.version
    );
    Page {
        title,
        description: &verdict,
        body: &body,
        footer: &footer,
        ..Page::default()
    }
    .render()
}

/// What the runs were made on, in words.
fn testbeds(results: &[NicResult]) -> String {
    let names: BTreeSet<&str> = results.iter().map(|run| run.testbed.as_str()).collect();
    let words: Vec<&str> = names
        .into_iter()
        .map(|name| match name {
            "simulated" => "simulated host and card",
            "soft-nic" => "real kernel over the soft network card",
            other => other,
        })
        .collect();
    words.join(" · ")
}

fn lede(results: &[NicResult], cells: &[Cell]) -> String {
    let configs: BTreeSet<&str> = cells.iter().map(|cell| cell.config.as_str()).collect();
    let loads: Vec<String> = loads(cells).into_iter().map(Load::words).collect();
    let seeds: BTreeSet<u64> = results.iter().map(|run| run.seed).collect();
    let runs = match seeds.len() {
        1 => "one run each".to_owned(),
        several => format!("means of {several} runs"),
    };
    format!(
        "{} {} with {}; {runs}.",
        configs.len(),
        match configs.len() {
            1 => "configuration",
            _ => "configurations",
        },
        loads.join("; ")
    )
}

/// What a testbed could not do, with the configurations it concerns.
fn not_done(cells: &[Cell]) -> String {
    let lines = summary::not_done(cells);
    if lines.is_empty() {
        return String::new();
    }
    let items: String = lines
        .into_iter()
        .map(|(line, configs)| {
            let configs: Vec<&str> = configs.into_iter().collect();
            format!(
                "<li><b>{}</b>: {}</li>",
                escape(&configs.join(", ")),
                escape(line)
            )
        })
        .collect();
    format!(
        "<section id=\"not-done\"><h2>What this testbed could not do</h2><ul>{items}</ul></section>\n"
    )
}

/// The least value of several cells; of one cell nothing is the best.
fn best(cells: &[&Cell], of: impl Fn(&Cell) -> Option<f64>) -> Option<f64> {
    if cells.len() < 2 {
        return None;
    }
    let values = cells.iter().filter_map(|cell| of(cell));
    values.min_by(f64::total_cmp)
}

/// A cell's number, in bold where it is the best of its column.
fn number(value: f64, text: String, best: Option<f64>) -> String {
    match best == Some(value) {
        true => format!("<td class=\"n\"><b>{text}</b></td>"),
        false => format!("<td class=\"n\">{text}</td>"),
    }
}

fn section(load: Load, lede: &str, columns: &[&str], rows: &str) -> String {
    let id = match load {
        Load::Flows(flows) => format!("flows-{flows}"),
        Load::Hosts(hosts) => format!("hosts-{hosts}"),
    };
    let head: String = columns
        .iter()
        .enumerate()
        .map(|(index, name)| match index {
            0 => format!("<th scope=\"col\">{name}</th>"),
            _ => format!("<th scope=\"col\" class=\"n\">{name}</th>"),
        })
        .collect();
    let lede = match lede {
        "" => String::new(),
        text => format!("<p>{text}</p>"),
    };
    format!(
        "<section id=\"{id}\"><h2>{}</h2>{lede}<div class=\"scroller\" tabindex=\"0\" role=\"region\" \
         aria-label=\"{}\"><table class=\"plain\"><thead><tr>{head}</tr></thead><tbody>\n{rows}</tbody></table></div>\
         </section>\n",
        load.words(),
        load.words()
    )
}

/// One load of one host, as in the paper's tables 3 and 5.
fn table(load: Load, cells: &[&Cell], explain: bool) -> String {
    let least = [
        best(cells, |cell| Some(cell.cpu_percent)),
        best(cells, |cell| cell.ping_p90_us),
        best(cells, |cell| Some(cell.nfm_1ms)),
        best(cells, |cell| Some(cell.nfm_1s)),
    ];
    let rows: String = cells
        .iter()
        .map(|cell| {
            let ping = match cell.ping_p90_us {
                Some(us) => number(us, fixed(us / 1e3, 3), least[1]),
                None => "<td class=\"n\">–</td>".to_owned(),
            };
            format!(
                "<tr><th scope=\"row\">{}</th><td class=\"n\">{}</td>{}{ping}{}{}</tr>\n",
                escape(&cell.config),
                significant(cell.throughput_gbps, 3),
                number(cell.cpu_percent, fixed(cell.cpu_percent, 0), least[0]),
                number(cell.nfm_1ms, fixed(cell.nfm_1ms, 2), least[2]),
                number(cell.nfm_1s, fixed(cell.nfm_1s, 2), least[3]),
            )
        })
        .collect();
    let columns = [
        "configuration",
        "throughput, Gb/s",
        "CPU, % of one",
        "ping p90, ms",
        "NFM 1 ms",
        "NFM 1 s",
    ];
    let lede = match explain {
        true if cells.len() < 2 => {
            "NFM is the largest difference between what two flows sent within any interval of that length, in fair \
             shares; 0 is fair."
        }
        true => {
            "NFM is the largest difference between what two flows sent within any interval of that length, in fair \
             shares; 0 is fair. The least of a column is bold."
        }
        false => "",
    };
    section(load, lede, &columns, &rows)
}

fn cluster_table(load: Load, cells: &[&Cell]) -> String {
    let of = |values: &[f64], rank: f64| quantile(values, rank);
    let least = best(cells, |cell| of(&cell.spread_ms, 0.5));
    let rows: String = cells
        .iter()
        .map(|cell| {
            let time = |value: Option<f64>| {
                let text = value.map_or("–".to_owned(), |ms| significant(ms, 4));
                format!("<td class=\"n\">{text}</td>")
            };
            let median = of(&cell.spread_ms, 0.5);
            let spread = match median {
                Some(ms) => number(ms, significant(ms, 4), least),
                None => time(None),
            };
            format!(
                "<tr><th scope=\"row\">{}</th>{spread}{}{}{}{}</tr>\n",
                escape(&cell.config),
                time(of(&cell.spread_ms, 0.9)),
                time(of(&cell.completion_ms, 0.5)),
                time(of(&cell.completion_ms, 0.9)),
                time(of(&cell.completion_ms, 1.0)),
            )
        })
        .collect();
    let columns = [
        "configuration",
        "spread p50, ms",
        "spread p90, ms",
        "completion p50, ms",
        "completion p90, ms",
        "last, ms",
    ];
    let lede = "Every host opens a connection to every other at once. A host's spread is its last completion less its first.";
    section(load, lede, &columns, &rows)
}

/// What the names mean.
fn configurations(cells: &[Cell]) -> String {
    let mut seen = BTreeSet::new();
    let rows: String = cells
        .iter()
        .filter(|cell| seen.insert(cell.config.as_str()))
        .filter_map(|cell| config::named(&cell.config))
        .map(|config| {
            format!(
                "<div><dt>{}</dt><dd>{}</dd></div>",
                escape(config.name),
                escape(config.title)
            )
        })
        .collect();
    match rows.is_empty() {
        true => rows,
        false => format!(
            "<section id=\"configurations\"><h2>The configurations</h2><dl class=\"open\">{rows}</dl></section>\n"
        ),
    }
}
