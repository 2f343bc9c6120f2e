//! A histogram of `u64` with three significant digits, in fixed memory.
//!
//! Problem: a run yields billions of latencies, and quantiles of all of them are wanted afterwards. Method: log-linear
//! buckets, as HdrHistogram has them. Values below 2,048 have a bucket each; above, every doubling of the value is cut
//! into 1,024 equal buckets, so a bucket is at most 1/1,024 of its values wide. Error: a quantile is the middle of its
//! bucket, within the range of recorded values: it differs from the exact nearest-rank sample by at most 1/2,048 (0.049
//! %) of that sample. Count, minimum, maximum and mean are exact (the mean up to the rounding of one division). Units:
//! those of the recorded values; latencies are picoseconds. Limits: 56,320 buckets of 8 bytes (440 KiB; untouched pages
//! cost nothing), up to 2^64 - 1 samples.

use serde::{Deserialize, Serialize};

/// Counts of values in log-linear buckets.
///
/// ```
/// use isolane_common_quantities::stats::Histogram;
/// let mut latencies_ps = Histogram::new();
/// (1..=100_000).for_each(|value| latencies_ps.record(value));
/// let p99 = latencies_ps.quantile(0.99).expect("not empty");
/// assert!(p99.abs_diff(99_000) <= 99_000 / 2_048);
/// ```
#[derive(Clone, Debug)]
pub struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

impl Histogram {
    /// An empty histogram.
    pub fn new() -> Self {
        Self {
            buckets: vec![0; BUCKETS],
            count: 0,
            sum: 0,
            min: u64::MAX,
            max: 0,
        }
    }

