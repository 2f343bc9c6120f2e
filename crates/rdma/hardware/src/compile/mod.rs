//! From policy and device to plan; pure.
//!
//! Method: each need of the policy takes the first mechanism that the device has: the rate of a function, a traffic
//! class, a limit of a cgroup. A need without a mechanism remains for software, with the reason. A need that hardware
//! meets in part appears in both lists. Rates are rounded down to 1 Mb/s, the unit of drivers.

mod classes;
mod functions;
mod programs;
mod simulated;
mod software;

use crate::host::{Host, HostDevice};
use crate::plan::{Actuator, Environment, PLAN_VERSION, Plan, Remaining, Setting};
use crate::policy::{Policy, Tenant};
use crate::setting::{RATE_UNIT_BPS, Target, Value, rate_shown};

/// Why a policy does not fit a host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum CompileError {
    #[error(
        "this host has no RDMA device and no NIC that the plan could use; `isolane rdma doctor` says what is missing"
    )]
    NoDevices,
    #[error("device = {name:?}: this host has no such device; it has {}", .known.join(", "))]
    UnknownDevice { name: String, known: Vec<String> },
    #[error("device is missing, and this host has several; write device = one of {}", .known.join(", "))]
    SeveralDevices { known: Vec<String> },
    /// The rate of the port is unknown.
    #[error(
        "{device} reports no rate (its link may be down); bring it up, write rate = \"100Gb/s\" into the policy, or plan for another host with --devices"
    )]
    NoRate { device: String },
    #[error("the guarantees sum to {}, and {device} has {}; lower them", rate_shown(*.sum_bps), rate_shown(*.rate_bps))]
    Guarantees {
        device: String,
        /// Sum of the guarantees, bits per second.
        sum_bps: u64,
        rate_bps: u64,
    },
    #[error(
        "no priority is free for class {class}; priorities 1 to 5 are chosen from: write priority = 0 to 7 for this class"
    )]
    NoPriority { class: String },
}

/// The plan of `policy` for the device of `host` that it names. Fails if the policy does not fit the host.
pub fn compile(policy: &Policy, host: &Host) -> Result<Plan, CompileError> {
    let device = device(policy, host)?;
    let rate_bps = policy.rate.map_or(device.rate_bps, |rate| rate.as_bps());
    if rate_bps == 0 {
        return Err(CompileError::NoRate {
            device: device.name.clone(),
        });
    }
    let mut draft = Draft {
        policy,
        device,
        rdma_controller: host.rdma_controller,
        shares: shares(policy, device, rate_bps)?,
        rate_bps,
        settings: Vec::new(),
        environments: Vec::new(),
        remaining: Vec::new(),
    };
    functions::add(&mut draft);
    let placed = classes::add(&mut draft)?;
    functions::add_shared(&mut draft, &placed);
    programs::add(&mut draft, &placed);
    software::add(&mut draft, &placed);
    let daemon = software::daemon_file(&draft);
    let simulated = simulated::list(&draft, &placed);
    Ok(Plan {
        version: PLAN_VERSION,
        device: device.name.clone(),
        simulated_by: simulated::policy(&simulated),
        simulated_weights: simulated::weights(&draft, &simulated),
        simulated,
        settings: draft.settings,
        environments: draft.environments,
        remaining: draft.remaining,
        daemon,
    })
}

/// A plan under construction.
struct Draft<'a> {
    policy: &'a Policy,
    device: &'a HostDevice,
    rdma_controller: bool,
    /// Rate to share, bits per second.
    rate_bps: u64,
    /// Share of each tenant, in the policy's order.
    shares: Vec<Share>,
    settings: Vec<Setting>,
    environments: Vec<Environment>,
    remaining: Vec<Remaining>,
}

/// The rate of one tenant while all tenants are busy.
struct Share {
    /// Bits per second, whole megabits.
    bps: u64,
    /// How it was computed.
    reason: String,
}

impl<'a> Draft<'a> {
    fn set(&mut self, target: Target, value: Value, reason: impl Into<String>) {
        self.settings.push(Setting {
            target,
            value,
            reason: reason.into(),
        });
    }

    fn remain(&mut self, subject: String, need: String, by: Actuator, reason: String) {
        self.remaining.push(Remaining {
            subject,
            need,
            by,
            reason,
        });
    }

    fn tenants(&self) -> impl Iterator<Item = (usize, &'a Tenant)> + use<'a> {
        self.policy.tenants.iter().enumerate()
    }

    /// What paces tenants in software: only RDMA devices have it.
    fn software(&self, actuator: Actuator) -> Actuator {
        match self.device.rdma {
            true => actuator,
            false => Actuator::Operator,
        }
    }
}

fn device<'a>(policy: &Policy, host: &'a Host) -> Result<&'a HostDevice, CompileError> {
    let known = || {
        host.devices
            .iter()
            .map(|device| device.name.clone())
            .collect()
    };
    match (&policy.device, host.devices.as_slice()) {
        (_, []) => Err(CompileError::NoDevices),
        (Some(name), devices) => devices
            .iter()
            .find(|device| device.name == *name)
            .ok_or_else(|| CompileError::UnknownDevice {
                name: name.clone(),
                known: known(),
            }),
        (None, [one]) => Ok(one),
        (None, _) => Err(CompileError::SeveralDevices { known: known() }),
    }
}

/// Each tenant's guarantee plus its weight's part of what all guarantees leave; at most its limit. The part above a
/// limit is not given to others: a device gives idle rate to busy tenants.
fn shares(policy: &Policy, device: &HostDevice, rate_bps: u64) -> Result<Vec<Share>, CompileError> {
    let guarantee = |tenant: &Tenant| tenant.guarantee.map_or(0, |rate| rate.as_bps());
    let sum: u128 = policy
        .tenants
        .iter()
        .map(|tenant| u128::from(guarantee(tenant)))
        .sum();
    let weights: u128 = policy
        .tenants
        .iter()
        .map(|tenant| u128::from(tenant.weight))
        .sum();
    let rest = match u128::from(rate_bps).checked_sub(sum) {
        Some(rest) => rest,
        None => {
            return Err(CompileError::Guarantees {
                device: device.name.clone(),
                sum_bps: u64::try_from(sum).unwrap_or(u64::MAX),
                rate_bps,
            });
        }
    };
    let share = |tenant: &Tenant| {
        let part = rest * u128::from(tenant.weight) / weights;
        let whole = u128::from(guarantee(tenant)) + part;
        let whole = u64::try_from(whole).expect("a share is at most the rate");
        let limit = tenant.limit.map_or(u64::MAX, |rate| rate.as_bps());
        let of_rest = format!(
            "{}/{} of {}",
            tenant.weight,
            weights,
            rate_shown(u64::try_from(rest).expect("the rest is at most the rate"))
        );
        let computed = match tenant.guarantee {
            Some(guarantee) => format!("guarantee {} + {of_rest}", rate_shown(guarantee.as_bps())),
            None => of_rest,
        };
        Share {
            bps: whole_units(whole.min(limit)),
            reason: match whole > limit {
                true => format!("{computed}, at most its limit"),
                false => computed,
            },
        }
    };
    Ok(policy.tenants.iter().map(share).collect())
}

/// Rounded down to the unit of drivers.
const fn whole_units(bps: u64) -> u64 {
    bps - bps % RATE_UNIT_BPS
}

#[cfg(test)]
mod tests;
