//! `isolane net`: delays and settings of a switch port under weighted fair queueing. `isolane sim` and `isolane sweep`
//! simulate networks.

mod delay;
mod plan;

use crate::status::Status;
use anyhow::Result;

/// Arguments of `isolane net`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    question: Question,
}

#[derive(Debug, clap::Subcommand)]
enum Question {
    /// Compute the worst delay, the admissible region and the guaranteed share of each class of a port
    Delay(delay::Arguments),
    /// Compute weights, admission targets and a switch configuration that meet latency objectives
    Plan(plan::Arguments),
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    match &arguments.question {
        Question::Delay(arguments) => delay::run(arguments),
        Question::Plan(arguments) => plan::run(arguments),
    }
}
