//! `isolane net plan`: objectives and traffic in, weights, admission targets and configuration out.

use crate::file_kind::{FileKind, Wanted};
use crate::inputs;
use crate::output;
use crate::status::Status;
use crate::text::{Table, fitted, number};
use anyhow::Result;
use clap::ValueEnum;
use isolane_common_quantities::units::Duration;
use isolane_network_scenario::port_plan;
use isolane_network_scenario::port_plan::PortPlan;
use isolane_rpc_policy::aequitas::AequitasOptions;
use isolane_rpc_policy::queueing::Arrivals;
use isolane_rpc_policy::queueing::plan::{Objective, Plan, plan};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::path::PathBuf;

/// Version of what `--json` prints.
const VERSION: u32 = 1;
/// Share of a class that counts as all of it.
const ALL: f64 = 1.0 - 1e-4;

/// Arguments of `isolane net plan`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The port, its traffic and its classes (TOML); - reads it from stdin
    file: PathBuf,
    /// Print only this configuration, ready to be applied
    #[arg(long, value_name = "FORM")]
    emit: Option<Form>,
    /// Network device of the host in the tc configurations
    #[arg(long, default_value = "eth0", value_parser = device)]
    device: String,
    /// Print JSON
    #[arg(long, conflicts_with = "emit")]
    json: bool,
}

/// A configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// Linux tc: queues of enhanced transmission selection (ets), filled by code point
    TcEts,
    /// Linux tc: hierarchical token buckets (htb) that borrow from each other, filled by code point
    TcHtb,
    /// SONiC switches: maps, schedulers and queues for config_db.json
    Sonic,
}

/// The plan as `--json` prints it.
#[derive(Debug, Serialize)]
struct Answer {
    version: u32,
    rate_gbps: f64,
    load: f64,
    burst: f64,
    period_us: f64,
    classes: Vec<Class>,
}

#[derive(Debug, Serialize)]
struct Class {
    name: String,
    dscp: u8,
    weight: u32,
    wanted_share: f64,
    admitted_share: f64,
    /// Of what it wants.
    admitted_part: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    slo_us: Option<f64>,
    /// Worst latency of a call: wire, idle network, queues; queues alone for the lowest class.
    latency_us_max: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    guaranteed_gbps: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slo_per_mtu_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    increment_window_ms: Option<f64>,
}

/// What the command takes.
const PORT: Wanted = Wanted {
    kind: |kind| matches!(kind, FileKind::Port),
    words: "one port with its traffic and classes (TOML with [port] and [[class]], docs/guides/wfq.md)",
};

pub(super) fn run(arguments: &Arguments) -> Result<Status> {
    let (text, file) = inputs::document_text(&arguments.file, &PORT)?;
    let input = port_plan::parse(&file, &text)?;
    let arrivals = Arrivals::new(
        input.load_percent as f64 / 100.0,
        input.burst_percent as f64 / 100.0,
    )?;
    let objectives: Vec<Objective> = input
        .classes
        .iter()
        .filter_map(|class| {
            let objective = class.objective.as_ref()?;
            Some(Objective {
                share: class.share_percent as f64 / 100.0,
                delay_max: objective.queueing_max.as_us_f64() / input.period.as_us_f64(),
            })
        })
        .collect();
    let plan = plan(arrivals, &objectives)?;
    let answer = answer(&input, arrivals, &plan);
    match (arguments.json, arguments.emit) {
        (true, _) => output::print_json(&answer)?,
        (false, Some(form)) => {
            output::print(&configuration(form, &input, &answer, &arguments.device))?
        }
        (false, None) => {
            output::show(&words(&input, &answer))?;
            output::print(&configurations(&input, &answer, &arguments.device))?;
        }
    }
    Ok(Status::Done)
}

/// A network device's name, safe in a shell.
fn device(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-@".contains(c);
    match (1..=15).contains(&text.len()) && text.chars().all(plain) {
        true => Ok(text.to_owned()),
        false => Err(
            "a network device has a name of 1 to 15 letters, digits, dots and dashes".to_owned(),
        ),
    }
}