    /// Counts `value` once.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.record_n(value, 1);
    }

    /// Counts `value` `times` times.
    #[inline]
    pub fn record_n(&mut self, value: u64, times: u64) {
        if times == 0 {
            return;
        }
        self.buckets[bucket_of(value)] += times;
        self.count += times;
        self.sum += u128::from(value) * u128::from(times);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// The `q`-quantile by nearest rank, within 1/2,048 of the exact sample; `None` when empty. A `q` outside
    /// 0 to 1 counts as the nearer end, one that is no number as zero.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        if self.count == 0 {
            return None;
        }
        // The cast of a float saturates and takes NaN to zero.
        self.at_rank(((q * self.count as f64).ceil() as u64).clamp(1, self.count))
    }

    /// The value of `rank` from below, the smallest having rank 1, within 1/2,048 of the exact sample; `None` where there is
    /// no such rank.
    pub fn at_rank(&self, rank: u64) -> Option<u64> {
        if rank == 0 || rank > self.count {
            return None;
        }
        let mut seen = 0;
        for bucket in self.used() {
            seen += self.buckets[bucket];
            if seen >= rank {
                return Some(middle_of(bucket).clamp(self.min, self.max));
            }
        }
        Some(self.max)
    }

    /// Values counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The smallest value, exactly; `None` when empty.
    pub fn min(&self) -> Option<u64> {
        (self.count > 0).then_some(self.min)
    }

    /// The largest value, exactly; `None` when empty.
    pub fn max(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max)
    }

    /// The mean; `None` when empty.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    /// Adds all that `other` counted.
    pub fn merge(&mut self, other: &Self) {
        for bucket in other.used() {
            self.buckets[bucket] += other.buckets[bucket];
        }
        self.count += other.count;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// The middle of every bucket that is not empty, and its count, upwards: what another histogram needs to answer
    /// the same quantiles within the error above.
    pub fn counts(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.used()
            .filter(|&bucket| self.buckets[bucket] > 0)
            .map(|bucket| {
                let middle = middle_of(bucket).clamp(self.min, self.max);
                (middle, self.buckets[bucket])
            })
    }

    /// Forgets everything and keeps the memory.
    pub fn clear(&mut self) {
        let used = self.used();
        self.buckets[used].fill(0);
        (self.count, self.sum, self.min, self.max) = (0, 0, u64::MAX, 0);
    }

    /// The figures a report shows; `None` when empty.
    pub fn summary(&self) -> Option<HistogramSummary> {
        Some(HistogramSummary {
            count: self.count,
            min: self.min()?,
            p50: self.quantile(0.5)?,
            p90: self.quantile(0.9)?,
            p99: self.quantile(0.99)?,
            p999: self.quantile(0.999)?,
            max: self.max()?,
            mean: self.mean()?,
        })
    }

    /// The buckets that can be above zero.
    fn used(&self) -> std::ops::Range<usize> {
        if self.count == 0 {
            return 0..0;
        }
        bucket_of(self.min)..bucket_of(self.max) + 1
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

/// Figures of a histogram, in the unit of its values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HistogramSummary {
    /// Values counted.
    pub count: u64,
    /// The smallest, exactly.
    pub min: u64,
    /// The median.
    pub p50: u64,
    /// The 90th percentile.
    pub p90: u64,
    /// The 99th percentile.
    pub p99: u64,
    /// The 99.9th percentile.
    pub p999: u64,
    /// The largest, exactly.
    pub max: u64,
    /// The mean.
    pub mean: f64,
}

/// Values that share their leading [`LINEAR_BITS`] bits share a bucket.
#[inline]
fn bucket_of(value: u64) -> usize {
    let bits = u64::BITS - (value | LINEAR_MASK).leading_zeros();
    let shift = bits - LINEAR_BITS;
    shift as usize * HALF + (value >> shift) as usize
}

/// The middle of a bucket, rounded down.
fn middle_of(bucket: usize) -> u64 {
    if bucket < 2 * HALF {
        return bucket as u64;
    }
    let shift = bucket / HALF - 1;
    let lowest = ((bucket - shift * HALF) as u64) << shift;
    lowest + (1 << shift) / 2
}

/// Leading bits that distinguish buckets: 2,048 steps is the first power of two above 2 x 10^3, which gives three
/// digits at either end of a doubling.
const LINEAR_BITS: u32 = 11;
const LINEAR_MASK: u64 = (1 << LINEAR_BITS) - 1;
/// Buckets per doubling above the linear part.
const HALF: usize = 1 << (LINEAR_BITS - 1);
/// All buckets: the linear part, and one half for each of the remaining bits.
const BUCKETS: usize = (u64::BITS - LINEAR_BITS) as usize * HALF + 2 * HALF;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_largest_value_has_the_last_bucket() {
        assert_eq!(bucket_of(0), 0);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        assert_eq!(BUCKETS, 56_320);
    }

    #[test]
    fn values_below_2048_are_exact() {
        for value in 0..2_048 {
            assert_eq!(middle_of(bucket_of(value)), value);
        }
    }

    #[test]
    fn counts_rebuild_a_histogram_with_the_same_quantiles() {
        let mut histogram = Histogram::new();
        (0..5_000_u64).for_each(|value| histogram.record_n(value * value, value % 3));
        let mut rebuilt = Histogram::new();
        for (value, count) in histogram.counts() {
            rebuilt.record_n(value, count);
        }
        assert_eq!(rebuilt.count(), histogram.count());
        for q in [0.01, 0.5, 0.9, 0.99, 0.999] {
            assert_eq!(rebuilt.quantile(q), histogram.quantile(q), "{q}");
        }
    }

    #[test]
    fn an_empty_histogram_has_no_figures() {
        let mut histogram = Histogram::new();
        assert_eq!(histogram.summary(), None);
        histogram.record(7);
        histogram.record_n(9, 0);
        histogram.clear();
        assert_eq!((histogram.count(), histogram.summary()), (0, None));
        histogram.merge(&Histogram::new());
        assert_eq!(histogram.min(), None);
    }

    #[test]
    fn summary_of_one_to_a_thousand() {
        let mut histogram = Histogram::new();
        (1..=1_000).for_each(|value| histogram.record(value));
        expect_test::expect![[
            r#"HistogramSummary { count: 1000, min: 1, p50: 500, p90: 900, p99: 990, p999: 999, max: 1000, mean: 500.5 }"#
        ]]
        .assert_eq(&format!("{:?}", histogram.summary().expect("not empty")));
    }

    fn values() -> impl Strategy<Value = Vec<u64>> {
        let value = (0u32..64, any::<u64>()).prop_map(|(shift, bits)| bits >> shift);
        prop::collection::vec(value, 1..400)
    }

    proptest! {
        #[test]
        fn a_quantile_is_within_one_part_in_2048(values in values(), per_mille in 0u64..=1_000) {
            let mut histogram = Histogram::new();
            values.iter().for_each(|&value| histogram.record(value));
            let mut sorted = values;
            sorted.sort_unstable();
            let q = per_mille as f64 / 1e3;
            let rank = ((q * sorted.len() as f64).ceil() as usize).clamp(1, sorted.len());
            let exact = sorted[rank - 1];
            let found = histogram.quantile(q).expect("not empty");
            prop_assert!(found.abs_diff(exact) <= exact / 2_048, "{found} for {exact}");
        }

        #[test]
        fn merging_equals_recording_all(first in values(), second in values()) {
            let mut merged = Histogram::new();
            let mut other = Histogram::new();
            let mut all = Histogram::new();
            first.iter().for_each(|&value| merged.record(value));
            second.iter().for_each(|&value| other.record_n(value, 2));
            merged.merge(&other);
            first.iter().chain(&second).chain(&second).for_each(|&value| all.record(value));
            prop_assert_eq!(merged.summary(), all.summary());
            prop_assert_eq!(merged.buckets, all.buckets);
        }

        #[test]
        fn clearing_leaves_no_count_behind(values in values()) {
            let mut histogram = Histogram::new();
            values.iter().for_each(|&value| histogram.record(value));
            histogram.clear();
            prop_assert!(histogram.buckets.iter().all(|&count| count == 0));
        }
    }
}
