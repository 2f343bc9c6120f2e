//! When an experiment is anomalous.
//!
//! Two rules. A NIC that pauses its link for more than 0.1 % of the time does so though nothing is congested: two hosts
//! share one switch, and no other host sends. Throughput that stays more than 20 % under both the bit bound and the
//! packet bound is limited by something that no specification names. The second rule makes an exception for workloads
//! that do not offer more ([`crate::bounds`]). On real devices, throughput of a run that was not steady is low only if it is also low in the best
//! quarter of the run; else the run decides nothing. Of two kinds of traffic at once each is held against the rate of the direction that
//! its data takes and against its own offer; the one that reaches less counts. Where both hold it is a pause anomaly, since pauses lower throughput
//! too. Source: collie 3.5.2; the exception is ours.

use crate::bounds::Bounds;
use crate::experiment::{Arrived, Measured};
use crate::space::Point;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Part of the time that a sound NIC may pause its link.
pub const PAUSE_RATIO_MAX: f64 = 0.001;
/// Part of a bound that has to be reached.
pub const REACHED_MIN: f64 = 0.8;

/// What an anomaly looks like from outside.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Symptom {
    /// Pause frames.
    PauseFrames,
    /// Low throughput.
    LowThroughput,
    /// A latency that the own queues do not explain (`latency`).
    HighLatency,
    /// A victim that got less than it is owed ([`crate::victim`]).
    Interference,
}

impl Symptom {
    /// As tables write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PauseFrames => "pause frames",
            Self::LowThroughput => "low throughput",
            Self::HighLatency => "high latency",
            Self::Interference => "interference",
        }
    }
}

/// The figures behind a judgement, parts of 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Judgement {
    /// Time paused.
    pub pause_ratio: f64,
    /// Of the bit bound, in the slower direction.
    pub of_bits: f64,
    /// Of the packet bound, likewise.
    pub of_packets: f64,
    /// Of what the workload offers; above 1 where round trips are shorter than assumed.
    pub of_offer: f64,
    /// Of the baseline of latencies, where an option requests it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_latency: Option<f64>,
    /// What the victim kept of what it does alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retained: Option<f64>,
    /// Part of a link that the attacker took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_share: Option<f64>,
    /// The anomaly.
    pub symptom: Option<Symptom>,
    /// True where the run had not settled and leaves open whether there is an anomaly; then there is no symptom.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unsettled: bool,
}

impl Judgement {
    /// Whether the experiment shows that there is no anomaly.
    pub const fn is_sound(&self) -> bool {
        self.symptom.is_none() && !self.unsettled
    }
}

/// Judges `measured`, the experiment of `point`.
pub fn judge(point: &Point, measured: &Measured, bounds: &Bounds) -> Judgement {
    let parts = parts(point, measured, bounds);
    let least = parts
        .into_iter()
        .min_by(|one, other| one.reached().total_cmp(&other.reached()));
    let Reached {
        of_bits,
        of_packets,
        of_offer,
    } = least.expect("a point has one kind of traffic at least");
    let reached = of_bits.max(of_packets).max(of_offer);
    let best = reached * measured.best_quarter.unwrap_or(1.0);
    let (symptom, unsettled) = match () {
        () if measured.pause_ratio > PAUSE_RATIO_MAX => (Some(Symptom::PauseFrames), false),
        () if best < REACHED_MIN => (Some(Symptom::LowThroughput), false),
        () => (None, reached < REACHED_MIN),
    };
    Judgement {
        pause_ratio: measured.pause_ratio,
        of_bits,
        of_packets,
        of_offer,
        symptom,
        unsettled,
        ..Judgement::default()
    }
}

/// What one kind of traffic reached of its bounds, parts of 1.
struct Reached {
    of_bits: f64,
    of_packets: f64,
    of_offer: f64,
}

impl Reached {
    /// Of the nearest bound.
    fn reached(&self) -> f64 {
        self.of_bits.max(self.of_packets).max(self.of_offer)
    }
}

