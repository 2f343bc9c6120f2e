//! `isolane catalog`: what this program knows: device profiles, policies, workloads and the shapes of its files.

mod policies;
mod profiles;
mod schema;
mod workloads;

use crate::status::Status;
use anyhow::Result;

/// Arguments of `isolane catalog`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    list: List,
}

#[derive(Debug, clap::Subcommand)]
enum List {
    /// List the device profiles, or show one with the source of each number
    Profiles(profiles::Arguments),
    /// List the policies: what each does, controls and needs, and its settings
    Policies(policies::Arguments),
    /// List the victims and attackers, or show one
    Workloads(workloads::Arguments),
    /// Print the JSON schema of a file or of a result
    Schema(schema::Arguments),
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    match &arguments.list {
        List::Profiles(arguments) => profiles::run(arguments),
        List::Policies(arguments) => policies::run(arguments),
        List::Workloads(arguments) => workloads::run(arguments),
        List::Schema(arguments) => schema::run(arguments),
    }
}
