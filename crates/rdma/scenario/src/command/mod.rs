//! Command lines of existing traffic generators, as workloads.
//!
//! * [`perftest`](crate::command::perftest()) - `ib_{write,read,send,atomic}_{bw,lat}` of perftest 4.5;
//! * [`engine`](crate::command::engine()) - `RdmaEngine` and `RdmaCtrlTest` of Collie and Husky.
//!
//! Rule: an option that changes the traffic is honoured; one that cannot change it is accepted and ignored; any
//! other is an error that says why. Nothing is dropped silently.

mod engine;
mod options;
mod perftest;
#[cfg(test)]
mod tests;

pub use engine::{engine, is_engine};
pub use perftest::{is_perftest, perftest};

use crate::model::{Class, Workload};
use isolane_common_quantities::units::Duration;
use isolane_common_toml_input::error::CommandError;

/// The workload of a command line.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    /// The class that fits it.
    pub class: Class,
    /// One process of it, from host A to host B unless it says otherwise.
    pub workload: Workload,
    /// When it ends by itself, from its start (`-D`).
    pub run_for: Option<Duration>,
    /// After how many work requests per queue pair it ends by itself, were that honoured (`-n`).
    pub iterations: Option<u64>,
}

/// The program's name in the first word, without directories.
fn program(line: &str) -> &str {
    let word = line.split_whitespace().next().unwrap_or("");
    word.rsplit('/').next().unwrap_or(word)
}

/// Programs that start another one and do not change its traffic in this model.
const WRAPPERS: [&str; 16] = [
    "chrt", "doas", "env", "exec", "ionice", "ip", "mpirun", "nice", "nohup", "numactl", "ssh",
    "stdbuf", "sudo", "taskset", "time", "timeout",
];

/// Characters that only a shell understands; no option, value or server name has one.
const SHELL: [char; 5] = ['>', '<', '|', '&', ';'];

/// Refuses a line that begins with a wrapper or a variable, and one with redirections, pipes or `&`.
fn refuse_shell(line: &str) -> Result<(), CommandError> {
    let first = line.split_whitespace().next().unwrap_or("");
    let leave_out = "the line has to begin with the traffic program";
    if WRAPPERS.contains(&program(line)) {
        let reason = format!("leave out {first} and its options: {leave_out}");
        return Err(CommandError::new(first, reason));
    }
    if first.contains('=') {
        return Err(CommandError::new(
            first,
            format!("leave out variables: {leave_out}"),
        ));
    }
    match line.split_whitespace().find(|word| word.contains(SHELL)) {
        Some(word) => Err(CommandError::new(
            word,
            "is for a shell, and there is none: leave out redirections, pipes, & and ;",
        )),
        None => Ok(()),
    }
}
