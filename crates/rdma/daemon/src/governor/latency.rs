//! Decides whether a tenant keeps the latency class.
//!
//! Problem: queue pairs of the latency class are not paced, and all others are split into small chunks to protect them.
//! Each queue pair is judged by its own traffic, but a thousand slow queue pairs with small messages are bulk together.
//! Method: the traffic of all latency queue pairs of a tenant on a device is summed over windows of [`WINDOW_NS`]. A
//! tenant that posts more than 1/[`BYTES_PART`] of the device's bytes or 1/[`MESSAGES_PART`] of its messages in a
//! window loses the class on that device for [`LOST_NS`]: its queue pairs are paced as bandwidth, and other senders are
//! not slowed for them. Limits: the counters are the process's own. A process that hides traffic from them is not
//! paced; `isolane rdma enforce` limits such a process. A process that a rule of the operator puts into the latency
//! class is not watched.

/// Traffic of one tenant's latency queue pairs on one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LatencyWatch {
    since_ns: u64,
    posted: [u64; 2],
    lost_until_ns: u64,
}

impl LatencyWatch {
    /// Adds posted bytes and messages on a device with `rates` (both, per second). Returns whether the tenant loses the
    /// class now.
    pub(super) fn posted(&mut self, now_ns: u64, more: [u64; 2], rates: [u64; 2]) -> bool {
        if now_ns.saturating_sub(self.since_ns) >= WINDOW_NS {
            self.since_ns = now_ns;
            self.posted = [0; 2];
        }
        for (sum, more) in self.posted.iter_mut().zip(more) {
            *sum = sum.saturating_add(more);
        }
        // Windows per second: converts a rate into an amount per window.
        let windows = 1_000_000_000 / WINDOW_NS;
        let most = [
            rates[0] / BYTES_PART / windows,
            rates[1] / MESSAGES_PART / windows,
        ];
        let bulk = self.posted[0] > most[0].max(BYTES_LEAST)
            || self.posted[1] > most[1].max(MESSAGES_LEAST);
        let lost = bulk && !self.is_lost(now_ns);
        if bulk {
            self.lost_until_ns = now_ns + LOST_NS;
        }
        lost
    }

    /// Whether the tenant has lost the class on this device.
    pub(super) fn is_lost(&self, now_ns: u64) -> bool {
        now_ns < self.lost_until_ns
    }
}

/// Long enough that a burst of requests does not count as bulk.
const WINDOW_NS: u64 = 100_000_000;
/// 1/16 of the device's bytes: requests and responses of a few kilobytes stay far below.
const BYTES_PART: u64 = 16;
/// 1/8 of the device's messages: the threshold of a fast queue pair ([`isolane_rdma_policy::classify`]).
const MESSAGES_PART: u64 = 8;
/// Lower bound for slow devices, bytes per window.
const BYTES_LEAST: u64 = 64 << 10;
/// Lower bound for slow devices, messages per window: 100,000 per second, the rate of one queue pair that waits for
/// each response.
const MESSAGES_LEAST: u64 = 10_000;
/// How long the class stays lost after the last window with bulk, ns.
const LOST_NS: u64 = 10_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 GB/s and 10 million messages per second: 6.25 MB and 125,000 messages per window.
    const RATES: [u64; 2] = [1_000_000_000, 10_000_000];

    #[test]
    fn a_window_of_bulk_loses_the_class_for_ten_seconds() {
        let mut watch = LatencyWatch::default();
        assert!(!watch.posted(WINDOW_NS, [6_250_000, 10], RATES));
        assert!(watch.posted(WINDOW_NS + 1, [1, 1], RATES));
        assert!(
            !watch.posted(WINDOW_NS + 2, [1, 1], RATES),
            "it is lost once"
        );
        assert!(watch.is_lost(WINDOW_NS + LOST_NS));
        assert!(!watch.is_lost(WINDOW_NS + 2 + LOST_NS));
    }

    #[test]
    fn many_messages_are_bulk_and_separate_windows_are_not_summed() {
        let mut watch = LatencyWatch::default();
        for window in 1..100 {
            let now_ns = window * WINDOW_NS;
            assert!(!watch.posted(now_ns, [6_000_000, 125_000], RATES));
        }
        assert!(watch.posted(100 * WINDOW_NS, [0, 125_001], RATES));
    }

    #[test]
    fn forged_counters_do_not_overflow() {
        let mut watch = LatencyWatch::default();
        assert!(watch.posted(1, [u64::MAX; 2], [u64::MAX; 2]));
        watch.posted(2, [u64::MAX; 2], [0; 2]);
    }
}
