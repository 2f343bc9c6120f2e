//! `isolane catalog profiles`: the devices and the machines with tiered memory, and every number with its source.

use crate::inputs;
use crate::output;
use crate::status::Status;
use crate::text::{Table, fitted, number};
use anyhow::Result;
use isolane_common_toml_input::sourced::{Parameter, SourceKind, Sourced};
use isolane_memory_scenario::machine::{MACHINE_PARAMETERS, MemMachine};
use isolane_rdma_scenario::library::Library;
use isolane_rdma_scenario::profile::{MICROARCHITECTURE, PARAMETERS, Profile};
use serde::Serialize;

/// Arguments of `isolane catalog profiles`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Show this profile with the source of each number: a name, or the path of a TOML file
    #[arg(value_parser = inputs::profile_names(), hide_possible_values = true)]
    name: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A line of the list, as JSON.
#[derive(Serialize)]
struct Summary<'a> {
    name: &'a str,
    title: &'a str,
    papers: &'a [String],
    link_gbps: f64,
    atomics: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    let mut library = inputs::library();
    match &arguments.name {
        None if arguments.json => {
            let profiles = library.profiles().iter();
            output::print_json(&profiles.map(summary).collect::<Vec<_>>())?;
        }
        None => output::show(&list(&library))?,
        Some(name) => match (MemMachine::named(name), arguments.json) {
            (Some(machine), true) => output::print_json(&machine)?,
            (Some(machine), false) => output::show(&show_machine(&machine))?,
            (None, true) => output::print_json(&inputs::profile(&mut library, name)?)?,
            (None, false) => output::show(&show(&inputs::profile(&mut library, name)?))?,
        },
    }
    Ok(Status::Done)
}

fn summary(profile: &Profile) -> Summary<'_> {
    Summary {
        name: &profile.name,
        title: &profile.title,
        papers: &profile.papers,
        link_gbps: profile.value("link", "rate_gbps"),
        atomics: profile.atomics,
    }
}

/// The papers that measured a device.
fn measured_by(profile: &Profile) -> String {
    match profile.papers.is_empty() {
        true => "no paper".to_owned(),
        false => profile.papers.join(", "),
    }
}

fn list(library: &Library) -> String {
    let mut table = Table::new("lllr", &["profile", "device", "measured by", "Gb/s"]);
    for profile in library.profiles() {
        table.row(vec![
            profile.name.clone(),
            profile.title.clone(),
            measured_by(profile),
            number(profile.value("link", "rate_gbps")),
        ]);
    }
    let mut machines = Table::new("llrr", &["machine", "tiered memory", "near GB", "far GB"]);
    for machine in MemMachine::embedded() {
        machines.row(vec![
            machine.name.clone(),
            machine.title.clone(),
            number(machine.value("local", "capacity_gb")),
            number(machine.value("far", "capacity_gb")),
        ]);
    }
    format!("{}\n{}", fitted(&table), fitted(&machines))
}

/// A machine with tiered memory: every number with its source.
fn show_machine(machine: &MemMachine) -> String {
    let sourced = |of: &Parameter| machine.sections.get(of.section)?.get(of.name);
    format!(
        "{}: {}\na machine of scenarios with [memory]\n\n{}",
        machine.name,
        machine.title,
        numbers(MACHINE_PARAMETERS, sourced)
    )
}

/// A row for each of `parameters` that the profile has, with its source.
fn numbers<'a, 'b>(
    parameters: impl IntoIterator<Item = &'b Parameter>,
    find: impl Fn(&Parameter) -> Option<&'a Sourced>,
) -> String {
    let mut table = Table::new("lrll", &["parameter", "value", "known", "source"]);
    for parameter in parameters {
        if let Some(sourced) = find(parameter) {
            table.row(vec![
                format!("{}.{}", parameter.section, parameter.name),
                number(sourced.value),
                kind(sourced.kind).to_owned(),
                sourced.source.clone(),
            ]);
        }
    }
    fitted(&table)
}

fn show(profile: &Profile) -> String {
    let mut text = format!(
        "{}: {}\nmeasured by: {}\natomics: {}\n\n",
        profile.name,
        profile.title,
        measured_by(profile),
        if profile.atomics { "yes" } else { "no" },
    );
    let sourced = |of: &Parameter| profile.section(of.section)?.get(of.name);
    text.push_str(&numbers(
        PARAMETERS.iter().chain(MICROARCHITECTURE),
        sourced,
    ));
    if !profile.token_dictionary.is_empty() {
        let mut tokens = Table::new("rr", &["up to Gb/s", "token bytes"]);
        for token in &profile.token_dictionary {
            tokens.row(vec![number(token.rate_gbps), token.token_bytes.to_string()]);
        }
        text.push_str("\ntoken dictionary (justitia 5.2)\n");
        text.push_str(&fitted(&tokens));
    }
    text
}

fn kind(kind: SourceKind) -> &'static str {
    match kind {
        SourceKind::Published => "published",
        SourceKind::Standard => "standard",
        SourceKind::Derived => "derived",
        SourceKind::Calibrated => "calibrated",
    }
}
