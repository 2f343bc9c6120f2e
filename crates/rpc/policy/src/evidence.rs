//! The level of a process that learns from its own calls and from those of the host's other processes.
//!
//! Problem: with [`crate::aequitas2`], a process with few calls to a host sees few of the misses that the host's processes
//! cause together. The outcomes of the other processes help, but a peer may lie or fail.
//! Method: two ports. One learns from the process's own calls, the other from all. The gap of the second one counts, within
//! [`BOUND`] times what own evidence gives in both directions. So outcomes that are not true change the admitted rate by
//! this factor at most. Where own evidence sets no limit, the requested rate takes its place: at least one part in
//! [`BOUND`] of the requested packets is admitted.
//! Units: picoseconds, MTUs, as in [`crate::aequitas2`].
//! Limits: the requested rate is that of the faster of two windows, so the admitted part after a burst may be smaller.
//! Cost: no allocation, no clock, no randomness.

use crate::aequitas2::{Aequitas2Options, Outcome, Port};
use isolane_common_quantities::units::{Duration, Instant};

/// Largest change of the admitted rate by the evidence of others, as a factor.
pub const BOUND: u64 = 4;

/// Most outcomes of one [`Evidence`] that count: a peer's lies cost about a tenth of a millisecond.
pub const OUTCOMES_MAX: u32 = 10_000;

/// Longest latency of a peer's miss: a longer one would keep later misses from counting.
const LATENCY_MAX: Duration = Duration::from_secs(1);

/// Outcomes of a peer since it was last heard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Calls that met their objective.
    pub met: u32,
    /// Calls that missed it.
    pub missed: u32,
    /// When the latest of the missed calls was issued.
    pub missed_issued: Instant,
    /// The latency of the missed call that ended last.
    pub missed_latency: Duration,
    /// Time between two admitted MTUs of the call that ended last, ps.
    pub gap: u64,
}

impl Evidence {
    /// Adds a call.
    #[inline]
    pub fn count(&mut self, outcome: Outcome) {
        self.gap = outcome.gap;
        if outcome.met {
            self.met = self.met.saturating_add(1);
            return;
        }
        self.missed = self.missed.saturating_add(1);
        self.missed_issued = self.missed_issued.max(outcome.issued);
        self.missed_latency = outcome.latency;
    }
}

/// A host and class as one process knows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joint {
    own: Port,
    all: Port,
}

/// The gaps of a [`Joint`], ps; 0 without a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    /// By own evidence.
    pub own: u64,
    /// By all evidence.
    pub all: u64,
}

impl Joint {
    /// A port without evidence.
    pub fn new(now: Instant) -> Self {
        let port = Port::new(now);
        Self {
            own: port,
            all: port,
        }
    }

    /// Learns from the end of a call of this process.
    #[inline]
    pub fn on_own(&mut self, options: &Aequitas2Options, now: Instant, outcome: Outcome) {
        self.own.on_outcome(options, now, outcome);
        self.all.on_outcome(options, now, outcome);
    }

    /// Learns from the calls of another process, of which at most [`OUTCOMES_MAX`] met and as many missed calls count.
    /// Times beyond `now` and latencies above a second are shortened.
    pub fn on_peer(&mut self, options: &Aequitas2Options, now: Instant, evidence: Evidence) {
        let issued = evidence.missed_issued.min(now);
        let latency = evidence.missed_latency.min(now.saturating_since(issued));
        let outcome = |met| Outcome {
            issued,
            latency: latency.min(LATENCY_MAX),
            met,
            gap: evidence.gap,
        };
        for _ in 0..evidence.met.min(OUTCOMES_MAX) {
            self.all.on_outcome(options, now, outcome(true));
        }
        for _ in 0..evidence.missed.min(OUTCOMES_MAX) {
            self.all.on_outcome(options, now, outcome(false));
        }
    }

    /// Both gaps.
    #[inline]
    pub fn gaps(&self) -> Gaps {
        Gaps {
            own: self.own.gap(),
            all: self.all.gap(),
        }
    }
}

