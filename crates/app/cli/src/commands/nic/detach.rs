//! `isolane nic detach`: the device as it was.

use super::Place;
use crate::output;
use crate::status::Status;
use anyhow::Result;
use isolane_ethernet_attach::bond;
use isolane_ethernet_attach::detach::{Detached, detach};

/// Arguments of `isolane nic detach`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: Place,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    let system = arguments.place.enter()?;
    let device = &arguments.place.device;
    // The bond may be gone; its devices are not.
    let detached = match bond::journals(&system, device)?.is_empty() {
        false => bond::detach(&system, device)?,
        true => detach(&system, device)?,
    };
    let said = match detached {
        Detached::Undone => "is as it was before",
        Detached::Gone => "is gone; what was left of the attachment is removed",
        Detached::Nothing => "was not attached",
    };
    output::print(&format!("{device} {said}\n"))?;
    Ok(Status::Done)
}
