//! What the audit keeps of one run: a few hundred bytes out of a whole result.
//!
//! Numbers are rounded to six significant digits, far below what a seed changes and enough for every plot; the
//! journal writes exactly these numbers, so a resumed audit equals an uninterrupted one to the byte.

use crate::cell::{Metrics, SERIES_POINTS, Settling};
use crate::exhaustion::{Pressure, Ratios};
use crate::predicate::Capacity;
use isolane_rdma_scenario::model::{Host, Scenario};
use isolane_rdma_scenario::profile::Profile;
use isolane_study_results::rdma::{RunResult, TenantResult};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One run's contribution to the matrix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) victim: Metrics,
    /// The attacker, several together, unless the victim ran alone.
    pub(crate) attacker: Option<Metrics>,
    /// Dominant share of every tenant, the victim first.
    pub(crate) shares: Vec<f64>,
    /// CPU cores that the policy spends on all tenants.
    pub(crate) policy_cores: f64,
    /// How the victim settled; absent where times are fixed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) settling: Option<Settling>,
    /// Counters and series, kept for the first seed only.
    pub(crate) detail: Option<Detail>,
}

/// What the drill-down and the search for the exhausted resource need.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Detail {
    /// Counter ratios of each host.
    pub(crate) hosts: BTreeMap<Host, Ratios>,
    /// Width of a point, microseconds.
    pub(crate) sample_us: f64,
    /// Goodput of the victim, Gb/s.
    pub(crate) victim_gbps: Vec<f64>,
    /// Its 99th percentile latency, us; none where nothing completed.
    pub(crate) victim_p99_us: Vec<Option<f64>>,
    /// Goodput of the attacker, Gb/s.
    pub(crate) attacker_gbps: Vec<f64>,
}

impl Outcome {
    /// Condenses `result` of `scenario` on the device of `profile`; the first tenant is the victim, the others, if
    /// any, attack together. `of_operations` says that the victim's operations count.
    pub(crate) fn of(
        result: &RunResult,
        scenario: &Scenario,
        profile: &Profile,
        of_operations: bool,
        with_detail: bool,
    ) -> Option<Self> {
        let (victim, attackers) = result.tenants.split_first()?;
        let metrics = match of_operations {
            true => Metrics::with_operations(victim, result.measured_s),
            false => Metrics::from(victim),
        };
        let tenants = scenario.tenants.iter().zip(&result.tenants);
        let shares = tenants.map(|(tenant, got)| {
            round(Capacity::of(profile, tenant).dominant_share(&Metrics::from(got)))
        });
        Some(Self {
            shares: shares.collect(),
            policy_cores: round(
                result
                    .tenants
                    .iter()
                    .map(|tenant| tenant.policy_cores)
                    .sum(),
            ),
            victim: rounded(metrics),
            attacker: together(attackers).map(rounded),
            settling: result.settling.as_ref().and_then(of_victim),
            detail: with_detail.then(|| Detail::of(result, victim, attackers)),
        })
    }
}

/// How the first tenant settled.
fn of_victim(settling: &isolane_study_results::rdma::Settling) -> Option<Settling> {
    let victim = settling.tenants.first()?;
    Some(Settling {
        settled: u32::from(victim.settled),
        on_the_edge: u32::from(victim.on_the_edge),
        settled_after_us: round(settling.settled_after_us),
        measured_us: round(settling.measured_us),
        samples: victim.samples,
        p99_low_us: victim.p99_low_us.map(round),
        p99_high_us: victim.p99_high_us.map(round),
    })
}

impl Detail {
    fn of(result: &RunResult, victim: &TenantResult, attackers: &[TenantResult]) -> Self {
        let Pressure { hosts } = Pressure::from(result.counters.as_slice());
        let ratios = |ratios: Ratios| -> Ratios {
            let rounded = ratios.into_iter().map(|(name, value)| (name, round(value)));
            rounded.collect()
        };
        let group = victim
            .goodput_series_gbps
            .len()
            .div_ceil(SERIES_POINTS)
            .max(1);
        let mean = |part: &[f64]| round(part.iter().sum::<f64>() / part.len() as f64);
        Self {
            hosts: hosts
                .into_iter()
                .map(|(host, of)| (host, ratios(of)))
                .collect(),
            sample_us: round(result.sample_us * group as f64),
            victim_gbps: condensed(&victim.goodput_series_gbps, group, mean),
            victim_p99_us: condensed(&victim.p99_series_us, group, largest),
            attacker_gbps: condensed(&sum_of_series(attackers), group, mean),
        }
    }
}

