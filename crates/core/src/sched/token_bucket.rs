//! A token bucket: `rate` bits per second on average, `burst` bytes at once.
//!
//! The level is kept in bit-picoseconds per second, that is 10^-12 bits: one picosecond at one bit per second
//! earns exactly one, so nothing is ever rounded and no remainder is lost, however often and at whatever
//! instants the bucket is asked. In any interval of length t, at most `burst` + `rate` t passes; a caller that
//! always takes as early as it may gets exactly that.
//!
//! Units: instants and durations in picoseconds, `burst` and requests in bytes, `rate` in bits per second.
//! Limits: a request above `burst` is never granted; split it. Time that runs backwards counts as standing
//! still.

use crate::units::{BitRate, Bytes, Duration, Instant};

/// A bucket, full when made.
///
/// ```
/// use isolane_core::sched::TokenBucket;
/// use isolane_core::units::{BitRate, Bytes, Duration, Instant};
/// let start = Instant::ZERO;
/// let mut bucket = TokenBucket::new(BitRate::from_gbps(100), Bytes::new(1_000), start);
/// assert!(bucket.try_take(start, Bytes::new(1_000)));
/// assert!(!bucket.try_take(start, Bytes::new(1)));
/// assert_eq!(bucket.time_until(start, Bytes::new(1)), Some(Duration::from_ps(80)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    rate: BitRate,
    burst: Bytes,
    /// In 10^-12 bits; at most `burst`.
    level: u128,
    /// When `level` was right.
    updated: Instant,
}

impl TokenBucket {
    /// A full bucket at `now`.
    pub fn new(rate: BitRate, burst: Bytes, now: Instant) -> Self {
        Self {
            rate,
            burst,
            level: level_of(burst),
            updated: now,
        }
    }

    /// Takes `size` if the bucket holds it at `now`, and says whether it did.
    pub fn try_take(&mut self, now: Instant, size: Bytes) -> bool {
        self.refill(now);
        let Some(rest) = self.level.checked_sub(level_of(size)) else {
            return false;
        };
        self.level = rest;
        true
    }

    /// How long from `now` until the bucket holds `size`, rounded up to a picosecond: a take is granted then
    /// and not a picosecond earlier. `None` when it never will (more than `burst`, or no
    /// rate), or not within 2^64 ps.
    pub fn time_until(&self, now: Instant, size: Bytes) -> Option<Duration> {
        let lacking = level_of(size).saturating_sub(self.level_at(now));
        if lacking == 0 {
            return Some(Duration::ZERO);
        }
        if size > self.burst || self.rate == BitRate::ZERO {
            return None;
        }
        let wait = lacking.div_ceil(u128::from(self.rate.as_bps()));
        // A clock behind the bucket first has to catch up with it.
        let behind = self.updated.saturating_since(now);
        let wait = wait + u128::from(behind.as_ps());
        u64::try_from(wait).ok().map(Duration::from_ps)
    }

    /// Whole bytes in the bucket at `now`, rounded down.
    pub fn available(&self, now: Instant) -> Bytes {
        Bytes::new((self.level_at(now) / LEVEL_PER_BYTE) as u64)
    }

    /// Fills at another rate from `now` on; what is in the bucket stays.
    pub fn set_rate(&mut self, now: Instant, rate: BitRate) {
        self.refill(now);
        self.rate = rate;
    }

    /// Holds at most `burst` from `now` on; what is above it is lost.
    pub fn set_burst(&mut self, now: Instant, burst: Bytes) {
        self.refill(now);
        self.burst = burst;
        self.level = self.level.min(level_of(burst));
    }

    /// The rate it fills at.
    pub fn rate(&self) -> BitRate {
        self.rate
    }

    /// The most it holds.
    pub fn burst(&self) -> Bytes {
        self.burst
    }

    fn refill(&mut self, now: Instant) {
        self.level = self.level_at(now);
        self.updated = self.updated.max(now);
    }

    fn level_at(&self, now: Instant) -> u128 {
        let elapsed = now.saturating_since(self.updated);
        let earned = u128::from(self.rate.as_bps()) * u128::from(elapsed.as_ps());
        self.level.saturating_add(earned).min(level_of(self.burst))
    }
}

fn level_of(size: Bytes) -> u128 {
    u128::from(size.get()) * LEVEL_PER_BYTE
}

