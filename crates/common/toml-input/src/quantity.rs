//! Parses durations, sizes and rates with units.
//!
//! Method: a decimal number, optional spaces, a unit; computed in integers, so `"1.3us"` is exactly 1,300,000 ps. A
//! value finer than the base unit (a picosecond, a byte, a bit per second) is an error and never rounded.

use isolane_common_quantities::units::{BitRate, Bytes, Duration};

const DURATION_UNITS: &[(&str, u128)] = &[
    ("ps", 1),
    ("ns", 1_000),
    ("us", 1_000_000),
    ("µs", 1_000_000),
    ("ms", 1_000_000_000),
    ("s", 1_000_000_000_000),
];
const SIZE_UNITS: &[(&str, u128)] = &[
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("KB", 1_000),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];
const RATE_UNITS: &[(&str, u128)] = &[
    ("b/s", 1),
    ("Kb/s", 1_000),
    ("kb/s", 1_000),
    ("Mb/s", 1_000_000),
    ("Gb/s", 1_000_000_000),
    ("bps", 1),
    ("Kbps", 1_000),
    ("Mbps", 1_000_000),
    ("Gbps", 1_000_000_000),
    ("B/s", 8),
    ("KB/s", 8_000),
    ("MB/s", 8_000_000),
    ("GB/s", 8_000_000_000),
];

/// Allowed form of a duration, for messages.
pub const DURATION_FORM: &str =
    "must be text with a number and a unit of ps, ns, us, ms or s, like \"20us\"";
/// Allowed form of a size, for messages.
pub const SIZE_FORM: &str = "must be whole bytes, or text with a unit of B, KiB, MiB, GiB, TiB, KB, MB, GB or TB, like \"64KiB\"";
/// Allowed form of a rate, for messages.
pub const RATE_FORM: &str = "must be text with a number and a unit of b/s, Kb/s, Mb/s, Gb/s or B/s ... GB/s, like \"10Gb/s\"";

/// Parses a duration.
pub fn duration(text: &str) -> Result<Duration, String> {
    scaled(text, DURATION_UNITS, DURATION_FORM).map(Duration::from_ps)
}

/// Parses a size.
pub fn size(text: &str) -> Result<Bytes, String> {
    scaled(text, SIZE_UNITS, SIZE_FORM).map(Bytes::new)
}

/// Parses a rate.
pub fn rate(text: &str) -> Result<BitRate, String> {
    scaled(text, RATE_UNITS, RATE_FORM).map(BitRate::from_bps)
}

/// The remedy for a duration `shown` without a unit, between `min` and `max` picoseconds: the three largest units that fit.
pub fn with_time_units(shown: &str, min: u64, max: u64) -> String {
    let fits = |unit: &&str| {
        let text = format!("{shown}{unit}");
        duration(&text).is_ok_and(|duration| (min..=max).contains(&duration.as_ps()))
    };
    let mut units: Vec<&str> = ["s", "ms", "us", "ns"]
        .into_iter()
        .filter(fits)
        .take(3)
        .collect();
    units.reverse();
    let written: Vec<String> = units
        .iter()
        .map(|unit| format!("\"{shown}{unit}\""))
        .collect();
    match written.as_slice() {
        [] => DURATION_FORM.to_owned(),
        [one] => format!("has no unit; write {one}"),
        [first @ .., last] => format!("has no unit; write {} or {last}", first.join(", ")),
    }
}

fn scaled(text: &str, units: &[(&str, u128)], form: &str) -> Result<u64, String> {
    let text = text.trim();
    let split = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit = unit.trim_start();
    if number.is_empty() {
        return Err(form.to_owned());
    }
    let Some(&(_, scale)) = units.iter().find(|(name, _)| *name == unit) else {
        // "GB" is nearer to "GB/s" than to "Gb/s", eight times as much.
        let mut names = units.iter().map(|(name, _)| *name);
        let begun = names.find(|name| unit.len() > 1 && name.starts_with(unit));
        let names = units.iter().map(|(name, _)| *name);
        let near = begun.or_else(|| crate::error::nearest(unit, names));
        return Err(match near {
            _ if unit.is_empty() => format!("has no unit; {form}"),
            Some(near) => format!("unknown unit {unit:?}, did you mean {near:?}? {form}"),
            None => format!("unknown unit {unit:?}; {form}"),
        });
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.contains('.') || (number.contains('.') && fraction.is_empty()) {
        return Err(form.to_owned());
    }
    let too_large = || format!("is too large; {form}");
    let whole: u128 = whole.parse().map_err(|_| too_large())?;
    let mut value = whole.checked_mul(scale).ok_or_else(too_large)?;
    let fraction = fraction.trim_end_matches('0');
    if !fraction.is_empty() {
        let places = u32::try_from(fraction.len()).map_err(|_| too_large())?;
        let finer = || "is finer than the smallest unit (1 ps, 1 B, 1 b/s)".to_owned();
        let divisor = 10u128.checked_pow(places).ok_or_else(finer)?;
        let part: u128 = fraction.parse().map_err(|_| finer())?;
        let scaled = part.checked_mul(scale).ok_or_else(finer)?;
        if scaled % divisor != 0 {
            return Err(finer());
        }
        value = value.checked_add(scaled / divisor).ok_or_else(too_large)?;
    }
    u64::try_from(value).map_err(|_| too_large())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn units_scale_exactly() {
        assert_eq!(duration("1.3us"), Ok(Duration::from_ps(1_300_000)));
        assert_eq!(duration("2 ms"), Ok(Duration::from_ms(2)));
        assert_eq!(size("64KiB"), Ok(Bytes::new(65_536)));
        assert_eq!(size("1MB"), Ok(Bytes::new(1_000_000)));
        assert_eq!(rate("0.5Gb/s"), Ok(BitRate::from_bps(500_000_000)));
        assert_eq!(rate("1GB/s"), Ok(BitRate::from_gbps(8)));
    }

    #[test]
    fn units_that_fit_are_offered() {
        let most = 100_000_000_000_000;
        let offered = |shown, max| with_time_units(shown, 1, max);
        assert_eq!(
            offered("20", most),
            r#"has no unit; write "20us", "20ms" or "20s""#
        );
        assert_eq!(
            offered("160", 1_000_000_000),
            r#"has no unit; write "160ns" or "160us""#
        );
        assert_eq!(offered("-3", most), DURATION_FORM);
    }

    #[test]
    fn a_missing_or_wrong_unit_is_named() {
        assert!(duration("20").unwrap_err().starts_with("has no unit"));
        assert!(
            duration("20usec")
                .unwrap_err()
                .contains("did you mean \"us\"")
        );
        assert!(size("64Kb").unwrap_err().contains("unknown unit"));
        assert!(duration("0.0001ns").unwrap_err().contains("finer"));
        assert!(
            duration("99999999999999999999s")
                .unwrap_err()
                .contains("too large")
        );
        assert!(duration("-1us").is_err());
        assert!(duration("1.us").is_err());
        assert!(duration("1.2.3us").is_err());
    }

    proptest! {
        #[test]
        fn a_printed_duration_reads_back(ps in 0u64..1_000_000_000) {
            prop_assert_eq!(duration(&format!("{ps}ps")), Ok(Duration::from_ps(ps)));
            let text = format!("{}.{:03}ns", ps / 1_000, ps % 1_000);
            prop_assert_eq!(duration(&text), Ok(Duration::from_ps(ps)));
        }

        #[test]
        fn no_text_panics(text in ".*") {
            let _ = (duration(&text), size(&text), rate(&text));
        }
    }
}
