//! `isolane nic top`: an attached device, again and again. On a terminal each view is drawn over the last one.

use super::{Place, view};
use crate::output;
use crate::status::Status;
use anyhow::Result;
use isolane_ethernet_attach::status::{Asked, report};
use std::io::IsTerminal;
use std::time::Duration;

/// Home, and clear what is below.
const OVER: &str = "\x1b[H\x1b[J";

/// Arguments of `isolane nic top`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: Place,
    /// Print one view and end
    #[arg(long)]
    once: bool,
    /// Print JSON, one line for each view
    #[arg(long)]
    json: bool,
    /// Time between two views, over which fairness is measured
    #[arg(long, default_value = "1s", value_parser = crate::commands::rdma::top::interval)]
    interval: Duration,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    let system = arguments.place.enter()?;
    let draw_over = std::io::stdout().is_terminal() && !arguments.once;
    let asked = Asked {
        fairness: Some(arguments.interval),
        cost: false,
    };
    loop {
        let report = report(&system, &arguments.place.device, asked)?;
        match (arguments.json, draw_over) {
            (true, _) => output::print(&output::compact_json(&report)?)?,
            (false, true) => output::print(&format!("{OVER}{}", view::text(&report, true)))?,
            (false, false) => output::print(&view::text(&report, true))?,
        }
        if arguments.once {
            return Ok(Status::Done);
        }
    }
}
