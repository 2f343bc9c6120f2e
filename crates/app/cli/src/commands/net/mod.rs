//! `isolane net`: delays and settings of a switch port under weighted fair queueing. `isolane sim` and `isolane sweep`
//! simulate networks.

mod delay;
mod plan;

use crate::status::Status;
use anyhow::Result;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Action {
    /// Compute the worst delay, the admissible region and the guaranteed share of each class of a port
    Delay(delay::Arguments),
    /// Compute weights, admission targets and a switch configuration that meet latency objectives
    Plan(plan::Arguments),
}

pub(crate) fn run(action: &Action) -> Result<Status> {
    match action {
        Action::Delay(arguments) => delay::run(arguments),
        Action::Plan(arguments) => plan::run(arguments),
    }
}
