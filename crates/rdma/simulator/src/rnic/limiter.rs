//! A hardware rate limiter: so many bits per second, a few packets at once (stage 3).
//!
//! Problem: a limiter sees a packet's size when the packet goes, so it charges afterwards and then makes the sender
//! wait. Method: the time at which everything charged has been paid at the rate; a sender may go while that time is
//! at most [`BURST`] bytes ahead. A backlogged sender gets exactly the rate; an idle one saves at most the burst.
//!
//! Units: picoseconds with 16 fractional bits, bytes, bits per second. The time per byte is rounded to 2^-16 ps,
//! which is an error of less than 10^-6 up to 1 Tb/s.

use isolane_common_quantities::units::BitRate;

/// Bytes that may go at once: two jumbo frames, which bridges the time between two looks at the limiter.
const BURST: u64 = 16 * 1024;
/// Fractional bits of a picosecond.
const FRACTION: u32 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limiter {
    /// Time per byte, 2^-16 ps.
    per_byte: u128,
    /// When everything sent is paid for, 2^-16 ps.
    paid: u128,
}

impl Limiter {
    /// A limiter that has seen nothing. Panics if the rate is zero.
    pub(crate) fn new(rate: BitRate) -> Self {
        assert!(rate > BitRate::ZERO, "a rate of zero sends nothing");
        let bps = u128::from(rate.as_bps());
        Self {
            per_byte: ((8_000_000_000_000_u128 << FRACTION) + bps / 2) / bps,
            paid: 0,
        }
    }

    /// Charges `bytes` sent at `now`, ps; when the next packet may go, ps.
    #[inline]
    pub(crate) fn charge(&mut self, now: u64, bytes: u64) -> u64 {
        let start = self.paid.max(u128::from(now) << FRACTION);
        self.paid = start + u128::from(bytes) * self.per_byte;
        let free = self.paid.saturating_sub(u128::from(BURST) * self.per_byte);
        free.div_ceil(1 << FRACTION) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backlogged_sender_gets_exactly_the_rate() {
        for mbps in [1_u64, 7_333, 50_000, 399_999] {
            let rate = BitRate::from_bps(mbps * 1_000_000);
            let mut limiter = Limiter::new(rate);
            let (mut now, mut sent) = (1_000, 0_u128);
            for packet in 0..10_000_u64 {
                let bytes = 60 + packet * 37 % 4_000;
                sent += u128::from(bytes);
                now = limiter.charge(now, bytes).max(now);
            }
            let earned = u128::from(rate.as_bps()) * u128::from(now - 1_000) / 8_000_000_000_000;
            let ahead = sent - earned;
            assert!(
                ahead.abs_diff(u128::from(BURST)) <= sent / 1_000_000 + 2,
                "{mbps}: {ahead}"
            );
        }
    }

    #[test]
    fn an_idle_sender_saves_no_more_than_the_burst() {
        let mut limiter = Limiter::new(BitRate::from_gbps(8));
        assert_eq!(limiter.charge(1_000_000_000, BURST), 1_000_000_000);
        assert_eq!(limiter.charge(1_000_000_000, 1_000), 1_001_000_000);
    }
}
