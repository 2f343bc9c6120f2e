//! What tenants need, as a list of objectives, and whether they got it.
//!
//! A latency objective of a tenant that completed no message is missed: it has no value. An objective is met when the
//! median over the seeds meets it.

use crate::result::{Objective, ObjectiveKind, ObjectiveOutcome};
use isolane_common_quantities::settle::{Figure, Limit};
use isolane_common_quantities::stats::summary::median;
use isolane_rdma_scenario::model::Tenant;
use isolane_study_audit::cell::Metrics;
use isolane_study_results::rdma::TenantSettling;

/// The objectives of `tenant`, in the order of [`ObjectiveKind`].
pub(crate) fn objectives(tenant: &Tenant) -> Vec<Objective> {
    let slo = &tenant.slo;
    let all = [
        (
            ObjectiveKind::GoodputMin,
            slo.goodput_min.map(|rate| rate.as_gbps_f64()),
        ),
        (
            ObjectiveKind::MessagesMin,
            slo.messages_per_s_min.map(|count| count as f64),
        ),
        (
            ObjectiveKind::P50Max,
            slo.p50_max.map(|max| max.as_us_f64()),
        ),
        (
            ObjectiveKind::P99Max,
            slo.p99_max.map(|max| max.as_us_f64()),
        ),
    ];
    all.into_iter()
        .filter_map(|(kind, target)| target.map(|target| Objective { kind, target }))
        .collect()
}

impl ObjectiveKind {
    /// The figure that counts, in the objective's unit; none when no message completed.
    pub fn of(self, metrics: &Metrics) -> Option<f64> {
        match self {
            Self::GoodputMin => Some(metrics.goodput_gbps),
            Self::MessagesMin => Some(metrics.message_rate_per_s),
            Self::P50Max => metrics.p50_us,
            Self::P99Max => metrics.p99_us,
        }
    }

    /// Whether less is better.
    pub fn is_latency(self) -> bool {
        matches!(self, Self::P50Max | Self::P99Max)
    }

    /// What is judged, in a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::GoodputMin => "goodput",
            Self::MessagesMin => "messages",
            Self::P50Max => "p50",
            Self::P99Max => "p99",
        }
    }

    /// `value` with the objective's unit; `nothing` where there is none.
    pub fn words(self, value: Option<f64>) -> String {
        let Some(value) = value.filter(|&value| value > 0.0) else {
            return "nothing".to_owned();
        };
        match self {
            Self::GoodputMin => format!("{} Gb/s", digits(value)),
            Self::MessagesMin => format!("{} M/s", digits(value / 1e6)),
            Self::P50Max | Self::P99Max => format!("{} us", digits(value)),
        }
    }
}

impl Objective {
    /// Whether `value` meets it.
    pub fn met(&self, value: Option<f64>) -> bool {
        match (self.kind.is_latency(), value) {
            (_, None) => false,
            (true, Some(value)) => value > 0.0 && value <= self.target,
            (false, Some(value)) => value >= self.target,
        }
    }

    /// `p99 at most 5 us`.
    pub fn words(&self) -> String {
        let bound = match self.kind.is_latency() {
            true => "at most",
            false => "at least",
        };
        let target = self.kind.words(Some(self.target));
        format!("{} {bound} {target}", self.kind.name())
    }

    /// What separates met from missed; absent for a median latency, which has no rule of its own.
    pub(crate) fn limit(&self) -> Option<Limit> {
        let figure = match self.kind {
            ObjectiveKind::GoodputMin => Figure::Goodput,
            ObjectiveKind::MessagesMin => Figure::Messages,
            ObjectiveKind::P50Max => return None,
            ObjectiveKind::P99Max => Figure::P99,
        };
        Some(Limit {
            figure,
            value: self.target,
        })
    }

    /// The outcome over the `seeds`' metrics, whose runs settled as `settling` says; it is empty where times were fixed.
    pub fn outcome(&self, seeds: &[Metrics], settling: &[TenantSettling]) -> ObjectiveOutcome {
        let endless = match self.kind.is_latency() {
            true => f64::INFINITY,
            false => 0.0,
        };
        let value = |metrics: &Metrics| self.kind.of(metrics).unwrap_or(endless);
        let values: Vec<f64> = seeds.iter().map(value).collect();
        let measured = median(&values).filter(|value| value.is_finite());
        let keep = seeds.iter().filter(|seed| self.met(self.kind.of(seed)));
        let keep = keep.count();
        let settled = settling.iter().filter(|one| one.settled).count() * 2 > settling.len()
            || settling.is_empty();
        ObjectiveOutcome {
            kind: self.kind,
            target: self.target,
            measured,
            met: settled && self.met(measured),
            settled,
            borderline: keep > 0 && keep < seeds.len()
                || settling.iter().any(|one| one.on_the_edge),
        }
    }
}

/// Three significant digits, never in scientific notation.
pub(crate) fn digits(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p99(target: f64) -> Objective {
        Objective {
            kind: ObjectiveKind::P99Max,
            target,
        }
    }

    fn latency(p99_us: Option<f64>) -> Metrics {
        Metrics {
            p99_us,
            ..Metrics::default()
        }
    }

    #[test]
    fn silence_misses_a_latency_objective() {
        let outcome = p99(5.0).outcome(&[latency(None), latency(None), latency(Some(1.0))], &[]);
        assert_eq!(
            (outcome.measured, outcome.met, outcome.borderline),
            (None, false, true)
        );
        assert!(
            p99(5.0).outcome(&[latency(Some(5.0))], &[]).met,
            "the bound itself is met"
        );
    }

    #[test]
    fn an_objective_whose_runs_did_not_settle_is_not_met() {
        let open = TenantSettling {
            settled: false,
            on_the_edge: false,
            samples: 10,
            p99_low_us: None,
            p99_high_us: None,
        };
        let outcome = p99(5.0).outcome(&[latency(Some(1.0))], &[open]);
        assert!(!outcome.met && !outcome.settled);
    }

    #[test]
    fn rates_need_at_least_and_latencies_at_most() {
        let messages = Objective {
            kind: ObjectiveKind::MessagesMin,
            target: 2e6,
        };
        assert_eq!(messages.words(), "messages at least 2.00 M/s");
        assert_eq!(p99(12.0).words(), "p99 at most 12.0 us");
        assert!(messages.met(Some(2e6)) && !messages.met(Some(1.9e6)));
        assert!(p99(5.0).met(Some(4.0)) && !p99(5.0).met(Some(6.0)));
    }
}
