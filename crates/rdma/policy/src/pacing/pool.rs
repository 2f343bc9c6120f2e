//! The source of tokens: a rate, integrated exactly.
//!
//! Problem: one token of S bytes is due every S / rate, the rate changes every 20 us, and nothing may drift.
//! Method: the pool integrates the rate over time in units of bit picoseconds per second (a byte is 8 x 10^12
//! of them), so that neither a token's time nor a change of rate is ever rounded. What a late caller leaves
//! in the pool is carried; what exceeds the backlog is lost, as in any token bucket.
//! Operations follow bytes: a token of S bytes carries `message_rate_max * S / rate_max` messages, the
//! remainder carried to the next token (justitia 4.3.4: 1 MB at 48 Gb/s and 30 M/s is 5,000).
//!
//! Invariant: bytes taken in any interval are at most the integral of the rate plus the backlog.

use isolane_common_quantities::units::{BitRate, Bytes, Duration, Instant};

/// One byte in the pool's unit, bits per second times picoseconds.
const UNITS_PER_BYTE: u128 = 8_000_000_000_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Token {
    /// Payload bytes.
    pub bytes: u64,
    /// Messages.
    pub operations: u64,
}

/// The two resources of a device, at their most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capacity {
    pub rate: BitRate,
    /// Messages per second.
    pub messages_per_s: u64,
}

/// A bucket of tokens.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    rate: BitRate,
    content: u128,
    limit: u128,
    since: Instant,
    token_bytes: u64,
    token_units: u128,
    backlog_max: u32,
    capacity: Capacity,
    operations: u64,
    operations_rest: u64,
    operations_carry: u64,
    taken: u64,
}

impl Pool {
    /// An empty pool that fills at `capacity.rate` from the start of the run, with tokens of `token_bytes`; it keeps
    /// `backlog_max` of them. Panics if `capacity.rate`, `token_bytes` or `backlog_max` is zero.
    pub(crate) fn new(capacity: Capacity, token_bytes: Bytes, backlog_max: u32) -> Self {
        assert!(capacity.rate > BitRate::ZERO, "a pool needs a rate");
        assert!(backlog_max > 0, "a pool holds at least one token");
        let mut pool = Self {
            rate: capacity.rate,
            content: 0,
            limit: 0,
            since: Instant::ZERO,
            token_bytes: 0,
            token_units: 0,
            backlog_max,
            capacity,
            operations: 0,
            operations_rest: 0,
            operations_carry: 0,
            taken: 0,
        };
        pool.set_token_bytes(Instant::ZERO, token_bytes);
        pool
    }

    /// The rate from `now` on.
    pub(crate) fn set_rate(&mut self, now: Instant, rate: BitRate) {
        self.fill(now);
        self.rate = rate;
    }

    pub(crate) fn rate(&self) -> BitRate {
        self.rate
    }

    /// The size of tokens from `now` on. What the pool holds beyond the new backlog is lost. Panics if `bytes` is zero.
    pub(crate) fn set_token_bytes(&mut self, now: Instant, bytes: Bytes) {
        assert!(bytes > Bytes::ZERO, "a token permits at least one byte");
        if bytes.get() == self.token_bytes {
            return;
        }
        self.fill(now);
        self.token_bytes = bytes.get();
        self.token_units = u128::from(self.token_bytes) * UNITS_PER_BYTE;
        self.limit = self.token_units * u128::from(self.backlog_max);
        self.content = self.content.min(self.limit);
        self.work_out_operations();
    }

    /// Messages per second at the device's full rate, from `now` on: tokens carry fewer or more of them. Panics if
    /// `messages_per_s` is zero.
    pub(crate) fn set_messages_per_s(&mut self, now: Instant, messages_per_s: u64) {
        assert!(messages_per_s > 0, "a pool has messages to give");
        if messages_per_s == self.capacity.messages_per_s {
            return;
        }
        self.fill(now);
        self.capacity.messages_per_s = messages_per_s;
        self.work_out_operations();
    }

    fn work_out_operations(&mut self) {
        let bits = u128::from(self.capacity.messages_per_s) * u128::from(self.token_bytes) * 8;
        let rate = u128::from(self.capacity.rate.as_bps());
        self.operations = u64::try_from(bits / rate).unwrap_or(u64::MAX);
        self.operations_rest = (bits % rate) as u64;
    }

    /// The whole token: bytes and, rounded down, operations.
    #[inline]
    pub(crate) fn token(&self) -> Token {
        Token {
            bytes: self.token_bytes,
            operations: self.operations,
        }
    }

    /// Tokens taken since the start.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Adds the tokens of the rate since the last call.
    #[inline]
    pub(crate) fn fill(&mut self, now: Instant) {
        let elapsed = now.saturating_since(self.since);
        if elapsed.is_zero() {
            return;
        }
        self.since = now;
        let brought = u128::from(self.rate.as_bps()) * u128::from(elapsed.as_ps());
        self.content = (self.content + brought).min(self.limit);
    }

