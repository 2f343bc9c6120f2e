//! What a victim is owed: the guarantee predicate (husky 4.4), as a pure function of what it does alone.
//!
//! Units: goodput in gigabits of payload per second, message rates per second, latency in microseconds; shares
//! and the tolerance `alpha` are fractions.
//!
//! **Share** (the paper's rule). A victim that gets B_a alone is owed `(1 - alpha) * min(B_a, B_g)` under any attack.
//! With n tenants on the NIC, B_g is one n-th of it; under a policy that honours weights, its weight over the sum of
//! all tenants' weights. The paper counts bits. A victim of small messages uses up the NIC's message rate long before
//! its link, and the n-th part of the link would promise nothing to it. So a victim is judged in the unit of its
//! *dominant resource*: in bits when the share of the link's rate that it takes alone is at least the share that it
//! takes of the NIC's message rate, otherwise in messages, with B_g that part of the messages that the NIC's processing
//! units do alone with that verb, `1e9 / max(requester ns, responder ns)` per second. A victim of several verbs counts
//! with its dearest one.
//!
//! **Ratio** (the rule of Husky's public prototype). Bit rate and message rate must both be at least
//! `(1 - alpha)` times what they are alone. Stricter for large victims: sharing a link evenly already breaks it.
//!
//! **Latency victims**, which Husky lacks: the 99th percentile under attack is at most a factor, given by the
//! catalogue, over the 99th percentile alone.
//!
//! **Applications** are owed `(1 - alpha)` times the operations per second that they do alone (husky 4.5.2), under both
//! rules: each of their hosts takes a small part of its link, and all of them wait for the slowest. One that sends from
//! one host to one other, and alone takes more than its part of the NIC, is owed under the share rule only what that
//! part carries. Operations are counted by the time between their ends, and fewer than [`OPERATIONS_MIN`] alone give no
//! verdict.
//!
//! A victim that completes nothing under attack breaks every rule. For a victim that completes nothing alone the cell
//! does not apply.

use crate::cell::{Expected, JudgedMetric, Metrics, PredicateName};
use isolane_common_quantities::settle::{Figure, Limit};
use isolane_rdma_scenario::model::{Tenant, Traffic, Verb};
use isolane_rdma_scenario::profile::Profile;

/// The rule and its tolerance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Predicate {
    /// At least `(1 - alpha) * min(alone, guarantee)`.
    Share {
        /// Tolerated loss, 0 to 1.
        alpha: f64,
        /// The victim's part of the NIC.
        part: Part,
    },
    /// Both rates at least `(1 - alpha) * alone`.
    Ratio {
        /// Tolerated loss, 0 to 1.
        alpha: f64,
    },
}

/// A part of the NIC: a weight and the sum of all tenants' weights, both at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The tenant's weight.
    pub weight: u32,
    /// The sum over all tenants.
    pub sum: u32,
}

impl Part {
    /// One of `tenants` equal parts.
    pub fn one_of(tenants: u32) -> Self {
        Self {
            weight: 1,
            sum: tenants.max(1),
        }
    }

    /// This part of `whole`.
    pub fn of(self, whole: f64) -> f64 {
        whole * f64::from(self.weight) / f64::from(self.sum)
    }
}

/// What the whole NIC does for one tenant's verb.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Capacity {
    /// The link's rate, gigabits per second.
    pub link_gbps: f64,
    /// Messages of the tenant's dearest verb per second.
    pub messages_per_s: f64,
}

/// Operations that an application must end alone for a verdict: with them one operation more or less is a fifth of the
/// tolerance of a quarter.
pub const OPERATIONS_MIN: u64 = 20;

/// What of the victim counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Judged {
    /// Its rate, with what the NIC has.
    Rate(Capacity),
    /// Its 99th percentile latency, with the factor over solo that is still accepted.
    Latency {
        /// Accepted latency under attack over latency alone, at least 1.
        over_solo: f64,
    },
    /// Its operations.
    Operations {
        /// What the NIC has, where its part of it bounds what the victim is owed.
        capacity: Option<Capacity>,
    },
}

