//! The cost of a monitor: bus bytes for polls and updates, memory, cycles.
//!
//! Units: bytes, bits per second. Source: harmonic 5.12 (its arithmetic, with its figures for packet overheads) and
//! 5.4.4 for the search.

use super::entry::MappingUpdate;
use isolane_common_quantities::units::{BitRate, Duration};
use isolane_rdma_policy::harmonic::statistics::TenantStatistics;

/// Least overhead of a read request on the bus, bytes (harmonic 5.12).
pub const READ_REQUEST_OVERHEAD: u64 = 20;
/// Overhead of a completion, bytes (harmonic 5.12).
pub const COMPLETION_OVERHEAD: u64 = 16;
/// Overhead of a posted write, bytes: the same packet overhead as a request's.
pub const WRITE_OVERHEAD: u64 = 20;

/// Bytes on the bus in each direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BusCost {
    /// From the host to the monitor.
    pub to_monitor: u64,
    /// From the monitor to the host.
    pub to_host: u64,
}

impl BusCost {
    /// The rates when this happens every `interval`, rounded down to bits per second.
    pub fn every(self, interval: Duration) -> (BitRate, BitRate) {
        let rate = |bytes: u64| {
            let bits_ps = u128::from(bytes) * 8 * 1_000_000_000_000;
            BitRate::from_bps((bits_ps / u128::from(interval.as_ps().max(1))) as u64)
        };
        (rate(self.to_monitor), rate(self.to_host))
    }
}

/// Reading one tenant's counters: one read request and one completion for each.
pub const fn poll_cost() -> BusCost {
    BusCost {
        to_monitor: TenantStatistics::COUNTERS * READ_REQUEST_OVERHEAD,
        to_host: TenantStatistics::COUNTERS
            * (TenantStatistics::COUNTER_BYTES + COMPLETION_OVERHEAD),
    }
}

/// Sending `updates` mapping entries: one posted write for each.
pub const fn update_cost(updates: u64) -> BusCost {
    BusCost {
        to_monitor: updates * (MappingUpdate::BYTES as u64 + WRITE_OVERHEAD),
        to_host: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_poll_is_800_bytes_one_way_and_960_the_other() {
        let cost = poll_cost();
        assert_eq!((cost.to_monitor, cost.to_host), (800, 960));
    }

    #[test]
    fn polls_every_100_us_take_64_and_76_8_mbps() {
        let (to_monitor, to_host) = poll_cost().every(Duration::from_us(100));
        assert_eq!(to_monitor.as_bps(), 64_000_000);
        assert_eq!(to_host.as_bps(), 76_800_000);
        // Of a bus limited to 32 Gb/s: less than 0.25 %.
        let share = to_host.as_bps() as f64 / 32e9;
        assert!(share < 0.0025, "{share}");
    }
}
