//! What a sender may send now.
//!
//! Method: lost ranges first, then new data, in segments. A segment is as large as the flow's rate sends in a
//! millisecond (1/1024 s), at least the profile's packets and at most the largest segment; it waits for more window when that would
//! come soon (deferral: a third of the window suffices), and has at most half of the window, so that two are in flight.
//! TCP Small Queues: nothing more leaves while the host holds more of the flow than its rate sends in a millisecond, at
//! least two segments (Titan's kernel has no such least) and at most the limit; a completion lets it go on. The application keeps data ready: it writes whenever less than a write is left.
//! Source: Linux 4.4, `tcp_write_xmit`, `tcp_cwnd_test`, `tcp_tso_autosize`, `tcp_tso_should_defer`; titan 2.2 and its
//! published kernel.

use crate::processor::Job;
use crate::segment::{Kind, NIL, Segment};
use crate::tcp::flow::Flow;
use crate::transmit::packets_of;
use crate::world::{Event, World};
use isolane_common_quantities::units::Duration;

/// Least time before a lost tail is probed for (RFC 8985).
const PROBE_LEAST: Duration = Duration::from_ms(10);

impl World {
    pub(crate) fn begin(&mut self, flow: u32) {
        self.ask_to_write(flow);
    }

    /// TCP Small Queues let the flow go on.
    pub(crate) fn wake(&mut self, flow: u32, processor: u16) {
        self.spent += self.settings.cost.wake;
        self.flows[flow as usize].waking = false;
        self.send(flow, processor, self.settings.config.transmit_batching);
    }

    /// The application writes.
    pub(crate) fn write(&mut self, flow: u32, processor: u16) {
        let entry = &mut self.flows[flow as usize];
        entry.writing = false;
        let bytes = self.settings.write.min(entry.size - entry.written);
        entry.written += bytes;
        self.spent += self.settings.cost.write + self.copy_time(bytes);
        self.send(flow, processor, false);
    }

    /// Sends what may be sent; `more` if other flows of its batch follow.
    pub(crate) fn send(&mut self, flow: u32, processor: u16, more: bool) {
        let (mut limited, mut sent) = (false, false);
        let host = self.flows[flow as usize].source;
        loop {
            let largest = self.largest_segment(flow);
            let entry = &self.flows[flow as usize];
            let in_flight = entry.in_flight(self.settings.mss);
            let window = entry.window.size as u32;
            let Some(quota) = window.checked_sub(in_flight).filter(|quota| *quota > 0) else {
                limited = true;
                break;
            };
            let again = entry.scoreboard.has_lost(entry.una);
            let half = (window / 2).max(1);
            let payload = match again {
                true => quota.min(half).min(largest) * self.settings.mss,
                false => match self.new_payload(entry, quota, largest, in_flight) {
                    Ok(payload) => payload,
                    Err(held) => {
                        limited |= held;
                        break;
                    }
                },
            };
            if self.is_small_queue_full(flow, payload) {
                self.flows[flow as usize].throttled = true;
                break;
            }
            let segment = self.emit(flow, payload, again);
            self.transmit(host, segment, processor, more);
            sent = true;
        }
        let entry = &mut self.flows[flow as usize];
        if sent {
            let in_flight = entry.in_flight(self.settings.mss);
            limited |= in_flight >= entry.window.size as u32;
            entry
                .window
                .measure(entry.una, entry.nxt, in_flight, limited);
        }
        if entry.written - entry.nxt < self.settings.write {
            self.ask_to_write(flow);
        }
        self.set_timer(flow, false);
    }

    /// Packets of the largest segment that the flow may make now.
    fn largest_segment(&self, flow: u32) -> u32 {
        let settings = &self.settings;
        let entry = &self.flows[flow as usize];
        let config = &settings.config;
        let mut limit = config.segment.get();
        if let (false, Some(sizes)) = (
            config.transmit_batching,
            &self.hosts[usize::from(entry.source)].sizes,
        ) {
            limit = limit.min(sizes.current().get());
        }
        let most = packets_of(limit, settings.mss, settings.header);
        let by_rate = (entry.rate / 1024 / u64::from(settings.mss)) as u32;
        by_rate.max(settings.packets_min).min(most)
    }

    /// Payload of the next new segment; or whether it was the window that held it back.
    fn new_payload(
        &self,
        entry: &Flow,
        quota: u32,
        largest: u32,
        in_flight: u32,
    ) -> Result<u32, bool> {
        let settings = &self.settings;
        let mss = u64::from(settings.mss);
        let unsent = entry.written - entry.nxt;
        let offered = (entry.una + settings.receive_window).saturating_sub(entry.nxt);
        if unsent == 0 || offered < mss {
            return Err(false);
        }
        let is_tail = entry.written == entry.size;
        if unsent < mss && !is_tail {
            return Err(false);
        }
        let full = u64::from(largest) * mss;
        let half = (entry.window.size as u64 / 2).max(1) * mss;
        let quota = u64::from(quota) * mss;
        let third = (entry.window.size as u64 * mss).min(settings.receive_window) / 3;
        let waits = quota < full.min(unsent) && quota < third && in_flight > 0;
        if waits && self.ack_is_near(entry) {
            return Err(true);
        }
        let payload = full.min(quota).min(half).min(offered).min(unsent);
        Ok(match payload >= mss {
            true => payload - payload % mss,
            false => payload,
        } as u32)
    }

