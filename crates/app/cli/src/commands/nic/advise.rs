//! `isolane nic advise`: what a configuration costs.

use super::Place;
use crate::output;
use crate::status::Status;
use anyhow::Result;
use isolane_ethernet_attach::advise::advise;

/// Arguments of `isolane nic advise`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: Place,
    /// Print JSON, with everything that was read
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    let system = arguments.place.enter()?;
    let advice = advise(&system, &arguments.place.device)?;
    match arguments.json {
        true => output::print_json(&advice)?,
        false => output::show(&advice.text())?,
    }
    Ok(match advice.is_change_due() {
        true => Status::No,
        false => Status::Done,
    })
}
