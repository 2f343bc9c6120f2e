//! The wire: when the next packet may begin, at exactly the line rate.
//!
//! Problem: the software NIC is a process that the machine runs only at times. A clock that begins each packet "now"
//! would lose the time in which the process waited for a processor. Method: the wire has a time of its own, at which it
//! was free last. A packet begins then, or when the first frame arrived at an idle NIC; afterwards the wire is busy for
//! the packet's length. The caller sends all packets that begin before now, so missed time is made up for at once, and
//! no interval of the wire's time ever carries more than the line rate. Units: picoseconds; rates in bits a second;
//! lengths include [`FRAMING`]. Remainders of the division are carried. Limits: more than [`CATCH_UP_MS`] are not made
//! up for. Source: IEEE 802.3 for the framing; the rest is ours.

use isolane_common_quantities::units::{BitRate, Duration, Instant};

/// Bytes around an IP packet on Ethernet: preamble 8, header 14, check sequence 4, gap 12.
pub(crate) const FRAMING: u32 = 38;

/// The most that is made up for, milliseconds: beyond it a stopped process would send a burst that no queue holds.
pub(crate) const CATCH_UP_MS: u64 = 20;

const PS_PER_S: u128 = 1_000_000_000_000;

/// When the wire is free.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wire {
    rate_bps: u128,
    free_at: Instant,
    /// Of a picosecond, in parts of the rate.
    remainder: u128,
}

impl Wire {
    /// A free wire. Panics if the rate is zero.
    pub(crate) fn new(rate: BitRate) -> Self {
        assert!(rate.as_bps() > 0, "a wire carries something");
        Self {
            rate_bps: u128::from(rate.as_bps()),
            free_at: Instant::ZERO,
            remainder: 0,
        }
    }

    /// A frame arrived at an idle NIC: nothing begins before `now`.
    pub(crate) fn wake(&mut self, now: Instant) {
        if self.free_at < now {
            self.free_at = now;
            self.remainder = 0;
        }
    }

    /// Forgets what cannot be made up for.
    pub(crate) fn give_up_before(&mut self, now: Instant) {
        let horizon = Duration::from_ms(CATCH_UP_MS);
        self.wake(Instant::from_ps(
            now.as_ps().saturating_sub(horizon.as_ps()),
        ));
    }

    /// When the next packet may begin.
    pub(crate) fn free_at(&self) -> Instant {
        self.free_at
    }

    /// Sends `bytes`; returns when the last of them has left.
    pub(crate) fn send(&mut self, bytes: u32) -> Instant {
        let work = u128::from(bytes) * 8 * PS_PER_S + self.remainder;
        self.free_at = self
            .free_at
            .saturating_add(Duration::from_ps((work / self.rate_bps) as u64));
        self.remainder = work % self.rate_bps;
        self.free_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_a_stopped_process_missed_is_made_up_for() {
        let mut wire = Wire::new(BitRate::from_gbps(1));
        wire.wake(Instant::ZERO);
        let now = Instant::ZERO + Duration::from_ms(3);
        let mut sent = 0_u64;
        while wire.free_at() < now {
            wire.send(1_250);
            sent += 1_250;
        }
        assert_eq!(sent, 375_000);
    }

    #[test]
    fn idle_time_is_lost() {
        let mut wire = Wire::new(BitRate::from_gbps(1));
        let later = Instant::ZERO + Duration::from_ms(3);
        wire.wake(later);
        assert_eq!(wire.send(125), later + Duration::from_us(1));
    }

    #[test]
    fn a_second_is_not_made_up_for() {
        let mut wire = Wire::new(BitRate::from_gbps(1));
        let now = Instant::ZERO + Duration::from_secs(1);
        wire.give_up_before(now);
        assert_eq!(
            wire.free_at(),
            Instant::ZERO + Duration::from_ms(1_000 - CATCH_UP_MS)
        );
    }

    proptest! {
        /// However packets come, the wire is never ahead of the line rate, and behind by less than a picosecond.
        #[test]
        fn lengths_add_up_exactly(rate in 1_u64..100_000_000_000, sizes in prop::collection::vec(1_u32..70_000, 1..200)) {
            let mut wire = Wire::new(BitRate::from_bps(rate));
            let mut end = Instant::ZERO;
            for size in &sizes {
                end = wire.send(*size);
            }
            let bits: u128 = sizes.iter().map(|size| u128::from(*size) * 8).sum();
            prop_assert_eq!(u128::from(end.as_ps()), bits * PS_PER_S / u128::from(rate));
        }
    }
}
