//! `isolane mem status`: applications, promises, memory, limits and why they changed.

use super::{Place, unexpected, view};
use crate::output;
use crate::status::Status;
use anyhow::Result;
use isolane_mem::protocol::{Answer, Request};

/// Arguments of `isolane mem status`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    place: Place,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print OpenMetrics text
    #[arg(long, conflicts_with = "json")]
    openmetrics: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<Status> {
    if arguments.openmetrics {
        match arguments.place.ask(&Request::Metrics)? {
            Answer::Metrics(metrics) => output::print(&(metrics.text + "# EOF\n"))?,
            answer => return Err(unexpected(&answer)),
        }
        return Ok(Status::Done);
    }
    match arguments.place.ask(&Request::Status)? {
        Answer::Status(status) if arguments.json => output::print_json(&status)?,
        Answer::Status(status) => output::print(&view::status(&status))?,
        answer => return Err(unexpected(&answer)),
    }
    Ok(Status::Done)
}
