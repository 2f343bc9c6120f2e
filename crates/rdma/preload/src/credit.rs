//! The token bucket of a lease, in bytes and in operations at once.
//!
//! Problem: work must pass at the rate of the lease, exactly over long times, with at most one burst at once, even if a
//! message is larger than the burst. Method: credit grows by rate times elapsed time, with the remainder carried, up to
//! the burst. A message passes when the credit covers it or is a quarter of the burst; the missing part becomes debt
//! that later messages wait for. A message near or above the burst therefore need not wait for a full bucket, which
//! would lose credit at each late wake-up. A waiter that wakes later than its announced time keeps the credit that grew
//! meanwhile, up to another burst; credit above the burst lapses unless it is used within a millisecond. Keeping more
//! would let work pile up before a slow device, where it delays latency tenants. Units: bytes, operations, nanoseconds.
//! A rate of zero or above [`RATE_MAX`] does not limit its dimension. Rounding: credit is rounded down with the
//! remainder kept; the time at which credit suffices is rounded up. Pure: the caller gives the time. Source: justitia
//! 4.2, with leases in place of tokens.

use isolane_rdma_session::region::Lease;

/// Higher rates (bytes or operations per second) are no limit: 1 PB/s.
pub(crate) const RATE_MAX: u64 = 1 << 50;
/// Largest burst, in bytes or operations.
const BURST_MAX: u64 = 1 << 40;
/// Longest elapsed time that adds credit, ns; every burst is full by then.
const REST_MAX_NS: u64 = 1_000_000_000;
const NS: u64 = 1_000_000_000;
/// How long credit above the burst is kept, ns; only a sender with waiting work uses it.
const LATE_NS: u64 = 1_000_000;
/// 1/4 of a burst is enough credit for a message of any size.
const ENOUGH_PART: i64 = 4;
/// A queue pair's credit without pacing, bytes and operations: it sets how often the lease is read.
const FREE: [i64; 2] = [64 << 10, 16];

/// One dimension of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// Per second; `None` means no limit.
    pub rate: Option<u64>,
    /// Largest credit.
    pub burst: i64,
}

impl Terms {
    fn new(rate: u64, burst: u64) -> Self {
        Self {
            rate: (1..=RATE_MAX).contains(&rate).then_some(rate),
            burst: burst.clamp(1, BURST_MAX) as i64,
        }
    }

    /// Time in which the rate fills a burst, at most a millisecond.
    pub(crate) fn burst_ns(&self) -> u64 {
        match self.rate {
            Some(rate) => {
                let time =
                    u128::from(self.burst.unsigned_abs()) * u128::from(NS) / u128::from(rate);
                time.min(1_000_000) as u64
            }
            None => 0,
        }
    }

    /// Terms of a lease's bytes and of its operations. Accepts any numbers.
    pub(crate) fn of(lease: &Lease) -> [Self; 2] {
        [
            Self::new(lease.rate_bytes_per_s, lease.burst_bytes),
            Self::new(lease.rate_operations_per_s, lease.burst_operations),
        ]
    }
}

#[derive(Clone, Copy, Debug)]
struct Credit {
    /// Negative values are debt.
    amount: i64,
    /// Remainder in billionths of a byte or operation, below [`NS`].
    rest: u64,
}

impl Credit {
    /// Adds credit up to the burst plus `above`; keeps credit that is already higher.
    fn grow(&mut self, terms: Terms, elapsed_ns: u64, above: i64) {
        let Some(rate) = terms.rate else {
            self.amount = terms.burst;
            return;
        };
        let grown = u128::from(rate) * u128::from(elapsed_ns) + u128::from(self.rest);
        let whole = i64::try_from(grown / u128::from(NS)).unwrap_or(i64::MAX);
        self.rest = (grown % u128::from(NS)) as u64;
        self.amount = self.amount.saturating_add(whole);
        let most = terms.burst.saturating_add(above);
        if self.amount >= most {
            self.amount = most;
            self.rest = 0;
        }
    }

    /// How much credit may exceed the burst: what grew in `late_ns`, or the present excess if `kept`, up to another
    /// burst. This also cuts credit from an earlier, larger lease, which would exceed a new limit by megabytes.
    fn above(&self, terms: Terms, late_ns: u64, kept: bool) -> i64 {
        let held = match kept {
            true => self.amount.saturating_sub(terms.burst).max(0),
            false => 0,
        };
        let grown = u128::from(terms.rate.unwrap_or(0)) * u128::from(late_ns) / u128::from(NS);
        let late = i64::try_from(grown).unwrap_or(i64::MAX);
        late.max(held).min(terms.burst)
    }

