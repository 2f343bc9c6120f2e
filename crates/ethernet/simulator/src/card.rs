//! The card's transmit scheduler and the wire.
//!
//! Method: the card sends one packet at a time. Segments in a hardware queue are sent in order, cut into packets; after each
//! packet the scheduler chooses again, so segments of different queues interleave by packets (titan 2.2). In turn: the
//! next queue with anything in it. By weight: deficit round robin, a queue's credit in a round is its weight times the
//! unit of the profile; a queue that was empty starts with the credit of one packet, as credits accumulate up to a limit
//! while a queue is idle.
//! A segment's completion is reported when its last packet has left.
//! Units: bytes of frames. Source: titan 2.1, 4.2. Limits: at most 64 queues; fetching descriptors and data takes no time of
//! its own (it is in the link's delay).

use crate::segment::{Kind, NIL, Segment};
use crate::world::{Event, World};

/// The card of one host.
#[derive(Debug)]
pub(crate) struct Card {
    /// Queues with anything to send.
    active: u64,
    /// The queue that was served last.
    turn: u16,
    weighted: bool,
    weights: Vec<u32>,
    credits: Vec<u32>,
    on_wire: Option<Frame>,
}

/// One packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) seq: u64,
    pub(crate) flow: u32,
    /// The segment that it ends, if any.
    segment: u32,
    pub(crate) info: u32,
    pub(crate) payload: u16,
    /// Bytes of the frame, headers included.
    pub(crate) bytes: u16,
    queue: u16,
    pub(crate) kind: Kind,
    pub(crate) again: bool,
    pub(crate) marked: bool,
}

impl Card {
    pub(crate) fn new(queues: u16, weighted: bool) -> Self {
        Self {
            active: 0,
            turn: queues - 1,
            weighted,
            weights: vec![1; usize::from(queues)],
            credits: vec![0; usize::from(queues)],
            on_wire: None,
        }
    }

    /// A queue has something to send.
    pub(crate) fn activate(&mut self, queue: u16, packet: u32) {
        let bit = 1 << queue;
        if self.active & bit == 0 {
            self.active |= bit;
            let credit = &mut self.credits[usize::from(queue)];
            *credit = (*credit).max(packet);
        }
    }

    pub(crate) fn set_weights(&mut self, weights: &[u32]) {
        self.weights.copy_from_slice(weights);
    }

    /// The next queue in turn.
    #[inline]
    fn next_in_turn(&self) -> u16 {
        let later = self.active & u64::MAX.checked_shl(u32::from(self.turn) + 1).unwrap_or(0);
        let from = if later != 0 { later } else { self.active };
        from.trailing_zeros() as u16
    }

    /// The next queue by weight; `size` tells the bytes of a queue's next packet.
    fn next_by_weight(&mut self, unit: u32, size: impl Fn(u16) -> u32) -> u16 {
        if self.active.is_power_of_two() {
            return self.active.trailing_zeros() as u16;
        }
        let mut queue = self.turn;
        if self.active & (1 << queue) == 0 {
            queue = self.enter_next(unit);
        }
        loop {
            let bytes = size(queue);
            let credit = &mut self.credits[usize::from(queue)];
            if *credit >= bytes {
                *credit -= bytes;
                return queue;
            }
            queue = self.enter_next(unit);
        }
    }

    /// The next queue of the round gets its credit.
    fn enter_next(&mut self, unit: u32) -> u16 {
        self.turn = self.next_in_turn();
        let index = usize::from(self.turn);
        self.credits[index] += self.weights[index].max(1) * unit;
        self.turn
    }
}

impl World {
    /// The packet on the wire has left, or the wire was idle: the next.
    pub(crate) fn wire(&mut self, host: u16) {
        if let Some(frame) = self.hosts[usize::from(host)].card.on_wire.take() {
            self.left(host, frame);
        }
        self.start(host);
    }