    /// Takes one token if there is one. Call [`Self::fill`] first.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Token> {
        self.content = self.content.checked_sub(self.token_units)?;
        self.taken += 1;
        let mut token = self.token();
        self.operations_carry += self.operations_rest;
        if self.operations_carry >= self.capacity.rate.as_bps() {
            self.operations_carry -= self.capacity.rate.as_bps();
            token.operations += 1;
        }
        Some(token)
    }

    /// Puts back what is left of a token: the part that is unused in both resources, in whole bytes rounded down.
    /// Returning more would grant operations twice.
    pub(crate) fn give_back(&mut self, rest: Token) {
        let by_operations = u128::from(rest.operations) * u128::from(self.token_bytes)
            / u128::from(self.operations.max(1));
        let bytes = u128::from(rest.bytes).min(by_operations);
        self.content = (self.content + bytes * UNITS_PER_BYTE).min(self.limit);
    }

    /// When the next token will be there: now or earlier if it is; `None` at rate zero.
    #[inline]
    pub(crate) fn next(&self) -> Option<Instant> {
        let missing = self.token_units.saturating_sub(self.content);
        if missing == 0 {
            return Some(self.since);
        }
        let rate = self.rate.as_bps();
        if rate == 0 {
            return None;
        }
        // Tokens below 2.3 MB stay within 64 bits, where a division is cheap.
        let wait = match u64::try_from(missing) {
            Ok(missing) => missing.div_ceil(rate),
            Err(_) => u64::try_from(missing.div_ceil(u128::from(rate))).unwrap_or(u64::MAX),
        };
        Some(self.since.saturating_add(Duration::from_ps(wait)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const INFINIBAND: Capacity = Capacity {
        rate: BitRate::from_gbps(48),
        messages_per_s: 30_000_000,
    };

    #[test]
    fn one_megabyte_at_48_gbps_is_5000_operations_every_167_us() {
        let mut pool = Pool::new(INFINIBAND, Bytes::new(1_000_000), 5);
        let due = pool.next().unwrap();
        assert_eq!(due.as_ps(), 166_666_667);
        pool.fill(due);
        let token = pool.take().unwrap();
        assert_eq!((token.bytes, token.operations), (1_000_000, 5_000));
        assert_eq!(pool.take(), None);
    }

    #[test]
    fn three_tokens_of_a_third_of_a_microsecond_do_not_drift() {
        let mut pool = Pool::new(INFINIBAND, Bytes::new(1_000_000), 5);
        let mut now = Instant::ZERO;
        for _ in 0..3_000 {
            now = pool.next().unwrap();
            pool.fill(now);
            pool.take().unwrap();
        }
        assert_eq!(now, Instant::from_ps(500_000_000_000));
    }

    #[test]
    fn operations_carry_their_remainder() {
        // 7 messages per 12 bytes at 5 bytes a token: 2.916 messages.
        let capacity = Capacity {
            rate: BitRate::from_bps(96),
            messages_per_s: 7,
        };
        let mut pool = Pool::new(capacity, Bytes::new(5), 12);
        pool.fill(Instant::from_ps(5_000_000_000_000));
        let total: u64 = (0..12).map(|_| pool.take().unwrap().operations).sum();
        assert_eq!(total, 35);
    }

    #[test]
    fn a_returned_rest_counts_the_scarcer_resource() {
        let mut pool = Pool::new(INFINIBAND, Bytes::new(5_000), 5);
        pool.give_back(Token {
            bytes: 5_000,
            operations: 0,
        });
        assert_eq!(pool.content, 0);
        pool.give_back(Token {
            bytes: 5_000,
            operations: 10,
        });
        assert_eq!(pool.content, 2_000 * UNITS_PER_BYTE);
    }

    #[test]
    fn rate_zero_gives_no_token() {
        let mut pool = Pool::new(INFINIBAND, Bytes::new(5_000), 5);
        pool.set_rate(Instant::ZERO, BitRate::ZERO);
        assert_eq!(pool.next(), None);
    }

    proptest! {
        /// Goal: no drift. Method: the closed form of an uncapped pool, over arbitrary calls.
        #[test]
        fn tokens_equal_the_integral(steps in prop::collection::vec((1u64..400, 1u64..3_000_000), 1..60)) {
            let mut pool = Pool::new(INFINIBAND, Bytes::new(5_000), 100_000);
            let (mut now, mut integral, mut tokens) = (Instant::ZERO, 0u128, 0u128);
            pool.set_rate(now, BitRate::ZERO);
            for (gbps, ps) in steps {
                pool.set_rate(now, BitRate::from_gbps(gbps));
                now += Duration::from_ps(ps);
                integral += u128::from(gbps) * 1_000_000_000 * u128::from(ps);
                pool.fill(now);
                while pool.take().is_some() {
                    tokens += 1;
                }
                prop_assert_eq!(tokens, integral / (5_000 * UNITS_PER_BYTE));
            }
        }

        #[test]
        fn the_next_token_is_there_at_its_time_and_not_before(bps in 1_000_000u64..400_000_000_000, bytes in 1u64..4_000_000) {
            let mut pool = Pool::new(INFINIBAND, Bytes::new(bytes), 5);
            pool.set_rate(Instant::ZERO, BitRate::from_bps(bps));
            let due = pool.next().unwrap();
            pool.fill(due - Duration::from_ps(1));
            prop_assert_eq!(pool.take(), None);
            pool.fill(due);
            prop_assert!(pool.take().is_some());
        }
    }
}
