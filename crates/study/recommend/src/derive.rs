//! Objectives for tenants that do not say what they need: what the audit would hold a policy to.
//!
//! Each tenant runs alone under no policy. A tenant of class latency is to keep its 99th percentile below [`OVER_SOLO`] times
//! what it has alone. Any other tenant is to keep all but [`ALPHA`] of what it has alone, or of its part of the NIC by weight
//! where that is less: goodput, or messages where they are the larger part of what the NIC can do. A tenant that completes
//! nothing alone gets no objective.
//!
//! Targets have three significant digits, so a scenario with the printed target has the same objective.

use crate::result::{Objective, ObjectiveKind};
use isolane_rdma_scenario::model::{Class, Tenant};
use isolane_study_audit::cell::Metrics;
use isolane_study_audit::plan::ALPHA;
use isolane_study_audit::predicate::Capacity;
use isolane_study_audit::tenants::OVER_SOLO;

/// The rule in a sentence, for people.
pub(crate) fn rule() -> String {
    format!(
        "for class latency, a p99 of at most {OVER_SOLO} times the p99 alone; for any other class, {:.0} % of the rate alone, \
         or of the tenant's share of the RDMA NIC, whichever is smaller",
        (1.0 - ALPHA) * 100.0
    )
}

/// The objective of `tenant`, which has the fraction `part` of the NIC and got `alone` without any other tenant.
pub(crate) fn objectives(
    tenant: &Tenant,
    part: f64,
    capacity: Capacity,
    alone: &Metrics,
) -> Vec<Objective> {
    let objective = |kind, target: f64| Objective {
        kind,
        target: rounded(target),
    };
    let one = match (tenant.class, alone.p99_us) {
        (Class::Latency, Some(p99)) => objective(ObjectiveKind::P99Max, OVER_SOLO * p99),
        _ => {
            let least = |alone: f64, all: f64| (1.0 - ALPHA) * alone.min(part * all);
            let goodput = least(alone.goodput_gbps, capacity.link_gbps);
            let messages = least(alone.message_rate_per_s, capacity.messages_per_s);
            let of_link = alone.goodput_gbps / capacity.link_gbps;
            match of_link >= alone.message_rate_per_s / capacity.messages_per_s {
                true => objective(ObjectiveKind::GoodputMin, goodput),
                false => objective(ObjectiveKind::MessagesMin, messages.floor()),
            }
        }
    };
    let asks = one.target > 0.0 && one.target.is_finite();
    asks.then_some(one).into_iter().collect()
}

/// `objectives` as a scenario writes them: `slo = { p99_max = "5.2us" }`.
pub(crate) fn as_written(objectives: &[Objective]) -> String {
    let written = objectives.iter().map(|one| {
        let target = one.target;
        match one.kind {
            ObjectiveKind::GoodputMin => format!("goodput_min = \"{target}Gb/s\""),
            ObjectiveKind::MessagesMin => format!("messages_per_s_min = {target}"),
            ObjectiveKind::P50Max => format!("p50_max = \"{target}us\""),
            ObjectiveKind::P99Max => format!("p99_max = \"{target}us\""),
        }
    });
    format!("slo = {{ {} }}", written.collect::<Vec<_>>().join(", "))
}

/// `value` with three significant digits.
fn rounded(value: f64) -> f64 {
    if value <= 0.0 || !value.is_finite() {
        return value;
    }
    let digits = 2 - value.log10().floor() as i32;
    // Text, so that the target is exactly what is printed.
    match usize::try_from(digits) {
        Ok(digits) => format!("{value:.digits$}").parse().unwrap_or(value),
        Err(_) => {
            let unit = 10f64.powi(-digits);
            (value / unit).round() * unit
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_three_digits_and_are_written_as_scenarios_have_them() {
        let all = [5.178, 0.012_345, 123_456.0, 47.5].map(rounded);
        assert_eq!(all, [5.18, 0.0123, 123_000.0, 47.5]);
        let of = |kind, target| as_written(&[Objective { kind, target }]);
        assert_eq!(
            of(ObjectiveKind::P99Max, 5.18),
            "slo = { p99_max = \"5.18us\" }"
        );
        assert_eq!(
            of(ObjectiveKind::MessagesMin, 123_000.0),
            "slo = { messages_per_s_min = 123000 }"
        );
    }
}