impl Capacity {
    /// The capacity of `profile` for what `tenant` posts.
    pub fn of(profile: &Profile, tenant: &Tenant) -> Self {
        let data = tenant.workloads.iter().filter_map(|w| match &w.traffic {
            Traffic::Data(data) => Some(data.verb),
            Traffic::Application(application) => Some(application.verb),
            Traffic::Control(_) => None,
        });
        let dearest_ns = data
            .map(|verb| verb_ns(profile, verb))
            .fold(f64::MIN_POSITIVE, f64::max);
        Self {
            link_gbps: profile.value("link", "rate_gbps"),
            messages_per_s: 1e9 / dearest_ns,
        }
    }

    /// The larger of the two parts of the NIC that `metrics` take: of the link, and of the messages.
    pub fn dominant_share(self, metrics: &Metrics) -> f64 {
        f64::max(
            metrics.goodput_gbps / self.link_gbps,
            metrics.message_rate_per_s / self.messages_per_s,
        )
    }
}

/// Time that one request of `verb` takes on the slower of its two processing units, nanoseconds.
fn verb_ns(profile: &Profile, verb: Verb) -> f64 {
    let (requester, responder) = match verb {
        Verb::Write => ("write_ns", "respond_write_ns"),
        Verb::Send => ("send_ns", "respond_send_ns"),
        Verb::Read => ("read_ns", "respond_read_ns"),
        Verb::FetchAdd => ("atomic_ns", "respond_fetch_add_ns"),
        Verb::CompareSwap => ("atomic_ns", "respond_compare_swap_ns"),
    };
    f64::max(
        profile.value("processing", requester),
        profile.value("processing", responder),
    )
}

/// What the victim got, judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judgement {
    /// The judged metric under attack; absent when the metric is a latency and no message completed.
    pub measured: Option<f64>,
    /// Part of its solo performance that it kept, 0 and up.
    pub retained: f64,
    /// True when the victim got what it was owed.
    pub kept: bool,
}

impl Predicate {
    /// The same rule for a victim with this part of the NIC.
    pub fn with_part(self, part: Part) -> Self {
        match self {
            Self::Share { alpha, .. } => Self::Share { alpha, part },
            Self::Ratio { .. } => self,
        }
    }

    /// The rule's name.
    pub fn name(self) -> PredicateName {
        match self {
            Self::Share { .. } => PredicateName::Share,
            Self::Ratio { .. } => PredicateName::Ratio,
        }
    }

    /// The tolerance.
    pub fn alpha(self) -> f64 {
        match self {
            Self::Share { alpha, .. } | Self::Ratio { alpha } => alpha,
        }
    }

    /// What a victim that does `solo` alone is owed while it gets `attacked` under attack, or why nothing can be said.
    /// (`attacked` only chooses which of the two rates the ratio rule shows: the one that fell more.)
    pub fn expected(
        self,
        judged: Judged,
        solo: &Metrics,
        attacked: &Metrics,
    ) -> Result<Expected, String> {
        let capacity = match judged {
            Judged::Latency { over_solo } => return latency_bound(solo, over_solo),
            Judged::Operations { capacity } => return self.operations_bound(capacity, solo),
            Judged::Rate(capacity) => capacity,
        };
        if solo.goodput_gbps <= 0.0 || solo.message_rate_per_s <= 0.0 {
            return Err("the victim completes nothing even when it is alone".to_owned());
        }
        Ok(match self {
            Self::Share { alpha, part } => share_bound(solo, capacity, alpha, part),
            Self::Ratio { alpha } => ratio_bound(solo, attacked, alpha),
        })
    }
}

impl Predicate {
    /// The limits that separate kept from broken for a victim that does `solo` alone; none where nothing can be said.
    pub fn limits(self, judged: Judged, solo: &Metrics) -> Vec<Limit> {
        // The ratio rule holds both rates against what they are alone; which one it shows depends on the attack.
        if let (Self::Ratio { alpha }, Judged::Rate(_)) = (self, judged) {
            let least = |figure, alone: f64| Limit {
                figure,
                value: (1.0 - alpha) * alone,
            };
            return vec![
                least(Figure::Goodput, solo.goodput_gbps),
                least(Figure::Messages, solo.message_rate_per_s),
            ];
        }
        let expected = self.expected(judged, solo, solo);
        let limit = expected.map(|expected| Limit {
            figure: match expected.metric {
                JudgedMetric::GoodputGbps => Figure::Goodput,
                JudgedMetric::MessageRatePerS => Figure::Messages,
                JudgedMetric::P99Us => Figure::P99,
                JudgedMetric::OperationsPerS => Figure::Operations,
            },
            value: expected.bound,
        });
        limit.into_iter().collect()
    }

