//! The rate that a quota server grants this host, in addition to the admit probability.
//!
//! Method: one word holds the time until which the lease's rate is used up (virtual scheduling, equivalent to a leaky
//! bucket). A call within the lease advances it by the time that its bytes take at the rate, and is admitted while the
//! word is at most [`BURST_NS`] ahead of now. An expired lease admits nothing, so without the server the table behaves
//! as without quotas. All requested bytes are counted, because the server divides by demand. Use beyond now is a debt
//! in bytes, which another rate repays in another time. Units: bytes, bytes per second, nanoseconds of the table's
//! clock. Limits: one word is shared by all destinations of a group and class and written by each admitted call.

use super::Grant;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Rate that a lease may save up, as time: some steps of the coarse clock.
pub const BURST_NS: u64 = 20_000_000;

/// Largest number of groups of destinations.
pub const GROUPS_MAX: usize = 256;

/// Lease of one group and class.
#[derive(Debug, Default)]
pub(crate) struct Lease {
    rate_bytes_per_s: AtomicU64,
    until_ns: AtomicU64,
    used_until_ns: AtomicU64,
    /// The rate of the times in `used_until_ns`: the last one above zero.
    counted_at_bytes_per_s: AtomicU64,
    asked_bytes: AtomicU64,
}

impl Lease {
    /// Sets the rate from `now_ns` until `until_ns`. One thread at a time; a concurrent call may be counted at the
    /// other rate.
    pub(crate) fn set(&self, rate_bytes_per_s: u64, until_ns: u64, now_ns: u64) {
        self.rate_bytes_per_s.store(rate_bytes_per_s, Relaxed);
        self.until_ns.store(until_ns, Relaxed);
        let old = self.counted_at_bytes_per_s.load(Relaxed);
        if rate_bytes_per_s == 0 || rate_bytes_per_s == old {
            return;
        }
        self.counted_at_bytes_per_s.store(rate_bytes_per_s, Relaxed);
        let recount = |used: u64| {
            let debt_ns = used.checked_sub(now_ns)?;
            let ns = u128::from(debt_ns) * u128::from(old) / u128::from(rate_bytes_per_s);
            Some(now_ns.saturating_add(u64::try_from(ns).unwrap_or(u64::MAX)))
        };
        // An error means that there is no debt.
        let _ = self.used_until_ns.fetch_update(Relaxed, Relaxed, recount);
    }

    /// The rate and its end. While another thread sets them, the rate may be the new one and the end the old one, as
    /// calls see them.
    pub(crate) fn granted(&self) -> Grant {
        Grant {
            until_ns: self.until_ns.load(Relaxed),
            rate_bytes_per_s: self.rate_bytes_per_s.load(Relaxed),
        }
    }

    /// All requested bytes so far.
    pub(crate) fn asked_bytes(&self) -> u64 {
        self.asked_bytes.load(Relaxed)
    }

    /// Requests credit at `now_ns`; returns whether the call is admitted.
    #[inline]
    pub(crate) fn take(&self, bytes: u64, now_ns: u64) -> bool {
        self.asked_bytes.fetch_add(bytes, Relaxed);
        let rate = self.rate_bytes_per_s.load(Relaxed);
        if rate == 0 || now_ns >= self.until_ns.load(Relaxed) {
            return false;
        }
        let cost = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
        let cost_ns = u64::try_from(cost).unwrap_or(u64::MAX);
        let next = |used: u64| {
            let from = used.max(now_ns);
            let fits = from - now_ns <= BURST_NS;
            fits.then(|| from.saturating_add(cost_ns))
        };
        self.used_until_ns
            .fetch_update(Relaxed, Relaxed, next)
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_expired_lease_lets_nothing_pass_and_counts_what_was_asked() {
        let lease = Lease::default();
        assert!(!lease.take(10, 5));
        lease.set(1_000_000, 100, 5);
        assert_eq!(lease.granted().rate_bytes_per_s, 1_000_000);
        assert_eq!(lease.granted().until_ns, 100);
        assert!(lease.take(10, 99));
        assert!(!lease.take(10, 100));
        assert_eq!(lease.asked_bytes(), 30);
    }

    #[test]
    fn a_debt_from_a_low_rate_is_paid_at_the_next_one() {
        let lease = Lease::default();
        // The rest for a newcomer can be almost zero; one admitted call then causes a debt of nine hours.
        lease.set(1, u64::MAX, 1_000);
        assert!(lease.take(32_768, 1_000));
        assert!(!lease.take(1, 2_000_000_000));
        // 32 KiB at 1 GB/s are 33 us.
        lease.set(1_000_000_000, u64::MAX, 2_000_000_000);
        assert!(lease.take(32_768, 2_000_000_000));
        // A rate of zero repays nothing and keeps the debt.
        let owing = Lease::default();
        owing.set(1_000_000, u64::MAX, 0);
        assert!(owing.take(1_000_000, 0));
        owing.set(0, u64::MAX, 1);
        owing.set(500_000, u64::MAX, 2);
        assert!(!owing.take(1, 1_900_000_000));
        assert!(owing.take(1, 2_000_000_000));
    }

    proptest! {
        /// Over any time at most the rate, the saved credit and the last call are admitted.
        #[test]
        fn no_more_passes_than_the_rate(
            rate in 1u64..10_000_000_000,
            calls in prop::collection::vec((1u64..1_000_000, 0u64..50_000_000), 1..300),
        ) {
            let lease = Lease::default();
            lease.set(rate, u64::MAX, 0);
            let (mut now_ns, mut passed, mut largest) = (1_000_000_000, 0u128, 0);
            let begin = now_ns;
            for (bytes, gap_ns) in calls {
                now_ns += gap_ns;
                if lease.take(bytes, now_ns) {
                    passed += u128::from(bytes);
                    largest = largest.max(bytes);
                }
            }
            let time_ns = u128::from(now_ns - begin + BURST_NS);
            // Each call's time is rounded down to a nanosecond: up to rate / 1e9 bytes per call.
            let rounding = 300 * (u128::from(rate) / 1_000_000_000 + 1);
            let most = u128::from(rate) * time_ns / 1_000_000_000 + u128::from(largest) + rounding;
            prop_assert!(passed <= most, "{passed} bytes, more than {most}");
        }

        /// A sender that always has calls gets nearly the whole rate.
        #[test]
        fn the_whole_rate_can_be_used(rate in 100_000_000u64..10_000_000_000) {
            let lease = Lease::default();
            lease.set(rate, u64::MAX, 0);
            let mut passed = 0u64;
            for step in 0..20_000u64 {
                while lease.take(32_768, 1_000_000_000 + step * 50_000) {
                    passed += 32_768;
                }
            }
            prop_assert!(passed as f64 >= 0.99 * rate as f64, "{passed} of {rate}");
        }
    }
}
