//! The scheduling header of PDQ (paper section 3.2), packed into fields of a packet that nothing else of it uses.
//!
//! | field | holds |
//! |---|---|
//! | `key` | the deadline in picoseconds, all ones for none |
//! | `extra` | rate in megabits per second (upper half), the port that pauses the flow (lower half) |
//! | `expected` | nanoseconds that the rest takes at full rate |
//! | `payload` of an answer | hundredths of round trips between probes |

use crate::packet::Packet;
use isolane_common_quantities::units::{Duration, Instant};

/// No port pauses the flow.
pub(super) const NOT_PAUSED: u32 = u32::MAX;

/// A packet's fields about its flow, and the decisions of the ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) deadline: Option<Instant>,
    /// Time that the rest takes at full rate.
    pub(super) time: Duration,
    pub(super) rate_mbps: u32,
    /// Number of the port that pauses the flow, or [`NOT_PAUSED`].
    pub(super) paused_by: u32,
}

impl Header {
    pub(super) fn write(&self, packet: &mut Packet) {
        packet.key = self.deadline.unwrap_or(Instant::MAX).as_ps();
        packet.expected = u32::try_from(self.time.as_ps() / 1_000).unwrap_or(u32::MAX);
        self.decide(packet);
    }

    /// Writes rate and pause only.
    pub(super) fn decide(&self, packet: &mut Packet) {
        packet.extra = u64::from(self.rate_mbps) << 32 | u64::from(self.paused_by);
    }

    pub(super) fn read(packet: &Packet) -> Self {
        let deadline = Instant::from_ps(packet.key);
        Self {
            deadline: (deadline != Instant::MAX).then_some(deadline),
            time: Duration::from_ns(u64::from(packet.expected)),
            rate_mbps: (packet.extra >> 32) as u32,
            paused_by: packet.extra as u32,
        }
    }

    /// Time between probes that the ports allow, in an answer.
    pub(super) fn between_probes(packet: &Packet, round_trip: Duration) -> Duration {
        Duration::from_ps(round_trip.as_ps() * u64::from(packet.payload) / 100)
    }
}
