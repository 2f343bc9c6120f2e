//! Quantities as types, so that a rate is never mistaken for a size.
//!
//! Units: time is an integer count of picoseconds (2^64 ps is 213 days), sizes are bytes, rates are bits per
//! second. Rounding is stated at each conversion. One byte at 100 Gb/s lasts exactly 80 ps, so picoseconds keep
//! every published link rate exact.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Sub, SubAssign};

/// Picoseconds in one second.
const PS_PER_SEC: u64 = 1_000_000_000_000;

/// A point in time: picoseconds since the start of the run.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Instant(u64);

impl Instant {
    /// The start of the run.
    pub const ZERO: Self = Self(0);
    /// Later than every event of a run.
    pub const MAX: Self = Self(u64::MAX);

    /// The instant `ps` picoseconds after the start.
    pub const fn from_ps(ps: u64) -> Self {
        Self(ps)
    }

    /// Picoseconds since the start.
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// Time since `earlier`; zero when `earlier` is later.
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }

    /// This instant plus `duration`, or [`Instant::MAX`] where that overflows.
    pub const fn saturating_add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration.0))
    }
}

/// A span of time in picoseconds.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Duration(u64);

impl Duration {
    /// No time.
    pub const ZERO: Self = Self(0);
    /// Longer than every run.
    pub const MAX: Self = Self(u64::MAX);

    /// `ps` picoseconds.
    pub const fn from_ps(ps: u64) -> Self {
        Self(ps)
    }

    /// `ns` nanoseconds.
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns * 1_000)
    }

    /// `us` microseconds.
    pub const fn from_us(us: u64) -> Self {
        Self(us * 1_000_000)
    }

    /// `ms` milliseconds.
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms * 1_000_000_000)
    }

    /// `s` seconds.
    pub const fn from_secs(s: u64) -> Self {
        Self(s * PS_PER_SEC)
    }

    /// `seconds` rounded to the nearest picosecond; negative and non-finite values become zero.
    pub fn from_secs_f64(seconds: f64) -> Self {
        Self(
            (seconds * PS_PER_SEC as f64)
                .round()
                .clamp(0.0, u64::MAX as f64) as u64,
        )
    }

    /// `ns` nanoseconds rounded to the nearest picosecond; negative and non-finite values become zero.
    pub fn from_ns_f64(ns: f64) -> Self {
        Self((ns * 1e3).round().clamp(0.0, u64::MAX as f64) as u64)
    }

    /// Picoseconds.
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// As a whole number of the largest unit that gives one, like `332us`: nothing is rounded.
    pub fn exact(self) -> String {
        let units = [
            (PS_PER_SEC, "s"),
            (1_000_000_000, "ms"),
            (1_000_000, "us"),
            (1_000, "ns"),
        ];
        let whole = |&&(scale, _): &&(u64, &str)| self.0 > 0 && self.0.is_multiple_of(scale);
        let &(scale, unit) = units.iter().find(whole).unwrap_or(&(1, "ps"));
        format!("{}{unit}", self.0 / scale)
    }

    /// Nanoseconds.
    pub fn as_ns_f64(self) -> f64 {
        self.0 as f64 / 1e3
    }

    /// Microseconds.
    pub fn as_us_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / PS_PER_SEC as f64
    }

    /// True for no time.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The difference, or zero when `other` is longer.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, rhs: Duration) -> Self {
        Self(self.0 + rhs.0)
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, rhs: Duration) {
        self.0 += rhs.0;
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;
    fn sub(self, rhs: Duration) -> Self {
        Self(self.0 - rhs.0)
    }
}

impl Sub for Instant {
    type Output = Duration;
    fn sub(self, rhs: Self) -> Duration {
        Duration(self.0 - rhs.0)
    }
}

impl Add for Duration {
    type Output = Self;
    fn add(self, rhs: Self) -> Self {
        Self(self.0 + rhs.0)
    }
}

