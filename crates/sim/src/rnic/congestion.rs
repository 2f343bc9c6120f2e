//! DCQCN: the reaction point's rate of one queue pair (stage 11).
//!
//! A pair that has never been notified sends unpaced. A notification cuts its rate by alpha / 2 and raises
//! alpha; a timer lowers alpha and recovers the rate in five fast steps towards the rate before the cut, then
//! additively. Rates are bits per second, alpha is a fraction of 2^16; integer arithmetic, rounded down.
//! Source: the DCQCN scheme as deployed in RoCEv2 NICs; parameters in the profile's `[congestion]`.
//! Limits: the byte counter of DCQCN is left out (the timer alone drives recovery), hyper increase likewise.

use super::device::Device;
use isolane_core::units::{BitRate, Bytes};

/// Fast recovery steps before additive increase.
const FAST_STEPS: u32 = 5;
/// Alpha of one.
const ONE: u64 = 1 << 16;

/// The rate limiter of one queue pair.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReactionPoint {
    /// The current rate, bit/s; zero while never notified.
    rate: u64,
    target: u64,
    alpha: u64,
    steps: u32,
}

impl ReactionPoint {
    /// True while the pair is paced.
    #[inline]
    pub(crate) fn active(&self) -> bool {
        self.rate != 0
    }

    /// Reacts to a notification; true when the timer has to be started.
    pub(crate) fn notified(&mut self, device: &Device) -> bool {
        let start = !self.active();
        if start {
            self.rate = device.link_rate.as_bps();
            self.alpha = ONE;
        }
        self.target = self.rate;
        let cut = (u128::from(self.rate) * u128::from(self.alpha)) >> 17;
        self.rate = (self.rate - cut as u64).max(device.rate_min.as_bps());
        self.alpha = (self.alpha - (self.alpha >> device.alpha_shift)
            + (ONE >> device.alpha_shift))
            .min(ONE);
        self.steps = 0;
        start
    }

    /// One timer period without a notification; true when the timer has to go on.
    pub(crate) fn recover(&mut self, device: &Device) -> bool {
        self.alpha -= self.alpha >> device.alpha_shift;
        self.steps += 1;
        if self.steps > FAST_STEPS {
            self.target = (self.target + device.additive.as_bps()).min(device.link_rate.as_bps());
        }
        self.rate = self.rate.midpoint(self.target);
        if self.rate + device.additive.as_bps() >= device.link_rate.as_bps() {
            *self = Self::default();
        }
        self.active()
    }

    /// How long a packet of `bytes` keeps the pair from sending, ps.
    #[inline]
    pub(crate) fn gap(&self, bytes: u64) -> u64 {
        BitRate::from_bps(self.rate)
            .time_for(Bytes::new(bytes))
            .as_ps()
    }
}
