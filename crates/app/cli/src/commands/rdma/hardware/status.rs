//! `isolane rdma status`: whether the settings that `isolane rdma apply` made are in force.

use super::{JournalArguments, table};
use crate::output;
use crate::status::Status;
use crate::text::counted;
use anyhow::Result;
use isolane_rdma_hardware::apply::{Comparison, drift};
use isolane_rdma_hardware::error::HardwareError;
use isolane_rdma_hardware::kernel::Kernel;
use isolane_rdma_hardware::record::{Found, Record};
use serde::Serialize;

/// What the help of the command ends with.
const EXIT_CODES: &str = "\
Exit codes:
  0  every setting is in force, or no policy is applied
  1  a setting differs from what was applied, an apply did not end, or a journal is of another network namespace
  2  a mistake on the command line
  3  a damaged journal, or a value that cannot be read";

/// Arguments of `isolane rdma status`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    /// Check this device alone; without it every device with a journal
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    #[command(flatten)]
    journals: JournalArguments,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct State {
    device: String,
    /// Whether the last apply was made to its end.
    complete: bool,
    settings: Vec<Comparison>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    let directory = &arguments.journals.journals;
    let devices = match &arguments.device {
        Some(device) => vec![device.clone()],
        None => Record::devices(directory)?,
    };
    let mut states = Vec::new();
    let mut is_elsewhere = false;
    for device in devices {
        let found = match Record::find(directory, &device) {
            Err(error @ HardwareError::OtherNamespace { .. }) => {
                is_elsewhere = true;
                output::note(&format!("isolane: {device}: {error}"));
                continue;
            }
            found => found?,
        };
        if let Found::Record(record) = found {
            states.push(State {
                device,
                complete: record.is_complete(),
                settings: drift(&mut Kernel::open()?, &record)?,
            });
        }
    }
    match arguments.json {
        true => output::print_json(&states)?,
        false if is_elsewhere && states.is_empty() => {}
        false => output::print(&text(&states))?,
    }
    let good = |state: &State| state.complete && state.settings.iter().all(|one| one.equal);
    Ok(match states.iter().all(good) && !is_elsewhere {
        true => Status::Done,
        false => Status::No,
    })
}

fn text(states: &[State]) -> String {
    if states.is_empty() {
        return "no policy is applied\n".to_owned();
    }
    let mut text = String::new();
    for state in states {
        let drifted: Vec<&Comparison> = state.settings.iter().filter(|one| !one.equal).collect();
        let settings = counted(state.settings.len() as u64, "setting");
        text.push_str(&match (state.complete, drifted.len()) {
            (false, _) => format!(
                "{}: an apply did not end; run `isolane rdma rollback`, or apply the policy again\n",
                state.device
            ),
            (true, 0) => format!("{}: {settings} in force\n", state.device),
            (true, count) => format!("{}: {count} of {settings} differ from what was applied\n", state.device),
        });
        if !drifted.is_empty() {
            text.push_str(&table(&drifted, "applied"));
        }
    }
    text
}
