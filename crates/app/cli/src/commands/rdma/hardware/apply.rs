//! `isolane rdma apply`: makes the settings of a policy's plan.

use super::{JournalArguments, PolicyArguments, compiled_here, table, unreached};
use crate::output;
use crate::status::Status;
use crate::text::counted;
use anyhow::Result;
use isolane_common_linux::HostError;
use isolane_rdma_hardware::apply::{Comparison, apply};
use isolane_rdma_hardware::error::HardwareError;
use isolane_rdma_hardware::kernel::Kernel;
use isolane_rdma_hardware::record::Record;

/// What the help of the command ends with.
const AFTER: &str = "\
Each previous value is written to a journal before it is changed, and each new value is read back. If a setting fails, all \
previous values are restored. `isolane rdma rollback` restores them later, also after a kill of this command. Needs root.

Exit codes:
  0  every setting is made
  1  a setting failed, and every object has its previous value; or every setting is made, and another program changed an
     object of an earlier policy since, or its device was renamed: the object and its journal entry stay
  2  a mistake in the policy or on the command line, or a policy that does not fit the device
  3  no device, no privilege, another apply, or a restoration that failed";

/// Arguments of `isolane rdma apply`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Arguments {
    #[command(flatten)]
    policy: PolicyArguments,
    #[command(flatten)]
    journals: JournalArguments,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    let plan = compiled_here(&arguments.policy.read()?)?;
    let mut kernel = Kernel::open()?;
    let mut record = Record::open_or_make(&arguments.journals.journals, &plan.device)?;
    let done = match apply(&mut kernel, &mut record, &plan) {
        Ok(done) => done,
        Err(HardwareError::Restored { cause }) => {
            record.remove()?;
            if let HardwareError::Host(HostError::NotPermitted { .. }) = *cause {
                return Err((*cause).into());
            }
            output::note(&format!("isolane: {}", HardwareError::Restored { cause }));
            return Ok(Status::No);
        }
        Err(error) => return Err(error.into()),
    };
    if arguments.json {
        output::print_json(&done)?;
    } else {
        let restored = match done.restored.len() {
            0 => String::new(),
            count => format!(
                "; {} of an earlier policy restored",
                counted(count as u64, "setting")
            ),
        };
        let gone = match done.gone.len() {
            0 => String::new(),
            count => format!("; {count} of an earlier policy no longer there"),
        };
        output::print(&format!(
            "{}: {} changed, {} already so{restored}{gone}\n",
            plan.device,
            counted(done.changed.len() as u64, "setting"),
            done.kept.len(),
        ))?;
        output::print(&unreached(&done.unreached))?;
        if !done.foreign.is_empty() {
            let foreign: Vec<&Comparison> = done.foreign.iter().collect();
            output::print(&format!(
                "Of an earlier policy, changed by another program since, and left as they are (`isolane rdma rollback \
                 --force` restores them):\n{}",
                table(&foreign, "before")
            ))?;
        }
    }
    if !plan.remaining.is_empty() {
        let count = counted(plan.remaining.len() as u64, "need");
        output::note(&format!(
            "isolane: the device cannot do {count} of the policy; `isolane rdma plan` lists each with its reason"
        ));
    }
    Ok(match done.foreign.is_empty() && done.unreached.is_empty() {
        true => Status::Done,
        false => Status::No,
    })
}
