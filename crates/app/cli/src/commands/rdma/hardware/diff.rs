//! `isolane rdma diff`: what `isolane rdma apply` would change.

use super::{PolicyArguments, compiled_here, table};
use crate::output;
use crate::status::Status;
use anyhow::Result;
use isolane_rdma_hardware::apply::{Comparison, differences};
use isolane_rdma_hardware::kernel::Kernel;

/// What the help of the command ends with.
const EXIT_CODES: &str = "\
Exit codes:
  0  the device has every setting of the policy
  1  a setting differs
  2  a mistake in the policy or on the command line, or a policy that does not fit the device
  3  this host has no device, or a value cannot be read";

/// Arguments of `isolane rdma diff`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    policy: PolicyArguments,
    /// Print settings that do not differ too
    #[arg(long)]
    all: bool,
    /// Print JSON: every setting
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    let plan = compiled_here(&arguments.policy.read()?)?;
    let compared = differences(&mut Kernel::open()?, &plan)?;
    let differs = compared.iter().any(|one| !one.equal);
    let shown: Vec<&Comparison> = compared
        .iter()
        .filter(|one| arguments.all || !one.equal)
        .collect();
    match arguments.json {
        true => output::print_json(&compared)?,
        false if shown.is_empty() => output::print(&format!(
            "{} has every setting of the policy\n",
            plan.device
        ))?,
        false => output::print(&table(&shown, "policy"))?,
    }
    Ok(match differs {
        true => Status::No,
        false => Status::Done,
    })
}
