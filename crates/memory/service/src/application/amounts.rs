//! Amounts with units: bandwidths of memory, sizes or percentages, shares of processor time.
//!
//! Method: sizes and times are those of scenarios; a bandwidth is one in bytes, as memory's always are, and one in bits
//! is refused with what was probably meant. Percentages are exact to a ten-thousandth of a percent.
//! Units: bytes, bytes per second, millionths.

use isolane_common_quantities::units::{Bytes, Duration};
use isolane_common_toml_input::quantity;
use serde::{Deserialize, Serialize};

/// All of it, in millionths.
pub const WHOLE: u32 = 1_000_000;

/// Bytes, or a part of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Amount {
    /// So many bytes.
    Bytes(u64),
    /// A part, in millionths.
    Millionths(u32),
}

impl Amount {
    /// In bytes, as a part of `whole`; rounds down.
    pub fn of(self, whole: Bytes) -> Bytes {
        match self {
            Self::Bytes(bytes) => Bytes::new(bytes),
            Self::Millionths(share) => {
                let part = u128::from(whole.get()) * u128::from(share) / u128::from(WHOLE);
                Bytes::new(u64::try_from(part).unwrap_or(u64::MAX))
            }
        }
    }

    /// As it is written.
    pub fn text(self) -> String {
        match self {
            Self::Bytes(bytes) => size_text(bytes),
            Self::Millionths(share) => share_text(share),
        }
    }
}

/// Bytes or a percentage: `"8GiB"`, `"25%"`, `"12.5%"`.
pub fn amount(text: &str) -> Result<Amount, String> {
    match text.trim().ends_with('%') {
        true => share(text).map(Amount::Millionths),
        false => size(text)
            .map(Amount::Bytes)
            .map_err(|reason| format!("{reason}; or a percentage, like \"25%\"")),
    }
}

/// A size in bytes, as text with a unit: `"20GiB"`.
pub fn size(text: &str) -> Result<u64, String> {
    const FORM: &str =
        "must be a number and a unit of B, KiB, MiB, GiB, TiB, KB, MB, GB or TB, like \"20GiB\"";
    quantity::size(text)
        .map(Bytes::get)
        .map_err(|reason| reworded(&reason, FORM))
}

/// A latency in picoseconds: `"160ns"`.
pub fn latency(text: &str) -> Result<u64, String> {
    const FORM: &str = "must be a number and a unit of ns or us, like \"160ns\"";
    quantity::duration(text)
        .map(Duration::as_ps)
        .map_err(|reason| reworded(&reason, FORM))
}

/// What is wrong with a text, with the form that belongs here: scenarios' own tables take more than one value does.
fn reworded(reason: &str, form: &str) -> String {
    let what = reason.split("must be").next().unwrap_or("");
    let what = what.split(", did you mean").next().unwrap_or("");
    let what = what.trim_end_matches([';', ' ']);
    match what.is_empty() {
        true => form.to_owned(),
        false => format!("{what}; {form}"),
    }
}

/// A percentage up to 100, in millionths.
pub fn share(text: &str) -> Result<u32, String> {
    let form = || "must be 0% to 100%, with at most four decimals, like \"12.5%\"".to_owned();
    let number = text.trim().strip_suffix('%').ok_or_else(form)?.trim_end();
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > DECIMALS {
        return Err(form());
    }
    let whole: u32 = whole.parse().map_err(|_| form())?;
    let fraction: u32 = format!("{fraction:0<DECIMALS$}")
        .parse()
        .map_err(|_| form())?;
    let millionths = whole
        .checked_mul(WHOLE / 100)
        .and_then(|whole| whole.checked_add(fraction));
    millionths.filter(|&share| share <= WHOLE).ok_or_else(form)
}

/// Decimals of a percentage.
const DECIMALS: usize = 4;

/// A bandwidth of memory, bytes per second: `"40GB/s"`, `"0.5GB/s"`.
pub fn bandwidth(text: &str) -> Result<u64, String> {
    let form = "must be a number and a unit of B/s, KB/s, MB/s or GB/s, like \"40GB/s\"";
    let unit = text
        .trim()
        .trim_start_matches(|c: char| c.is_ascii_digit() || c == '.')
        .trim_start();
    if unit.ends_with("b/s") || unit.ends_with("bps") {
        return Err(format!(
            "is in bits; bandwidth of memory is in bytes: {form}"
        ));
    }
    if unit.contains("iB") {
        return Err(format!("is in binary units; {form}"));
    }
    let rate = quantity::rate(text).map_err(|reason| reworded(&reason, form))?;
    Ok(rate.as_bps() / 8)
}