    /// Whether the oldest segment in flight is older than half of a round trip: its acknowledgement comes soon.
    fn ack_is_near(&self, entry: &Flow) -> bool {
        let oldest = entry.sent.front().map(|(_, at)| *at);
        match (oldest, entry.rtt) {
            (Some(at), Some(rtt)) => self.now.saturating_since(at) >= rtt.smoothed / 2,
            _ => true,
        }
    }

    /// Whether TCP Small Queues hold back a segment with this payload.
    fn is_small_queue_full(&self, flow: u32, payload: u32) -> bool {
        if !self.settings.config.small_queues {
            return false;
        }
        let entry = &self.flows[flow as usize];
        let truesize = u64::from(payload + self.settings.overhead);
        let least = match self.settings.config.transmit_batching {
            true => 0,
            false => 2 * truesize,
        };
        let limit = (entry.rate >> 10).max(least).min(self.settings.small_queue);
        entry.memory > limit
    }

    /// Makes a segment.
    fn emit(&mut self, flow: u32, payload: u32, again: bool) -> Segment {
        let settings = &self.settings;
        let entry = &mut self.flows[flow as usize];
        let (seq, payload) = match again {
            true => {
                let lost = entry
                    .scoreboard
                    .take(entry.una, entry.nxt, u64::from(payload));
                let (start, end) = lost.expect("the caller saw a loss");
                (start, (end - start) as u32)
            }
            false => (entry.nxt, payload),
        };
        let header = settings.header;
        let mut segment = Segment {
            seq,
            entered: self.now,
            rate: entry.rate,
            flow,
            next: NIL,
            payload,
            taken: 0,
            memory: payload + settings.overhead,
            info: NIL,
            bytes: 0,
            descriptors: 0,
            header: header as u16,
            kind: Kind::Data,
            again,
        };
        entry.memory += u64::from(segment.memory);
        self.measure.memory_most = self.measure.memory_most.max(entry.memory);
        if again {
            self.measure.retransmissions += u64::from(self.settings.packets(payload));
        } else {
            entry.nxt += u64::from(payload);
            entry.sent.push_back((entry.nxt, self.now));
        }
        self.measured(&mut segment, payload);
        segment
    }

    /// A software queue of this host dropped a segment: TCP slows down, and sends it again.
    pub(crate) fn dropped_here(&mut self, segment: &Segment) {
        let entry = &mut self.flows[segment.flow as usize];
        if !entry.scoreboard.is_repairing() {
            entry.window.lost();
        }
        let end = segment.seq + u64::from(segment.payload);
        if !segment.again && end == entry.nxt {
            entry.nxt = segment.seq;
            while entry.sent.back().is_some_and(|(end, _)| *end > segment.seq) {
                entry.sent.pop_back();
            }
        }
    }

    fn ask_to_write(&mut self, flow: u32) {
        let entry = &mut self.flows[flow as usize];
        if !entry.writing && entry.written < entry.size {
            entry.writing = true;
            let (host, processor) = (entry.source, entry.processor);
            self.plan(host, processor, Job::Write { flow });
        }
    }

    /// Starts or restarts the retransmission timer.
    pub(crate) fn set_timer(&mut self, flow: u32, anew: bool) {
        let least = self.settings.timeout_min;
        let entry = &mut self.flows[flow as usize];
        if entry.nxt == entry.una {
            entry.deadline = None;
            return;
        }
        if entry.deadline.is_some() && !anew {
            return;
        }
        let mut after = entry.timeout_after(least);
        if let (Some(rtt), false, false) =
            (entry.rtt, entry.probed, entry.scoreboard.is_repairing())
        {
            after = after.min((rtt.smoothed * 2).max(PROBE_LEAST));
        }
        let deadline = self.now + after;
        entry.deadline = Some(deadline);
        if !entry.timer_planned {
            entry.timer_planned = true;
            self.events.schedule(deadline, Event::Timer { flow });
        }
    }

    /// The retransmission timer may be due.
    pub(crate) fn timer(&mut self, flow: u32) {
        let entry = &mut self.flows[flow as usize];
        entry.timer_planned = false;
        let Some(deadline) = entry.deadline else {
            return;
        };
        if deadline > self.now {
            entry.timer_planned = true;
            self.events.schedule(deadline, Event::Timer { flow });
            return;
        }
        let (host, processor) = (entry.source, entry.processor);
        self.plan(host, processor, Job::Timeout { flow });
    }

    pub(crate) fn timeout(&mut self, flow: u32, processor: u16) {
        self.spent += self.settings.cost.wake;
        let mss = u64::from(self.settings.mss);
        let entry = &mut self.flows[flow as usize];
        let is_due = entry.deadline.is_some_and(|deadline| deadline <= self.now);
        if !is_due || entry.nxt == entry.una {
            return;
        }
        entry.deadline = None;
        if entry.memory > 0 && entry.sent.front().is_some() && entry.scoreboard.gone(entry.una) == 0
        {
            // Nothing of it left the host yet: the host is slow, not the network.
            return self.set_timer(flow, true);
        }
        if !entry.probed && !entry.scoreboard.is_repairing() {
            // The last packet again: its acknowledgement shows what is missing.
            entry.probed = true;
            let payload = mss.min(entry.nxt - entry.una);
            entry.scoreboard.probe(entry.nxt - payload, entry.nxt);
            let host = entry.source;
            let segment = self.emit(flow, payload as u32, true);
            self.transmit(host, segment, processor, false);
            return self.set_timer(flow, true);
        }
        self.measure.timeouts += 1;
        entry.backoff += 1;
        entry.window.timed_out();
        entry.scoreboard.timed_out(entry.una, entry.nxt);
        self.send(flow, processor, false);
        self.set_timer(flow, true);
    }
}
