//! `isolane mem status`: applications, objectives, memory, limits and why they changed.

use super::{Place, unexpected, view};
use crate::output;
use crate::status::Status;
use anyhow::Result;
use isolane_common_text_output::openmetrics;
use isolane_memory_service::fleet::Summary;
use isolane_memory_service::protocol::{Answer, Request};
use std::time::SystemTime;

/// Arguments of `isolane mem status`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: Place,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print OpenMetrics text
    #[arg(long, conflicts_with = "json")]
    openmetrics: bool,
    /// Print a summary of this machine for a scheduler on one line: the value of the annotation isolane.dev/machine
    #[arg(long, conflicts_with_all = ["json", "openmetrics"])]
    summary: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<Status> {
    if arguments.openmetrics {
        match arguments.place.ask(&Request::Metrics)? {
            Answer::Metrics(metrics) => output::print(&(metrics.text + openmetrics::END))?,
            answer => return Err(unexpected(&answer)),
        }
        return Ok(Status::Done);
    }
    match arguments.place.ask(&Request::Status)? {
        Answer::Status(status) if arguments.summary => {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let summary = Summary::of(&status, now.map_or(0, |since| since.as_secs()));
            output::print(&(serde_json::to_string(&summary)? + "\n"))?;
        }
        Answer::Status(status) if arguments.json => output::print_json(&status)?,
        Answer::Status(status) => output::print(&view::status(&status))?,
        answer => return Err(unexpected(&answer)),
    }
    Ok(Status::Done)
}
