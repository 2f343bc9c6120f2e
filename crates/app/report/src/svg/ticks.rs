//! Round numbers on an axis.
//!
//! Linear steps are 1, 2 or 5 times a power of ten; a tick is a whole number of steps, worked out from the whole
//! number, so that no error accumulates. Logarithmic ticks are powers of ten, with 2 and 5 in between when the
//! axis spans less than two decades.

use crate::number::fixed;

/// Where the ticks of one axis are, and how they are written.
#[derive(Clone, Debug, PartialEq)]
pub struct Ticks {
    /// Values in the axis' unit, ascending.
    pub values: Vec<f64>,
    /// Their labels, one per value.
    pub labels: Vec<String>,
}

/// About `target` ticks from at or below `low` to at or above `high`. A range without width, or one that is not
/// finite, becomes 0 to 1 (or 0 to `high`).
pub fn linear(low: f64, high: f64, target: usize) -> Ticks {
    let (low, high) = sane(low, high);
    let step = step_for((high - low) / target.max(1) as f64);
    let first = (low / step + TOLERANCE).floor();
    let last = (high / step - TOLERANCE).ceil();
    let decimals = (-step.log10()).ceil().max(0.0) as usize;
    let count = (last - first) as usize;
    let values: Vec<f64> = (0..=count)
        .map(|index| (first + index as f64) * step)
        .collect();
    let labels = values.iter().map(|&value| fixed(value, decimals)).collect();
    Ticks { values, labels }
}

/// Powers of ten from at or below `low` to at or above `high`, both above zero; others count as 1.
pub fn logarithmic(low: f64, high: f64) -> Ticks {
    let low = if low.is_finite() && low > 0.0 {
        low
    } else {
        1.0
    };
    let high = if high.is_finite() && high > low {
        high
    } else {
        low * 10.0
    };
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let factors: &[f64] = if last - first <= 2 {
        &[1.0, 2.0, 5.0]
    } else {
        &[1.0]
    };
    let mut values = Vec::new();
    let mut labels = Vec::new();
    for exponent in first..=last {
        for factor in factors {
            let value = factor * 10f64.powi(exponent);
            values.push(value);
            labels.push(fixed(value, (-exponent).max(0) as usize));
        }
    }
    let keep_from = values
        .iter()
        .rposition(|&value| value <= low * (1.0 + TOLERANCE))
        .unwrap_or(0);
    let keep_to = values
        .iter()
        .position(|&value| value >= high * (1.0 - TOLERANCE))
        .unwrap_or(values.len() - 1);
    Ticks {
        values: values[keep_from..=keep_to].to_vec(),
        labels: labels[keep_from..=keep_to].to_vec(),
    }
}

fn sane(low: f64, high: f64) -> (f64, f64) {
    let width = high - low;
    if width.is_finite() && width > low.abs().max(high.abs()) * TOLERANCE {
        (low, high)
    } else if high.is_finite() && high > 0.0 {
        (0.0, high)
    } else {
        (0.0, 1.0)
    }
}

/// The smallest step of 1, 2 or 5 times a power of ten that is at least `rough`.
fn step_for(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    let fraction = rough / power;
    let nice = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|&nice| fraction <= nice * (1.0 + TOLERANCE));
    let factor = nice.unwrap_or(10.0);
    // A power below one is inexact; dividing by its inverse gives the nearest number.
    if power < 1.0 {
        factor / (1.0 / power).round()
    } else {
        factor * power
    }
}

/// Relative error that floating-point arithmetic may leave in a bound.
const TOLERANCE: f64 = 1e-9;

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use proptest::prelude::*;

    #[test]
    fn ticks_are_round_numbers() {
        let ranges = [
            (0.0, 1.0),
            (0.0, 97.3),
            (0.0, 100.0),
            (0.0, 0.034),
            (0.0, 12_500.0),
            (3.2, 3.9),
            (-5.0, 5.0),
            (7.0, 7.0),
            (0.0, 0.0),
            (0.0, f64::NAN),
        ];
        let mut table = String::new();
        for (low, high) in ranges {
            let ticks = linear(low, high, 4);
            table.push_str(&format!("{low} to {high}: {}\n", ticks.labels.join(" ")));
        }
        for (low, high) in [
            (0.8, 1000.0),
            (2.0, 9.0),
            (1.5, 40.0),
            (0.03, 0.2),
            (0.0, -1.0),
        ] {
            let ticks = logarithmic(low, high);
            table.push_str(&format!(
                "log {low} to {high}: {}\n",
                ticks.labels.join(" ")
            ));
        }
        expect![[r#"
            0 to 1: 0.0 0.5 1.0
            0 to 97.3: 0 50 100
            0 to 100: 0 50 100
            0 to 0.034: 0.00 0.01 0.02 0.03 0.04
            0 to 12500: 0 5,000 10,000 15,000
            3.2 to 3.9: 3.2 3.4 3.6 3.8 4.0
            -5 to 5: −5 0 5
            7 to 7: 0 2 4 6 8
            0 to 0: 0.0 0.5 1.0
            0 to NaN: 0.0 0.5 1.0
            log 0.8 to 1000: 0.1 1 10 100 1,000
            log 2 to 9: 2 5 10
            log 1.5 to 40: 1 2 5 10 20 50
            log 0.03 to 0.2: 0.02 0.05 0.1 0.2
            log 0 to -1: 1 2 5 10
        "#]]
        .assert_eq(&table);
    }

    proptest! {
        #[test]
        fn ticks_span_the_range_evenly(low in -1e6f64..1e6, width in 1e-3f64..1e6, target in 2usize..10) {
            let ticks = linear(low, low + width, target);
            let step = ticks.values[1] - ticks.values[0];
            prop_assert!(ticks.values[0] <= low + step * 1e-6);
            prop_assert!(*ticks.values.last().expect("never empty") >= low + width - step * 1e-6);
            prop_assert!(ticks.values.len() <= target + 3);
            for pair in ticks.values.windows(2) {
                prop_assert!((pair[1] - pair[0] - step).abs() < step * 1e-3);
            }
            let mut labels = ticks.labels.clone();
            labels.dedup();
            prop_assert_eq!(labels.len(), ticks.labels.len());
        }
    }
}