    fn operations_bound(
        self,
        capacity: Option<Capacity>,
        solo: &Metrics,
    ) -> Result<Expected, String> {
        let ended = solo.operations.unwrap_or(0);
        let alone = solo.operations_per_s.unwrap_or(0.0);
        if ended < OPERATIONS_MIN || alone <= 0.0 {
            return Err(format!(
                "the victim ends {ended} operations alone, and a verdict needs {OPERATIONS_MIN}: raise --duration"
            ));
        }
        let metric = JudgedMetric::OperationsPerS;
        let guarantee = match (self, capacity) {
            (Self::Share { part, .. }, Some(capacity)) => {
                let share = capacity.dominant_share(solo);
                (share > part.of(1.0)).then(|| alone * part.of(1.0) / share)
            }
            _ => None,
        };
        let alpha = self.alpha();
        let bound = (1.0 - alpha) * guarantee.unwrap_or(alone);
        let least = match guarantee {
            Some(guarantee) => format!(
                "min({} alone, {} in its part of the NIC)",
                with_unit(metric, alone),
                with_unit(metric, guarantee)
            ),
            None => format!("{} alone", with_unit(metric, alone)),
        };
        Ok(Expected {
            metric,
            bound,
            solo: alone,
            guarantee,
            rule: format!(
                "at least (1 - {alpha}) x {least} = {}",
                with_unit(metric, bound)
            ),
        })
    }
}

/// Compares what the victim got with what it was owed.
pub fn judge(expected: &Expected, attacked: &Metrics) -> Judgement {
    let measured = value(expected.metric, attacked);
    match (expected.metric, measured) {
        (JudgedMetric::P99Us, Some(p99)) => Judgement {
            measured,
            retained: expected.solo / p99,
            kept: p99 <= expected.bound,
        },
        (_, Some(rate)) => Judgement {
            measured,
            retained: rate / expected.solo,
            kept: rate >= expected.bound,
        },
        (_, None) => Judgement {
            measured: None,
            retained: 0.0,
            kept: false,
        },
    }
}

/// The value of `metric` in `metrics`.
pub fn value(metric: JudgedMetric, metrics: &Metrics) -> Option<f64> {
    match metric {
        JudgedMetric::GoodputGbps => Some(metrics.goodput_gbps),
        JudgedMetric::MessageRatePerS => Some(metrics.message_rate_per_s),
        JudgedMetric::P99Us => metrics.p99_us.filter(|&p99| p99 > 0.0),
        JudgedMetric::OperationsPerS => metrics.operations_per_s,
    }
}

/// `value` of `metric` with its unit, for people.
pub fn with_unit(metric: JudgedMetric, value: f64) -> String {
    match metric {
        _ if value == 0.0 => "nothing".to_owned(),
        JudgedMetric::GoodputGbps => format!("{} Gb/s", digits(value)),
        JudgedMetric::MessageRatePerS => format!("{} M/s", digits(value / 1e6)),
        JudgedMetric::P99Us => format!("{} us", digits(value)),
        JudgedMetric::OperationsPerS if value >= 1e6 => {
            format!("{} M operations/s", digits(value / 1e6))
        }
        JudgedMetric::OperationsPerS if value >= 1e4 => {
            format!("{} k operations/s", digits(value / 1e3))
        }
        JudgedMetric::OperationsPerS => format!("{} operations/s", digits(value)),
    }
}

