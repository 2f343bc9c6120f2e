//! The exact quantile of the last N samples, sample by sample.
//!
//! A latency monitor reads the 99th percentile of the last ten thousand samples after every sample (justitia 4.3.2), so
//! sorting the window each time is too slow. The window keeps its samples twice: in a ring, which knows the oldest, and
//! in a counted B+ tree ([`super::order_tree`]), which knows the ranks. A push is one removal and one insertion, a
//! query one selection; each is O(log N) for any quantile and any values. The alternatives are slower: two heaps serve
//! one quantile only, a sorted array moves O(N) values, a skip list or balanced binary tree follows four times as many
//! pointers.
//!
//! Units: samples are plain integers; latencies are given in picoseconds.
//! Definition: nearest rank. The q-quantile of n samples is the sorted sample number ceil(q n), counted from
//! one; q = 0 gives the smallest.
//! Limits: at most [`SlidingQuantile::MAX_CAPACITY`] samples. Nothing is allocated after construction.

use super::order_tree::OrderTree;
use crate::units::Ratio;

/// The last N samples, ready for any quantile.
///
/// ```
/// use isolane_common_quantities::{stats::SlidingQuantile, units::Ratio};
/// let mut window = SlidingQuantile::with_target(3, Ratio::new(1, 2));
/// for latency_ps in [900, 100, 300, 200] {
///     window.push(latency_ps);
/// }
/// assert_eq!(window.target_quantile(), Some(200)); // of 100, 300, 200
/// assert_eq!(window.quantile(Ratio::new(99, 100)), Some(300));
/// ```
#[derive(Clone, Debug)]
pub struct SlidingQuantile {
    ring: Vec<u64>,
    /// Where the oldest sample is once the ring is full.
    oldest: usize,
    capacity: usize,
    target: Ratio,
    tree: OrderTree,
}

impl SlidingQuantile {
    /// The largest window; ranks are 32 bits wide, and memory is about 70 bytes per sample at worst.
    pub const MAX_CAPACITY: usize = 1 << 28;

    /// An empty window over the last `capacity` samples, with the median as its target. Panics if `capacity` is zero or
    /// above [`Self::MAX_CAPACITY`].
    pub fn new(capacity: usize) -> Self {
        Self::with_target(capacity, Ratio::new(1, 2))
    }

    /// An empty window over the last `capacity` samples for which [`Self::target_quantile`] returns `target`. Panics if
    /// `capacity` is zero or above [`Self::MAX_CAPACITY`].
    pub fn with_target(capacity: usize, target: Ratio) -> Self {
        assert!(
            (1..=Self::MAX_CAPACITY).contains(&capacity),
            "a window of {capacity} samples: choose between 1 and {}",
            Self::MAX_CAPACITY
        );
        Self {
            ring: Vec::with_capacity(capacity),
            oldest: 0,
            capacity,
            target,
            tree: OrderTree::with_capacity(capacity),
        }
    }

    /// Adds a sample; the oldest leaves when the window is full.
    pub fn push(&mut self, value: u64) {
        if self.ring.len() < self.capacity {
            self.ring.push(value);
            self.tree.insert(value);
            return;
        }
        let leaving = std::mem::replace(&mut self.ring[self.oldest], value);
        self.oldest += 1;
        if self.oldest == self.capacity {
            self.oldest = 0;
        }
        if leaving != value {
            self.tree.remove(leaving);
            self.tree.insert(value);
        }
    }

    /// The exact `q`-quantile of the window by nearest rank; `None` while it is empty. A `q` above one counts
    /// as one.
    pub fn quantile(&self, q: Ratio) -> Option<u64> {
        let rank = nearest_rank(q, self.ring.len() as u64)?;
        Some(self.tree.select((rank - 1) as u32))
    }

    /// The quantile chosen at construction; `None` while the window is empty.
    pub fn target_quantile(&self) -> Option<u64> {
        self.quantile(self.target)
    }

    /// Samples in the window now.
    pub fn len(&self) -> usize {
        self.ring.len()
    }

    /// True before the first sample.
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Forgets all samples and keeps the memory.
    pub fn clear(&mut self) {
        self.ring.clear();
        self.oldest = 0;
        self.tree.clear();
    }
}

/// The nearest rank of the `q`-quantile among `count` samples, counted from one; `None` among no samples.
pub(super) fn nearest_rank(q: Ratio, count: u64) -> Option<u64> {
    if count == 0 {
        return None;
    }
    let scaled = u128::from(q.numerator) * u128::from(count);
    let rank = scaled.div_ceil(u128::from(q.denominator));
    Some(rank.clamp(1, u128::from(count)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The obvious model: sort the last samples, count up to the rank.
    fn slow_quantile(samples: &[u64], capacity: usize, q: Ratio) -> Option<u64> {
        let mut window = samples[samples.len().saturating_sub(capacity)..].to_vec();
        window.sort_unstable();
        let rank = (q.as_f64() * window.len() as f64 - 1e-9).ceil().max(1.0) as usize;
        window.get(rank.min(window.len()).max(1) - 1).copied()
    }

    #[test]
    fn an_empty_window_has_no_quantile() {
        let mut window = SlidingQuantile::new(4);
        assert_eq!(window.quantile(Ratio::ONE), None);
        window.push(1);
        window.clear();
        assert!(window.is_empty());
        assert_eq!(window.target_quantile(), None);
    }

    #[test]
    fn p99_of_one_to_a_hundred_is_ninety_nine() {
        let mut window = SlidingQuantile::with_target(100, Ratio::new(99, 100));
        (1..=100).for_each(|value| window.push(value));
        assert_eq!(window.target_quantile(), Some(99));
        assert_eq!(window.quantile(Ratio::new(0, 1)), Some(1));
        assert_eq!(window.quantile(Ratio::new(7, 1)), Some(100));
    }

    #[test]
    fn extreme_values_are_samples_like_others() {
        let mut window = SlidingQuantile::new(2);
        window.push(u64::MAX);
        window.push(0);
        assert_eq!(window.quantile(Ratio::ONE), Some(u64::MAX));
        window.push(0);
        assert_eq!(window.quantile(Ratio::ONE), Some(0));
    }

    #[test]
    fn a_full_window_matches_sorting_at_ten_thousand_samples() {
        let mut stream = crate::rng::Stream::named(5, "latency");
        let mut window = SlidingQuantile::new(10_000);
        let samples: Vec<u64> = (0..35_000)
            .map(|_| 1_000_000 + stream.below(90_000))
            .collect();
        for (index, &sample) in samples.iter().enumerate() {
            window.push(sample);
            if index % 1_009 == 0 {
                for q in [Ratio::new(1, 2), Ratio::new(99, 100), Ratio::new(999, 1000)] {
                    let slow = slow_quantile(&samples[..=index], 10_000, q);
                    assert_eq!(window.quantile(q), slow, "after {index} samples, {q:?}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn every_quantile_equals_the_sorted_window(
            capacity in 1usize..300,
            samples in prop::collection::vec(
                prop_oneof![0u64..20, 0u64..5_000, any::<u64>()], 1..900),
            part in 0u64..=1_000,
        ) {
            let q = Ratio::new(part, 1_000);
            let mut window = SlidingQuantile::new(capacity);
            for (index, &sample) in samples.iter().enumerate() {
                window.push(sample);
                prop_assert_eq!(window.len(), capacity.min(index + 1));
                prop_assert_eq!(window.quantile(q), slow_quantile(&samples[..=index], capacity, q));
            }
        }
    }
}
