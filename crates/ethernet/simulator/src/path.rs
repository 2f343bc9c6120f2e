//! The path of a packet from a card's ring to the receive ring of its host.

use crate::buffer::Fetch;
use crate::frame::Frame;
use crate::host::Arrival;
use crate::network::Hop;
use crate::segment::Kind;
use crate::world::{Event, World};
use isolane_common_quantities::units::Instant;

impl World {
    /// The packet on the wire has left: where it goes; and the next.
    pub(crate) fn wire(&mut self, host: u16) {
        if let Some((frame, next)) = self.hosts[usize::from(host)].card.buffer.left() {
            if let Some((fetched_at, bytes)) = next {
                self.put_on_wire(host, fetched_at.max(self.now), bytes);
            }
            let flow = &mut self.flows[frame.flow as usize];
            self.measure.sent(self.now, host, &frame, flow);
            self.forward(host, frame);
        }
        self.fetch(host);
    }

    /// The packet that was being fetched is in the buffer, and more wait.
    pub(crate) fn fetched(&mut self, host: u16) {
        let card = &mut self.hosts[usize::from(host)].card;
        card.buffer.planned_is_due();
        self.fetch(host);
    }

    /// Has the card fetch the next packet, now or when it can.
    pub(crate) fn fetch(&mut self, host: u16) {
        while self.hosts[usize::from(host)].card.is_active() {
            let entry = &mut self.hosts[usize::from(host)];
            match entry.card.buffer.next_fetch(self.now) {
                Fetch::Now => {}
                Fetch::At(at) => return self.events.schedule(at, Event::Fetched { host }),
                Fetch::Waits => return,
            }
            let frame = entry.next_packet(&mut self.segments, &self.settings);
            let bytes = u32::from(frame.bytes);
            let until = self.now + self.settings.fetch_time(bytes);
            if entry.card.buffer.fetch(frame, until) {
                self.put_on_wire(host, until, bytes);
            }
            self.finished(host, frame.queue, until);
        }
    }

    /// Puts the first packet of the buffer on the wire at `at`.
    fn put_on_wire(&mut self, host: u16, at: Instant, bytes: u32) {
        let time = self.settings.wire_time(bytes);
        self.events.schedule(at + time, Event::Wire { host });
    }

    /// A packet has left `host`'s card.
    fn forward(&mut self, host: u16, frame: Frame) {
        let flow = &self.flows[frame.flow as usize];
        let to = match frame.kind {
            Kind::Data | Kind::Ping => flow.destination,
            Kind::Ack | Kind::Pong => flow.source,
        };
        let ends = [host, to];
        let hop = self.network.forward(&self.settings, self.now, ends, frame);
        self.go_on(hop);
    }

    /// A packet has left the trunk's port of switch `from`.
    pub(crate) fn trunk(&mut self, from: u16) {
        let hop = self.network.cross(&self.settings, self.now, from);
        self.go_on(hop);
    }

    fn go_on(&mut self, hop: Hop) {
        match hop {
            Hop::Lost { frame } => self.dropped(&frame),
            Hop::Crosses { from, left } => self.events.schedule(left, Event::Trunk { from }),
            Hop::Arrives { to, at, frame } => self.arrives(to, at, &frame),
        }
    }

    /// A packet reaches host `to` at `at`.
    fn arrives(&mut self, to: u16, at: Instant, frame: &Frame) {
        let arrival = Arrival {
            at,
            seq: match frame.kind {
                Kind::Data => frame.seq,
                _ => u64::from(frame.info),
            },
            flow: frame.flow,
            payload: frame.payload,
            kind: frame.kind,
            marked: frame.marked,
            again: frame.again,
        };
        let vector = self.receive_vector(&arrival);
        let entry = &mut self.hosts[usize::from(to)].vectors[usize::from(vector)];
        entry.receive.push_back(arrival);
        self.arm(to, vector, at);
    }

    /// The network loses a packet.
    fn dropped(&mut self, frame: &Frame) {
        self.measure.drops += 1;
        match frame.kind {
            Kind::Data => {
                self.flows[frame.flow as usize].tally.dropped += u64::from(frame.payload);
            }
            Kind::Ack => {
                self.acks.remove(frame.info);
            }
            Kind::Ping | Kind::Pong => {}
        }
    }
}
