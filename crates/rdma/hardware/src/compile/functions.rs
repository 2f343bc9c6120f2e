//! Weights, guarantees and limits as rates of functions: devlink's tree, or the physical function's table.
//!
//! Method: a tenant's share becomes `tx_share`, because mlx5 schedules functions in proportion to it, and its limit
//! becomes `tx_max`. A tenant with several functions gets a group in the tree. In legacy mode there is no tree, so its
//! functions get equal parts. Rates of functions limit what is sent, not what is received.

use super::classes::Placed;
use super::{Draft, whole_units};
use crate::host::{Function, FunctionRate};
use crate::plan::Actuator;
use crate::policy::Tenant;
use crate::setting::{RATE_UNIT_BPS, Rate, Target, Value, rate_shown};

/// The functions of a tenant, all of one kind.
enum Places {
    Ports(Vec<u32>),
    /// Numbers at the physical function.
    Numbers(Vec<u32>),
}

/// Adds the rates of tenants with functions.
pub(super) fn add(draft: &mut Draft<'_>) {
    for (index, tenant) in draft.tenants() {
        if tenant.functions.is_empty() {
            continue;
        }
        match places(draft, tenant) {
            Ok(places) => add_tenant(draft, index, tenant, &places),
            Err(reason) => remain(draft, tenant, reason),
        }
    }
}

/// Adds what remains of tenants without a function. A tenant alone in a class with a share has its weight there.
pub(super) fn add_shared(draft: &mut Draft<'_>, placed: &[Placed]) {
    for (_, tenant) in draft.tenants() {
        if !tenant.functions.is_empty() {
            continue;
        }
        let class = placed
            .iter()
            .find(|class| Some(&class.name) == tenant.class.as_ref());
        let alone = class.is_some_and(|class| {
            let members = draft.policy.tenants.iter();
            members
                .filter(|other| other.class.as_ref() == Some(&class.name))
                .count()
                == 1
        });
        let mut reason = "it has no function of its own, so the device cannot tell its packets from those of other tenants".to_owned();
        if alone && tenant.limit.is_none() && class.is_some_and(|class| !class.strict) {
            continue;
        }
        if let (Some(pacing), Some(_)) = (draft.device.pacing, tenant.limit) {
            reason.push_str(&format!(
                "; the device paces single queue pairs, {} to {}, but only the program that owns a queue pair can set its rate (ibv_modify_qp_rate_limit)",
                rate_shown(u64::from(pacing.least_kbps) * 1_000),
                rate_shown(u64::from(pacing.most_kbps) * 1_000)
            ));
        }
        remain(draft, tenant, reason);
    }
}

/// The need for a rate remains. A tenant without any other and without a guarantee or limit has none.
fn remain(draft: &mut Draft<'_>, tenant: &Tenant, reason: String) {
    let mut needs = Vec::new();
    if draft.policy.tenants.len() > 1 {
        let all: u64 = draft
            .policy
            .tenants
            .iter()
            .map(|tenant| u64::from(tenant.weight))
            .sum();
        needs.push(format!("weight {} of {all}", tenant.weight));
    }
    let guarantee = tenant
        .guarantee
        .map(|rate| format!("guarantee {}", rate_shown(rate.as_bps())));
    let limit = tenant
        .limit
        .map(|rate| format!("limit {}", rate_shown(rate.as_bps())));
    let by = match guarantee.is_some() || limit.is_some() {
        true => Actuator::Enforcer,
        false => Actuator::Daemon,
    };
    needs.extend(guarantee);
    needs.extend(limit);
    if !needs.is_empty() {
        let by = draft.software(by);
        draft.remain(
            format!("tenant {}", tenant.name),
            needs.join(", "),
            by,
            reason,
        );
    }
}

fn places(draft: &Draft<'_>, tenant: &Tenant) -> Result<Places, String> {
    let device = draft.device;
    if device.functions.is_empty() {
        let make = match &device.network_device {
            Some(network) if device.driver != "rdma_rxe" => {
                format!("; make some with `echo N > /sys/class/net/{network}/device/sriov_numvfs`")
            }
            _ => String::new(),
        };
        return Err(format!("{} has no virtual functions{make}", device.name));
    }
    let (mut ports, mut numbers) = (Vec::new(), Vec::new());
    for name in &tenant.functions {
        let function = device
            .functions
            .iter()
            .find(|function| function.name == *name);
        match function.map(|function| function.rate) {
            None => return Err(unknown(name, &device.functions)),
            Some(None) => {
                return Err(format!(
                    "the driver {} sets no rate of {name}",
                    device.driver
                ));
            }
            Some(Some(FunctionRate::Devlink { port })) => ports.push(port),
            Some(Some(FunctionRate::Legacy { number })) => numbers.push(number),
        }
    }
    match (ports.is_empty(), numbers.is_empty()) {
        (false, true) => Ok(Places::Ports(ports)),
        (true, false) => Ok(Places::Numbers(numbers)),
        _ => Err("its functions have rates of two kinds".to_owned()),
    }
}

