//! A scenario's tenants and their objectives as a policy for `isolane rdma plan`.
//!
//! A goodput becomes a guarantee, a latency objective puts its tenant into a strict class. Limits: a guarantee counts
//! packets with their headers, so it is a few percent less in goodput; a message rate and a median have no setting and
//! become a comment.

use isolane_common_quantities::units::{BitRate, Duration};
use isolane_rdma_hardware::policy::{Class, Policy, Tenant};
use isolane_study_recommend::result::{ObjectiveKind, Recommendation, TenantNeeds};

/// Name and DSCP (expedited forwarding) of the class of tenants with a latency objective.
const LATENCY: (&str, u8) = ("latency", 46);

/// The file.
pub(super) fn policy(found: &Recommendation) -> String {
    let has_latency = found
        .tenants
        .iter()
        .any(|tenant| latency_us(tenant).is_some());
    let class = Class {
        name: LATENCY.0.to_owned(),
        strict: true,
        share_percent: None,
        dscp: Some(LATENCY.1),
        priority: None,
        lossless: false,
    };
    let policy = Policy {
        device: None,
        rate: None,
        cable_m: None,
        classes: if has_latency { vec![class] } else { Vec::new() },
        tenants: found.tenants.iter().map(tenant).collect(),
    };
    let mut text = format!(
        "# The tenants of {}, made by `{}`.\n# Add `functions` and `cgroup` of each tenant: docs/guides/hardware.md has the keys.\n# `isolane rdma plan` prints how to audit its settings on these tenants.\n",
        found.scenario, found.rerun
    );
    for tenant in &found.tenants {
        for objective in &tenant.objectives {
            let words = match objective.kind {
                ObjectiveKind::MessagesMin => format!("{} messages per second", objective.target),
                ObjectiveKind::P50Max => format!("a median latency of {} us", objective.target),
                ObjectiveKind::GoodputMin | ObjectiveKind::P99Max => continue,
            };
            text.push_str(&format!(
                "# No device has a setting for {words} of {}.\n",
                tenant.name
            ));
        }
    }
    text.push('\n');
    text.push_str(policy.to_toml().trim_start());
    text
}

fn tenant(needs: &TenantNeeds) -> Tenant {
    let goodput = target(needs, ObjectiveKind::GoodputMin).filter(|gbps| *gbps > 0.0);
    let p99 = target(needs, ObjectiveKind::P99Max);
    Tenant {
        name: plain(&needs.name),
        weight: needs.weight.max(1),
        // Whole megabits: the unit of devices.
        guarantee: goodput
            .map(|gbps| BitRate::from_bps((gbps * 1_000.0).floor().max(1.0) as u64 * 1_000_000)),
        limit: None,
        p99: p99.map(|us| Duration::from_ns_f64((us * 1_000.0).max(10.0).floor())),
        class: latency_us(needs).map(|_| LATENCY.0.to_owned()),
        functions: Vec::new(),
        cgroup: None,
        objects_max: None,
        handles_max: None,
    }
}

fn latency_us(needs: &TenantNeeds) -> Option<f64> {
    target(needs, ObjectiveKind::P99Max).or_else(|| target(needs, ObjectiveKind::P50Max))
}

fn target(needs: &TenantNeeds, kind: ObjectiveKind) -> Option<f64> {
    let objective = needs
        .objectives
        .iter()
        .find(|objective| objective.kind == kind);
    objective.map(|objective| objective.target)
}

/// The name with the characters that a policy accepts.
fn plain(name: &str) -> String {
    const MOST: usize = 48;
    let one = |c: char| match c.is_ascii_alphanumeric() || "-_.".contains(c) {
        true => c,
        false => '-',
    };
    let plain: String = name.chars().map(one).collect();
    let plain = plain.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    match plain {
        "" => "tenant".to_owned(),
        plain => plain[..plain.len().min(MOST)].to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_study_recommend::result::Objective;

    const WRITTEN: &str = r#"# The tenants of s, made by `isolane recommend s.toml`.
# Add `functions` and `cgroup` of each tenant: docs/guides/hardware.md has the keys.
# `isolane rdma plan` prints how to audit its settings on these tenants.
# No device has a setting for 1000000 messages per second of rpc.

[[class]]
name = "latency"
strict = true
dscp = 46

[[tenant]]
name = "key-value"
p99 = "2510ns"
class = "latency"

[[tenant]]
name = "backup"
guarantee = "37.456 Gb/s"

[[tenant]]
name = "rpc"
"#;

    #[test]
    fn objectives_become_guarantees_and_a_strict_class() {
        let tenant = |name: &str, kind, target| TenantNeeds {
            name: name.to_owned(),
            weight: 1,
            objectives: vec![Objective { kind, target }],
            derived: false,
        };
        let found = Recommendation {
            version: 1,
            scenario: "s".to_owned(),
            profile: "cx5-100g-roce".to_owned(),
            testbed: "simulator".to_owned(),
            seeds: vec![1],
            measured_us: 1.0,
            settling: None,
            tenants: vec![
                tenant("key value", ObjectiveKind::P99Max, 2.51),
                tenant("backup", ObjectiveKind::GoodputMin, 37.4567),
                tenant("rpc", ObjectiveKind::MessagesMin, 1e6),
            ],
            policies: Vec::new(),
            left_out: Vec::new(),
            advice: String::new(),
            rerun: "isolane recommend s.toml".to_owned(),
        };
        let text = policy(&found);
        assert_eq!(text, WRITTEN);
        isolane_rdma_hardware::policy::parse("p.toml", &text).unwrap();
    }
}
