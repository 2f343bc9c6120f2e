//! `isolane policies`: what each part of a policy controls, needs and can be set to.

use crate::inputs::{bad, suggestion};
use crate::output;
use crate::status::Status;
use crate::text::{Table, number};
use anyhow::Result;
use isolane_scenario::stack::{self, ALL, Feature, PolicyPart};
use serde::Serialize;

/// Arguments of `isolane policies`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// One policy with its parameters; parts are joined with +
    #[arg(value_parser = crate::inputs::policy_names(), hide_possible_values = true)]
    name: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A part, as JSON.
#[derive(Serialize)]
struct Part {
    name: &'static str,
    about: &'static str,
    controls: Vec<&'static str>,
    needs: Option<&'static str>,
    honours_weights: bool,
    parameters: Vec<Parameter>,
}

/// A parameter, as JSON.
#[derive(Serialize)]
struct Parameter {
    name: &'static str,
    min: f64,
    max: f64,
    about: &'static str,
}

/// All parts, and the stacks that `--policies all` compares.
#[derive(Serialize)]
struct Listing {
    parts: Vec<Part>,
    all: &'static [&'static str],
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    let parts: Vec<&PolicyPart> = match &arguments.name {
        None => stack::part_names().filter_map(stack::part).collect(),
        Some(name) => {
            let canonical = crate::inputs::policy(name)?.name;
            stack::parts(&canonical)
                .map_err(|error| bad(format!("{error}{}", suggestion(name, stack::part_names()))))?
        }
    };
    match arguments.json {
        true => output::print_json(&Listing {
            parts: parts.iter().map(|part| of(part)).collect(),
            all: ALL,
        })?,
        false if arguments.name.is_some() => output::print(&show(&parts))?,
        false => output::print(&list(&parts))?,
    }
    Ok(Status::Done)
}

fn of(part: &PolicyPart) -> Part {
    Part {
        name: part.name,
        about: part.about,
        controls: controls(part),
        needs: needs(part.needs),
        honours_weights: stack::honours_weights(part.name),
        parameters: part
            .parameters
            .iter()
            .map(|parameter| Parameter {
                name: parameter.name,
                min: parameter.min,
                max: parameter.max,
                about: parameter.about,
            })
            .collect(),
    }
}

fn controls(part: &PolicyPart) -> Vec<&'static str> {
    let nothing = part.slots == [stack::Slot::Nothing];
    let slots = part.slots.iter().map(|slot| slot.what());
    if nothing { Vec::new() } else { slots.collect() }
}

fn needs(feature: Feature) -> Option<&'static str> {
    match feature {
        Feature::Any => None,
        Feature::VirtualFunctions => Some("a virtual function per tenant"),
        Feature::TrafficClasses => Some("a traffic class per tenant"),
        Feature::CongestionNotification => Some("RoCEv2 congestion notifications"),
    }
}

fn list(parts: &[&PolicyPart]) -> String {
    let mut table = Table::new("llll", &["policy", "what it does", "controls", "needs"]);
    for part in parts {
        table.row(vec![
            part.name.to_owned(),
            part.about.to_owned(),
            dash(controls(part).join("; ")),
            needs(part.needs).unwrap_or("-").to_owned(),
        ]);
    }
    format!(
        "{}\nParts that control different things combine with +, in any order.\n--policies all compares: {}\n",
        table.render(),
        ALL.join(", ")
    )
}

fn show(parts: &[&PolicyPart]) -> String {
    let mut text = String::new();
    for part in parts {
        text.push_str(&format!("{}: {}\n", part.name, part.about));
        text.push_str(&format!(
            "  controls  {}\n",
            dash(controls(part).join("; "))
        ));
        text.push_str(&format!(
            "  needs     {}\n",
            needs(part.needs).unwrap_or("-")
        ));
        let weights = match stack::honours_weights(part.name) {
            true => "honours tenants' weights",
            false => "treats all tenants alike",
        };
        text.push_str(&format!("  weights   {weights}\n"));
        if part.parameters.is_empty() {
            text.push_str("  no parameters\n");
            continue;
        }
        let mut table = Table::new("lrrl", &["parameter", "least", "most", "meaning (default)"]);
        for parameter in part.parameters {
            table.row(vec![
                parameter.name.to_owned(),
                number(parameter.min),
                number(parameter.max),
                parameter.about.to_owned(),
            ]);
        }
        text.push_str(&table.render());
    }
    text
}

fn dash(text: String) -> String {
    match text.is_empty() {
        true => "-".to_owned(),
        false => text,
    }
}
