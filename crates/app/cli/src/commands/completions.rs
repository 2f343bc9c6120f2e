//! `isolane completions SHELL`.

use crate::output;
use crate::status::Status;
use anyhow::Result;
use clap::CommandFactory;
use clap_complete::Shell;

/// Arguments of `isolane completions`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    let mut script = Vec::new();
    let mut command = super::described(crate::Arguments::command());
    clap_complete::generate(arguments.shell, &mut command, "isolane", &mut script);
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(Status::Done)
}