impl AddAssign for Duration {
    fn add_assign(&mut self, rhs: Self) {
        self.0 += rhs.0;
    }
}

impl Sub for Duration {
    type Output = Self;
    fn sub(self, rhs: Self) -> Self {
        Self(self.0 - rhs.0)
    }
}

impl SubAssign for Duration {
    fn sub_assign(&mut self, rhs: Self) {
        self.0 -= rhs.0;
    }
}

impl Mul<u64> for Duration {
    type Output = Self;
    fn mul(self, rhs: u64) -> Self {
        Self(self.0 * rhs)
    }
}

impl Div<u64> for Duration {
    type Output = Self;
    /// Rounds down.
    fn div(self, rhs: u64) -> Self {
        Self(self.0 / rhs)
    }
}

impl Sum for Duration {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        Self(iter.map(|duration| duration.0).sum())
    }
}

/// Prints with the largest unit that keeps the number above one: `1.3us`.
impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scale, unit) = match self.0 {
            0..1_000 => (1.0, "ps"),
            1_000..1_000_000 => (1e3, "ns"),
            1_000_000..1_000_000_000 => (1e6, "us"),
            1_000_000_000..PS_PER_SEC => (1e9, "ms"),
            _ => (1e12, "s"),
        };
        let text = format!("{:.3}", self.0 as f64 / scale);
        let text = text.trim_end_matches('0').trim_end_matches('.');
        f.pad(&format!("{text}{unit}"))
    }
}

/// A size in bytes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Bytes(u64);

impl Bytes {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// `n` bytes.
    pub const fn new(n: u64) -> Self {
        Self(n)
    }

    /// `n` times 1,024 bytes.
    pub const fn from_kib(n: u64) -> Self {
        Self(n << 10)
    }

    /// `n` times 1,048,576 bytes.
    pub const fn from_mib(n: u64) -> Self {
        Self(n << 20)
    }

    /// The count of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The difference, or zero when `other` is larger.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add for Bytes {
    type Output = Self;
    fn add(self, rhs: Self) -> Self {
        Self(self.0 + rhs.0)
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, rhs: Self) {
        self.0 += rhs.0;
    }
}

impl Sub for Bytes {
    type Output = Self;
    fn sub(self, rhs: Self) -> Self {
        Self(self.0 - rhs.0)
    }
}

impl SubAssign for Bytes {
    fn sub_assign(&mut self, rhs: Self) {
        self.0 -= rhs.0;
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        Self(iter.map(|bytes| bytes.0).sum())
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (shift, unit) = match self.0 {
            n if n >= 1 << 30 && n % (1 << 30) == 0 => (30, "GiB"),
            n if n >= 1 << 20 && n % (1 << 20) == 0 => (20, "MiB"),
            n if n >= 1 << 10 && n % (1 << 10) == 0 => (10, "KiB"),
            _ => (0, "B"),
        };
        f.pad(&format!("{}{unit}", self.0 >> shift))
    }
}

/// A rate in bits per second.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct BitRate(u64);

impl BitRate {
    /// Nothing per second.
    pub const ZERO: Self = Self(0);

    /// `bps` bits per second.
    pub const fn from_bps(bps: u64) -> Self {
        Self(bps)
    }

    /// `gbps` gigabits (10^9 bits) per second.
    pub const fn from_gbps(gbps: u64) -> Self {
        Self(gbps * 1_000_000_000)
    }

    /// `gbps` gigabits per second, rounded to the nearest bit; negative and non-finite values become zero.
    pub fn from_gbps_f64(gbps: f64) -> Self {
        Self((gbps * 1e9).round().clamp(0.0, u64::MAX as f64) as u64)
    }

    /// Bits per second.
    pub const fn as_bps(self) -> u64 {
        self.0
    }

