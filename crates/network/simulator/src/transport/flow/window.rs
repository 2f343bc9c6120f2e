//! The sending end of a flow whose window grows by slow start, then by one packet per round trip (pFabric, QJump).
//!
//! Units: packets.

use super::alarm::Alarm;
use crate::network::Network;
use crate::packet::Timer;
use isolane_common_quantities::units::Duration;

/// A window and the packets that it covers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Window {
    /// Packets that may be under way.
    pub size: f64,
    /// The size at which slow start ends.
    pub threshold: f64,
    /// Packets under way, as far as the sender knows.
    pub flight: u32,
    /// Next packet to send, unless it is acknowledged.
    pub next: u32,
    /// One more than the last packet ever sent.
    pub fresh: u32,
    /// Rings after a silence.
    pub alarm: Alarm,
}

impl Window {
    /// A window of a new flow in the record of an old one, whose timer may still be under way.
    #[must_use]
    pub fn renewed(&self, size: f64, threshold: f64) -> Self {
        Self {
            size,
            threshold,
            alarm: self.alarm,
            ..Self::default()
        }
    }

    /// Whether one more packet may be under way.
    #[inline]
    pub fn has_room(&self) -> bool {
        f64::from(self.flight) < self.size.floor()
    }

    /// Counts packet `sequence` as sent; true if it was sent before.
    #[inline]
    pub fn send(
        &mut self,
        network: &mut Network,
        sequence: u32,
        timeout: Duration,
        timer: Timer,
    ) -> bool {
        let repeated = sequence < self.fresh;
        self.next = self.next.max(sequence + 1);
        self.fresh = self.fresh.max(sequence + 1);
        self.flight += 1;
        if !self.alarm.is_set() {
            self.alarm.set(network, network.now() + timeout, timer);
        }
        repeated
    }

    /// Counts an acknowledged packet; the window grows to at most `most`.
    #[inline]
    pub fn acknowledge(&mut self, most: f64) {
        self.flight = self.flight.saturating_sub(1);
        let step = match self.size < self.threshold {
            true => 1.0,
            false => 1.0 / self.size,
        };
        self.size = (self.size + step).min(most);
    }

    /// Sets the alarm anew. A flow that may send and has nothing under way waits only for its own host's turn: it
    /// expects no answer.
    #[inline]
    pub fn wait(&mut self, network: &mut Network, may_send: bool, timeout: Duration, timer: Timer) {
        if self.flight == 0 && may_send {
            self.alarm.clear();
        } else {
            self.alarm.set(network, network.now() + timeout, timer);
        }
    }

    /// After a silence: half the window, at least `least`, becomes the threshold; the window is one packet, and packets
    /// from `first_missing` on are sent again.
    pub fn restart(&mut self, least: f64, first_missing: u32) {
        self.threshold = (self.size / 2.0).max(least);
        self.size = 1.0;
        self.flight = 0;
        self.next = first_missing;
    }
}
