//! The card's queues and its scheduler: which packet goes on the wire next.
//!
//! Problem: a card serves its transmit queues packet by packet, in turn or by weight, and cuts each TSO frame into
//! packets as it goes, so frames of different queues interleave and those of one queue wait for each other. Method:
//! each queue has one frame in hand, whose packets leave one at a time. In turn: a packet of each backlogged queue. By
//! weight: deficit round robin with a quantum of one largest packet for the heaviest queue and in proportion less for
//! the others, so that also the heaviest takes no more than a packet a visit; visits in which no queue may send are
//! skipped in one step. Credit counts in bytes times the largest weight: exact. Bound, by weight, among queues that
//! stay backlogged: none is behind its exact weighted share by more than a packet and its quantum, nor ahead by more
//! than its quantum and what the others were behind. In turn: a packet. Units: bytes on the wire. Limits: at most 64
//! queues; a weight is 1 to 65,535. Cost: O(queues) a packet. Source: Shreedhar and Varghese 1996 (deficit round
//! robin); titan 4.2 for weights; that interleaving is per packet and that commodity cards serve queues in turn: titan
//! 2.1.

use crate::wire::Wire;
use isolane_common_quantities::units::{BitRate, Instant};
use isolane_ethernet_policy::titan::QUEUES_MAX;

/// Largest packet on the wire: what the heaviest queue earns in a visit.
const PACKET_MAX: u64 = 1_538;
/// Largest weight.
pub const WEIGHT_MAX: u32 = 65_535;

/// How queues are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discipline {
    /// One packet of each in turn, without weights.
    RoundRobin,
    /// Deficit round robin by weight.
    Weighted,
}

/// A frame in hand, as the scheduler sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Packets; at least one.
    pub packets: u32,
    /// Bytes on the wire of each but the last.
    pub full: u32,
    /// Bytes on the wire of the last.
    pub last: u32,
}

impl Load {
    fn bytes_of(&self, packet: u32) -> u32 {
        match packet + 1 == self.packets {
            true => self.last,
            false => self.full,
        }
    }
}

/// A packet that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// From this queue.
    pub queue: usize,
    /// The packet's number in its frame.
    pub packet: u32,
    /// Bytes on the wire.
    pub bytes: u32,
    /// When its last bit has left.
    pub at: Instant,
    /// Whether the queue has nothing in hand now. Then give it the next frame before the next call, or report that
    /// there is none.
    pub is_last: bool,
}

/// What passed a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCount {
    /// Bytes on the wire.
    pub bytes: u64,
    /// Packets.
    pub packets: u64,
    /// Frames.
    pub frames: u64,
}

impl QueueCount {
    /// What passed after `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            bytes: self.bytes - earlier.bytes,
            packets: self.packets - earlier.packets,
            frames: self.frames - earlier.frames,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Queue {
    load: Option<Load>,
    sent: u32,
    weight: u32,
    credit: u64,
    count: QueueCount,
}

/// Queues, scheduler and wire.
#[derive(Clone, Debug)]
pub struct Card {
    queues: Vec<Queue>,
    discipline: Discipline,
    weight_most: u64,
    /// The queue being visited.
    cursor: usize,
    is_visiting: bool,
    wire: Wire,
}

impl Card {
    /// A card with idle queues of weight one. Panics if there is no queue, or more than 64.
    pub fn new(queues: usize, rate: BitRate, discipline: Discipline) -> Self {
        assert!(
            (1..=usize::from(QUEUES_MAX)).contains(&queues),
            "a card has 1 to {QUEUES_MAX} queues"
        );
        let queue = Queue {
            load: None,
            sent: 0,
            weight: 1,
            credit: 0,
            count: QueueCount::default(),
        };
        Self {
            queues: vec![queue; queues],
            discipline,
            weight_most: 1,
            cursor: 0,
            is_visiting: false,
            wire: Wire::new(rate),
        }
    }

    /// Sets the scheduler's weights; credit earned so far keeps its value. Panics if there is not one weight from 1 to
    /// 65,535 for each queue.
    pub fn set_weights(&mut self, weights: &[u32]) {
        assert_eq!(weights.len(), self.queues.len(), "a weight for each queue");
        assert!(
            weights.iter().all(|w| (1..=WEIGHT_MAX).contains(w)),
            "weights are 1 to {WEIGHT_MAX}"
        );
        let most = weights.iter().copied().max().map_or(1, u64::from);
        for (queue, weight) in self.queues.iter_mut().zip(weights) {
            queue.weight = *weight;
            queue.credit = queue.credit * most / self.weight_most;
        }
        self.weight_most = most;
    }

