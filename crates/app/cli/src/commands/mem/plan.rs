//! `isolane mem plan`: whether this machine can take an application, and who would yield what. Nothing changes.

use super::describe::Options;
use super::{APPLICATION, Place, unexpected, view};
use crate::inputs;
use crate::output;
use crate::status::Status;
use anyhow::Result;
use isolane_memory_service::application;
use isolane_memory_service::protocol::{Answer, Plan, Request};
use std::path::PathBuf;

/// Arguments of `isolane mem plan`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: Place,
    /// The application's file; without one the options describe it
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<Status> {
    let application = match (&arguments.file, arguments.options.is_given()) {
        (Some(_), true) => {
            return Err(inputs::bad(
                "the file describes the application: leave the options out",
            ));
        }
        (Some(file), false) => {
            let (text, name) = inputs::document_text(file, &APPLICATION)?;
            application::parse(&text, &name)?.application
        }
        (None, true) => arguments.options.application("planned")?,
        (None, false) => {
            let what = "describe the application, by a file or by options like --slo-latency 160ns --priority 3";
            return Err(inputs::bad(what));
        }
    };
    let name = application.name.clone();
    let planned = match arguments.place.ask(&Request::Plan(Plan { application }))? {
        Answer::Planned(planned) => planned,
        answer => return Err(unexpected(&answer)),
    };
    match arguments.json {
        true => output::print_json(&planned)?,
        false => output::print(&view::planned(&name, &planned))?,
    }
    Ok(match planned.kept {
        true => Status::Done,
        false => Status::No,
    })
}
