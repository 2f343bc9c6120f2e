//! `isolane catalog`: what this program knows: device profiles, policies, workloads and the shapes of its files.

mod policies;
mod profiles;
mod schema;
mod workloads;

use crate::status::Status;
use anyhow::Result;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Action {
    /// List the device profiles, or show one with the source of each number
    Profiles(profiles::Arguments),
    /// List the policies: what each does, controls and needs, and its settings
    Policies(policies::Arguments),
    /// List the victims and attackers, or show one
    Workloads(workloads::Arguments),
    /// Print the JSON schema of a file or of a result
    Schema(schema::Arguments),
}

pub(crate) fn run(action: &Action) -> Result<Status> {
    match action {
        Action::Profiles(arguments) => profiles::run(arguments),
        Action::Policies(arguments) => policies::run(arguments),
        Action::Workloads(arguments) => workloads::run(arguments),
        Action::Schema(arguments) => schema::run(arguments),
    }
}