    /// The weights set last.
    pub fn weights(&self) -> impl Iterator<Item = u32> {
        self.queues.iter().map(|queue| queue.weight)
    }

    /// What passed each queue.
    pub fn counts(&self) -> impl Iterator<Item = QueueCount> {
        self.queues.iter().map(|queue| queue.count)
    }

    /// Whether any queue has a frame in hand.
    pub fn is_busy(&self) -> bool {
        self.queues.iter().any(|queue| queue.load.is_some())
    }

    /// Puts a frame into the hand of a free queue at `at`. Panics if the queue has one, or the frame has no packet.
    pub fn load(&mut self, queue: usize, load: Load, at: Instant) {
        assert!(load.packets > 0, "a frame has a packet");
        if !self.is_busy() {
            self.wire.wake(at);
        }
        let queue = &mut self.queues[queue];
        assert!(queue.load.is_none(), "one frame in hand");
        queue.load = Some(load);
        queue.sent = 0;
        queue.count.frames += 1;
    }

    /// The queue has nothing more: it loses its credit, as an idle queue saves nothing up.
    pub fn settle(&mut self, queue: usize) {
        if self.queues[queue].load.is_none() {
            self.queues[queue].credit = 0;
            if self.cursor == queue && self.is_visiting {
                self.leave();
            }
        }
    }

    /// The next packet, if the wire is free at `now`.
    pub fn next(&mut self, now: Instant) -> Option<Departure> {
        self.wire.give_up_before(now);
        if self.wire.free_at() > now || !self.is_busy() {
            return None;
        }
        let index = match self.discipline {
            Discipline::RoundRobin => self.next_in_turn(),
            Discipline::Weighted => self.next_by_weight(),
        };
        let queue = &mut self.queues[index];
        let load = queue
            .load
            .expect("the scheduler names a queue with a frame");
        let (packet, bytes) = (queue.sent, load.bytes_of(queue.sent));
        queue.sent += 1;
        queue.count.packets += 1;
        queue.count.bytes += u64::from(bytes);
        let is_last = queue.sent == load.packets;
        if is_last {
            queue.load = None;
        }
        Some(Departure {
            queue: index,
            packet,
            bytes,
            at: self.wire.send(bytes),
            is_last,
        })
    }

    fn leave(&mut self) {
        self.cursor = (self.cursor + 1) % self.queues.len();
        self.is_visiting = false;
    }

    fn next_in_turn(&mut self) -> usize {
        while self.queues[self.cursor].load.is_none() {
            self.leave();
        }
        let chosen = self.cursor;
        self.leave();
        chosen
    }

    fn next_by_weight(&mut self) -> usize {
        let mut fruitless = 0;
        loop {
            let most = self.weight_most;
            let queue = &mut self.queues[self.cursor];
            if let Some(load) = queue.load {
                if !self.is_visiting {
                    queue.credit += PACKET_MAX * u64::from(queue.weight);
                    self.is_visiting = true;
                }
                let cost = u64::from(load.bytes_of(queue.sent)) * most;
                if cost <= queue.credit {
                    queue.credit -= cost;
                    return self.cursor;
                }
            }
            self.leave();
            fruitless += 1;
            if fruitless == self.queues.len() {
                self.skip_fruitless_rounds();
                fruitless = 0;
            }
        }
    }

    /// Grants all rounds but the last of those in which no queue could send.
    fn skip_fruitless_rounds(&mut self) {
        let most = self.weight_most;
        let earning = |queue: &Queue| PACKET_MAX * u64::from(queue.weight);
        let rounds_of = |queue: &Queue| {
            let cost = u64::from(queue.load?.bytes_of(queue.sent)) * most;
            Some(cost.saturating_sub(queue.credit).div_ceil(earning(queue)))
        };
        let rounds = self.queues.iter().filter_map(rounds_of).min().unwrap_or(1);
        for queue in self.queues.iter_mut().filter(|queue| queue.load.is_some()) {
            queue.credit += earning(queue) * rounds.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests;