/// Bits in a byte times picoseconds in a second.
const LEVEL_PER_BYTE: u128 = 8_000_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn asking_every_picosecond_loses_nothing() {
        // 3 bits per second: a byte takes 8/3 s. Steps of 1 ps each earn far less than a byte.
        let mut bucket = TokenBucket::new(BitRate::from_bps(3), Bytes::new(1), Instant::ZERO);
        assert!(bucket.try_take(Instant::ZERO, Bytes::new(1)));
        for ps in 1..10_000 {
            assert!(!bucket.try_take(Instant::from_ps(ps), Bytes::new(1)));
        }
        let due = Instant::from_ps(2_666_666_666_667);
        assert!(!bucket.try_take(due - Duration::from_ps(1), Bytes::new(1)));
        assert!(bucket.try_take(due, Bytes::new(1)));
    }

    #[test]
    fn what_never_fits_is_never_due() {
        let bucket = TokenBucket::new(BitRate::from_gbps(1), Bytes::new(10), Instant::ZERO);
        assert_eq!(bucket.time_until(Instant::ZERO, Bytes::new(11)), None);
        let mut still = TokenBucket::new(BitRate::ZERO, Bytes::new(10), Instant::ZERO);
        assert!(still.try_take(Instant::ZERO, Bytes::new(1)));
        assert_eq!(still.time_until(Instant::ZERO, Bytes::new(10)), None);
        assert_eq!(
            still.time_until(Instant::ZERO, Bytes::new(9)),
            Some(Duration::ZERO)
        );
    }

    #[test]
    fn the_largest_quantities_do_not_overflow() {
        let most = Bytes::new(u64::MAX);
        let mut bucket = TokenBucket::new(BitRate::from_bps(u64::MAX), most, Instant::ZERO);
        assert!(bucket.try_take(Instant::ZERO, most));
        assert!(bucket.available(Instant::MAX) > Bytes::ZERO);
        assert!(bucket.time_until(Instant::ZERO, most).is_some());
    }

    #[test]
    fn a_new_burst_cuts_the_level_and_a_new_rate_keeps_it() {
        let mut bucket = TokenBucket::new(BitRate::from_gbps(8), Bytes::new(100), Instant::ZERO);
        bucket.set_burst(Instant::ZERO, Bytes::new(40));
        bucket.set_burst(Instant::ZERO, Bytes::new(100));
        assert_eq!(bucket.available(Instant::ZERO), Bytes::new(40));
        bucket.set_rate(Instant::from_ps(10_000), BitRate::from_gbps(16));
        // 10 ns at a byte per ns, then 5 ns at two.
        assert_eq!(bucket.available(Instant::from_ps(15_000)), Bytes::new(60));
    }

    proptest! {
        /// The obvious model keeps every grant: a request passes exactly when, since each earlier instant, the
        /// grants and the request stay within burst + rate x time.
        #[test]
        fn grants_are_exactly_those_the_envelope_allows(
            rate in prop_oneof![1u64..100, 1u64..400_000_000_000],
            burst in 1u64..5_000,
            calls in prop::collection::vec((0u64..2_000_000, 0u64..3_000), 1..200),
        ) {
            let mut bucket =
                TokenBucket::new(BitRate::from_bps(rate), Bytes::new(burst), Instant::ZERO);
            let mut grants: Vec<(u64, u64)> = Vec::new();
            let mut instants = vec![0u64];
            let mut now_ps = 0;
            for (step, size) in calls {
                now_ps += step;
                instants.push(now_ps);
                let allowed = instants.iter().all(|&since| {
                    let granted: u64 =
                        grants.iter().filter(|grant| grant.0 >= since).map(|grant| grant.1).sum();
                    let earned = u128::from(rate) * u128::from(now_ps - since);
                    level_of(Bytes::new(granted + size)) <= level_of(Bytes::new(burst)) + earned
                });
                let now = Instant::from_ps(now_ps);
                let wait = bucket.time_until(now, Bytes::new(size));
                prop_assert_eq!(wait == Some(Duration::ZERO), allowed);
                if let Some(wait) = wait.filter(|wait| !wait.is_zero()) {
                    let due = now + wait;
                    prop_assert!(bucket.clone().try_take(due, Bytes::new(size)));
                    prop_assert!(!bucket.clone().try_take(due - Duration::from_ps(1), Bytes::new(size)));
                }
                prop_assert_eq!(bucket.try_take(now, Bytes::new(size)), allowed);
                if allowed {
                    grants.push((now_ps, size));
                }
            }
        }

        #[test]
        fn a_greedy_caller_gets_the_whole_rate(rate in 100_000u64..400_000_000_000, size in 10u64..9_000) {
            let mut bucket =
                TokenBucket::new(BitRate::from_bps(rate), Bytes::new(10_000), Instant::ZERO);
            let mut now = Instant::ZERO;
            let mut taken = 0u128;
            for _ in 0..2_000 {
                now += bucket.time_until(now, Bytes::new(size)).expect("it fits the burst");
                prop_assert!(bucket.try_take(now, Bytes::new(size)));
                taken += u128::from(size);
            }
            // Two thousand requests empty the bucket: all that came in has left but for one request's worth and the picosecond rounded up to.
            let earned = 10_000 * LEVEL_PER_BYTE + u128::from(rate) * u128::from(now.as_ps());
            prop_assert!(taken * LEVEL_PER_BYTE <= earned);
            let spare = u128::from(size) * LEVEL_PER_BYTE + u128::from(rate);
            prop_assert!(earned - taken * LEVEL_PER_BYTE < spare);
        }
    }
}
