//! A histogram of nanoseconds in 4 KiB, because a view has two of them for each row.
//!
//! Method: 16 equal buckets for each doubling of the value. Error: a quantile is the middle of its bucket, at most 3.2 %
//! from the exact nearest-rank sample.

/// Buckets of a doubling.
const PARTS: u64 = 16;
const PARTS_BITS: u32 = PARTS.ilog2();
const BUCKETS: usize = ((64 - PARTS_BITS + 1) as u64 * PARTS) as usize;

/// Counts of values.
#[derive(Debug)]
pub(crate) struct Histogram {
    buckets: Box<[u32; BUCKETS]>,
    count: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: Box::new([0; BUCKETS]),
            count: 0,
        }
    }
}

impl Histogram {
    pub(crate) fn record(&mut self, value: u64) {
        let bucket = &mut self.buckets[bucket_of(value)];
        *bucket = bucket.saturating_add(1);
        self.count += 1;
    }

    /// The nearest-rank quantile `q`, above 0 and at most 1; `None` without values.
    pub(crate) fn quantile(&self, q: f64) -> Option<u64> {
        let rank = ((q * self.count as f64).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        let found = self.buckets.iter().position(|&count| {
            seen += u64::from(count);
            seen >= rank
        });
        found.map(middle_of)
    }
}

/// Values below PARTS have a bucket each.
fn bucket_of(value: u64) -> usize {
    if value < PARTS {
        return value as usize;
    }
    let shift = value.ilog2() - PARTS_BITS;
    let part = (value >> shift) - PARTS;
    ((u64::from(shift) + 1) * PARTS + part) as usize
}

fn middle_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < PARTS {
        return bucket;
    }
    let shift = bucket / PARTS - 1;
    let first = (PARTS + bucket % PARTS) << shift;
    first + ((1 << shift) >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_quantile_is_near_the_sample(mut values in proptest::collection::vec(any::<u64>(), 1..50), q in 0.01f64..=1.0) {
            let mut histogram = Histogram::default();
            values.iter().for_each(|&value| histogram.record(value));
            values.sort_unstable();
            let rank = (q * values.len() as f64).ceil() as usize;
            let exact = values[rank.clamp(1, values.len()) - 1];
            let near = histogram.quantile(q).unwrap();
            prop_assert!(near.abs_diff(exact) as f64 <= exact as f64 * 0.032, "{near} instead of {exact}");
        }
    }

    #[test]
    fn without_values_there_is_no_quantile() {
        assert_eq!(Histogram::default().quantile(0.5), None);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }
}
