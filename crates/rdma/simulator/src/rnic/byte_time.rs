//! How long bytes take on a bus or a link.

/// Time per byte as a fixed-point number of 2^-16 ps, for buses and links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteTime(u64);

impl ByteTime {
    /// Bytes take no time.
    pub const NONE: Self = Self(0);

    /// The time of one byte at `gbps` gigabits per second (rounded to 2^-16 ps).
    pub fn at_gbps(gbps: f64) -> Self {
        Self((8_000.0 * 65_536.0 / gbps).round() as u64)
    }

    /// How long `bytes` take, picoseconds, rounded down.
    #[inline]
    pub const fn of(self, bytes: u64) -> u64 {
        (bytes * self.0) >> 16
    }
}
