//! `isolane rpc`: admission control and quotas of remote procedure calls.

mod enforce;
mod lab;
mod misaligned;
mod quota;
mod text;

use crate::status::Status;
use anyhow::Result;

/// Arguments of `isolane rpc`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    question: Question,
}

#[derive(Debug, clap::Subcommand)]
enum Question {
    /// Measure and mark the messages of unmodified programs, with admission control in the kernel
    Enforce(enforce::Arguments),
    /// Overload a real port with real gRPC calls, with and without admission control, and judge both
    Lab(Box<lab::Arguments>),
    /// Compare the class of calls with the code point (DSCP) of their packets in a capture
    Misaligned(misaligned::Arguments),
    /// Run the quota server, print the quotas of tenants, or change one
    Quota(quota::Arguments),
    /// A client or server of the lab, with JSON on stdin and stdout
    #[command(hide = true)]
    LabWorker {
        /// What it does
        #[arg(value_parser = ["client", "server"])]
        role: String,
    },
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    match &arguments.question {
        Question::Enforce(arguments) => enforce::run(arguments),
        Question::Lab(arguments) => lab::run(arguments),
        Question::Misaligned(arguments) => misaligned::run(arguments),
        Question::Quota(arguments) => quota::run(arguments),
        Question::LabWorker { role } => {
            isolane_rpc_demo::worker::run(role)?;
            Ok(Status::Done)
        }
    }
}
