//! `isolane mem top`: the status, again and again. On a terminal each view is drawn over the last one.

use super::{Place, answer, unexpected, view};
use crate::commands::rdma::top::Views;
use crate::status::Status;
use anyhow::Result;
use isolane_memory_service::protocol::{Answer, Request};

/// Arguments of `isolane mem top`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    views: Views,
}

pub(super) fn run(arguments: &Arguments) -> Result<Status> {
    let mut client = arguments.place.connect()?;
    let mut screen = arguments.views.screen();
    loop {
        let status = match answer(client.ask(&Request::Status)?)? {
            Answer::Status(status) => status,
            answer => return Err(unexpected(&answer)),
        };
        screen.print(&status, || view::status(&status))?;
        if arguments.views.once {
            return Ok(Status::Done);
        }
        std::thread::sleep(arguments.views.interval);
    }
}
