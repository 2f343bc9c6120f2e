//! `isolane catalog workloads`: the catalogue of victims and attackers.

use crate::inputs::{self, bad, suggestion};
use crate::output;
use crate::status::Status;
use crate::text::{Table, counted, fitted};
use anyhow::Result;
use isolane_rdma_scenario::application::Program;
use isolane_rdma_scenario::catalogue::{Catalogue, CatalogueEntry};
use isolane_rdma_scenario::model::{Message, Traffic, Workload};
use serde::Serialize;

/// Arguments of `isolane catalog workloads`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Show this workload with its command lines: `victim/NAME` or `attacker/NAME`; the role may be left out
    #[arg(value_parser = inputs::workload_names(), hide_possible_values = true)]
    name: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    let catalogue = Catalogue::embedded();
    match &arguments.name {
        None if arguments.json => output::print_json(&catalogue.entries)?,
        None => output::show(&list(&catalogue))?,
        Some(name) => {
            let entry = find(&catalogue, name)?;
            match arguments.json {
                true => output::print_json(entry)?,
                false => output::show(&show(entry))?,
            }
        }
    }
    Ok(Status::Done)
}

fn list(catalogue: &Catalogue) -> String {
    let mut table = Table::new("lll", &["workload", "category", "resource"]);
    for entry in &catalogue.entries {
        let category = word(&entry.category);
        table.row(vec![entry.path(), category, entry.resource.clone()]);
    }
    fitted(&table)
}

fn find<'a>(catalogue: &'a Catalogue, name: &str) -> Result<&'a CatalogueEntry> {
    let mut entries = catalogue.entries.iter();
    let found = entries.find(|entry| entry.path() == name || entry.name == name);
    found.ok_or_else(|| {
        let names = catalogue.entries.iter().map(|entry| entry.name.as_str());
        let short = name.rsplit('/').next().unwrap_or(name);
        bad(format!(
            "workload {name}: unknown{}",
            suggestion(short, names)
        ))
    })
}

fn show(entry: &CatalogueEntry) -> String {
    let mut text = format!("{}\n", entry.path());
    let mut line = |name: &str, value: String| text.push_str(&format!("  {name:10} {value}\n"));
    line("category", word(&entry.category));
    line("resource", entry.resource.clone());
    line("class", word(&entry.class));
    if entry.in_full.is_empty() {
        line("direction", word(&entry.direction));
        line("processes", entry.processes.to_string());
    }
    if let Some(duration) = entry.duration {
        line("duration", format!("{duration}, at least"));
    }
    for workload in &entry.in_full {
        line("runs", in_words(workload));
    }
    if let Some(bound) = entry.latency_bound {
        line(
            "bound",
            format!("p99 at most {} x p99 alone", bound.over_solo),
        );
    }
    for command in &entry.commands {
        line("command", command.clone());
    }
    text
}

/// What a workload without a command line does.
fn in_words(workload: &Workload) -> String {
    match &workload.traffic {
        Traffic::Application(application) => {
            let hosts = application
                .hosts
                .iter()
                .map(|host| host.letter().to_ascii_lowercase());
            let hosts: Vec<String> = hosts.collect();
            let kind = match &application.program {
                Program::Allreduce { algorithm, .. } => format!("allreduce, {}", word(algorithm)),
                Program::KeyValue { .. } => "key-value store".to_owned(),
            };
            format!("{kind} on hosts {}", hosts.join(", "))
        }
        Traffic::Data(data) => format!(
            "{} of {} from host {} to host {}, {}",
            word(&data.verb),
            sizes(&data.pattern),
            workload.from.letter().to_ascii_lowercase(),
            workload.to.letter().to_ascii_lowercase(),
            counted(u64::from(workload.processes), "process")
        ),
        Traffic::Control(_) => "control verbs".to_owned(),
    }
}

/// One size, or the smallest and the largest.
fn sizes(pattern: &[Message]) -> String {
    let sizes = || pattern.iter().map(Message::bytes);
    match (sizes().min(), sizes().max()) {
        (Some(least), Some(most)) if least < most => format!("{least} to {most}"),
        (_, most) => most.unwrap_or_default().to_string(),
    }
}

/// The name of a unit variant as data files write it.
fn word(value: &impl Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or("-").to_owned()
}
