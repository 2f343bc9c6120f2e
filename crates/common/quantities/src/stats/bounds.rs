//! Bounds of a quantile for any distribution, from order statistics.
//!
//! Problem: a 99th percentile of a few hundred samples is uncertain, and nothing is known about the distribution.
//! Method: of `n` independent samples, the number above the true `q`-quantile is binomial with probability `1 - q`. So the
//! sample of a rank is below the true quantile, or above it, with a probability that depends on `n` and `q` alone.
//! [`ranks`] gives the ranks whose samples bound the quantile on one side each with the stated confidence.
//! Limits: samples that follow each other in time are not independent; a caller has to measure for longer than what
//! couples them. The sums take one step per sample above the quantile, so a call costs O(n (1 - q)).

/// Ranks (from 1) of the samples that bound a quantile, each with the requested confidence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ranks {
    /// The sample of this rank is at most the true quantile; absent where no sample is surely below it.
    pub lower: Option<u64>,
    /// The sample of this rank is at least the true quantile; absent where no sample is surely above it.
    pub upper: Option<u64>,
}

/// The ranks that bound the `q`-quantile of `samples` samples, each side with `confidence`; both are fractions in (0, 1).
///
/// ```
/// use isolane_common_quantities::stats::bounds::ranks;
/// // The largest of 459 samples is above the 99th percentile with 99 %; of 458 it is not.
/// assert_eq!(ranks(459, 0.99, 0.99).upper, Some(459));
/// assert_eq!(ranks(458, 0.99, 0.99).upper, None);
/// ```
pub fn ranks(samples: u64, q: f64, confidence: f64) -> Ranks {
    assert!(q > 0.0 && q < 1.0, "quantile {q} is between 0 and 1");
    assert!(
        confidence > 0.0 && confidence < 1.0,
        "confidence {confidence} is between 0 and 1"
    );
    let error = (1.0 - confidence) * (1.0 + ROUNDING);
    let above = 1.0 - q;
    let mut log_chance = samples as f64 * q.ln();
    // Probability that at most `count` samples are above the quantile.
    let mut tail = 0.0;
    let mut found = Ranks::default();
    for count in 0..=samples {
        let before = tail;
        tail += log_chance.exp();
        // The sample of rank `samples - count` is below the quantile only if at most `count` samples are above it.
        if tail <= error {
            found.upper = Some(samples - count);
        }
        // The sample of rank `samples + 1 - count` is above the quantile only if at least `count` samples are.
        if 1.0 - before <= error && count > 0 {
            found.lower = Some(samples + 1 - count);
            break;
        }
        log_chance += ((samples - count) as f64 / (count + 1) as f64 * above / q).ln();
    }
    found.upper = found.upper.filter(|&rank| rank > 0);
    found.lower = found.lower.filter(|&rank| rank > 0);
    found
}

/// Sums of up to a million terms are off by less than this part.
const ROUNDING: f64 = 1e-9;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Stream;
    use proptest::prelude::*;

    #[test]
    fn few_samples_far_above_bound_from_below_only() {
        let of = |samples| ranks(samples, 0.99, 0.99);
        assert_eq!(of(0), Ranks::default());
        // One of 100 samples is above by definition, so a single sample bounds the quantile from below with 99 %.
        assert_eq!(of(1).lower, Some(1));
        // P(2 or more of 16 above) = 1.1 %, P(3 or more) = 0.05 %.
        assert_eq!(
            of(16),
            Ranks {
                lower: Some(14),
                upper: None
            }
        );
    }

    #[test]
    fn the_bounds_close_in_on_the_rank_of_the_quantile() {
        let Ranks { lower, upper } = ranks(1_000_000, 0.99, 0.99);
        // Ten thousand are above on average, 2.33 standard deviations are 232.
        assert!(lower.unwrap().abs_diff(990_000 - 232) < 5, "{lower:?}");
        assert!(upper.unwrap().abs_diff(990_000 + 232) < 5, "{upper:?}");
    }

    #[test]
    fn the_bounds_hold_as_often_as_they_say() {
        const TRIALS: u32 = 4_000;
        const SAMPLES: usize = 700;
        let mut stream = Stream::named(7, "bounds");
        let mut wrong = [0; 2];
        for _ in 0..TRIALS {
            let mut values: Vec<u64> = (0..SAMPLES).map(|_| stream.below(1_000_000)).collect();
            values.sort_unstable();
            let Ranks { lower, upper } = ranks(SAMPLES as u64, 0.99, 0.99);
            wrong[0] += u32::from(values[lower.unwrap() as usize - 1] > 990_000);
            wrong[1] += u32::from(values[upper.unwrap() as usize - 1] < 990_000);
        }
        // At most 1 % each; three standard deviations of 40 are 19.
        assert!(wrong.iter().all(|&count| count < 60), "{wrong:?}");
    }

    /// P(K <= count) by the sum of its definition, with products only.
    fn tail(samples: u64, count: u64, above: f64) -> f64 {
        let term = |k: u64| {
            let ways: f64 = (0..k)
                .map(|i| (samples - i) as f64 / (i + 1) as f64)
                .product();
            ways * above.powi(k as i32) * (1.0 - above).powi((samples - k) as i32)
        };
        (0..=count).map(term).sum()
    }

    proptest! {
        #[test]
        fn ranks_are_those_of_the_definition(samples in 1u64..400, q in 0.5f64..0.99, error in 0.001f64..0.3) {
            let found = ranks(samples, q, 1.0 - error);
            let at_most = |count| tail(samples, count, 1.0 - q);
            // Counts whose chance is that near to the error may fall on either side of it.
            let clear = (0..samples).all(|count| {
                let chance = at_most(count);
                (chance - error).abs() > 1e-6 && (1.0 - chance - error).abs() > 1e-6
            });
            prop_assume!(clear);
            let upper = (0..samples).rev().find(|&count| at_most(count) <= error);
            prop_assert_eq!(found.upper, upper.map(|count| samples - count));
            let lower = (1..=samples).find(|&count| 1.0 - at_most(count - 1) <= error);
            prop_assert_eq!(found.lower, lower.map(|count| samples + 1 - count));
        }
    }
}
