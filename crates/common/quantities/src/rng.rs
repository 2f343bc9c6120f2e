//! Named random streams: one run seed, one independent stream per source of randomness.
//!
//! A source is named by what it decides ("dma-jitter", "tenant/redis/think"). Adding a source to a model never
//! shifts the numbers another source draws, so a change in one place cannot move results everywhere. The
//! generator is xoshiro256++ (from `rand_xoshiro`); names are hashed with 64-bit FNV-1a and mixed with the run
//! seed by SplitMix64 inside `seed_from_u64`.

use crate::units::Duration;
use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// One independent stream of random numbers.
#[derive(Clone, Debug)]
pub struct Stream(Xoshiro256PlusPlus);

impl Stream {
    /// The stream called `name` in the run with seed `run_seed`.
    ///
    /// ```
    /// use isolane_common_quantities::rng::Stream;
    /// let (mut a, mut b) = (Stream::named(1, "dma"), Stream::named(1, "dma"));
    /// assert_eq!(a.next_u64(), b.next_u64());
    /// ```
    pub fn named(run_seed: u64, name: &str) -> Self {
        Self::indexed(run_seed, name, 0)
    }

    /// The `index`-th of a family of streams called `name`, for example one per queue pair.
    pub fn indexed(run_seed: u64, name: &str, index: u64) -> Self {
        let mut hash = FNV_OFFSET;
        let bytes = run_seed
            .to_le_bytes()
            .into_iter()
            .chain(name.bytes())
            .chain(index.to_le_bytes());
        for byte in bytes {
            hash = (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME);
        }
        Self(Xoshiro256PlusPlus::seed_from_u64(hash))
    }

    /// The next 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A uniform integer in `0..bound` (multiply-shift; bias below 2^-32 for bounds below 2^32). Panics if `bound` is
    /// zero.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "the range 0..0 has no member");
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A uniform duration in `0..=max`.
    #[inline]
    pub fn duration_up_to(&mut self, max: Duration) -> Duration {
        Duration::from_ps(self.below(max.as_ps().saturating_add(1).max(1)))
    }

    /// An exponentially distributed duration with the given mean, for Poisson arrivals.
    pub fn exponential(&mut self, mean: Duration) -> Duration {
        // 53 random bits give a uniform in (0, 1]; one minus it would include zero, whose logarithm is infinite.
        let uniform = ((self.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        // The logarithm of the system's library may differ in its last bit between machines; this one does not.
        Duration::from_ps((-libm::log(uniform) * mean.as_ps() as f64) as u64)
    }

    /// True with probability `numerator / denominator`.
    #[inline]
    pub fn chance(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_indices_give_different_streams() {
        let first = |mut stream: Stream| stream.next_u64();
        let base = first(Stream::named(1, "a"));
        assert_ne!(base, first(Stream::named(2, "a")));
        assert_ne!(base, first(Stream::named(1, "b")));
        assert_ne!(base, first(Stream::indexed(1, "a", 1)));
    }

    #[test]
    fn below_covers_its_range_evenly() {
        let mut stream = Stream::named(7, "even");
        let mut counts = [0u32; 10];
        for _ in 0..100_000 {
            counts[stream.below(10) as usize] += 1;
        }
        assert!(
            counts.iter().all(|&n| (9_500..10_500).contains(&n)),
            "{counts:?}"
        );
    }

    #[test]
    fn exponential_has_its_mean() {
        let mut stream = Stream::named(3, "poisson");
        let total: Duration = (0..100_000)
            .map(|_| stream.exponential(Duration::from_us(5)))
            .sum();
        let mean_us = total.as_us_f64() / 100_000.0;
        assert!((4.9..5.1).contains(&mean_us), "{mean_us}");
    }
}
