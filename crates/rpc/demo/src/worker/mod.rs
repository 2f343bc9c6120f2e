//! The client and the server in Rust, as programs with the protocol of `job` on stdin and stdout.
//!
//! * [`client`] - calls over tonic, through the library's layer, as an application's are;
//! * [`server`] - answers them and counts;
//! * [`arrivals`] - when which call is due;

pub(crate) mod admission;
pub mod arrivals;
pub mod client;
pub mod server;

use crate::error::LabError;
use crate::job::Ready;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Write};
use tokio::runtime::Runtime;

/// Runs `role`, "client" or "server", to its end. Fails if stdin does not hold a job, or the network is not there.
pub fn run(role: &str) -> Result<(), LabError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| failed(role, &format!("cannot start its runtime: {error}")))?;
    let done = match role {
        "client" => client::run(&runtime),
        _ => server::run(&runtime),
    };
    // A thread that still reads stdin must not hold the program.
    Runtime::shutdown_background(runtime);
    done
}

/// Reads the next document.
fn read<T: DeserializeOwned>(role: &str) -> Result<T, LabError> {
    let mut line = String::new();
    io::stdin()
        .read_line(&mut line)
        .map_err(|error| failed(role, &format!("cannot read stdin: {error}")))?;
    serde_json::from_str(&line)
        .map_err(|error| failed(role, &format!("got no document on stdin: {error}")))
}

/// Writes a document on its line.
fn write(role: &str, document: &impl Serialize) -> Result<(), LabError> {
    let text = serde_json::to_string(document).expect("the lab's documents are JSON");
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{text}")
        .and_then(|()| stdout.flush())
        .map_err(|error| failed(role, &format!("cannot write on stdout: {error}")))
}

fn ready(role: &str) -> Result<(), LabError> {
    write(role, &Ready { ready: true })
}

fn failed(role: &str, problem: &str) -> LabError {
    LabError::Program {
        language: "Rust",
        role: if role == "client" { "client" } else { "server" },
        problem: problem.to_owned(),
        words: "none".to_owned(),
    }
}
