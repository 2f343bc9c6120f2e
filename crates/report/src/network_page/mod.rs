//! The page of one run on a network, or of several runs of one scenario side by side.
//!
//! Everything is static: tables and SVG. Plots of one kind share their axes over all runs, so that heights and
//! positions compare; a class keeps its colour in all of them.
//!
//! * [`plots`] - latency with objectives, the mix asked for and run, time series; [`tables`] - figures.

mod plots;
mod tables;
#[cfg(test)]
mod tests;

use crate::html::{Page, escape};
use crate::number::{time, whole};
use isolane_scenario::fabric::model::{FabricScenario, Shape};
use isolane_scenario::fabric::result::FabricResult;
use std::collections::BTreeSet;

/// One run with what is known of it.
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
    let nothing: &[String] = &[];
    let runs: Vec<Run<'_>> = scenarios
        .iter()
        .zip(results)
        .enumerate()
        .map(|(index, (scenario, result))| Run {
            scenario,
            result,
            remarks: remarks.get(index).map_or(nothing, Vec::as_slice),
        })
        .collect();
    let Some(first) = runs.first() else {
        return Page {
            title: "No runs",
            description: "A report without runs",
            body: "<main id=\"main\"><header><h1>No runs</h1><p>There was nothing to report.</p></header></main>",
            ..Page::default()
        }
        .render();
    };
    let mut body = header(&runs);
    body.push_str(&notes(&runs));
    if runs.len() > 1 {
        body.push_str(&tables::comparison(&runs));
    }
    body.push_str(&plots::all(&runs));
    for (index, run) in runs.iter().enumerate() {
        body.push_str(&tables::details(run, index, runs.len() > 1));
    }
    let body = format!("<main id=\"main\">\n{body}</main>\n");
    let footer = format!(
        "Made by Isolane from results in JSON form {}. Everything is in this file; it needs no network.",
        first.result.version
    );
    let title = format!("{} on {}", first.result.scenario, shape(first.scenario));
    Page {
        title: &title,
        description: &sentence(&runs),
        body: &body,
        footer: &footer,
        ..Page::default()
    }
    .render()
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
    format!(
        "{} calls in {} classes, {} measured, under {} over {}",
        whole(calls),
        runs[0].result.classes.len(),
        time(runs[0].result.measured_s * 1e6),
        policies.join(", "),
        runs[0].result.transport
    )
}

fn header(runs: &[Run<'_>]) -> String {
    let first = &runs[0];
    let seeds: BTreeSet<u64> = runs.iter().map(|run| run.result.seed).collect();
    let seeds: Vec<String> = seeds.iter().map(u64::to_string).collect();
    let about = match first.scenario.description.as_str() {
        "" => String::new(),
        text => format!("<p>{}</p>", escape(text)),
    };
    format!(
        "<header><p class=\"kicker\">{} · {} links · seed {}</p>\n<h1>{}</h1>\n<p class=\"lede\">{}.</p>{about}</header>\n",
        escape(&shape(first.scenario)),
        escape(&first.scenario.topology.host_rate.to_string()),
        seeds.join(", "),
        escape(&first.result.scenario),
        escape(&sentence(runs))
    )
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
        out.push_str(&format!("{under}<ul>{lines}</ul>\n"));
    }
    match out.is_empty() {
        true => out,
        false => format!("<section id=\"notes\"><h2>In words</h2>{out}</section>\n"),
    }
}
