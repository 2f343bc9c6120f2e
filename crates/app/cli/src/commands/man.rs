//! `isolane man DIR`.

use crate::output;
use crate::status::Status;
use anyhow::{Context, Result};
use clap::CommandFactory;
use std::path::PathBuf;

/// Arguments of `isolane man`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Where the pages go; made if it is not there
    directory: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    output::make_directory(&arguments.directory)?;
    clap_mangen::generate_to(
        super::described(crate::Arguments::command()),
        &arguments.directory,
    )
    .with_context(|| format!("cannot write into {}", arguments.directory.display()))?;
    Ok(Status::Done)
}
