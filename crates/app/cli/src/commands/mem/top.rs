//! `isolane mem top`: the status, again and again. On a terminal each view is drawn over the last one.

use super::{Place, answer, unexpected, view};
use crate::output;
use crate::status::Status;
use anyhow::Result;
use isolane_memory_service::protocol::{Answer, Request};
use std::io::IsTerminal;
use std::time::Duration;

/// Home, and clear what is below.
const OVER: &str = "\x1b[H\x1b[J";

/// Arguments of `isolane mem top`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    place: Place,
    /// Print one view and end
    #[arg(long)]
    once: bool,
    /// Print JSON, one line for each view
    #[arg(long)]
    json: bool,
    /// Time between two views
    #[arg(long, default_value = "1s", value_parser = crate::commands::rdma::top::interval)]
    interval: Duration,
}

pub(super) fn run(arguments: &Arguments) -> Result<Status> {
    let draw_over = std::io::stdout().is_terminal() && !arguments.once;
    let mut client = arguments.place.connect()?;
    loop {
        let status = match answer(client.ask(&Request::Status)?)? {
            Answer::Status(status) => status,
            answer => return Err(unexpected(&answer)),
        };
        match (arguments.json, draw_over) {
            (true, _) => output::print(&output::compact_json(&status)?)?,
            (false, true) => output::print(&format!("{OVER}{}", view::status(&status)))?,
            (false, false) => output::print(&view::status(&status))?,
        }
        if arguments.once {
            return Ok(Status::Done);
        }
        std::thread::sleep(arguments.interval);
    }
}
