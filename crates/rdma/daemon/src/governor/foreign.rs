//! Traffic on a device that no session posted: the port's counters less what the sessions sent.
//!
//! Problem: such traffic delays the reference flow, and the policy would answer by halving the sessions' rate. Method:
//! [`Balance`] compares, per window, the bytes that the port sent with the most that the sessions' payload can be on the
//! wire. Payload that was posted in the last two windows may still be in the device's queue, so only bytes beyond it are
//! foreign. Reference messages, acknowledgements of received packets, and READs that peers' daemons have reported, are no
//! foreign traffic.
//! The policy learns whether there is any. Units: bytes of the port's counters, bytes per second. Limits: a lower bound;
//! headers and queues hide less than a tenth of the sessions' own rate. Traffic of processes of the latency class is not
//! counted by their sessions, so a process that sends bulk there counts as foreign.

use super::Governor;
use super::device::Device;
use isolane_common_quantities::units::Duration;

/// What a port counted in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortCount {
    /// Length of the window.
    pub length: Duration,
    /// Bytes that the port sent.
    pub sent_bytes: u64,
    /// Packets that the port received.
    pub received_packets: u64,
}

/// The account of one device.
#[derive(Clone, Debug, Default)]
pub(super) struct Balance {
    /// Bytes and messages that the sessions sent since the last window, and messages that they READ.
    sent: [u64; 2],
    reads: u64,
    /// Sessions' bytes that may still be in the device's queue.
    under_way: u64,
    /// Largest bytes of the sessions in the last window.
    last: u64,
    /// When a window last had much foreign traffic, and the length of that window, ns.
    seen_at_ns: Option<(u64, u64)>,
    /// Foreign bytes per second in the last window; `None` before the first one.
    pub(super) rate: Option<u64>,
    /// Foreign bytes since the start.
    pub(super) bytes: u64,
}

impl Balance {
    /// Counts what a session sent, or READ.
    pub(super) fn count(&mut self, is_read: bool, bytes: u64, messages: u64) {
        if is_read {
            self.reads = self.reads.saturating_add(messages);
            return;
        }
        self.sent[0] = self.sent[0].saturating_add(bytes);
        self.sent[1] = self.sent[1].saturating_add(messages);
    }

    /// Ends a window on a port of `rate_max` bytes per second, of which peers may READ `granted`. Returns whether
    /// there is foreign traffic.
    fn end(&mut self, now_ns: u64, count: &PortCount, rate_max: u64, granted: u64) -> bool {
        let [bytes, messages] = std::mem::take(&mut self.sent);
        let reads = std::mem::take(&mut self.reads);
        let packets = (bytes / PACKET_LEAST)
            .saturating_add(messages)
            .saturating_add(reads)
            .saturating_add(count.received_packets);
        let in_window = |rate: u64| {
            let bytes = u128::from(rate) * u128::from(count.length.as_ps()) / 1_000_000_000_000;
            u64::try_from(bytes).unwrap_or(u64::MAX)
        };
        let ours = bytes
            .saturating_add(packets.saturating_mul(HEADERS))
            .saturating_add(in_window(granted));
        let covered = self.under_way.saturating_add(ours);
        let foreign = count.sent_bytes.saturating_sub(covered);
        let newest = ours.saturating_add(self.last);
        self.under_way = covered.saturating_sub(count.sent_bytes).min(newest);
        self.last = ours;
        self.bytes = self.bytes.saturating_add(foreign);
        let per_s =
            u128::from(foreign) * 1_000_000_000_000 / u128::from(count.length.as_ps().max(1));
        self.rate = Some(u64::try_from(per_s).unwrap_or(u64::MAX));
        if foreign > in_window(rate_max) / PART {
            self.seen_at_ns = Some((now_ns, count.length.as_ps() / 1_000));
        }
        self.is_there(now_ns)
    }

    /// Whether there was foreign traffic recently.
    pub(super) fn is_there(&self, now_ns: u64) -> bool {
        self.seen_at_ns.is_some_and(|(seen, window)| {
            now_ns.saturating_sub(seen) < HELD_NS.max(window.saturating_mul(2))
        })
    }
}

impl Device {
    /// Time of a window: long enough that a few large messages do not decide.
    pub(super) fn count_window(&self) -> Duration {
        let chunk = self
            .options
            .rate_max
            .time_for(self.options.token_without_latency);
        WINDOW_LEAST.max(chunk * CHUNKS)
    }
}

impl Governor {
    /// Time until a device's port should be counted again.
    pub fn count_window(&self, device: usize) -> Duration {
        let device = &self.devices[device];
        match device.latency_weight() > 0 && device.is_active() {
            true => device.count_window(),
            false => WINDOW_IDLE.max(device.count_window()),
        }
    }

    /// Whether there is foreign traffic on a device, and its bytes per second in the last window.
    pub fn foreign(&self, now_ns: u64, device: usize) -> (bool, u64) {
        let balance = &self.devices[device].foreign;
        (balance.is_there(now_ns), balance.rate.unwrap_or(0))
    }

