//! `isolane rdma rollback`: restores the values from before `isolane rdma apply`.

use super::{JournalArguments, is_elsewhere, table};
use crate::output;
use crate::status::Status;
use crate::text::counted;
use anyhow::Result;
use isolane_rdma_hardware::apply::{Comparison, Foreign, RolledBack, restore};
use isolane_rdma_hardware::kernel::Kernel;
use isolane_rdma_hardware::record::{Found, Record};
use serde::Serialize;
use std::path::Path;

/// What the help of the command ends with.
const EXIT_CODES: &str = "\
Exit codes:
  0  every object has its previous value, or nothing was changed
  1  another program changed an object since, its device was renamed, or the journal is of another network namespace;
     the object and its journal entry stay
  2  a mistake on the command line
  3  no privilege, a damaged journal, or a value that cannot be restored; all other devices are restored";

/// Arguments of `isolane rdma rollback`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    /// Restore this device alone; without it every device with a journal
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Restore also what another program changed since
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    journals: JournalArguments,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What happened to one device.
#[derive(Debug, Serialize)]
struct Outcome {
    device: String,
    #[serde(flatten)]
    done: RolledBack,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    let directory = &arguments.journals.journals;
    let devices = match &arguments.device {
        Some(device) => vec![device.clone()],
        None => Record::devices(directory)?,
    };
    let foreign = match arguments.force {
        true => Foreign::Overwrite,
        false => Foreign::Leave,
    };
    let mut outcomes = Vec::new();
    let mut first = None;
    let mut stays = false;
    for device in devices {
        match one(directory, &device, foreign) {
            Ok(outcome) => outcomes.extend(outcome),
            Err(error) if is_elsewhere(&error) => {
                stays = true;
                output::note(&format!("isolane: {device}: {error}"));
            }
            Err(error) if first.is_none() => first = Some(error),
            // The first error ends the program.
            Err(error) => output::note(&format!("isolane: {device}: {error:#}")),
        }
    }
    if !outcomes.is_empty() || (first.is_none() && !stays) {
        match arguments.json {
            true => output::print_json(&outcomes)?,
            false => output::print(&text(&outcomes))?,
        }
    }
    if let Some(error) = first {
        return Err(error);
    }
    stays |= outcomes.iter().any(|outcome| !outcome.done.is_all());
    Ok(match stays {
        true => Status::No,
        false => Status::Done,
    })
}

/// Restores one device; nothing where it has no journal of this boot.
fn one(directory: &Path, device: &str, foreign: Foreign) -> Result<Option<Outcome>> {
    let mut record = match Record::find(directory, device)? {
        Found::Nothing => return Ok(None),
        Found::OtherBoot(void) => {
            void.remove()?;
            return Ok(None);
        }
        Found::Record(record) => record,
    };
    let done = restore(&mut Kernel::open()?, &mut record, foreign)?;
    if done.is_all() {
        record.remove()?;
    }
    let device = device.to_owned();
    Ok(Some(Outcome { device, done }))
}

fn text(outcomes: &[Outcome]) -> String {
    if outcomes.is_empty() {
        return "nothing to restore: no policy is applied\n".to_owned();
    }
    let mut text = String::new();
    for Outcome { device, done } in outcomes {
        let restored = counted(done.restored.len() as u64, "setting");
        text.push_str(&format!("{device}: {restored} restored"));
        if !done.gone.is_empty() {
            let gone = done.gone.len();
            text.push_str(&format!(", {gone} gone from this network namespace"));
        }
        text.push('\n');
        text.push_str(&super::unreached(&done.unreached));
        if !done.foreign.is_empty() {
            let foreign: Vec<&Comparison> = done.foreign.iter().collect();
            text.push_str(
                "Changed by another program since, and left as they are (--force restores them):\n",
            );
            text.push_str(&table(&foreign, "before"));
        }
    }
    text
}