/// Several attackers as one: rates add up, latencies are those of the slowest.
fn together(attackers: &[TenantResult]) -> Option<Metrics> {
    let larger = |left: Option<f64>, right: Option<f64>| match (left, right) {
        (Some(left), Some(right)) => Some(left.max(right)),
        (left, right) => left.or(right),
    };
    attackers
        .iter()
        .map(Metrics::from)
        .reduce(|sum, one| Metrics {
            goodput_gbps: sum.goodput_gbps + one.goodput_gbps,
            message_rate_per_s: sum.message_rate_per_s + one.message_rate_per_s,
            control_rate_per_s: sum.control_rate_per_s + one.control_rate_per_s,
            p50_us: larger(sum.p50_us, one.p50_us),
            p99_us: larger(sum.p99_us, one.p99_us),
            ..Metrics::default()
        })
}

/// The attackers' goodput over time, point by point.
fn sum_of_series(attackers: &[TenantResult]) -> Vec<f64> {
    let series = || attackers.iter().map(|tenant| &tenant.goodput_series_gbps);
    let points = series().map(Vec::len).max().unwrap_or(0);
    (0..points)
        .map(|point| series().filter_map(|series| series.get(point)).sum())
        .collect()
}

/// One value per `group` points of `series`.
fn condensed<T>(series: &[T], group: usize, combine: impl Fn(&[T]) -> T) -> Vec<T> {
    series.chunks(group).map(combine).collect()
}

/// `series` with points of another width, at most so many; it ends where the given one does.
pub(crate) fn fitted<T: Clone>(
    series: &[T],
    [from_us, to_us]: [f64; 2],
    points: usize,
    combine: impl Fn(&[T]) -> T,
) -> Vec<T> {
    if from_us == to_us || from_us <= 0.0 {
        return series.to_vec();
    }
    let step = to_us / from_us;
    let part = |point: usize| {
        let first = (point as f64 * step) as usize;
        let last = ((point + 1) as f64 * step).ceil() as usize;
        series
            .get(first..last.min(series.len()))
            .filter(|part| !part.is_empty())
    };
    (0..points).map_while(part).map(combine).collect()
}

/// The largest value of `part`, rounded; none where no point has one.
pub(crate) fn largest(part: &[Option<f64>]) -> Option<f64> {
    part.iter().copied().flatten().reduce(f64::max).map(round)
}

pub(crate) fn rounded(exact: Metrics) -> Metrics {
    Metrics {
        goodput_gbps: round(exact.goodput_gbps),
        message_rate_per_s: round(exact.message_rate_per_s),
        control_rate_per_s: round(exact.control_rate_per_s),
        p50_us: exact.p50_us.map(round),
        p99_us: exact.p99_us.map(round),
        operations_per_s: exact.operations_per_s.map(round),
        operations: exact.operations,
        operation_p50_us: exact.operation_p50_us.map(round),
        operation_p99_us: exact.operation_p99_us.map(round),
    }
}

/// Six significant digits; what is not finite becomes zero, since JSON has no name for it.
pub(crate) fn round(value: f64) -> f64 {
    if !value.is_finite() {
        return 0.0;
    }
    format!("{value:.5e}")
        .parse()
        .expect("a formatted finite number parses")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rounding_keeps_six_digits() {
        assert_eq!(round(12.345_678_9), 12.3457);
        assert_eq!(round(0.0), 0.0);
        assert_eq!(round(f64::NAN), 0.0);
    }

    #[test]
    fn series_are_condensed_to_groups() {
        let first = |part: &[f64]| part[0];
        assert_eq!(
            condensed(&[1.0, 3.0, 2.0, 9.0, 4.0], 2, first),
            [1.0, 2.0, 4.0]
        );
    }

    #[test]
    fn a_group_without_completions_has_no_largest_value() {
        let series = [Some(1.0), None, None, None, Some(4.0)];
        assert_eq!(condensed(&series, 2, largest), [Some(1.0), None, Some(4.0)]);
    }

    proptest! {
        #[test]
        fn a_rounded_number_survives_json(value in -1e12f64..1e12) {
            let text = serde_json::to_string(&round(value)).unwrap();
            prop_assert_eq!(serde_json::from_str::<f64>(&text).unwrap(), round(value));
            prop_assert_eq!(round(round(value)), round(value));
        }
    }
}
