//! Latencies and mixes out of calls, and how sure they are.
//!
//! Units: milliseconds in results, microseconds in calls.
//! Method: a percentile is the smallest value that at least that part of the calls does not exceed. The part of calls that
//! missed an objective has a standard error by periods, not by calls: calls of one burst wait together, and taken one by
//! one they would make the result look surer than it is.

use crate::job::Call;
use crate::plan::CLASSES;
use serde::Serialize;
use std::collections::BTreeMap;

/// The calls that ran in one class.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ClassFigures {
    /// Calls that requested the class.
    pub asked: usize,
    /// Calls that ran in it.
    pub ran: usize,
    /// Median latency of those that ran in it, ms; `None` without calls.
    pub p50_ms: Option<f64>,
    /// 99th percentile, ms.
    pub p99_ms: Option<f64>,
    /// 99.9th percentile, ms.
    pub p999_ms: Option<f64>,
    /// The longest, ms.
    pub max_ms: Option<f64>,
}

/// The misses of a class against an objective.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Misses {
    /// Fraction of the calls that took longer.
    pub share: f64,
    /// Standard error of the fraction.
    pub error: f64,
}

/// Figures of each class over `calls`.
pub(crate) fn classes(calls: &[Call]) -> [ClassFigures; CLASSES] {
    std::array::from_fn(|class| {
        let class = class as u8;
        let sorted = latencies(calls, class);
        let at = |percentile| percentile_of(&sorted, percentile).map(|us| us as f64 / 1000.0);
        ClassFigures {
            asked: calls.iter().filter(|call| call.0 == class).count(),
            ran: sorted.len(),
            p50_ms: at(50.0),
            p99_ms: at(99.0),
            p999_ms: at(99.9),
            max_ms: at(100.0),
        }
    })
}

/// Sorted latencies, in microseconds, of the calls that requested `class` and ran in it. Downgraded calls have no
/// objective.
fn latencies(calls: &[Call], class: u8) -> Vec<u64> {
    let mut sorted: Vec<u64> = calls
        .iter()
        .filter(|call| call.1 == class)
        .map(|call| call.4)
        .collect();
    sorted.sort_unstable();
    sorted
}

/// The smallest value of `sorted` that at least `percentile` percent do not exceed.
pub(crate) fn percentile_of(sorted: &[u64], percentile: f64) -> Option<u64> {
    let rank = (sorted.len() as f64 * percentile / 100.0).ceil().max(1.0) as usize;
    sorted.get(rank.min(sorted.len()).checked_sub(1)?).copied()
}

/// The latency that `percentile` percent of the calls in `class` do not exceed, in microseconds.
pub(crate) fn class_percentile(calls: &[Call], class: usize, percentile: f64) -> Option<u64> {
    percentile_of(&latencies(calls, class as u8), percentile)
}

/// Part of the calls of each class among `calls`, by the class that `of` names.
pub(crate) fn mix(calls: &[Call], of: fn(&Call) -> u8) -> [f64; CLASSES] {
    let total = calls.len().max(1) as f64;
    std::array::from_fn(|class| {
        let count = calls.iter().filter(|call| usize::from(of(call)) == class);
        count.count() as f64 / total
    })
}

/// By class, the largest difference of a client's part from the mean of all clients, relative to the mean.
pub(crate) fn apart(mixes: &[[f64; CLASSES]]) -> [f64; CLASSES] {
    std::array::from_fn(|class| {
        let parts = mixes.iter().map(|mix| mix[class]);
        let mean = parts.clone().sum::<f64>() / mixes.len().max(1) as f64;
        let differences = parts.map(|part| (part - mean).abs());
        match mean > 0.0 {
            true => differences.fold(0.0, f64::max) / mean,
            false => 0.0,
        }
    })
}

/// Fraction of the calls in `class` that took longer than `limit_us`, with its error by periods of `period_us`.
pub(crate) fn misses(calls: &[Call], class: usize, limit_us: u64, period_us: u64) -> Misses {
    let mut periods: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
    for call in calls.iter().filter(|call| usize::from(call.1) == class) {
        let entry = periods.entry(call.3 / period_us).or_default();
        entry.0 += 1.0;
        entry.1 += f64::from(u8::from(call.4 >= limit_us));
    }
    ratio(&periods.into_values().collect::<Vec<_>>())
}

/// The ratio of the second sums to the first, with the standard error of a ratio of cluster sums.
fn ratio(clusters: &[(f64, f64)]) -> Misses {
    let count = clusters.len() as f64;
    let total: f64 = clusters.iter().map(|cluster| cluster.0).sum();
    if total == 0.0 {
        return Misses::default();
    }
    let share = clusters.iter().map(|cluster| cluster.1).sum::<f64>() / total;
    let squares: f64 = clusters
        .iter()
        .map(|(all, missed)| (missed - share * all).powi(2))
        .sum();
    let error = match count > 1.0 {
        true => (squares * count / (count - 1.0)).sqrt() / total,
        false => 0.0,
    };
    Misses { share, error }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call of `class` in the `period`th millisecond that took `us`.
    fn call(class: u8, period: u64, us: u64) -> Call {
        (class, class, 0, period * 1000, us)
    }

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let sorted: Vec<u64> = (1..=200).collect();
        assert_eq!(percentile_of(&sorted, 50.0), Some(100));
        assert_eq!(percentile_of(&sorted, 99.0), Some(198));
        assert_eq!(percentile_of(&sorted, 99.9), Some(200));
        assert_eq!(percentile_of(&[], 50.0), None);
    }

    #[test]
    fn a_downgraded_call_counts_where_it_ran() {
        let calls = [(0, 2, 1, 0, 9_000), (0, 0, 0, 0, 1_000)];
        let figures = classes(&calls);
        assert_eq!((figures[0].asked, figures[0].ran), (2, 1));
        assert_eq!((figures[2].asked, figures[2].ran), (0, 1));
        assert_eq!(figures[0].max_ms, Some(1.0));
        assert_eq!(mix(&calls, |call| call.1), [0.5, 0.0, 0.5]);
    }

    #[test]
    fn clients_are_compared_with_their_mean() {
        let mixes = [[0.3, 0.2, 0.5], [0.1, 0.2, 0.7], [0.2, 0.2, 0.6]];
        let expected = [0.5, 0.0, 1.0 / 6.0];
        for (part, expected) in apart(&mixes).into_iter().zip(expected) {
            assert!((part - expected).abs() < 1e-9, "{part}");
        }
        assert_eq!(apart(&[[0.0; CLASSES]; 2]), [0.0; CLASSES]);
    }

    #[test]
    fn misses_that_come_together_are_less_sure() {
        // Four misses among forty calls: one in each of four periods, or all in one of them.
        let spread: Vec<Call> = (0..40)
            .map(|i| call(0, i / 10, if i % 10 == 0 { 9 } else { 1 }))
            .collect();
        let together: Vec<Call> = (0..40)
            .map(|i| call(0, i / 10, if i < 4 { 9 } else { 1 }))
            .collect();
        let (spread, together) = (misses(&spread, 0, 5, 1000), misses(&together, 0, 5, 1000));
        assert_eq!(spread.share, 0.1);
        assert_eq!(together.share, 0.1);
        assert!(spread.error < 1e-9 && together.error > 0.05, "{together:?}");
    }

    #[test]
    fn a_call_on_the_limit_missed_as_for_the_algorithm() {
        assert_eq!(misses(&[call(0, 0, 5)], 0, 5, 1000).share, 1.0);
    }
}
