//! Numbers for people: three significant digits, thousands separated, never without their unit.
//!
//! The page's script formats numbers too, by the same rules (`assets/plot.js`); a browser test holds the two together.

/// `value` with `digits` significant digits (at least one); whole numbers beyond that are not rounded further.
/// What is not finite prints as a dash.
pub fn significant(value: f64, digits: u32) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    let decimals = decimals_for(value, digits);
    if decimals > DECIMALS_MAX {
        return format!("{value:.1e}");
    }
    fixed(value, decimals)
}

/// `value` with exactly `decimals` digits after the point, thousands separated.
pub fn fixed(value: f64, decimals: usize) -> String {
    let text = format!("{:.*}", decimals, value.abs());
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let mut out = String::with_capacity(text.len() + 4);
    let is_zero = text.bytes().all(|byte| byte == b'0' || byte == b'.');
    if value < 0.0 && !is_zero {
        out.push('−');
    }
    out.push_str(&separated(whole));
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

/// A whole number, thousands separated.
pub fn whole(value: u64) -> String {
    separated(&value.to_string())
}

/// A rate of payload given in gigabits per second, in the prefix that suits it.
pub fn bit_rate(gbps: f64) -> String {
    let magnitude = gbps.abs();
    if magnitude == 0.0 || magnitude >= 0.1 || !magnitude.is_finite() {
        format!("{} Gb/s", significant(gbps, 3))
    } else if magnitude >= 1e-4 {
        format!("{} Mb/s", significant(gbps * 1e3, 3))
    } else {
        format!("{} kb/s", significant(gbps * 1e6, 3))
    }
}

/// A rate of messages (or of control verbs), in the prefix that suits it; `what` is `msg`, `verbs`, ...
pub fn rate(per_s: f64, what: &str) -> String {
    let magnitude = per_s.abs();
    if magnitude >= 1e6 {
        format!("{} M {what}/s", significant(per_s / 1e6, 3))
    } else if magnitude >= 1e3 {
        format!("{} k {what}/s", significant(per_s / 1e3, 3))
    } else {
        format!("{} {what}/s", significant(per_s, 3))
    }
}

/// A time given in microseconds, in the prefix that suits it.
pub fn time(us: f64) -> String {
    let magnitude = us.abs();
    if magnitude >= 1e6 {
        format!("{} s", significant(us / 1e6, 3))
    } else if magnitude >= 1e3 {
        format!("{} ms", significant(us / 1e3, 3))
    } else if magnitude >= 0.1 || magnitude == 0.0 || !magnitude.is_finite() {
        format!("{} µs", significant(us, 3))
    } else {
        format!("{} ns", significant(us * 1e3, 3))
    }
}

/// A fraction, 0 to 1, as a percentage.
pub fn percent(fraction: f64) -> String {
    let percentage = fraction * 100.0;
    if !percentage.is_finite() {
        "–".to_owned()
    } else if percentage != 0.0 && percentage.abs() < 1.0 {
        format!("{}%", significant(percentage, 1))
    } else {
        format!("{}%", fixed(percentage, 0))
    }
}

/// `value` rounded to `digits` significant digits, for compact data.
pub fn rounded(value: f64, digits: u32) -> f64 {
    if !value.is_finite() || value == 0.0 {
        return 0.0;
    }
    let text = format!("{value:.*e}", digits.saturating_sub(1) as usize);
    text.parse()
        .expect("a number printed by this program parses")
}

/// Digits after the point that leave `digits` significant ones; rounding up to the next power of ten counts.
fn decimals_for(value: f64, digits: u32) -> usize {
    let magnitude = rounded(value.abs(), digits).log10().floor();
    (f64::from(digits) - 1.0 - magnitude).max(0.0) as usize
}

fn separated(digits: &str) -> String {
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Smaller numbers than this many decimals can show are written with a power of ten.
const DECIMALS_MAX: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn numbers_keep_three_digits_and_their_unit() {
        let values = [
            0.0, 0.00000123, 0.0123, 0.09996, 0.9999, 1.0, 9.996, 42.42, 99.95, 999.5, 12_345.6,
            1.234e9,
        ];
        let table: String = values
            .iter()
            .map(|&value| {
                format!(
                    "{:>12} | {:>14} | {:>14} | {:>12} | {:>10}\n",
                    significant(value, 3),
                    bit_rate(value),
                    rate(value, "msg"),
                    time(value),
                    percent(value)
                )
            })
            .collect();
        expect![[r#"
                       0 |         0 Gb/s |        0 msg/s |         0 µs |         0%
                  1.2e-6 |      1.23 kb/s |   1.2e-6 msg/s |   0.00123 ns |    0.0001%
                  0.0123 |      12.3 Mb/s |   0.0123 msg/s |      12.3 ns |         1%
                   0.100 |       100 Mb/s |    0.100 msg/s |       100 ns |        10%
                    1.00 |      1.00 Gb/s |     1.00 msg/s |      1.00 µs |       100%
                    1.00 |      1.00 Gb/s |     1.00 msg/s |      1.00 µs |       100%
                    10.0 |      10.0 Gb/s |     10.0 msg/s |      10.0 µs |     1,000%
                    42.4 |      42.4 Gb/s |     42.4 msg/s |      42.4 µs |     4,242%
                     100 |       100 Gb/s |      100 msg/s |       100 µs |     9,995%
                   1,000 |     1,000 Gb/s |    1,000 msg/s |     1,000 µs |    99,950%
                  12,346 |    12,346 Gb/s |   12.3 k msg/s |      12.3 ms | 1,234,560%
            1,234,000,000 | 1,234,000,000 Gb/s |  1,234 M msg/s |      1,234 s | 123,400,000,000%
        "#]]
        .assert_eq(&table);
    }

    #[test]
    fn what_is_not_a_number_is_a_dash() {
        assert_eq!(significant(f64::NAN, 3), "–");
        assert_eq!(bit_rate(f64::INFINITY), "– Gb/s");
        assert_eq!(fixed(-0.001, 1), "0.0");
        assert_eq!(fixed(-1234.5, 1), "−1,234.5");
    }

    proptest::proptest! {
        #[test]
        fn rounding_moves_a_number_by_less_than_its_last_digit(value in -1e12f64..1e12) {
            let rounded = rounded(value, 4);
            proptest::prop_assert!((rounded - value).abs() <= value.abs() * 5.1e-4);
        }
    }
}