    /// Reports what the port of a device counted since the last report.
    pub fn port_counted(&mut self, now_ns: u64, device: usize, count: &PortCount) {
        for index in 0..self.seats.len() as u32 {
            self.look_at(now_ns, index);
        }
        let now = self.instant(now_ns);
        let device = &mut self.devices[device];
        let rate_max = device.options.rate_max.as_bps() / 8;
        let policy = device.policy.as_ref();
        let granted = policy.map_or(0, |policy| policy.granted_reads().as_bps() / 8);
        let is_there = device.foreign.end(now_ns, count, rate_max, granted);
        if let Some(policy) = &mut device.policy {
            policy.set_foreign(now, is_there);
            device.dirty = true;
        }
    }
}

/// Fewest payload bytes of a full packet, for the largest number of headers.
const PACKET_LEAST: u64 = 1_024;
/// Most bytes of headers and checksums of a packet: Ethernet, IPv6, UDP, BTH, RETH, ICRC and FCS.
const HEADERS: u64 = 110;
/// Foreign traffic above this part of the device's rate counts: 1/32. Errors of the counters are below it.
const PART: u64 = 32;
/// Foreign traffic counts as there for this long, ns, and for two windows: longer than the pauses of a bursty sender.
const HELD_NS: u64 = 200_000_000;
/// Drivers refresh their counters every 10 ms.
const WINDOW_LEAST: Duration = Duration::from_ms(20);
/// Window without latency flows: the result is for people alone.
const WINDOW_IDLE: Duration = Duration::from_ms(200);
/// Large chunks in a window.
const CHUNKS: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    /// 100 Gb/s: 250 MB in a window of 20 ms.
    const RATE: u64 = 12_500_000_000;

    fn count(sent_bytes: u64) -> PortCount {
        PortCount {
            length: Duration::from_ms(20),
            sent_bytes,
            received_packets: 0,
        }
    }

    #[test]
    fn what_sessions_post_is_not_foreign_although_it_leaves_later() {
        let mut balance = Balance::default();
        for window in 1..10 {
            balance.count(false, 100_000_000, 100);
            // Everything leaves a window later, with its headers.
            let sent = if window == 1 { 0 } else { 105_000_000 };
            assert!(!balance.end(window * 20 * MS, &count(sent), RATE, 0));
            assert_eq!(balance.rate, Some(0));
        }
    }

    #[test]
    fn bytes_that_no_session_posted_are_foreign_and_are_remembered_for_a_while() {
        let mut balance = Balance::default();
        balance.count(false, 100_000_000, 100);
        assert!(balance.end(20 * MS, &count(200_000_000), RATE, 0));
        let rate = balance.rate.unwrap();
        assert!((4_000_000_000..5_000_000_000).contains(&rate), "{rate}");
        assert!(balance.end(40 * MS, &count(0), RATE, 0));
        assert!(!balance.end(220 * MS, &count(0), RATE, 0));
    }

    #[test]
    fn long_windows_are_remembered_until_the_one_after_the_next() {
        let mut balance = Balance::default();
        let long = PortCount {
            length: Duration::from_secs(5),
            ..count(RATE)
        };
        assert!(balance.end(5_000 * MS, &long, RATE, 0));
        assert!(balance.is_there(14_999 * MS));
        assert!(!balance.is_there(15_000 * MS));
    }

    #[test]
    fn small_messages_have_many_headers() {
        let mut balance = Balance::default();
        // 64 bytes each; a packet of RoCE v2 over IPv4 adds 78.
        balance.count(false, 64_000_000, 1_000_000);
        assert!(!balance.end(20 * MS, &count(142_000_000), RATE, 0));
        assert_eq!(balance.bytes, 0);
    }

    #[test]
    fn acknowledgements_and_granted_reads_are_not_foreign() {
        let mut balance = Balance::default();
        let acknowledging = PortCount {
            received_packets: 200_000,
            ..count(13_000_000)
        };
        assert!(!balance.end(20 * MS, &acknowledging, RATE, 0));
        let answers = count(125_000_000);
        assert!(!balance.end(40 * MS, &answers, RATE, RATE / 2));
        assert!(balance.end(60 * MS, &answers, RATE, 0));
    }

    #[test]
    fn backlog_of_long_ago_covers_nothing() {
        let mut balance = Balance::default();
        balance.count(false, 250_000_000, 1);
        for window in 1..4 {
            assert!(!balance.end(window * 20 * MS, &count(0), RATE, 0));
        }
        assert!(balance.end(80 * MS, &count(100_000_000), RATE, 0));
    }

    #[test]
    fn forged_counters_do_not_overflow() {
        let mut balance = Balance::default();
        for is_read in [false, true] {
            balance.count(is_read, u64::MAX, u64::MAX);
            balance.count(is_read, u64::MAX, u64::MAX);
        }
        let most = PortCount {
            length: Duration::MAX,
            sent_bytes: u64::MAX,
            received_packets: u64::MAX,
        };
        balance.end(1, &most, u64::MAX, u64::MAX);
        balance.end(
            2,
            &PortCount {
                length: Duration::ZERO,
                ..most
            },
            u64::MAX,
            u64::MAX,
        );
    }
}
