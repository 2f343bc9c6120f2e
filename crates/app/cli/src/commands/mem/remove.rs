//! `isolane mem remove`: releases an application.

use super::{Place, unexpected};
use crate::output;
use crate::status::Status;
use anyhow::Result;
use isolane_memory_service::protocol::{Answer, Name, Request};

/// Arguments of `isolane mem remove`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: Place,
    /// Its name
    name: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<Status> {
    let request = Request::Remove(Name {
        name: arguments.name.clone(),
    });
    match arguments.place.ask(&request)? {
        Answer::Removed(name) if arguments.json => output::print_json(&name)?,
        Answer::Removed(name) => output::print(&format!(
            "{}: no more limits; it keeps running\n",
            name.name
        ))?,
        answer => return Err(unexpected(&answer)),
    }
    Ok(Status::Done)
}
