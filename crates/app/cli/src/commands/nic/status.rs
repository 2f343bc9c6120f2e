//! `isolane nic status`: queues, flows, fairness and cost of an attached device.

use super::{Place, view};
use crate::output;
use crate::status::Status;
use anyhow::Result;
use isolane_ethernet_attach::status::{Asked, report};
use isolane_ethernet_attach::{NicError, bond, openmetrics};
use std::time::Duration;

/// Arguments of `isolane nic status`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: Place,
    /// Seconds during which fairness is measured, 60 at most; 0: fairness is not measured
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = crate::numbers::whole::<u64>(0..=60))]
    seconds: u64,
    /// Measure what the programs cost meanwhile, for a second at least
    #[arg(long)]
    cost: bool,
    /// Show every flow
    #[arg(long)]
    flows: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print OpenMetrics text
    #[arg(long, conflicts_with = "json")]
    openmetrics: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    let system = arguments.place.enter()?;
    let measured = arguments.seconds > 0 && !arguments.openmetrics;
    let asked = Asked {
        fairness: measured.then(|| Duration::from_secs(arguments.seconds)),
        cost: arguments.cost,
    };
    let device = arguments.place.device.as_str();
    let is_bond = bond::is_bond(device)?;
    let reports = match is_bond {
        true => bond::reports(&system, device, asked),
        false => report(&system, device, asked).map(|report| vec![report]),
    };
    let reports = match reports {
        Ok(reports) => reports,
        Err(error @ NicError::NotAttached { .. }) => {
            output::note(&format!("isolane: {error}"));
            return Ok(Status::No);
        }
        Err(error) => return Err(error.into()),
    };
    let left_out = match is_bond {
        true => bond::left_out(&system, device)?,
        false => Vec::new(),
    };
    let is_effective = left_out.is_empty() && reports.iter().all(|report| report.aside.is_none());
    match (arguments.json, arguments.openmetrics) {
        (true, _) if is_bond => output::print_json(&reports)?,
        (true, _) => output::print_json(&reports[0])?,
        (_, true) => output::print(&openmetrics::render(&reports))?,
        _ => {
            let texts = reports
                .iter()
                .map(|report| view::text(report, arguments.flows));
            output::print(&texts.collect::<Vec<_>>().join("\n"))?;
        }
    }
    for lower in left_out {
        output::note(&format!(
            "isolane: {lower} of {device} is not attached: its packets get the kernel's own choice of queue; the reason is in the log of \
             the controller"
        ));
    }
    Ok(match is_effective {
        true => Status::Done,
        false => Status::No,
    })
}