    /// Begins a packet if the wire is idle and there is one.
    pub(crate) fn start(&mut self, host: u16) {
        let entry = &mut self.hosts[usize::from(host)];
        if entry.card.on_wire.is_some() || entry.card.active == 0 {
            return;
        }
        let (segments, settings) = (&mut self.segments, &self.settings);
        let queue = match entry.card.weighted {
            false => entry.card.next_in_turn(),
            true => {
                let queues = &entry.queues;
                let size = |queue: u16| {
                    let head = queues[usize::from(queue)].ring.head();
                    let segment = segments.get(head.expect("active queues hold segments"));
                    packet(segment, settings.mss).1
                };
                entry.card.next_by_weight(settings.credit, size)
            }
        };
        entry.card.turn = queue;
        let ring = &mut entry.queues[usize::from(queue)].ring;
        let id = ring.head().expect("active queues hold segments");
        let segment = segments.get_mut(id);
        let (payload, bytes) = packet(segment, settings.mss);
        let seq = segment.seq + u64::from(segment.taken);
        segment.taken += payload;
        let ends = segment.taken >= segment.payload;
        let frame = Frame {
            seq,
            flow: segment.flow,
            segment: if ends { id } else { NIL },
            info: segment.info,
            payload: payload as u16,
            bytes: bytes as u16,
            queue,
            kind: segment.kind,
            again: segment.again,
            marked: false,
        };
        if ends {
            ring.pop(segments);
            if ring.is_empty() {
                entry.card.active &= !(1 << queue);
            }
        }
        entry.card.on_wire = Some(frame);
        let time = settings.wire_time(bytes);
        self.events.schedule(self.now + time, Event::Wire { host });
    }

    fn left(&mut self, host: u16, frame: Frame) {
        let queue = usize::from(frame.queue);
        let entry = &mut self.hosts[usize::from(host)];
        entry.queues[queue].sent_bytes += u64::from(frame.bytes);
        entry.vectors[queue].bytes += u64::from(frame.bytes);
        if frame.segment != NIL {
            entry.queues[queue]
                .sent
                .push(&mut self.segments, frame.segment);
            self.arm(host, frame.queue, self.now);
        }
        self.count_sent(host, &frame);
        self.forward(host, frame);
    }
}

/// Payload and frame bytes of a segment's next packet.
#[inline]
fn packet(segment: &Segment, mss: u32) -> (u32, u32) {
    if segment.kind != Kind::Data {
        return (segment.payload, segment.bytes);
    }
    let payload = (segment.payload - segment.taken).min(mss);
    (payload, payload + segment.header())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(card: &mut Card, unit: u32, sizes: &[u32], rounds: u32) -> Vec<u64> {
        let mut bytes = vec![0; sizes.len()];
        for _ in 0..rounds {
            let queue = match card.weighted {
                true => card.next_by_weight(unit, |queue| sizes[usize::from(queue)]),
                false => card.next_in_turn(),
            };
            card.turn = queue;
            bytes[usize::from(queue)] += u64::from(sizes[usize::from(queue)]);
        }
        bytes
    }

    #[test]
    fn in_turn_every_active_queue_sends_the_same_number_of_packets() {
        let mut card = Card::new(8, false);
        for queue in [0, 3, 7] {
            card.activate(queue, 1_514);
        }
        let bytes = served(&mut card, 0, &[1_514; 8], 300);
        assert_eq!(bytes[0], 151_400);
        assert_eq!((bytes[0], bytes[0]), (bytes[3], bytes[7]));
        assert_eq!(bytes.iter().sum::<u64>(), 300 * 1_514);
    }

    /// Sizes differ, so that packets would not do; after many rounds shares are those of the weights within a packet and
    /// a credit.
    #[test]
    fn by_weight_queues_send_bytes_in_proportion() {
        let mut card = Card::new(4, true);
        for queue in 0..4 {
            card.activate(queue, 1_514);
        }
        card.set_weights(&[127, 64, 32, 127]);
        let bytes = served(&mut card, 12, &[1_514, 700, 1_514, 66], 200_000);
        let unit = bytes[0] as f64 / 127.0;
        for (queue, weight) in [(1, 64.0), (2, 32.0), (3, 127.0)] {
            let ratio = bytes[queue] as f64 / weight / unit;
            assert!((ratio - 1.0).abs() < 1e-3, "queue {queue}: {ratio}");
        }
    }
}
