//! What programs and cgroups get: variables that mark packets, and limits on RDMA objects.
//!
//! Sources: NCCL's `NCCL_IB_TC` and `NCCL_IB_SL`, UCX's `UCX_IB_TRAFFIC_CLASS` and `UCX_IB_SL`. A traffic class there is
//! the byte of the IP header: the DSCP times four.

use super::Draft;
use super::classes::Placed;
use crate::plan::{Actuator, Environment};
use crate::policy::Tenant;
use crate::setting::{Target, Value};
use std::collections::BTreeMap;

pub(super) fn add(draft: &mut Draft<'_>, placed: &[Placed]) {
    for (_, tenant) in draft.tenants() {
        let class = placed
            .iter()
            .find(|class| Some(&class.name) == tenant.class.as_ref());
        if let Some(class) = class.filter(|_| draft.device.rdma) {
            draft.environments.push(environment(tenant, class));
        }
        if tenant.objects_max.is_some() || tenant.handles_max.is_some() {
            add_objects(draft, tenant);
        }
    }
}

fn environment(tenant: &Tenant, class: &Placed) -> Environment {
    let mut variables = BTreeMap::new();
    let mut both = |nccl: &str, ucx: &str, value: u32| {
        variables.insert(nccl.to_owned(), value.to_string());
        variables.insert(ucx.to_owned(), value.to_string());
    };
    if let Some(dscp) = class.dscp {
        both("NCCL_IB_TC", "UCX_IB_TRAFFIC_CLASS", u32::from(dscp) << 2);
    }
    both("NCCL_IB_SL", "UCX_IB_SL", u32::from(class.priority));
    let mark = match (class.scheduled, class.dscp) {
        (false, _) => format!("service level {}", class.priority),
        (true, Some(dscp)) => format!("DSCP {dscp}"),
        (true, None) => format!("priority {}", class.priority),
    };
    Environment {
        tenant: tenant.name.clone(),
        variables,
        reason: format!("class {}: packets carry {mark}", class.name),
    }
}

fn add_objects(draft: &mut Draft<'_>, tenant: &Tenant) {
    let Some(cgroup) = &tenant.cgroup else {
        return;
    };
    let most = |limit: Option<u32>| limit.map_or("max".to_owned(), |limit| limit.to_string());
    let need = format!(
        "at most {} objects, {} handles",
        most(tenant.objects_max),
        most(tenant.handles_max)
    );
    let lacks = match (draft.device.rdma, draft.rdma_controller) {
        (false, _) => Some("the device is no RDMA device".to_owned()),
        (true, false) => Some("the cgroups of this host have no rdma controller".to_owned()),
        (true, true) => None,
    };
    if let Some(reason) = lacks {
        let by = draft.software(Actuator::Enforcer);
        draft.remain(format!("tenant {}", tenant.name), need, by, reason);
        return;
    }
    let target = Target::Objects {
        cgroup: cgroup.clone(),
        device: draft.device.name.clone(),
    };
    let value = Value::Objects {
        handles_max: tenant.handles_max,
        objects_max: tenant.objects_max,
    };
    draft.set(target, value, format!("tenant {}: {need}", tenant.name));
}