    /// Nanoseconds until `needed` may pass; zero means now.
    fn wait_ns(&self, terms: Terms, needed: i64) -> u64 {
        let enough = (terms.burst / ENOUGH_PART).max(1);
        let short = needed.min(enough).saturating_sub(self.amount);
        match terms.rate {
            Some(rate) if short > 0 => {
                let missing = u128::from(short as u64) * u128::from(NS) - u128::from(self.rest);
                let wait = missing.div_ceil(u128::from(rate));
                u64::try_from(wait).unwrap_or(u64::MAX)
            }
            _ => 0,
        }
    }
}

/// The bucket of one device and direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    credit: [Credit; 2],
    grown_at_ns: u64,
    /// The time that was announced to the waiter.
    due_ns: Option<u64>,
    fresh: bool,
}

impl Default for Bucket {
    fn default() -> Self {
        Self::full()
    }
}

impl Bucket {
    /// A bucket with a full burst under any first lease.
    pub(crate) const fn full() -> Self {
        let credit = Credit { amount: 0, rest: 0 };
        Self {
            credit: [credit; 2],
            grown_at_ns: 0,
            due_ns: None,
            fresh: true,
        }
    }

    /// Updates the credit to `now_ns`. A clock that goes backwards changes nothing.
    pub(crate) fn grow(&mut self, terms: &[Terms; 2], now_ns: u64) {
        if self.fresh {
            self.fresh = false;
            self.grown_at_ns = now_ns;
            for (credit, terms) in self.credit.iter_mut().zip(terms) {
                credit.amount = terms.burst;
            }
        }
        let elapsed = now_ns.saturating_sub(self.grown_at_ns);
        self.grown_at_ns = self.grown_at_ns.max(now_ns);
        let late = self
            .due_ns
            .map_or(0, |due| now_ns.saturating_sub(due).min(elapsed));
        for (credit, terms) in self.credit.iter_mut().zip(terms) {
            let above = credit.above(*terms, late, elapsed <= LATE_NS);
            credit.grow(*terms, elapsed.min(REST_MAX_NS), above);
        }
    }

    /// Takes `needed` bytes and operations. Call [`Self::grow`] first. The error is the nanoseconds until they may
    /// pass, if no other caller takes credit.
    pub(crate) fn take(&mut self, terms: &[Terms; 2], needed: [i64; 2]) -> Result<(), u64> {
        let wait = |at: usize| self.credit[at].wait_ns(terms[at], needed[at]);
        match wait(0).max(wait(1)) {
            0 => {
                for (credit, needed) in self.credit.iter_mut().zip(needed) {
                    credit.amount = credit.amount.saturating_sub(needed);
                }
                self.due_ns = None;
                Ok(())
            }
            wait => {
                self.due_ns = Some(self.grown_at_ns.saturating_add(wait));
                Err(wait)
            }
        }
    }

    /// Charges work that went without credit; the missing part becomes debt. Call [`Self::grow`] first.
    pub(crate) fn charge(&mut self, amounts: [i64; 2]) {
        for (credit, amount) in self.credit.iter_mut().zip(amounts) {
            credit.amount = credit.amount.saturating_sub(amount);
        }
    }

    /// Takes what a message needs beyond the credit that a queue pair holds, and fills this credit up to `1/part` of the
    /// bursts, so that the next messages need no call. Call [`Self::grow`] first. Returns what the messages and the held credit
    /// grew by: less than zero where more credit from a time without limits lapses.
    pub(crate) fn draw(
        &mut self,
        terms: &[Terms; 2],
        held: &mut [i64; 2],
        needed: [i64; 2],
        part: i64,
    ) -> Result<[i64; 2], u64> {
        // Credit from a time without limits does not count.
        let most = terms.map(|terms| terms.burst / part);
        let own = [0, 1].map(|at| held[at].min(most[at]));
        let missing = [0, 1].map(|at| (needed[at] - own[at]).max(0));
        self.take(terms, missing)?;
        Ok(std::array::from_fn(|at| {
            let left = own[at] + missing[at] - needed[at];
            let room = (most[at] - left).max(0);
            let spare = room.min(self.credit[at].amount).max(0);
            self.credit[at].amount -= spare;
            let before = std::mem::replace(&mut held[at], left + spare);
            needed[at] + held[at] - before
        }))
    }
}

