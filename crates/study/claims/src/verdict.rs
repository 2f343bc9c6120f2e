//! Whether our number agrees with the published one.
//!
//! Defaults depend on the unit: ratios and latencies 25 %, shares and rates 10 %. Bounds and orderings are exact.

use crate::expression::Value;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a paper says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Published {
    /// A number.
    Value(f64),
    /// "... or more".
    AtLeast(f64),
    /// "less than ...".
    AtMost(f64),
    /// One measurement is above another.
    Ordering,
    /// The number is not available: ours is reported alone.
    Withheld,
}

/// How far ours may be from a published value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Tolerance {
    /// A fraction of the published value.
    Relative(f64),
    /// In the claim's unit.
    Absolute(f64),
    /// Not at all: bounds, orderings, integer arithmetic.
    Exact,
}

/// What a claim's number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// One measurement divided by another.
    #[serde(rename = "x")]
    Ratio,
    /// A part of a hundred; of processors, 100 is one of them.
    #[serde(rename = "%")]
    Percent,
    /// Latency or time, milliseconds.
    #[serde(rename = "ms")]
    Milliseconds,
    /// Latency or time, microseconds.
    #[serde(rename = "us")]
    Microseconds,
    /// Latency, nanoseconds.
    #[serde(rename = "ns")]
    Nanoseconds,
    /// Gigabytes, 10^9.
    #[serde(rename = "GB")]
    Gigabytes,
    /// Gigabytes per second.
    #[serde(rename = "GB/s")]
    GigabytesPerSecond,
    /// A part of a whole, 0 to 1.
    #[serde(rename = "share")]
    Share,
    /// Gigabits per second.
    #[serde(rename = "Gb/s")]
    Gbps,
    /// Million messages per second.
    #[serde(rename = "M/s")]
    MegaPerSecond,
    /// Thousand operations per second.
    #[serde(rename = "k/s")]
    KiloPerSecond,
    /// Bytes.
    #[serde(rename = "B")]
    Bytes,
    /// A plain count.
    #[serde(rename = "count")]
    Count,
    /// True or false.
    #[serde(rename = "ordering")]
    Ordering,
}

impl Unit {
    /// The tolerance of a claim that states none.
    pub fn default_tolerance(self) -> Tolerance {
        match self {
            Self::Ratio | Self::Nanoseconds | Self::Microseconds | Self::Milliseconds => {
                Tolerance::Relative(0.25)
            }
            Self::Share
            | Self::Percent
            | Self::Gbps
            | Self::Gigabytes
            | Self::GigabytesPerSecond
            | Self::MegaPerSecond
            | Self::KiloPerSecond => Tolerance::Relative(0.1),
            Self::Bytes | Self::Count | Self::Ordering => Tolerance::Exact,
        }
    }

    /// As it follows a number; ratios are written `1.9x`.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Ratio => "x",
            Self::Percent => " %",
            Self::Milliseconds => " ms",
            Self::Microseconds => " us",
            Self::Share | Self::Count | Self::Ordering => "",
            Self::Nanoseconds => " ns",
            Self::Gigabytes => " GB",
            Self::GigabytesPerSecond => " GB/s",
            Self::Gbps => " Gb/s",
            Self::MegaPerSecond => " M/s",
            Self::KiloPerSecond => " k/s",
            Self::Bytes => " B",
        }
    }
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Relative(part) => f.pad(&format!("{} %", part * 100.0)),
            Self::Absolute(distance) => f.pad(&format!("+-{distance}")),
            Self::Exact => f.pad("exact"),
        }
    }
}

/// Whether `ours` agrees with what is published; `None` where nothing is published.
pub fn within(published: Published, tolerance: Tolerance, ours: Value) -> Option<bool> {
    match (published, ours) {
        (Published::Withheld, _) => None,
        (Published::Ordering, Value::Truth(holds)) => Some(holds),
        (Published::Value(value), Value::Number(ours)) => {
            let allowed = match tolerance {
                Tolerance::Relative(part) => part * value.abs(),
                Tolerance::Absolute(distance) => distance,
                Tolerance::Exact => 0.0,
            };
            Some((ours - value).abs() <= allowed + rounding(value))
        }
        (Published::AtLeast(bound), Value::Number(ours)) => Some(ours >= bound - rounding(bound)),
        (Published::AtMost(bound), Value::Number(ours)) => Some(ours <= bound + rounding(bound)),
        (Published::Ordering, Value::Number(_)) | (_, Value::Truth(_)) => Some(false),
    }
}

/// What floating-point arithmetic may lose of a number like this.
fn rounding(value: f64) -> f64 {
    value.abs() * 1e-12
}

