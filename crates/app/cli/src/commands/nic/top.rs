//! `isolane nic top`: an attached device, again and again. On a terminal each view is drawn over the last one.

use super::{Place, view};
use crate::commands::rdma::top::Views;
use crate::inputs::bad;
use crate::status::Status;
use anyhow::{Result, bail};
use isolane_ethernet_attach::bond;
use isolane_ethernet_attach::status::{Asked, report};

const AFTER: &str =
    "Each view has the fairness among flows, measured over the interval before the view.";

/// Arguments of `isolane nic top`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    views: Views,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    let system = arguments.place.enter()?;
    let device = &arguments.place.device;
    if bond::is_bond(device)? {
        bail!(bad(format!(
            "{device} is a bond: name one of its devices, or use `isolane nic status {device}{}`",
            system.place()
        )));
    }
    let asked = Asked {
        fairness: Some(arguments.views.interval),
        cost: false,
    };
    let mut screen = arguments.views.screen();
    loop {
        let report = report(&system, &arguments.place.device, asked)?;
        screen.print(&report, || view::text(&report, true))?;
        if arguments.views.once {
            return Ok(Status::Done);
        }
    }
}
