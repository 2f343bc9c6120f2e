//! What an acknowledgement changes at the sender.
//!
//! Method: it moves the first unacknowledged byte, marks what arrived out of order, gives a round-trip sample (of the oldest
//! segment that it touches and that was sent once), lets the window grow or shrink, ends a flow, and sends.
//! The rate that segment sizes and TCP Small Queues go by is the window over the smoothed round trip, times the
//! profile's percentage.

use super::flow::RoundTrip;
use super::window::Acknowledged;
use crate::segment::AckInfo;
use crate::world::World;
use isolane_common_quantities::units::Duration;

impl World {
    /// An acknowledgement of `flow` arrived.
    pub(crate) fn acknowledged(&mut self, flow: u32, info: &AckInfo, processor: u16) {
        self.spent += self.settings.cost.ack;
        let sample = self.sample(flow, info.ack);
        let mss = self.settings.mss;
        let entry = &mut self.flows[flow as usize];
        let acked = info.ack.saturating_sub(entry.una);
        entry.una = entry.una.max(info.ack);
        // A rolled-back local drop may be acknowledged after all, when it was dropped from the midst of a queue.
        entry.nxt = entry.nxt.max(entry.una);
        for &(after, length) in info.blocks.iter().filter(|block| block.1 > 0) {
            let start = info.ack + u64::from(after);
            entry.scoreboard.add(start, start + u64::from(length));
        }
        let was_repairing = entry.scoreboard.is_repairing();
        let begins = entry.scoreboard.update(entry.una, entry.nxt, mss);
        if begins {
            entry.window.lost();
        }
        if acked > 0 {
            entry.backoff = 0;
            entry.probed = false;
        }
        let (smoothed, least) = match entry.rtt {
            Some(rtt) => (rtt.smoothed, rtt.least),
            None => (Duration::ZERO, Duration::ZERO),
        };
        let recovering = entry.scoreboard.is_repairing();
        entry.window.acknowledged(&Acknowledged {
            now: self.now,
            bytes: acked,
            marked: u64::from(info.marked),
            una: entry.una,
            nxt: entry.nxt,
            packets: acked as f64 / f64::from(mss),
            sample,
            smoothed,
            least,
            // After a timeout slow start goes on while the losses are repaired.
            may_grow: !recovering && !was_repairing || entry.window.in_slow_start(),
        });
        let factor = match entry.window.size < entry.window.threshold / 2.0 {
            true => self.settings.pacing_start,
            false => self.settings.pacing,
        };
        if !smoothed.is_zero() {
            let packets = entry.window.size.max(f64::from(entry.in_flight(mss)));
            let window = packets * f64::from(mss) * factor;
            entry.rate = (window / smoothed.as_secs_f64()) as u64;
        }
        if entry.una >= entry.size && entry.finished.is_none() {
            entry.finished = Some(self.now);
            self.measure.unfinished -= 1;
        }
        if acked > 0 {
            self.set_timer(flow, true);
        }
        self.send(flow, processor, false);
    }

    /// A round-trip sample, if the acknowledgement touches a segment that was sent once.
    fn sample(&mut self, flow: u32, ack: u64) -> Option<Duration> {
        let entry = &mut self.flows[flow as usize];
        if ack <= entry.una {
            return None;
        }
        let mut sent = None;
        while let Some(&(end, at)) = entry.sent.front() {
            if end > ack {
                // Part of it: segments are acknowledged by packets.
                sent = sent.or(Some(at));
                break;
            }
            sent = sent.or(Some(at));
            entry.sent.pop_front();
        }
        if entry.scoreboard.is_repairing() {
            return None;
        }
        let sample = self.now.saturating_since(sent?);
        match &mut entry.rtt {
            Some(rtt) => rtt.add(sample),
            None => entry.rtt = Some(RoundTrip::first(sample)),
        }
        Some(sample)
    }
}