/// Three significant digits, never in scientific notation.
fn digits(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 || v == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

fn share_bound(solo: &Metrics, capacity: Capacity, alpha: f64, part: Part) -> Expected {
    let link_share = solo.goodput_gbps / capacity.link_gbps;
    let message_share = solo.message_rate_per_s / capacity.messages_per_s;
    let (metric, alone, whole) = if link_share >= message_share {
        (
            JudgedMetric::GoodputGbps,
            solo.goodput_gbps,
            capacity.link_gbps,
        )
    } else {
        (
            JudgedMetric::MessageRatePerS,
            solo.message_rate_per_s,
            capacity.messages_per_s,
        )
    };
    let guarantee = part.of(whole);
    let bound = (1.0 - alpha) * alone.min(guarantee);
    let rule = format!(
        "at least (1 - {alpha}) x min({} alone, {} guaranteed) = {}",
        with_unit(metric, alone),
        with_unit(metric, guarantee),
        with_unit(metric, bound)
    );
    Expected {
        metric,
        bound,
        solo: alone,
        guarantee: Some(guarantee),
        rule,
    }
}

fn ratio_bound(solo: &Metrics, attacked: &Metrics, alpha: f64) -> Expected {
    let bits = attacked.goodput_gbps / solo.goodput_gbps;
    let messages = attacked.message_rate_per_s / solo.message_rate_per_s;
    let (metric, alone) = if bits <= messages {
        (JudgedMetric::GoodputGbps, solo.goodput_gbps)
    } else {
        (JudgedMetric::MessageRatePerS, solo.message_rate_per_s)
    };
    let bound = (1.0 - alpha) * alone;
    let rule = format!(
        "bits and messages at least (1 - {alpha}) x {} alone = {}",
        with_unit(metric, alone),
        with_unit(metric, bound)
    );
    Expected {
        metric,
        bound,
        solo: alone,
        guarantee: None,
        rule,
    }
}

fn latency_bound(solo: &Metrics, over_solo: f64) -> Result<Expected, String> {
    let metric = JudgedMetric::P99Us;
    let Some(alone) = value(metric, solo) else {
        return Err("the victim completes no message even when it is alone".to_owned());
    };
    let bound = over_solo * alone;
    let rule = format!(
        "p99 at most {over_solo} x {} alone = {}",
        with_unit(metric, alone),
        with_unit(metric, bound)
    );
    Ok(Expected {
        metric,
        bound,
        solo: alone,
        guarantee: None,
        rule,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SHARE: Predicate = Predicate::Share {
        alpha: 0.25,
        part: Part { weight: 1, sum: 2 },
    };
    const NIC: Judged = Judged::Rate(Capacity {
        link_gbps: 100.0,
        messages_per_s: 90e6,
    });

    fn rates(goodput_gbps: f64, message_rate_per_s: f64) -> Metrics {
        Metrics {
            goodput_gbps,
            message_rate_per_s,
            ..Metrics::default()
        }
    }

    fn bound(solo: &Metrics) -> (JudgedMetric, f64) {
        let expected = SHARE.expected(NIC, solo, solo).unwrap();
        (expected.metric, expected.bound)
    }

    /// The two examples of husky 4.4.
    #[test]
    fn the_papers_examples_hold() {
        assert_eq!(
            bound(&rates(60.0, 1e5)),
            (JudgedMetric::GoodputGbps, 0.75 * 50.0)
        );
        assert_eq!(
            bound(&rates(10.0, 1e5)),
            (JudgedMetric::GoodputGbps, 0.75 * 10.0)
        );
    }

    #[test]
    fn a_victim_of_small_messages_is_judged_in_messages() {
        let solo = rates(80e6 * 64.0 / 1e9, 80e6);
        assert_eq!(bound(&solo), (JudgedMetric::MessageRatePerS, 0.75 * 45e6));
    }

    #[test]
    fn a_heavier_victim_is_owed_its_weight_s_part() {
        let part = Part { weight: 3, sum: 4 };
        let expected = SHARE
            .with_part(part)
            .expected(NIC, &rates(96.0, 1e6), &rates(0.0, 0.0));
        assert_eq!(expected.unwrap().guarantee, Some(75.0));
    }

    #[test]
    fn the_dominant_share_is_the_larger_one() {
        let capacity = Capacity {
            link_gbps: 100.0,
            messages_per_s: 90e6,
        };
        assert_eq!(capacity.dominant_share(&rates(50.0, 9e6)), 0.5);
        assert_eq!(capacity.dominant_share(&rates(5.0, 45e6)), 0.5);
    }

    #[test]
    fn half_the_link_satisfies_share_and_breaks_ratio() {
        let (solo, attacked) = (rates(96.0, 1e6), rates(48.0, 0.5e6));
        let share = SHARE.expected(NIC, &solo, &attacked).unwrap();
        let ratio = Predicate::Ratio { alpha: 0.25 }
            .expected(NIC, &solo, &attacked)
            .unwrap();
        assert!(judge(&share, &attacked).kept);
        assert!(!judge(&ratio, &attacked).kept);
        assert_eq!(judge(&share, &attacked).retained, 0.5);
    }

    #[test]
    fn latency_is_judged_against_a_factor_over_solo() {
        let judged = Judged::Latency { over_solo: 3.0 };
        let at = |p99_us| Metrics {
            p99_us,
            ..Metrics::default()
        };
        let expected = SHARE.expected(judged, &at(Some(2.0)), &at(None)).unwrap();
        assert_eq!(expected.bound, 6.0);
        assert!(judge(&expected, &at(Some(6.0))).kept);
        assert!(!judge(&expected, &at(Some(6.1))).kept);
        assert!(!judge(&expected, &at(None)).kept, "silence is no answer");
        assert!(SHARE.expected(judged, &at(None), &at(None)).is_err());
    }

    fn operations(goodput_gbps: f64, operations: u64) -> Metrics {
        Metrics {
            operations: Some(operations),
            operations_per_s: Some(operations as f64),
            ..rates(goodput_gbps, 0.0)
        }
    }

    #[test]
    fn an_application_is_owed_its_operations_alone() {
        let judged = Judged::Operations { capacity: None };
        for predicate in [SHARE, Predicate::Ratio { alpha: 0.25 }] {
            let solo = operations(200.0, 100);
            let expected = predicate.expected(judged, &solo, &solo).unwrap();
            assert_eq!((expected.bound, expected.guarantee), (75.0, None));
            assert!(judge(&expected, &operations(0.0, 75)).kept);
            assert!(!judge(&expected, &operations(0.0, 74)).kept);
        }
        let few = operations(1.0, OPERATIONS_MIN - 1);
        let refused = SHARE.expected(judged, &few, &few).unwrap_err();
        assert!(refused.contains("19 operations alone"), "{refused}");
    }

    #[test]
    fn an_application_on_one_link_is_owed_no_more_than_its_part_carries() {
        let Judged::Rate(capacity) = NIC else {
            unreachable!()
        };
        let capacity = Some(capacity);
        let bound = |predicate: Predicate, gbps| {
            let solo = operations(gbps, 100);
            let judged = Judged::Operations { capacity };
            predicate.expected(judged, &solo, &solo).unwrap().bound
        };
        assert_eq!(bound(SHARE, 80.0), 0.75 * 100.0 * 50.0 / 80.0);
        assert_eq!(bound(SHARE, 40.0), 75.0);
        assert_eq!(bound(Predicate::Ratio { alpha: 0.25 }, 80.0), 75.0);
    }

    #[test]
    fn a_victim_that_does_nothing_alone_is_not_judged() {
        assert!(
            SHARE
                .expected(NIC, &rates(0.0, 0.0), &rates(0.0, 0.0))
                .is_err()
        );
    }

    proptest! {
        #[test]
        fn a_larger_tolerance_never_turns_pass_into_violation(
            solo in 0.1f64..200.0, attacked in 0.0f64..200.0, a in 0.0f64..1.0, b in 0.0f64..1.0,
        ) {
            let kept = |alpha| {
                let predicate = Predicate::Share { alpha, part: Part::one_of(2) };
                let expected = predicate.expected(NIC, &rates(solo, 1e5), &rates(attacked, 1e5)).unwrap();
                judge(&expected, &rates(attacked, 1e5)).kept
            };
            prop_assert!(!kept(a.min(b)) || kept(a.max(b)));
        }

        #[test]
        fn a_victim_that_keeps_all_it_has_alone_is_never_a_violation(
            gbps in 0.001f64..200.0, rate in 1.0f64..2e8, alpha in 0.0f64..1.0, tenants in 1u32..16,
        ) {
            let solo = rates(gbps, rate);
            for predicate in [Predicate::Share { alpha, part: Part::one_of(tenants) }, Predicate::Ratio { alpha }] {
                let expected = predicate.expected(NIC, &solo, &solo).unwrap();
                prop_assert!(judge(&expected, &solo).kept);
            }
        }
    }
}
