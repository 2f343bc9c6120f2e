//! One figure for repeated runs: the median, and an interval that holds the true median.
//!
//! The interval uses order statistics only (the number of runs below the true median is binomial with probability one
//! half), so it assumes independent runs and nothing about their distribution. It is an actual pair of results, and its
//! confidence is at least the requested one; six runs are the fewest that reach 95 %.

/// The median; the mean of the two middle values when their number is even; `None` of no values.
///
/// ```
/// use isolane_common_quantities::stats::summary::median;
/// assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
/// assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
/// ```
pub fn median(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values);
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    Some(f64::midpoint(sorted[sorted.len() / 2 - 1], upper))
}

/// The narrowest symmetric pair of results that holds the true median with probability `confidence`, a
/// fraction such as 0.95; `None` when even the smallest and the largest result do not reach it.
pub fn median_interval(values: &[f64], confidence: f64) -> Option<(f64, f64)> {
    let sorted = sorted(values);
    let count = sorted.len();
    // Leaving out `cut` results at each end misses with twice the probability of at most `cut` heads.
    let mut chance = 0.5f64.powi(i32::try_from(count).ok()?);
    let mut tail = 0.0;
    let mut narrowest = None;
    for cut in 0..count / 2 {
        tail += chance;
        if 1.0 - 2.0 * tail < confidence {
            break;
        }
        narrowest = Some((sorted[cut], sorted[count - 1 - cut]));
        chance *= (count - cut) as f64 / (cut + 1) as f64;
    }
    narrowest
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_values_have_no_median() {
        assert_eq!(median(&[]), None);
        assert_eq!(median_interval(&[], 0.5), None);
    }

    #[test]
    fn the_interval_matches_the_binomial_table() {
        let values = |count: u32| (1..=count).map(f64::from).collect::<Vec<_>>();
        // 1 - 2/32 = 93.75 %, 1 - 2/64 = 96.9 %.
        assert_eq!(median_interval(&values(5), 0.95), None);
        assert_eq!(median_interval(&values(6), 0.95), Some((1.0, 6.0)));
        // The usual table: 2nd to 9th of 10 (97.9 %), 6th to 15th of 20 (95.9 %).
        assert_eq!(median_interval(&values(10), 0.95), Some((2.0, 9.0)));
        assert_eq!(median_interval(&values(20), 0.95), Some((6.0, 15.0)));
    }
}
