//! What remains for software: latency objectives, and the file of the daemon.

use super::Draft;
use super::classes::Placed;
use crate::plan::Actuator;
use crate::policy::Tenant;
use crate::setting::rate_shown;
use std::fmt::Write;

/// Adds latency objectives: no setting of a device bounds a latency.
pub(super) fn add(draft: &mut Draft<'_>, placed: &[Placed]) {
    let others = |tenant: &Tenant| {
        let mut others = draft.policy.tenants.iter();
        others.any(|other| other.name != tenant.name)
    };
    let with_latency: Vec<&Tenant> = draft
        .policy
        .tenants
        .iter()
        .filter(|tenant| tenant.p99.is_some() && others(tenant))
        .collect();
    for tenant in with_latency {
        let class = placed
            .iter()
            .find(|class| Some(&class.name) == tenant.class.as_ref());
        let inside = "large messages of other tenants delay small ones inside the RNIC (engines, caches, PCIe)";
        let reason = match class {
            Some(class) if class.scheduled && class.strict => {
                format!(
                    "class {} is served first at the port, but {inside}",
                    class.name
                )
            }
            Some(class) if class.scheduled => {
                format!(
                    "class {} shares the port by weight, and {inside}",
                    class.name
                )
            }
            _ => format!("it has no class of its own at the port, and {inside}"),
        };
        let p99 = tenant.p99.expect("only tenants with an objective are here");
        let by = draft.software(Actuator::Daemon);
        draft.remain(
            format!("tenant {}", tenant.name),
            format!("p99 at most {p99}"),
            by,
            reason,
        );
    }
}

/// The daemon's file for what remains; `None` if the daemon has nothing to do.
pub(super) fn daemon_file(draft: &Draft<'_>) -> Option<String> {
    let works = |by| matches!(by, Actuator::Daemon | Actuator::Enforcer);
    if !draft.remaining.iter().any(|remaining| works(remaining.by)) {
        return None;
    }
    let mut text = "# Made by `isolane rdma plan`: what the device cannot do. Add it to /etc/isolane/isolaned.toml.\n".to_owned();
    let mut line = |words: String| {
        writeln!(text, "{words}").expect("a string takes every text");
    };
    line("[[device]]".to_owned());
    line(format!("name = {:?}", draft.device.name));
    if draft.policy.rate.is_some() {
        line(format!("rate = {:?}", rate_shown(draft.rate_bps)));
    }
    for tenant in &draft.policy.tenants {
        line(String::new());
        match &tenant.cgroup {
            Some(cgroup) => {
                line("[[rule]]".to_owned());
                line(format!("cgroup = {:?}", format!("{cgroup}/**")));
                line(format!("tenant = {:?}", tenant.name));
            }
            None => line(format!(
                "# Tenant {} has no cgroup in the policy: add a [[rule]] that names its processes.",
                tenant.name
            )),
        }
        line("[[tenant]]".to_owned());
        line(format!("name = {:?}", tenant.name));
        line(format!("weight = {}", tenant.weight));
    }
    Some(text)
}