fn answer(input: &PortPlan, arrivals: Arrivals, plan: &Plan) -> Answer {
    let period_us = input.period.as_us_f64();
    let classes = input.classes.iter().enumerate().map(|(index, class)| {
        let wanted_share = class.share_percent as f64 / 100.0;
        let planned = plan.classes.get(index);
        let admitted_share = planned.map_or(plan.lowest_share, |planned| planned.admitted);
        let queueing_us = planned.map_or(plan.lowest_delay, |planned| planned.delay) * period_us;
        let objective = class.objective.as_ref();
        let unloaded_us = objective.map_or(0.0, |objective| {
            (input.rate.time_for(objective.call_bytes) + input.idle_latency).as_us_f64()
        });
        let mtus = |bytes: u64| bytes.div_ceil(input.mtu.get()).max(1);
        let per_mtu = objective.map(|objective| objective.slo / mtus(objective.call_bytes.get()));
        Class {
            name: class.name.clone(),
            dscp: class.dscp,
            weight: planned.map_or(1, |planned| planned.weight),
            wanted_share,
            admitted_share,
            admitted_part: match wanted_share > 0.0 {
                true => (admitted_share / wanted_share).min(1.0),
                false => 1.0,
            },
            slo_us: objective.map(|objective| objective.slo.as_us_f64()),
            latency_us_max: unloaded_us + queueing_us,
            guaranteed_gbps: planned.map(|planned| planned.guaranteed * input.rate.as_gbps_f64()),
            slo_per_mtu_us: per_mtu.map(Duration::as_us_f64),
            increment_window_ms: per_mtu.zip(objective).map(|(per_mtu, objective)| {
                let options = AequitasOptions::new(per_mtu, objective.percentile);
                options.increment_window().as_us_f64() / 1e3
            }),
        }
    });
    Answer {
        version: VERSION,
        rate_gbps: input.rate.as_gbps_f64(),
        load: arrivals.load,
        burst: arrivals.burst,
        period_us,
        classes: classes.collect(),
    }
}

fn words(input: &PortPlan, answer: &Answer) -> String {
    let mut table = Table::new(
        "lrrrrrrrr",
        &[
            "class",
            "DSCP",
            "weight",
            "wanted",
            "admitted",
            "SLO, us",
            "worst, us",
            "at least, Gb/s",
            "SLO per MTU, us",
        ],
    );
    for class in &answer.classes {
        let optional = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), number);
        table.row(vec![
            class.name.clone(),
            class.dscp.to_string(),
            class.weight.to_string(),
            percent(class.wanted_share),
            percent(class.admitted_share),
            optional(class.slo_us),
            number(class.latency_us_max),
            optional(class.guaranteed_gbps),
            optional(class.slo_per_mtu_us),
        ]);
    }
    let mut text = format!(
        "{} Gb/s, load {} %, bursts at {} %, a burst every {} us\n\n{}\n",
        number(answer.rate_gbps),
        input.load_percent,
        input.burst_percent,
        number(answer.period_us),
        fitted(&table)
    );
    for class in &answer.classes {
        if class.slo_us.is_some() && class.admitted_part < ALL {
            let _ = writeln!(
                text,
                "  {} cannot send all in its class: no weights up to 64 let more than {} of the traffic meet {} us. \
                 Aequitas downgrades the rest.",
                class.name,
                percent(class.admitted_share),
                number(class.slo_us.unwrap_or_default())
            );
        }
    }
    text
}

