//! `isolane catalog policies`: what each part of a policy controls, needs and can be set to.

use crate::inputs::{bad, suggestion};
use crate::output;
use crate::status::Status;
use crate::text::{Table, fitted, number};
use anyhow::Result;
use isolane_common_toml_input::policy_parameter::PolicyParameter;
use isolane_memory_scenario::model::{MEM_POLICIES, MEM_POLICIES_ABOUT};
use isolane_network_scenario::parameters;
use isolane_rdma_scenario::stack;
use isolane_rdma_scenario::stack::{ALL, Feature, NOT_ON_SALE, PolicyPart};
use serde::Serialize;

/// Arguments of `isolane catalog policies`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// One policy with its parameters; parts are joined with +
    #[arg(value_parser = crate::inputs::every_policy_name(), hide_possible_values = true)]
    name: Option<String>,
    /// The policies and congestion controls of networks instead, with their parameters
    #[arg(long, conflicts_with = "name")]
    networks: bool,
    /// The policies of tiered memory instead
    #[arg(long, conflicts_with_all = ["name", "networks"])]
    memory: bool,
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
    /// False where it needs hardware that is not on sale.
    on_sale: bool,
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
    if arguments.networks {
        let listing = networks();
        match arguments.json {
            true => output::print_json(&listing)?,
            false => output::show(&show_networks(&listing))?,
        }
        return Ok(Status::Done);
    }
    let of_memory = memory(arguments.name.as_deref());
    if arguments.memory || !of_memory.is_empty() {
        let shown = match arguments.memory {
            true => memory_policies(),
            false => of_memory,
        };
        match arguments.json {
            true => output::print_json(&shown)?,
            false => output::show(&show_memory(&shown))?,
        }
        return Ok(Status::Done);
    }
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
        false if arguments.name.is_some() => output::show(&show(&parts))?,
        false => output::show(&list(&parts))?,
    }
    Ok(Status::Done)
}

fn of(part: &PolicyPart) -> Part {
    Part {
        name: part.name,
        about: part.about,
        controls: controls(part),
        needs: needs(part.needs),
        on_sale: stack::is_on_sale(part.name),
        honours_weights: stack::honours_weights(part.name),
        parameters: part.parameters.iter().map(parameter).collect(),
    }
}

fn parameter(parameter: &PolicyParameter) -> Parameter {
    Parameter {
        name: parameter.name,
        min: parameter.min,
        max: parameter.max,
        about: parameter.about,
    }
}

/// What a network's scenario may name.
#[derive(Serialize)]
struct Networks {
    policies: Vec<Named>,
    congestion: Vec<Named>,
}

/// A name of a network's scenario, as JSON.
#[derive(Serialize)]
struct Named {
    name: &'static str,
    about: &'static str,
    parameters: Vec<Parameter>,
}

fn networks() -> Networks {
    let policies = parameters::POLICY.iter().zip(parameters::POLICY_ABOUT);
    Networks {
        policies: policies
            .map(|(name, about)| Named {
                name,
                about,
                parameters: parameters::policy_named(name)
                    .map_or(&[][..], parameters::policy)
                    .iter()
                    .map(parameter)
                    .collect(),
            })
            .collect(),
        congestion: parameters::every_congestion()
            .map(|(name, list)| Named {
                name,
                about: "congestion control",
                parameters: list.iter().map(parameter).collect(),
            })
            .collect(),
    }
}

/// Policies of tiered memory; they have no parameters.
fn memory_policies() -> Vec<Named> {
    let all = MEM_POLICIES.iter().zip(MEM_POLICIES_ABOUT);
    all.map(|(name, about)| Named {
        name,
        about,
        parameters: Vec::new(),
    })
    .collect()
}

/// The policy of tiered memory called `name`, unless hosts with RDMA have one of that name.
fn memory(name: Option<&str>) -> Vec<Named> {
    let mut all = memory_policies();
    all.retain(|policy| Some(policy.name) == name && stack::part(policy.name).is_none());
    all
}

fn show_memory(policies: &[Named]) -> String {
    let mut text = String::new();
    for policy in policies {
        text.push_str(&format!("{}: {}\n", policy.name, policy.about));
    }
    text.push_str("For scenarios of tiered memory: isolane sim scenarios/mercury/contention.toml --policies tpp,mercury\n");
    text
}

fn show_networks(networks: &Networks) -> String {
    let mut text = String::new();
    for named in networks.policies.iter().chain(&networks.congestion) {
        text.push_str(&format!("{}: {}\n", named.name, named.about));
        text.push_str(&table_of(&named.parameters));
    }
    text
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
            stack::marked(part.name),
            part.about.to_owned(),
            dash(controls(part).join("; ")),
            needs(part.needs).unwrap_or("-").to_owned(),
        ]);
    }
    format!(
        "{}  {NOT_ON_SALE}\n\nParts that control different things combine with +, in any order.\n--policies all compares: {}\n\
         Networks have other policies (--networks), tiered memory too (--memory).\n",
        fitted(&table),
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
            match (stack::is_on_sale(part.name), needs(part.needs)) {
                (true, needs) => needs.unwrap_or("-").to_owned(),
                (false, None) => "hardware that is not on sale".to_owned(),
                (false, Some(needs)) => format!("hardware that is not on sale; {needs}"),
            }
        ));
        let weights = match stack::honours_weights(part.name) {
            true => "honours tenants' weights",
            false => "treats all tenants alike",
        };
        text.push_str(&format!("  weights   {weights}\n"));
        let list: Vec<Parameter> = part.parameters.iter().map(parameter).collect();
        text.push_str(&table_of(&list));
    }
    text
}

fn table_of(parameters: &[Parameter]) -> String {
    if parameters.is_empty() {
        return "  no parameters\n".to_owned();
    }
    let mut table = Table::new("lrrl", &["parameter", "least", "most", "meaning (default)"]);
    for parameter in parameters {
        table.row(vec![
            parameter.name.to_owned(),
            number(parameter.min),
            number(parameter.max),
            parameter.about.to_owned(),
        ]);
    }
    fitted(&table)
}

fn dash(text: String) -> String {
    match text.is_empty() {
        true => "-".to_owned(),
        false => text,
    }
}
