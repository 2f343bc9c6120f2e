//! Which settings of a plan the simulator knows, under which policy, and how its mechanism differs.
//!
//! Limits: the simulator's policies take shares from the tenants' weights in a scenario, not from the settings.

use super::Draft;
use super::classes::Placed;
use crate::host::LinkLayer;
use crate::plan::{Actuator, Setting, Simulated};
use crate::policy::Tenant;
use crate::setting::{RATE_UNIT_BPS, Selection, Target, Value};
use std::collections::BTreeMap;

/// Every kind of setting of the plan, in the order of its first setting, and what acts beside them.
pub(super) fn list(draft: &Draft<'_>, placed: &[Placed]) -> Vec<Simulated> {
    let mut found: Vec<Simulated> = Vec::new();
    for setting in &draft.settings {
        let one = of(setting);
        if found.iter().all(|known| known.setting != one.setting) {
            found.push(one);
        }
    }
    if draft.device.link_layer == LinkLayer::Infiniband && !placed.is_empty() {
        let difference =
            "each tenant has a virtual lane of its own, those of class latency in the high table";
        found.push(known("service levels", "vl-qos", difference));
    }
    let remains = |by| draft.remaining.iter().any(|remaining| remaining.by == by);
    let has_rates = found.iter().any(|one| one.by.as_deref() == Some("sriov"));
    if remains(Actuator::Daemon) {
        found.push(match has_rates {
            false => known(
                "isolaned",
                "justitia",
                "the same algorithm on modelled hosts",
            ),
            true => unknown(
                "isolaned",
                "justitia paces tenants of one function, so it cannot be combined with sriov",
            ),
        });
    }
    if remains(Actuator::Enforcer) {
        let difference =
            "harmonic is nearest, with a monitor between NIC and bus that is not on sale";
        found.push(unknown("isolane rdma enforce", difference));
    }
    found
}

/// The simulator's policy with the mechanisms of `list`: its parts joined with `+`, or `none`.
pub(super) fn policy(list: &[Simulated]) -> String {
    // The order in which the simulator writes the parts of a policy.
    let parts = ["justitia", "hw-tc", "vl-qos", "sriov"];
    let used = |part: &&str| list.iter().any(|one| one.by.as_deref() == Some(*part));
    let used: Vec<&str> = parts.into_iter().filter(used).collect();
    match used.is_empty() {
        true => "none".to_owned(),
        false => used.join("+"),
    }
}

/// The weight of each tenant for the simulator. Devices get shares, guarantees included: in Mb/s, they are the weights.
/// Without a device's share the daemon uses the policy's weights.
pub(super) fn weights(draft: &Draft<'_>, list: &[Simulated]) -> BTreeMap<String, u64> {
    let by_device = |one: &Simulated| matches!(one.by.as_deref(), Some("hw-tc" | "sriov"));
    let has_shares = list.iter().any(by_device);
    let weight = |(index, tenant): (usize, &Tenant)| {
        let weight = match has_shares {
            true => (draft.shares[index].bps / RATE_UNIT_BPS).max(1),
            false => u64::from(tenant.weight),
        };
        (tenant.name.clone(), weight)
    };
    draft.tenants().map(weight).collect()
}

fn of(setting: &Setting) -> Simulated {
    match &setting.target {
        Target::RateNode { .. } | Target::RateLeaf { .. } | Target::FunctionRate { .. } => known(
            "rates of functions",
            "sriov",
            "each tenant has one function, limited to its share of the link; others do not get what it leaves, and tx_max is not known",
        ),
        Target::Classes { .. } => known(
            "traffic classes",
            "hw-tc",
            match has_strict(&setting.value) {
                true => {
                    "each tenant has a class of its own with its share; no class is strict: vl-qos with high_limit = 255 serves tenants of class latency first"
                }
                false => "each tenant has a class of its own with its share",
            },
        ),
        Target::Dscp { .. } => unknown(
            "DSCP",
            "packets have their tenant's class without a DSCP, so a wrong DSCP is not found",
        ),
        Target::FlowControl { .. } => unknown(
            "flow control",
            "every port is lossless: a full receive buffer pauses the sender, under hw-tc and vl-qos one class of it",
        ),
        Target::Buffers { .. } => unknown(
            "buffers",
            "the receive buffer has the profile's size; hw-tc splits it by the tenants' shares",
        ),
        Target::Objects { .. } => unknown("rdma.max", "no policy of the simulator limits objects"),
    }
}

fn has_strict(value: &Value) -> bool {
    matches!(value, Value::Classes(classes) if classes.selection.contains(&Selection::Strict))
}

fn known(setting: &str, by: &str, difference: &str) -> Simulated {
    Simulated {
        by: Some(by.to_owned()),
        ..unknown(setting, difference)
    }
}

fn unknown(setting: &str, difference: &str) -> Simulated {
    Simulated {
        setting: setting.to_owned(),
        by: None,
        difference: difference.to_owned(),
    }
}
