//! The objective of a class for a call, and whether the call met it.
//!
//! Units: picoseconds; sizes in full packets (MTUs), the last one counting as a whole.

use isolane_common_quantities::units::Duration;
use isolane_network_scenario::model::CallSlo;

/// The promise of a class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Objective {
    /// Longest network latency, of a call or of each of its MTUs.
    pub target: Duration,
    /// Which of the two.
    pub per_mtu: bool,
    /// Part of the calls that must keep it, percent.
    pub percentile: f64,
}

impl Objective {
    /// As the scenario has it.
    pub(super) fn new(slo: &CallSlo) -> Self {
        Self {
            target: slo.target,
            per_mtu: slo.per_mtu,
            percentile: slo.percentile,
        }
    }

    /// The latency that a call of `mtus` MTUs must stay below.
    #[inline]
    pub(super) fn allowed(&self, mtus: u32) -> Duration {
        match self.per_mtu {
            true => Duration::from_ps(self.target.as_ps().saturating_mul(u64::from(mtus))),
            false => self.target,
        }
    }

    /// Whether `latency` keeps it: a latency on the target is a miss, as in algorithm 2.
    #[inline]
    pub(super) fn met(&self, latency: Duration, mtus: u32) -> bool {
        latency < self.allowed(mtus)
    }
}
