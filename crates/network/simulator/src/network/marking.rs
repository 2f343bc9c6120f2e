//! Marks instead of drops: RED on the instantaneous queue of the packet's class, as RoCE switches do (DCQCN section 3).
//!
//! A packet finds `q` bytes of its class waiting at its port: below or at `min` it is never marked, from `max` on always, and
//! between them with a probability that rises linearly from 0 to `max_probability`. Only senders that understand marks
//! get them; the others' packets pass.

use isolane_common_quantities::rng::Stream;
use isolane_network_scenario::model::Ecn;

#[derive(Clone, Debug)]
pub(super) struct Marking {
    min: u64,
    max: u64,
    /// Probability per byte above `min`, times 2^64.
    slope: f64,
    random: Stream,
}

impl Marking {
    pub(super) fn new(ecn: Ecn, seed: u64) -> Self {
        let (min, max) = (ecn.min.get(), ecn.max.get());
        let span = max.saturating_sub(min).max(1);
        Self {
            min,
            max,
            slope: ecn.max_probability * 2_f64.powi(64) / span as f64,
            random: Stream::named(seed, "network/marks"),
        }
    }

    /// Whether a packet that finds `queue` bytes is marked.
    #[inline]
    pub(super) fn marks(&mut self, queue: u64) -> bool {
        if queue >= self.max {
            return true;
        }
        if queue <= self.min {
            return false;
        }
        let probability = (queue - self.min) as f64 * self.slope;
        self.random.next_u64() < probability as u64
    }
}