/// How the values of several seeds become one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Over {
    /// The median of the metric's values; an ordering must hold in four of five seeds.
    #[default]
    Median,
    /// Their mean.
    Mean,
    /// The lowest.
    Lowest,
    /// The highest.
    Highest,
    /// The metric once, of measurements averaged over the seeds: what a paper compares that prints averages of runs.
    MeanOfRuns,
    /// The metric once, of the medians of measurements over the seeds: what a paper compares that prints medians.
    MedianOfRuns,
}

impl Over {
    /// Whether single seeds must hold too: not where the statement is about the lowest, the highest or the mean of all.
    pub fn is_judged_by_seed(self) -> bool {
        matches!(self, Self::Median | Self::MeanOfRuns | Self::MedianOfRuns)
    }
}

/// Whether at least four fifths of these hold: one seed of five may miss, and none of three.
pub fn enough(holds: impl Iterator<Item = bool>) -> bool {
    let (mut held, mut all) = (0_usize, 0_usize);
    for holds in holds {
        held += usize::from(holds);
        all += 1;
    }
    5 * held >= 4 * all
}

/// One value of several seeds, as `over` says: the median of numbers (mean of the middle two), say, and an ordering only
/// if it holds in four fifths of the seeds.
pub fn over_seeds(values: &[Value], over: Over) -> Option<Value> {
    if values.iter().any(|value| matches!(value, Value::Truth(_))) {
        let held = values.iter().map(|value| *value != Value::Truth(false));
        return Some(Value::Truth(enough(held)));
    }
    let mut numbers: Vec<f64> = values
        .iter()
        .filter_map(|value| match value {
            Value::Number(number) => Some(*number),
            Value::Truth(_) => None,
        })
        .collect();
    numbers.sort_by(f64::total_cmp);
    let (lowest, highest) = (numbers.first().copied()?, numbers.last().copied()?);
    let middle = numbers.len() / 2;
    Some(Value::Number(match over {
        Over::Lowest => lowest,
        Over::Highest => highest,
        Over::Mean => numbers.iter().sum::<f64>() / numbers.len() as f64,
        _ if numbers.len() % 2 == 1 => numbers[middle],
        Over::Median | Over::MeanOfRuns | Over::MedianOfRuns => {
            f64::midpoint(numbers[middle - 1], numbers[middle])
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(published: Published, tolerance: Tolerance, ours: f64) -> Option<bool> {
        within(published, tolerance, Value::Number(ours))
    }

    #[test]
    fn a_relative_tolerance_is_a_part_of_the_published_value() {
        let published = Published::Value(4.0);
        let tolerance = Tolerance::Relative(0.25);
        assert_eq!(number(published, tolerance, 3.0), Some(true));
        assert_eq!(number(published, tolerance, 5.0), Some(true));
        assert_eq!(number(published, tolerance, 5.01), Some(false));
        assert_eq!(number(published, tolerance, 2.99), Some(false));
    }

    #[test]
    fn an_absolute_tolerance_is_in_the_unit() {
        let published = Published::Value(148.8);
        assert_eq!(
            number(published, Tolerance::Absolute(0.05), 100.0 * 189.0 / 127.0),
            Some(true)
        );
        assert_eq!(
            number(published, Tolerance::Absolute(0.01), 100.0 * 189.0 / 127.0),
            Some(false)
        );
    }

    #[test]
    fn bounds_are_exact() {
        assert_eq!(
            number(Published::AtLeast(2.85), Tolerance::Exact, 2.85),
            Some(true)
        );
        assert_eq!(
            number(Published::AtLeast(2.85), Tolerance::Exact, 2.84),
            Some(false)
        );
        assert_eq!(
            number(Published::AtMost(0.06), Tolerance::Exact, 0.061),
            Some(false)
        );
    }

    #[test]
    fn nothing_published_means_no_verdict() {
        assert_eq!(number(Published::Withheld, Tolerance::Exact, 3.0), None);
    }

    #[test]
    fn an_ordering_must_hold_in_four_of_five_seeds() {
        let of = |values: &[bool]| {
            let values: Vec<Value> = values.iter().copied().map(Value::Truth).collect();
            over_seeds(&values, Over::Median)
        };
        let (yes, no) = (Some(Value::Truth(true)), Some(Value::Truth(false)));
        assert_eq!(of(&[true, false, true]), no);
        assert_eq!(of(&[true, false, true, true, true]), yes);
        assert_eq!(of(&[true, false, true, true, false]), no);
    }

    #[test]
    fn numbers_give_their_median() {
        let values = [9.0, 1.0, 2.0].map(Value::Number);
        assert_eq!(over_seeds(&values, Over::Median), Some(Value::Number(2.0)));
        assert_eq!(
            over_seeds(&values[..2], Over::Median),
            Some(Value::Number(5.0))
        );
        assert_eq!(over_seeds(&[], Over::Median), None);
    }
}