/// Every configuration; its lines stay as wide as they are, so that they can be copied.
fn configurations(input: &PortPlan, answer: &Answer, device: &str) -> String {
    let mut text = "\nConfiguration (print one alone with --emit):\n".to_owned();
    for form in Form::value_variants() {
        let name = form.to_possible_value().expect("no form is hidden");
        let body = configuration(*form, input, answer, device);
        let _ = write!(text, "\n--emit {}\n\n", name.get_name());
        for line in body.lines() {
            let _ = writeln!(text, "    {line}");
        }
    }
    text
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn configuration(form: Form, input: &PortPlan, answer: &Answer, device: &str) -> String {
    match form {
        Form::TcEts => ets(input, answer, device),
        Form::TcHtb => htb(input, answer, device),
        Form::Sonic => sonic(answer),
    }
}

/// The traffic class byte of a code point, whose two low bits are congestion notification, in both versions of IP. Filters
/// of one preference have one protocol, so those of IPv6 come behind all of IPv4.
fn filters_of(device: &str, bands: usize, index: usize, dscp: u8) -> String {
    let byte = u32::from(dscp) << 2;
    let one = |protocol: &str, preference: usize, field: &str| {
        format!(
            "tc filter add dev {device} parent 1: protocol {protocol} prio {preference} u32 match {field} 0x{byte:02x} 0xfc \
             flowid 1:{}\n",
            index + 1
        )
    };
    one("ip", index + 1, "ip tos") + &one("ipv6", bands + index + 1, "ip6 priority")
}

fn ets(input: &PortPlan, answer: &Answer, device: &str) -> String {
    let quanta: Vec<String> = answer
        .classes
        .iter()
        .map(|class| (u64::from(class.weight) * input.mtu.get()).to_string())
        .collect();
    let bands = answer.classes.len();
    let mut text = format!(
        "tc qdisc replace dev {device} root handle 1: ets bands {bands} quanta {} priomap {}\n",
        quanta.join(" "),
        vec![(bands - 1).to_string(); 16].join(" ")
    );
    text.push_str(&filters(answer, device));
    text
}

fn htb(input: &PortPlan, answer: &Answer, device: &str) -> String {
    let total: u64 = answer
        .classes
        .iter()
        .map(|class| u64::from(class.weight))
        .sum();
    let line = input.rate.as_bps();
    let bands = answer.classes.len();
    let mut text = format!(
        "tc qdisc replace dev {device} root handle 1: htb default {bands}\n\
         tc class replace dev {device} parent 1: classid 1:99 htb rate {line}bit ceil {line}bit\n"
    );
    for (index, class) in answer.classes.iter().enumerate() {
        let rate = u128::from(line) * u128::from(class.weight) / u128::from(total);
        let _ = writeln!(
            text,
            "tc class replace dev {device} parent 1:99 classid 1:{} htb rate {rate}bit ceil {line}bit quantum {}",
            index + 1,
            // The kernel warns above 200,000 bytes; ratios up to 64 stay exact below.
            (u64::from(class.weight) * input.mtu.get().min(3_000)).min(200_000)
        );
    }
    text.push_str(&filters(answer, device));
    text
}

/// Every class but the last by its code point; the last takes what no filter names.
fn filters(answer: &Answer, device: &str) -> String {
    let bands = answer.classes.len();
    let named = answer.classes.iter().enumerate().take(bands - 1);
    named
        .map(|(index, class)| filters_of(device, bands, index, class.dscp))
        .collect()
}

/// Queue 0 is the lowest class, so that unknown code points land there.
fn sonic(answer: &Answer) -> String {
    let queue = |index: usize| (answer.classes.len() - 1 - index).to_string();
    let mut dscp = Map::new();
    let mut queues = Map::new();
    let mut schedulers = Map::new();
    let mut bindings = Map::new();
    for (index, class) in answer.classes.iter().enumerate() {
        let queue = queue(index);
        dscp.insert(class.dscp.to_string(), json!(queue));
        queues.insert(queue.clone(), json!(queue));
        let scheduler = format!("isolane.{}", class.name);
        schedulers.insert(
            scheduler.clone(),
            json!({ "type": "DWRR", "weight": class.weight.to_string() }),
        );
        bindings.insert(
            format!("Ethernet0|{queue}"),
            json!({ "scheduler": scheduler }),
        );
    }
    let value: Value = json!({
        "DSCP_TO_TC_MAP": { "isolane": dscp },
        "TC_TO_QUEUE_MAP": { "isolane": queues },
        "SCHEDULER": schedulers,
        "QUEUE": bindings,
        "PORT_QOS_MAP": { "Ethernet0": { "dscp_to_tc_map": "isolane", "tc_to_queue_map": "isolane" } },
    });
    let mut text = serde_json::to_string_pretty(&value).expect("maps of strings are JSON");
    text.push('\n');
    text
}
