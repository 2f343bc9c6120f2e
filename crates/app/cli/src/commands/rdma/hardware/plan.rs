//! `isolane rdma plan`: what a policy becomes on a device; changes nothing.

use super::{compiled, device, read_policy};
use crate::file_kind::{FileKind, Wanted};
use crate::inputs;
use crate::output;
use crate::status::Status;
use anyhow::{Context, Result};
use isolane_rdma_hardware::host::Host;
use isolane_rdma_hardware::kernel::devices;
use isolane_rdma_hardware::text;
use std::path::PathBuf;

/// What the help of the command ends with.
const EXIT_CODES: &str = "\
Exit codes:
  0  the plan is printed (with --strict: and nothing remains for software)
  1  with --strict: the device cannot do a part of the policy
  2  a mistake in the policy or on the command line, or a policy that does not fit the device
  3  this host has no device, or the kernel's list of devices cannot be read";

/// Arguments of `isolane rdma plan`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    /// Policy file (TOML): tenants, classes, objectives; - reads it from stdin
    #[arg(required_unless_present = "print_devices")]
    policy: Option<PathBuf>,
    /// Use this device instead of the policy's: an RDMA device, or a network device without RDMA
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Plan for the devices in this file, which --print-devices wrote on another host
    #[arg(long, value_name = "FILE", conflicts_with = "print_devices")]
    devices: Option<PathBuf>,
    /// Print the capabilities of this host's devices as JSON and end
    #[arg(long)]
    print_devices: bool,
    /// Print the variables of this tenant's programs for a shell and end
    #[arg(long, value_name = "TENANT", conflicts_with_all = ["print_devices", "json"])]
    environment: Option<String>,
    /// Also write what remains for isolaned to this file
    #[arg(long, value_name = "FILE")]
    isolaned: Option<PathBuf>,
    /// Exit with 1 when the device cannot do a part of the policy
    #[arg(long)]
    strict: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    let host = host(arguments)?;
    let Some(file) = &arguments.policy else {
        output::print_json(&host)?;
        return Ok(Status::Done);
    };
    let policy = read_policy(file, arguments.device.as_ref())?;
    let plan = compiled(&policy, &host)?;
    if let Some(tenant) = &arguments.environment {
        return environment(&plan, tenant);
    }
    match arguments.json {
        true => output::print_json(&plan)?,
        false => output::print(&text::render(&plan, device(&host, &plan), output::width()))?,
    }
    if let Some(path) = &arguments.isolaned {
        match &plan.daemon {
            Some(text) => {
                output::write_file(path, text)?;
                output::note(&format!("wrote {}", path.display()));
            }
            None => output::note("isolaned has nothing to do for this policy; no file is written"),
        }
    }
    Ok(match arguments.strict && !plan.remaining.is_empty() {
        true => Status::No,
        false => Status::Done,
    })
}

/// What `--devices` takes.
const DEVICES: Wanted = Wanted {
    kind: |kind| matches!(kind, FileKind::Devices | FileKind::Json),
    words: "a list of devices (JSON that `isolane rdma plan --print-devices` writes)",
};

fn host(arguments: &Arguments) -> Result<Host> {
    let Some(path) = &arguments.devices else {
        return Ok(devices::read()?);
    };
    let text = inputs::read(path, &DEVICES)?;
    Host::parse(&text).map_err(|error| {
        inputs::bad(format!(
            "{}: is no file of `isolane rdma plan --print-devices`: {error}",
            path.display()
        ))
    })
}

fn environment(plan: &isolane_rdma_hardware::plan::Plan, tenant: &str) -> Result<Status> {
    let found = plan.environments.iter().find(|one| one.tenant == tenant);
    let names: Vec<&str> = plan
        .environments
        .iter()
        .map(|one| one.tenant.as_str())
        .collect();
    let found = found.with_context(|| match names.as_slice() {
        [] => "no tenant has variables: none has a class that the device knows".to_owned(),
        names => format!(
            "tenant {tenant:?} has no variables; there are: {}",
            names.join(", ")
        ),
    });
    let found = found.map_err(|error| inputs::bad(error.to_string()))?;
    let lines = found.variables.iter();
    let text: String = lines
        .map(|(name, value)| format!("export {name}={}\n", inputs::quoted(value)))
        .collect();
    output::print(&text)?;
    Ok(Status::Done)
}