    /// Gigabits per second.
    pub fn as_gbps_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// How long `bytes` take at this rate, rounded up to a picosecond; [`Duration::MAX`] at rate zero.
    pub fn time_for(self, bytes: Bytes) -> Duration {
        if self.0 == 0 {
            return Duration::MAX;
        }
        let ps = (u128::from(bytes.0) * 8 * u128::from(PS_PER_SEC)).div_ceil(u128::from(self.0));
        Duration(u64::try_from(ps).unwrap_or(u64::MAX))
    }

    /// How many whole bytes pass in `duration`, rounded down.
    pub fn bytes_in(self, duration: Duration) -> Bytes {
        let bytes = u128::from(self.0) * u128::from(duration.0) / (8 * u128::from(PS_PER_SEC));
        Bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    /// The mean rate of `bytes` over `duration`, rounded down; zero over no time.
    pub fn of(bytes: Bytes, duration: Duration) -> Self {
        if duration.is_zero() {
            return Self::ZERO;
        }
        let bps = u128::from(bytes.0) * 8 * u128::from(PS_PER_SEC) / u128::from(duration.0);
        Self(u64::try_from(bps).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:.2}Gb/s", self.as_gbps_f64()))
    }
}

/// An exact ratio of two integers, for weights and shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ratio {
    /// The part.
    pub numerator: u64,
    /// The whole; never zero.
    pub denominator: u64,
}

impl Ratio {
    /// All of it.
    pub const ONE: Self = Self {
        numerator: 1,
        denominator: 1,
    };

    /// `numerator / denominator`. Panics if `denominator` is zero.
    pub const fn new(numerator: u64, denominator: u64) -> Self {
        assert!(denominator > 0, "a ratio needs a non-zero denominator");
        Self {
            numerator,
            denominator,
        }
    }

    /// `value` times this ratio, rounded down.
    pub fn of(self, value: u64) -> u64 {
        let scaled = u128::from(value) * u128::from(self.numerator) / u128::from(self.denominator);
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }

    /// The ratio as a floating-point number.
    pub fn as_f64(self) -> f64 {
        self.numerator as f64 / self.denominator as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_exact_duration_is_a_whole_number_of_the_largest_unit() {
        let of = |ps| Duration::from_ps(ps).exact();
        let all = [
            0,
            1,
            332_000_000,
            3_000_000_000,
            2 * PS_PER_SEC,
            PS_PER_SEC + 1,
        ]
        .map(of);
        assert_eq!(all, ["0ps", "1ps", "332us", "3ms", "2s", "1000000000001ps"]);
    }

    #[test]
    fn one_byte_at_100_gbps_lasts_80_ps() {
        assert_eq!(
            BitRate::from_gbps(100).time_for(Bytes::new(1)),
            Duration::from_ps(80)
        );
    }

    #[test]
    fn display_picks_the_readable_unit() {
        assert_eq!(Duration::from_ns(1_300).to_string(), "1.3us");
        assert_eq!(Duration::from_ps(80).to_string(), "80ps");
        assert_eq!(Bytes::from_mib(1).to_string(), "1MiB");
        assert_eq!(Bytes::new(1_000_000).to_string(), "1000000B");
        assert_eq!(BitRate::from_gbps(48).to_string(), "48.00Gb/s");
    }

    #[test]
    fn zero_rate_never_finishes() {
        assert_eq!(BitRate::ZERO.time_for(Bytes::new(1)), Duration::MAX);
        assert_eq!(BitRate::of(Bytes::new(1), Duration::ZERO), BitRate::ZERO);
    }

    proptest! {
        #[test]
        fn a_rate_sends_at_least_what_it_takes_time_for(gbps in 1u64..400, bytes in 0u64..1 << 31) {
            let rate = BitRate::from_gbps(gbps);
            let time = rate.time_for(Bytes::new(bytes));
            prop_assert!(rate.bytes_in(time).get() >= bytes);
            prop_assert!(time.is_zero() || rate.bytes_in(time - Duration::from_ps(1)).get() <= bytes);
        }
    }
}
