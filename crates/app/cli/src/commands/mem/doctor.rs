//! `isolane mem doctor`: what this kernel can enforce and measure of memory tiers, what is missing, how to get it.

use crate::output;
use crate::status::Status;
use anyhow::Result;
use isolane_memory_service::{MemoryHost, doctor};

/// What the help of the command ends with.
const EXIT_CODES: &str = "\
Exit codes:
  0    this machine can enforce limits
  3    it cannot; the report says what is missing and how to get it";

/// Arguments of `isolane mem doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<Status> {
    let findings = doctor::examine(&MemoryHost::machine());
    match arguments.json {
        true => output::print_json(&findings)?,
        false => output::show(&findings.render())?,
    }
    Ok(match findings.can_enforce {
        true => Status::Done,
        false => Status::Missing,
    })
}
