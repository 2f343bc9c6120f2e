//! The machine's clock and randomness, for everything that does not take them as arguments.
//!
//! Units: nanoseconds since the machine started, as the kernel's monotonic clock counts them.
//! Method: a decision needs the time only to see that a destination was idle for a minute, so it reads the kernel's
//! coarse clock (a few nanoseconds to read, a few milliseconds behind); a completion opens windows that last
//! milliseconds, and reads the fine one. Both count from the same start. Random numbers come from a generator of each
//! thread (xorshift, 64 bits), seeded from the keys that the standard library draws for its hash maps.
//! Limits: the numbers decide who is admitted; nothing secret depends on them.

use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;
use std::hash::{BuildHasher, Hasher, RandomState};

/// Current time, at most a few milliseconds late.
#[inline]
pub(crate) fn coarse_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::MonotonicCoarse))
}

/// Current time.
#[inline]
pub(crate) fn fine_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

fn nanoseconds(time: rustix::time::Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

pub(crate) fn seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A uniformly distributed number.
#[inline]
pub(crate) fn random() -> u32 {
    thread_local! {
        static STATE: Cell<u64> = Cell::new(seed() | 1);
    }
    STATE.with(|state| {
        let mut x = state.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        state.set(x);
        (x.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_coarse_clock_is_behind_the_fine_one_by_less_than_a_second() {
        let coarse = coarse_ns();
        let fine = fine_ns();
        assert!(coarse <= fine && fine - coarse < 1_000_000_000);
    }

    #[test]
    fn random_numbers_are_even_in_their_highest_bits() {
        let mut bins = [0u32; 16];
        for _ in 0..16_000 {
            bins[(random() >> 28) as usize] += 1;
        }
        // 1,000 in each on average; the bounds are 8 standard deviations away.
        assert!(
            bins.iter().all(|&bin| (750..1250).contains(&bin)),
            "{bins:?}"
        );
    }
}