/// A latency for people, exactly: in nanoseconds also where it is less than one, the usual unit of memory latency.
pub fn latency_text(ps: u64) -> String {
    match ps {
        0 => "0ns".to_owned(),
        1..1_000 => format!("0.{ps:03}ns"),
        _ => Duration::from_ps(ps).to_string(),
    }
}

/// A bandwidth for people, three digits.
pub fn bandwidth_text(bytes_per_s: u64) -> String {
    scaled(bytes_per_s as f64, 1000.0, &["B/s", "KB/s", "MB/s", "GB/s"])
}

/// A size for people, three digits.
pub fn size_text(bytes: u64) -> String {
    scaled(bytes as f64, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB"])
}

/// A share for people: a percentage without needless decimals.
pub fn share_text(millionths: u32) -> String {
    let text = format!("{:.4}", f64::from(millionths) / f64::from(WHOLE / 100));
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}

fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    let mut value = value;
    let mut place = 0;
    while value >= step && place + 1 < units.len() {
        value /= step;
        place += 1;
    }
    let decimals = match value {
        value if place == 0 || value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        _ => 2,
    };
    let number = format!("{value:.decimals$}");
    let number = match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => &number,
    };
    format!("{number} {}", units[place])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn percentages_are_exact() {
        assert_eq!(share("25%"), Ok(250_000));
        assert_eq!(share(" 12.5 %"), Ok(125_000));
        assert_eq!(share("0.0001%"), Ok(1));
        assert_eq!(share("100%"), Ok(WHOLE));
        for wrong in [
            "100.0001%",
            "101%",
            "-1%",
            "%",
            ".5%",
            "5.%",
            "1.23456%",
            "25",
            "1e1%",
        ] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            Amount::Millionths(250_000).of(Bytes::new(10)),
            Bytes::new(2)
        );
        assert_eq!(
            Amount::Millionths(WHOLE).of(Bytes::new(u64::MAX)),
            Bytes::new(u64::MAX)
        );
    }

    #[test]
    fn a_bandwidth_is_in_bytes() {
        assert_eq!(bandwidth("40GB/s"), Ok(40_000_000_000));
        assert_eq!(bandwidth("0.5 GB/s"), Ok(500_000_000));
        assert!(bandwidth("40Gb/s").unwrap_err().contains("is in bits"));
        assert!(bandwidth("40GiB/s").unwrap_err().contains("binary"));
        assert!(bandwidth("40").unwrap_err().contains("has no unit"));
        let wrong = bandwidth("40GBs").unwrap_err();
        assert!(
            wrong.contains("unknown unit") && !wrong.contains("Gb/s"),
            "{wrong}"
        );
    }

    #[test]
    fn amounts_are_bytes_or_parts() {
        assert_eq!(amount("8GiB"), Ok(Amount::Bytes(8 << 30)));
        assert_eq!(amount("50%"), Ok(Amount::Millionths(500_000)));
        assert!(amount("8Gib").unwrap_err().contains("25%"));
    }

    #[test]
    fn numbers_for_people_have_three_digits() {
        assert_eq!(bandwidth_text(40_000_000_000), "40 GB/s");
        assert_eq!(bandwidth_text(1_234), "1.23 KB/s");
        assert_eq!(size_text(18 << 30), "18 GiB");
        assert_eq!(size_text((18 << 30) + (512 << 20)), "18.5 GiB");
        assert_eq!(size_text(0), "0 B");
        assert_eq!(latency_text(0), "0ns");
        assert_eq!(latency_text(1), "0.001ns");
        assert_eq!(latency_text(160_000), "160ns");
        assert_eq!(size_text(200 << 10), "200 KiB");
        assert_eq!(share_text(258_000), "25.8%");
        assert_eq!(share_text(WHOLE), "100%");
        assert_eq!(share_text(0), "0%");
    }

    proptest! {
        #[test]
        fn a_printed_share_reads_back(share_in in 0..=WHOLE) {
            prop_assert_eq!(share(&share_text(share_in)), Ok(share_in));
        }

        #[test]
        fn no_text_panics(text in ".*") {
            let _ = (amount(&text), bandwidth(&text), share(&text));
        }
    }
}
