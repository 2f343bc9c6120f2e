//! The page of a comparison of searchers: anomalies found over the budget, and when the n-th was.

use crate::html::{Opening, Page, escape, figure, listed};
use crate::number::{fixed, whole};
use crate::svg::{INKS, LinePlot, LineSeries};
use isolane_study_hunt::compare::{Comparison, Contestant, Race, median_time};
use std::fmt::Write;

/// Points of a line.
const STEPS: usize = 120;

/// The whole file.
pub(crate) fn page(comparison: &Comparison) -> String {
    let title = format!("Searchers on {}", comparison.target);
    let lede = format!(
        "{}, {} for each hunt; every experiment counts, reductions included.",
        there_are(comparison),
        comparison.budget
    );
    let verdict = verdict(comparison);
    let opening = Opening {
        kicker: "Hunt bench",
        title: &title,
        verdict: &verdict,
        about: &lede,
        plot: &figure(
            "found-over-time",
            "<b>Found over the time used.</b> Means over the seeds",
            &plot(comparison),
        ),
    };
    let body = format!(
        "<main id=\"main\">\n{}{}</main>\n",
        opening.render(),
        table(comparison)
    );
    Page {
        title: &title,
        description: &verdict,
        body: &body,
        footer: "Made by Isolane. Everything is in this file; it needs no network.",
        ..Page::default()
    }
    .render()
}

fn races<'a>(comparison: &'a Comparison, one: &'a Contestant) -> Vec<&'a Race> {
    comparison.races_of(one).collect()
}

/// How many each searcher finds, the best first.
fn verdict(comparison: &Comparison) -> String {
    let mut means: Vec<(f64, String)> = comparison
        .contestants()
        .into_iter()
        .map(|one| (found_mean(&races(comparison, one)), one.name()))
        .collect();
    means.sort_by(|one, other| other.0.total_cmp(&one.0));
    let parts: Vec<String> = means
        .iter()
        .map(|(mean, name)| format!("{} with {name}", fixed(*mean, 1)))
        .collect();
    format!(
        "Of {} a hunt finds {} on average.",
        there_are(comparison),
        listed(&parts)
    )
}

/// What can be found: published anomalies, or the mechanisms of planted devices, the mean over the hunts.
fn there_are(comparison: &Comparison) -> String {
    if !comparison.anomalies.is_empty() {
        return format!("{} published anomalies", comparison.anomalies.len());
    }
    let races = &comparison.races;
    let sum: u32 = races.iter().map(|race| race.mechanisms).sum();
    let mean = f64::from(sum) / races.len().max(1) as f64;
    format!("{} planted mechanisms", fixed(mean, 1))
}

fn found_mean(races: &[&Race]) -> f64 {
    let sum: usize = races.iter().map(|race| race.found.len()).sum();
    sum as f64 / races.len().max(1) as f64
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
        width: 430.0,
        height: 260.0,
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
        .map(|one| cell(&fixed(found_mean(&races(comparison, one)), 1)))
        .collect();
    writeln!(rows, "<tr><th scope=\"row\">found, mean</th>{means}</tr>")
        .expect("writing to a String succeeds");
    let most = comparison.races.iter().map(|race| race.found.len()).max();
    for nth in 1..=comparison.anomalies.len().max(most.unwrap_or(0)) {
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
    use crate::synthetic_hunt;

    #[test]
    fn every_searcher_has_a_line_and_a_column() {
        let comparison = synthetic_hunt::comparison();
        let text = page(&comparison);
        assert!(text.contains("random:no-mfs") && !text.contains("sim:<b>"));
        assert!(text.contains("Of 13 published anomalies a hunt finds 9.0 with anneal and 3.0 with random:no-mfs on average."));
        assert_eq!(text.matches("<td class=\"n\">900</td>").count(), 1);
        assert!(text.contains("<td class=\"n\">\u{2013}</td>"));
    }

    #[test]
    fn planted_devices_have_mechanisms_instead_of_published_anomalies() {
        let mut comparison = synthetic_hunt::comparison();
        comparison.anomalies.clear();
        for race in &mut comparison.races {
            race.mechanisms = 9;
        }
        let text = page(&comparison);
        assert!(text.contains("Of 9.0 planted mechanisms a hunt finds 9.0 with anneal"));
        for race in &mut comparison.races {
            race.mechanisms = 23;
        }
        comparison.races[0].mechanisms = 22;
        assert!(
            !page(&comparison).contains("Of 23 planted"),
            "a mean is not rounded up"
        );
        assert_eq!(text.matches("<td class=\"n\">900</td>").count(), 1);
    }
}