/// Like [`Bucket::draw`] where everything passes.
pub(crate) fn draw_free(held: &mut [i64; 2], needed: [i64; 2]) -> [i64; 2] {
    std::array::from_fn(|at| {
        let before = held[at];
        let rest = (before - needed[at]).max(0);
        held[at] = rest.max(FREE[at] - needed[at]);
        needed[at] + held[at] - before
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lease(rate: u64, burst: u64) -> [Terms; 2] {
        Terms::of(&Lease {
            rate_bytes_per_s: rate,
            burst_bytes: burst,
            ..Lease::default()
        })
    }

    #[test]
    fn a_full_bucket_lets_a_burst_go_and_then_the_rate() {
        let terms = lease(1_000_000, 10_000);
        let mut bucket = Bucket::full();
        bucket.grow(&terms, 5);
        assert_eq!(bucket.take(&terms, [9_500, 1]), Ok(()));
        assert_eq!(bucket.take(&terms, [1_000, 1]), Err(500_000));
        bucket.grow(&terms, 499_999 + 5);
        assert_eq!(bucket.take(&terms, [1_000, 1]), Err(1));
        bucket.grow(&terms, 500_005);
        assert_eq!(bucket.take(&terms, [1_000, 1]), Ok(()));
    }

    #[test]
    fn a_message_above_the_burst_leaves_a_debt() {
        let terms = lease(1_000, 100);
        let mut bucket = Bucket::full();
        bucket.grow(&terms, 0);
        assert_eq!(bucket.take(&terms, [1_100, 1]), Ok(()));
        assert_eq!(bucket.take(&terms, [1, 1]), Err(1_001_000_000));
    }

    #[test]
    fn operations_limit_when_bytes_do_not() {
        let terms = Terms::of(&Lease {
            rate_operations_per_s: 1_000,
            burst_operations: 2,
            rate_bytes_per_s: u64::MAX,
            burst_bytes: 0,
            ..Lease::default()
        });
        let mut bucket = Bucket::full();
        bucket.grow(&terms, 0);
        assert_eq!(bucket.take(&terms, [1 << 40, 1]), Ok(()));
        bucket.grow(&terms, 0);
        assert_eq!(bucket.take(&terms, [1 << 40, 1]), Ok(()));
        bucket.grow(&terms, 0);
        assert_eq!(bucket.take(&terms, [0, 1]), Err(1_000_000));
    }

    /// A wake-up that is late by less than a burst's time loses no credit; a pause collects at most one burst.
    #[test]
    fn a_waiter_that_wakes_late_keeps_its_credit() {
        let terms = lease(1_000_000, 4_000);
        let mut bucket = Bucket::full();
        bucket.grow(&terms, 0);
        assert_eq!(bucket.take(&terms, [4_000, 1]), Ok(()));
        assert_eq!(bucket.take(&terms, [1_000, 1]), Err(1_000_000));
        bucket.grow(&terms, 5_000_000);
        let mut passed = 0;
        while bucket.take(&terms, [1_000, 1]).is_ok() {
            passed += 1_000;
        }
        assert_eq!(passed, 5_000, "all of 5 ms");
        // No message takes credit for a long time: one burst.
        bucket.grow(&terms, 6_000_000);
        assert_eq!(bucket.take(&terms, [1_000, 1]), Ok(()));
        bucket.grow(&terms, 500_000_000);
        assert_eq!(bucket.take(&terms, [4_000, 1]), Ok(()));
        assert!(bucket.take(&terms, [1_000, 1]).is_err());
    }

    /// A busy process draws credit every millisecond: credit saved under a larger lease is not kept.
    #[test]
    fn a_smaller_lease_begins_with_its_own_burst() {
        let (free, limited) = (lease(1_000_000_000, 1_000_000), lease(4_000_000, 65_536));
        let mut bucket = Bucket::full();
        bucket.grow(&free, 0);
        assert_eq!(bucket.take(&free, [1_000, 1]), Ok(()));
        bucket.grow(&limited, 100_000);
        let mut passed = 0;
        while bucket.take(&limited, [16_384, 1]).is_ok() {
            passed += 16_384;
        }
        assert!(passed <= 2 * 65_536, "{passed} bytes at once");
    }

    /// A stall of any length gives at most one extra burst.
    #[test]
    fn a_long_stall_is_not_made_up_for() {
        let terms = lease(100_000_000, 4_000);
        let mut bucket = Bucket::full();
        bucket.grow(&terms, 0);
        assert_eq!(bucket.take(&terms, [4_000, 1]), Ok(()));
        assert!(bucket.take(&terms, [4_000, 1]).is_err());
        bucket.grow(&terms, 900_000_000);
        assert_eq!(bucket.credit[0].amount, 8_000);
    }

    proptest! {
        /// For all times and sizes, at most burst + rate x time passes, plus the debt of the last message. A message
        /// may pass at its announced time.
        #[test]
        fn it_keeps_the_rate(
            rate in 1u64..20_000_000_000,
            burst in 1u64..10_000_000,
            steps in proptest::collection::vec((0u64..1_000_000, 0i64..3_000_000), 1..200),
        ) {
            let terms = lease(rate, burst);
            let mut bucket = Bucket::full();
            let (mut now, mut passed, mut last) = (0u64, 0u128, 0u128);
            for (pause, bytes) in steps {
                now += pause;
                bucket.grow(&terms, now);
                if let Err(wait) = bucket.take(&terms, [bytes, 1]) {
                    prop_assert!(wait > 0);
                    let mut early = bucket;
                    if wait < REST_MAX_NS {
                        early.grow(&terms, now + wait - 1);
                        prop_assert!(early.take(&terms, [bytes, 1]).is_err());
                        now += wait;
                        bucket.grow(&terms, now);
                        prop_assert_eq!(bucket.take(&terms, [bytes, 1]), Ok(()));
                    } else {
                        continue;
                    }
                }
                passed += bytes as u128;
                last = last.max(bytes as u128);
                let allowed = u128::from(burst) + u128::from(rate) * u128::from(now) / u128::from(NS);
                prop_assert!(passed <= allowed + last, "{passed} > {allowed} + {last}");
            }
        }

        /// With one lease, and times without any, the credit counted is what messages used and what the queue pair still
        /// holds. The model is one number for each resource. A message that waits leaves all as they were.
        #[test]
        fn no_credit_is_taken_twice(
            steps in proptest::collection::vec((0u64..200_000, 0i64..200_000, 0u32..20), 1..200),
        ) {
            const PART: i64 = 16;
            let terms = Terms::of(&Lease {
                rate_bytes_per_s: 100_000_000,
                burst_bytes: 200_000,
                rate_operations_per_s: 1_000_000,
                burst_operations: 2_000,
                ..Lease::default()
            });
            let mut bucket = Bucket::full();
            let most = [0, 1].map(|at| terms[at].burst / PART);
            let (mut held, mut used, mut counted) = ([0; 2], [0; 2], [0; 2]);
            let (mut now, mut is_free) = (0, false);
            for (pause, bytes, change) in steps {
                now += pause;
                is_free ^= change == 0;
                bucket.grow(&terms, now);
                let (before, needed) = (held, [bytes, 1]);
                let more = match is_free {
                    true => Ok(draw_free(&mut held, needed)),
                    false => bucket.draw(&terms, &mut held, needed, PART),
                };
                match more {
                    Ok(more) => for at in [0, 1] {
                        used[at] += needed[at];
                        counted[at] += more[at];
                    },
                    Err(_) => prop_assert_eq!(held, before),
                }
                for at in [0, 1] {
                    prop_assert_eq!(counted[at], used[at] + held[at]);
                    prop_assert!(held[at] <= most[at].max(FREE[at]));
                }
            }
        }

        /// Many small steps add the same credit as one large step.
        #[test]
        fn small_steps_grow_like_one(rate in 1u64..5_000_000_000, steps in proptest::collection::vec(1u64..1_000, 1..500)) {
            let terms = lease(rate, 1 << 39);
            let mut often = Bucket { fresh: false, ..Bucket::full() };
            let mut once = often;
            let mut now = 0;
            for step in steps {
                now += step;
                often.grow(&terms, now);
            }
            once.grow(&terms, now);
            prop_assert_eq!(often.credit[0].amount, once.credit[0].amount);
            prop_assert_eq!(often.credit[0].rest, once.credit[0].rest);
        }
    }
}
