//! The page of one run on a network, or of several runs of one scenario side by side.
//!
//! Everything is static: tables and SVG. Plots of one kind share their axes over all runs, so that heights and
//! positions compare; a class keeps its colour in all of them.
//!
//! * [`verdict`] - the first sentence and its plot;
//! * [`plots`] - latency with objectives, the requested mix and the mix that ran, time series; [`tables`] - figures.

mod plots;
mod tables;
#[cfg(test)]
mod tests;
mod verdict;

use crate::html::{Opening, Page, escape, nothing};
use crate::number::{bit_rate, time, whole};
use isolane_network_scenario::model::{FabricScenario, Shape};
use isolane_study_results::network::FabricResult;
use std::collections::BTreeSet;

#[derive(Clone, Copy, Debug)]
struct Run<'a> {
    scenario: &'a FabricScenario,
    result: &'a FabricResult,
    remarks: &'a [String],
}

/// The whole file.
pub(crate) fn page(
    scenarios: &[FabricScenario],
    results: &[FabricResult],
    remarks: &[Vec<String>],
) -> String {
    let silent: &[String] = &[];
    let runs: Vec<Run<'_>> = scenarios
        .iter()
        .zip(results)
        .enumerate()
        .map(|(index, (scenario, result))| Run {
            scenario,
            result,
            remarks: remarks.get(index).map_or(silent, Vec::as_slice),
        })
        .collect();
    let Some(first) = runs.first() else {
        return nothing();
    };
    let verdict = verdict::sentence(&runs);
    let mut body = opening(&runs, &verdict);
    body.push_str(&notes(&runs));
    if runs.len() > 1 {
        body.push_str(&tables::comparison(&runs));
    }
    body.push_str(&plots::all(&runs));
    for (index, run) in runs.iter().enumerate() {
        body.push_str(&tables::details(run, index, runs.len() > 1));
    }
    let body = format!("<main id=\"main\">\n{body}</main>\n");
    let source = format!("results in JSON form {}", first.result.version);
    let title = format!("{} on {}", first.result.scenario, shape(first.scenario));
    Page::plain(&title, &verdict, &body, &source)
}

/// The network in a few words.
fn shape(scenario: &FabricScenario) -> String {
    let hosts = scenario.topology.shape.hosts();
    let shape = match scenario.topology.shape {
        Shape::SingleSwitch { .. } => "one switch".to_owned(),
        Shape::LeafSpine { leaves, spines, .. } => format!("{leaves} leaves and {spines} spines"),
        Shape::FatTree { k } => format!("a fat tree of {k}-port switches"),
        Shape::TwoRacks { .. } => "two racks".to_owned(),
    };
    format!("{shape}, {} hosts", whole(u64::from(hosts)))
}

fn sentence(runs: &[Run<'_>]) -> String {
    let policies: Vec<&str> = runs.iter().map(|run| run.result.policy.as_str()).collect();
    let calls: u64 = runs[0]
        .result
        .classes
        .iter()
        .map(|class| class.issued)
        .sum();
    let control = match policies.as_slice() {
        ["none"] => "without admission control".to_owned(),
        policies => format!("under {}", policies.join(", ")),
    };
    let transport = match runs[0].result.transport.as_str() {
        "none" => String::new(),
        transport => format!(" over {transport}"),
    };
    format!(
        "{} calls in {} classes, {} measured, {control}{transport}",
        whole(calls),
        runs[0].result.classes.len(),
        time(runs[0].result.measured_s * 1e6),
    )
}

fn opening(runs: &[Run<'_>], verdict: &str) -> String {
    let first = &runs[0];
    let seeds: BTreeSet<u64> = runs.iter().map(|run| run.result.seed).collect();
    let seeds: Vec<String> = seeds.iter().map(u64::to_string).collect();
    let kicker = format!(
        "{} · {} links · seed {}",
        escape(&shape(first.scenario)),
        bit_rate(first.scenario.topology.host_rate.as_gbps_f64()),
        seeds.join(", ")
    );
    let about = match first.scenario.description.as_str() {
        "" => format!("{}.", sentence(runs)),
        text => format!("{}. {text}", sentence(runs)),
    };
    Opening {
        kicker: &kicker,
        title: &first.result.scenario,
        verdict,
        about: &about,
        plot: &verdict::plot(runs),
    }
    .render()
}

/// What each run says in words.
fn notes(runs: &[Run<'_>]) -> String {
    let mut out = String::new();
    for run in runs.iter().filter(|run| !run.remarks.is_empty()) {
        let lines: String = run
            .remarks
            .iter()
            .map(|line| format!("<li>{}</li>", escape(line)))
            .collect();
        let under = match runs.len() {
            1 => String::new(),
            _ => format!("<h3>Under {}</h3>", escape(&run.result.policy)),
        };
        out.push_str(&format!("{under}<ul class=\"notes\">{lines}</ul>\n"));
    }
    match out.is_empty() {
        true => out,
        false => format!("<section id=\"notes\"><h2>In words</h2>{out}</section>\n"),
    }
}