/// What each kind of traffic of `point` reached.
fn parts(point: &Point, measured: &Measured, bounds: &Bounds) -> Vec<Reached> {
    let of = |part: &Point, arrived: &Arrived, messages_per_s: f64, packets_per_s: f64| {
        let offer = bounds.offer_per_s(part);
        Reached {
            of_bits: arrived.gbps / bounds.link_gbps,
            of_packets: arrived.packets_per_s / packets_per_s,
            of_offer: offer.map_or(0.0, |offer| messages_per_s / offer),
        }
    };
    if measured.kinds.is_empty() {
        let packets_per_s = bounds.packets_per_s_of(point);
        let messages_per_s = measured.messages_per_s;
        return vec![of(point, &measured.slowest, messages_per_s, packets_per_s)];
    }
    let parts = point.parts().into_iter().zip(&measured.kinds);
    parts
        .zip(bounds.packets_per_s_of_parts(point))
        .map(|((part, kind), packets)| of(&part, &kind.arrived, kind.messages_per_s, packets))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::ServiceBound;
    use crate::space::benchmark::simple;

    fn bounds() -> Bounds {
        let service = ServiceBound {
            latency_us: 1.0,
            single_per_s: 1e7,
            listed_per_s: 1e7,
            packets_per_s: None,
        };
        Bounds {
            link_gbps: 100.0,
            packets_per_s: 1e8,
            services: vec![Some(service)],
        }
    }

    fn judged(
        pause_ratio: f64,
        gbps: f64,
        packets_per_s: f64,
        messages_per_s: f64,
    ) -> Option<Symptom> {
        let measured = Measured {
            pause_ratio,
            slowest: Arrived {
                gbps,
                packets_per_s,
            },
            messages_per_s,
            ..Measured::default()
        };
        judge(&simple(0, 16, 1), &measured, &bounds()).symptom
    }

    #[test]
    fn either_bound_or_the_offer_explains_throughput() {
        assert_eq!(judged(0.0, 80.0, 0.0, 0.0), None);
        assert_eq!(judged(0.0, 0.0, 8e7, 0.0), None);
        assert_eq!(judged(0.0, 0.0, 0.0, 12.8e7), None);
        let low = judged(0.0, 79.9, 7.99e7, 12.7e7);
        assert_eq!(low, Some(Symptom::LowThroughput));
    }

    #[test]
    fn a_run_that_did_not_settle_is_low_only_where_its_best_quarter_is() {
        let judged = |pause_ratio: f64, best_quarter: Option<f64>| {
            let measured = Measured {
                pause_ratio,
                slowest: Arrived {
                    gbps: 60.0,
                    packets_per_s: 0.0,
                },
                best_quarter,
                ..Measured::default()
            };
            let judged = judge(&simple(0, 16, 1), &measured, &bounds());
            (judged.symptom, judged.unsettled)
        };
        let low = Some(Symptom::LowThroughput);
        assert_eq!(judged(0.0, None), (low, false));
        assert_eq!(judged(0.0, Some(1.33)), (low, false));
        assert_eq!(judged(0.0, Some(1.34)), (None, true));
        // A pause is a pause, however uneven the rate is.
        let pauses = Some(Symptom::PauseFrames);
        assert_eq!(judged(0.1, Some(1.34)), (pauses, false));
    }

    /// A trickle of the first kind is all that it offers; the second kind, the other way, fills the link or does not.
    #[test]
    fn each_of_two_kinds_is_held_against_its_own_direction() {
        let bounds = bounds();
        let trickle = crate::space::Feature::Depth.set(&simple(0, 1, 1), 1);
        let point = Point {
            direction: crate::space::point::BIDIRECTIONAL,
            ..trickle.beside(&simple(0, 64, 1))
        };
        let judged = |second_gbps: f64, first_per_s: f64| {
            let kind = |gbps: f64, messages_per_s: f64| crate::experiment::OfKind {
                arrived: Arrived {
                    gbps,
                    packets_per_s: 0.0,
                },
                messages_per_s,
            };
            let measured = Measured {
                kinds: vec![kind(1.0, first_per_s), kind(second_gbps, 1e6)],
                ..Measured::default()
            };
            judge(&point, &measured, &bounds)
        };
        assert_eq!(judged(90.0, 4.9e5).symptom, None);
        let slow = judged(50.0, 4.9e5);
        assert_eq!(
            (slow.symptom, slow.of_bits),
            (Some(Symptom::LowThroughput), 0.5)
        );
        let starved = judged(90.0, 1e5);
        assert_eq!(
            (starved.symptom, starved.of_bits),
            (Some(Symptom::LowThroughput), 0.01)
        );
    }

    #[test]
    fn pauses_count_from_a_thousandth_and_come_first() {
        assert_eq!(judged(0.001, 100.0, 0.0, 0.0), None);
        assert_eq!(judged(0.0011, 100.0, 0.0, 0.0), Some(Symptom::PauseFrames));
        assert_eq!(judged(0.2, 1.0, 0.0, 0.0), Some(Symptom::PauseFrames));
    }
}
