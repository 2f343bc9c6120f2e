//! The page of a comparison of searchers: anomalies found over the budget, and when the n-th was.

use crate::html::{Page, escape, figure};
use crate::number::{significant, whole};
use crate::svg::{INKS, LinePlot, LineSeries};
use isolane_hunt::compare::{Comparison, Contestant, Race, median_time};
use std::fmt::Write;

/// Points of a line.
const STEPS: usize = 120;

/// The whole file.
pub(crate) fn page(comparison: &Comparison) -> String {
    let title = format!("Searchers on {}", comparison.target);
    let lede = format!(
        "{} published anomalies, {} for each hunt; every experiment counts, reductions included.",
        comparison.anomalies.len(),
        comparison.budget
    );
    let body = format!(
        "<main id=\"main\">\n<header>\n<p class=\"kicker\">Hunt bench</p>\n<h1>{}</h1>\n<p class=\"lede\">{}</p>\n\
         </header>\n<section id=\"over-time\"><h2>Found over the time used</h2>\n{}</section>\n{}</main>\n",
        escape(&title),
        escape(&lede),
        figure("found-over-time", "mean over the seeds", &plot(comparison)),
        table(comparison)
    );
    Page {
        title: &title,
        description: &lede,
        body: &body,
        footer: "Made by Isolane. Everything is in this file; it needs no network.",
        ..Page::default()
    }
    .render()
}

fn races<'a>(comparison: &'a Comparison, one: &'a Contestant) -> Vec<&'a Race> {
    comparison.races_of(one).collect()
}

/// Mean number of anomalies found over modelled hours.
fn plot(comparison: &Comparison) -> String {
    let hours = |race: &Race| race.spent.modelled_s / 3600.0;
    let end = comparison.races.iter().map(hours).fold(0.1, f64::max);
    let step = end / STEPS as f64;
    let series = comparison
        .contestants()
        .into_iter()
        .enumerate()
        .map(|(index, one)| {
            let races = races(comparison, one);
            let found = |until: f64| {
                let of = |race: &&Race| {
                    race.found
                        .values()
                        .filter(|at| at.modelled_s / 3600.0 <= until)
                        .count() as f64
                };
                races.iter().map(of).sum::<f64>() / races.len().max(1) as f64
            };
            LineSeries {
                name: one.name(),
                ink: index % INKS,
                values: (1..=STEPS).map(|at| found(at as f64 * step)).collect(),
            }
        });
    LinePlot {
        label: "anomalies found over modelled hours, by searcher".to_owned(),
        y_title: "anomalies found, mean".to_owned(),
        x_title: "hours on real hardware, modelled".to_owned(),
        x_step: step,
        y_max: comparison.anomalies.len() as f64,
        series: series.collect(),
        width: 860.0,
        height: 380.0,
        ..LinePlot::default()
    }
    .render()
}

/// Median experiments to the n-th discovery, a column per searcher.
fn table(comparison: &Comparison) -> String {
    let all = comparison.contestants();
    let mut head = String::new();
    for one in &all {
        write!(
            head,
            "<th scope=\"col\" class=\"n\">{}</th>",
            escape(&one.name())
        )
        .expect("writing to a String succeeds");
    }
    let cell = |text: &str| format!("<td class=\"n\">{text}</td>");
    let mut rows = String::new();
    let means: String = all
        .iter()
        .map(|one| {
            let races = races(comparison, one);
            let sum: usize = races.iter().map(|race| race.found.len()).sum();
            cell(&significant(sum as f64 / races.len().max(1) as f64, 2))
        })
        .collect();
    writeln!(rows, "<tr><th scope=\"row\">found, mean</th>{means}</tr>")
        .expect("writing to a String succeeds");
    for nth in 1..=comparison.anomalies.len() {
        let cells: String = all
            .iter()
            .map(|one| match median_time(&races(comparison, one), nth) {
                Some((experiments, _)) => cell(&whole(experiments.round() as u64)),
                None => cell("\u{2013}"),
            })
            .collect();
        writeln!(rows, "<tr><th scope=\"row\">{nth}</th>{cells}</tr>")
            .expect("writing to a String succeeds");
    }
    format!(
        "<section id=\"medians\"><h2>Experiments to the n-th anomaly, median</h2>\n<p>A dash: fewer than half of the seeds \
         came there.</p>\n<div class=\"scroller\" tabindex=\"0\" role=\"region\" aria-label=\"medians\">\
         <table class=\"plain compare\"><thead><tr><th scope=\"col\">n</th>{head}</tr></thead>\n\
         <tbody>{rows}</tbody></table></div></section>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_hunt::bench::Spent;
    use isolane_hunt::compare::COMPARISON_VERSION;

    #[test]
    fn every_searcher_has_a_line_and_a_column() {
        let spent = |experiments: u64| Spent {
            experiments,
            modelled_s: experiments as f64 * 24.0,
        };
        let race = |name: &str, found: u64| Race {
            contestant: Contestant::parse(name).expect("it is one"),
            seed: 1,
            spent: spent(1_500),
            found: (1..=found)
                .map(|n| (n.to_string(), spent(n * 100)))
                .collect(),
            others: 0,
            search_experiments: 700,
            counter_max: 0.0,
        };
        let comparison = Comparison {
            version: COMPARISON_VERSION,
            target: "sim:<b>".to_owned(),
            budget: "10 modelled hours".to_owned(),
            anomalies: (1..=13).map(|n: u32| n.to_string()).collect(),
            races: vec![race("anneal", 9), race("random:no-mfs", 3)],
        };
        let text = page(&comparison);
        assert!(text.contains("random:no-mfs") && !text.contains("<b>"));
        assert_eq!(text.matches("<td class=\"n\">900</td>").count(), 1);
        assert!(text.contains("<td class=\"n\">\u{2013}</td>"));
    }
}
