//! One policy on this host's NICs: what `isolane rdma plan`, `apply`, `diff`, `rollback` and `status` share.

pub(super) mod apply;
pub(super) mod diff;
pub(super) mod plan;
pub(super) mod rollback;
pub(super) mod status;

use crate::file_kind::{FileKind, Wanted};
use crate::inputs;
use crate::output;
use crate::text::counted;
use anyhow::Result;
use isolane_common_text_output::Table;
use isolane_rdma_hardware::apply::{Comparison, Unreached};
use isolane_rdma_hardware::compile::{CompileError, compile};
use isolane_rdma_hardware::error::HardwareError;
use isolane_rdma_hardware::host::{Host, HostDevice};
use isolane_rdma_hardware::kernel::devices;
use isolane_rdma_hardware::plan::Plan;
use isolane_rdma_hardware::policy::{self, Policy};
use isolane_rdma_hardware::record;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The policy and the device that several commands take.
#[derive(Debug, clap::Args)]
struct PolicyArguments {
    /// Policy file (TOML): tenants, classes, objectives; - reads it from stdin
    policy: PathBuf,
    /// Use this device instead of the policy's: an RDMA device, or a network device without RDMA
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
}

/// Where the journals are.
#[derive(Debug, clap::Args)]
struct JournalArguments {
    /// Directory of the journals
    #[arg(long, value_name = "DIR", default_value = record::DIRECTORY)]
    journals: PathBuf,
}

impl PolicyArguments {
    fn read(&self) -> Result<Policy> {
        read_policy(&self.policy, self.device.as_ref())
    }
}

/// What the commands take.
const POLICY: Wanted = Wanted {
    kind: |kind| matches!(kind, FileKind::DevicePolicy),
    words: "the policy of a device (TOML with [[class]] and [[tenant]], docs/guides/hardware.md; isolane recommend --emit \
            writes one)",
};

fn read_policy(path: &Path, device: Option<&String>) -> Result<Policy> {
    let (text, file) = inputs::document_text(path, &POLICY)?;
    if text.len() as u64 > policy::FILE_MAX {
        let size = text.len();
        let most = policy::FILE_MAX;
        return Err(inputs::bad(format!(
            "{file} has {size} bytes; a policy has at most {most}"
        )));
    }
    let mut policy = policy::parse(&file, &text)?;
    if device.is_some() {
        policy.device = device.cloned();
    }
    Ok(policy)
}

/// The plan of `policy` on `host`. A policy that does not fit is bad input; a host without devices is not.
fn compiled(policy: &Policy, host: &Host) -> Result<Plan> {
    compile(policy, host).map_err(|error| match error {
        CompileError::NoDevices => error.into(),
        error => inputs::bad(error.to_string()),
    })
}

/// The plan of `policy` on this host.
fn compiled_here(policy: &Policy) -> Result<Plan> {
    compiled(policy, &devices::read()?)
}

fn device<'a>(host: &'a Host, plan: &Plan) -> &'a HostDevice {
    let device = host
        .devices
        .iter()
        .find(|device| device.name == plan.device);
    device.expect("a plan is for a device of its host")
}

/// Whether a journal is of another network namespace, so that it is no failure of this one.
fn is_elsewhere(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref(),
        Some(HardwareError::OtherNamespace { .. })
    )
}

/// A line for each reason why objects were not restored.
fn unreached(unreached: &[Unreached]) -> String {
    let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
    for one in unreached {
        *reasons.entry(&one.reason).or_default() += 1;
    }
    let line = |(reason, count): (&&str, &u64)| {
        format!("{} not restored: {reason}\n", counted(*count, "setting"))
    };
    reasons.iter().map(line).collect()
}

/// A table of values beside wanted ones.
fn table(compared: &[&Comparison], wanted: &str) -> String {
    let mut table = Table::new("lll", &["object", "now", wanted]);
    for one in compared {
        table.row(vec![
            one.target.to_string(),
            one.found.to_string(),
            one.wanted.to_string(),
        ]);
    }
    table.render_within(output::width(), output::colour())
}