impl Gaps {
    /// The gap that counts for a channel with this time between two requested MTUs (`u64::MAX` without a request).
    #[inline]
    pub fn bounded(self, requested: u64) -> u64 {
        let requested = match requested {
            u64::MAX => 0,
            known => known,
        };
        let longest = self.own.max(requested).saturating_mul(BOUND);
        self.all.clamp(self.own / BOUND, longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aequitas::Decision;
    use crate::aequitas2::Channel;
    use proptest::prelude::*;

    fn options() -> Aequitas2Options {
        Aequitas2Options::new(Duration::from_us(15), 99.9)
    }

    fn at(us: u64) -> Instant {
        Instant::ZERO + Duration::from_us(us)
    }

    /// A call of a channel with an MTU in each microsecond.
    fn outcome(us: u64, met: bool) -> Outcome {
        Outcome {
            issued: at(us - 20),
            latency: Duration::from_us(20),
            met,
            gap: 1_000_000,
        }
    }

    fn lie(met: u32, missed: u32) -> Evidence {
        Evidence {
            met,
            missed,
            missed_issued: at(u64::MAX / 10_000_000),
            missed_latency: Duration::from_secs(1_000_000),
            gap: u64::MAX,
        }
    }

    #[test]
    fn a_process_without_peers_decides_by_its_own_port() {
        let options = options();
        let (mut port, mut joint) = (Port::new(at(0)), Joint::new(at(0)));
        for us in 100..5_000 {
            let outcome = outcome(us, us % 50 != 0);
            port.on_outcome(&options, at(us), outcome);
            joint.on_own(&options, at(us), outcome);
            assert_eq!(joint.gaps().bounded(1_000_000), port.gap());
        }
        assert!(port.gap() > 1_000_000);
    }

    #[test]
    fn the_evidence_of_a_peer_counts_as_the_own() {
        let options = options();
        let (mut one, mut other) = (Joint::new(at(0)), Joint::new(at(0)));
        let mut evidence = Evidence::default();
        for us in [100, 200, 300] {
            one.on_own(&options, at(us), outcome(us, false));
            evidence.count(outcome(us, false));
            other.on_peer(&options, at(us), std::mem::take(&mut evidence));
        }
        assert_eq!(one.gaps().all, other.gaps().all);
        assert_eq!(other.gaps().own, 0);
        assert!(one.gaps().own > 0);
    }

    #[test]
    fn a_peer_that_reports_misses_alone_leaves_a_quarter_of_the_calls() {
        let options = options();
        let (mut joint, mut channel) = (Joint::new(at(0)), Channel::default());
        let mut admitted = 0;
        for us in 0..100_000 {
            joint.on_peer(&options, at(us), lie(0, 10));
            let gap = joint
                .gaps()
                .bounded(channel.requested_gap(&options, at(us)));
            admitted += u32::from(channel.decide(&options, gap, at(us), 1) == Decision::Admit);
        }
        // Without the bound: one in 1,500.
        assert!((24_000..27_000).contains(&admitted), "{admitted}");
    }

    #[test]
    fn a_peer_that_reports_no_misses_raises_the_rate_fourfold() {
        let options = options();
        let mut joint = Joint::new(at(0));
        for us in (100..20_000).step_by(100) {
            joint.on_own(&options, at(us), outcome(us, false));
        }
        let alone = joint.gaps();
        assert_eq!(alone.own, alone.all);
        for us in 20_000..30_000 {
            joint.on_peer(&options, at(us), lie(u32::MAX, 0));
        }
        let gaps = joint.gaps();
        assert_eq!(gaps.own, alone.own);
        assert!(gaps.all < gaps.own / 100, "{gaps:?}");
        assert_eq!(gaps.bounded(1_000_000), gaps.own / BOUND);
    }

    proptest! {
        /// Whatever peers report, the gap stays within the bound around what own evidence gives.
        #[test]
        fn no_evidence_of_peers_breaks_the_bound(
            calls in prop::collection::vec((1u64..500, any::<bool>(), 0u32..100, 0u32..100, any::<[u64; 3]>()), 1..100),
            requested in 1u64..1_000_000_000,
        ) {
            let options = options();
            let mut joint = Joint::new(at(0));
            let mut own = Port::new(at(0));
            let mut now = 100;
            for (pause, is_met, met, missed, [issued, latency, gap]) in calls {
                now += pause;
                own.on_outcome(&options, at(now), outcome(now, is_met));
                joint.on_own(&options, at(now), outcome(now, is_met));
                let missed_issued = Instant::from_ps(issued);
                let missed_latency = Duration::from_ps(latency);
                let evidence = Evidence { met, missed, missed_issued, missed_latency, gap };
                joint.on_peer(&options, at(now), evidence);
                let gap = joint.gaps().bounded(requested);
                prop_assert!(gap >= own.gap() / BOUND);
                prop_assert!(gap <= own.gap().max(requested).saturating_mul(BOUND));
            }
        }
    }
}