fn unknown(name: &str, functions: &[Function]) -> String {
    const LISTED_MAX: usize = 8;
    let names: Vec<&str> = functions
        .iter()
        .map(|function| function.name.as_str())
        .collect();
    let more = match names.len() > LISTED_MAX {
        true => format!(", ... ({} in all)", names.len()),
        false => String::new(),
    };
    let listed = &names[..names.len().min(LISTED_MAX)];
    format!(
        "the device has no function {name}; it has {}{more}",
        listed.join(", ")
    )
}

fn add_tenant(draft: &mut Draft<'_>, index: usize, tenant: &Tenant, places: &Places) {
    let share = &draft.shares[index];
    let share_bps = share.bps;
    let mut reason = format!("tenant {}: {}", tenant.name, share.reason);
    if let Some(limit) = tenant.limit {
        reason.push_str(&format!("; limit {}", rate_shown(limit.as_bps())));
    }
    let limit_bps = tenant.limit.map_or(0, |limit| whole_units(limit.as_bps()));
    if tenant.limit.is_some() && limit_bps == 0 {
        let reason = "the device's rates are whole megabits per second".to_owned();
        remain(draft, tenant, reason);
        return;
    }
    match places {
        Places::Ports(ports) => add_ports(draft, tenant, ports, (share_bps, limit_bps), &reason),
        Places::Numbers(numbers) => {
            add_numbers(draft, numbers, (share_bps, limit_bps), &reason);
        }
    }
}

fn add_ports(
    draft: &mut Draft<'_>,
    tenant: &Tenant,
    ports: &[u32],
    (share_bps, max_bps): (u64, u64),
    reason: &str,
) {
    let Some(devlink) = &draft.device.devlink else {
        let reason = "the device shows a devlink port but no devlink device".to_owned();
        remain(draft, tenant, reason);
        return;
    };
    let handle = devlink.handle.clone();
    let leaf = |port: u32| Target::RateLeaf {
        handle: handle.clone(),
        port,
    };
    let rate = |parent: Option<String>| {
        let (share_bps, max_bps) = match parent {
            None => (share_bps, max_bps),
            Some(_) => (0, 0),
        };
        Value::Rate(Rate {
            share_bps,
            max_bps,
            parent,
        })
    };
    if let [port] = ports {
        draft.set(leaf(*port), rate(None), reason);
        return;
    }
    // A group's name must not be a number, which would be a port.
    let node = format!("isolane-{}", tenant.name);
    let target = Target::RateNode {
        handle: handle.clone(),
        node: node.clone(),
    };
    draft.set(target, rate(None), reason);
    for port in ports {
        let member = format!("tenant {}: its functions share one rate", tenant.name);
        draft.set(leaf(*port), rate(Some(node.clone())), member);
    }
}

fn add_numbers(
    draft: &mut Draft<'_>,
    numbers: &[u32],
    (share_bps, max_bps): (u64, u64),
    reason: &str,
) {
    let Some(device) = draft.device.network_device.clone() else {
        return;
    };
    let count = numbers.len() as u64;
    // The interface has 32 bits: 4,294 Tb/s.
    let part = |bps: u64| u32::try_from(bps / RATE_UNIT_BPS / count).unwrap_or(u32::MAX);
    let reason = match count {
        1 => reason.to_owned(),
        count => format!("{reason}; 1/{count} each, because legacy mode has no groups"),
    };
    for number in numbers {
        let target = Target::FunctionRate {
            network_device: device.clone(),
            number: *number,
        };
        let value = Value::FunctionRate {
            share_mbps: part(share_bps),
            // 0 would be no limit.
            max_mbps: if max_bps == 0 {
                0
            } else {
                part(max_bps).max(1)
            },
        };
        draft.set(target, value, reason.clone());
    }
}
