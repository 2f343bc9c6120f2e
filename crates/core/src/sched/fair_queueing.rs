//! Weighted fair queueing (packet-by-packet generalised processor sharing, Parekh and Gallager 1993).
//!
//! Beside the packets runs a fluid server that would serve all backlogged flows at once, each in proportion
//! to its weight. The packet whose fluid service would end first goes first. So every packet is done no later
//! than one largest packet after the fluid server would be done with it.
//!
//! Virtual clock: it follows the fluid server exactly, with work in place of time. When a packet of n bytes is
//! dequeued, the fluid server serves n bytes too; the clock advances by those bytes over the summed weight of
//! the flows that have fluid backlog, step by step as they run dry. A packet that arrives starts at the later
//! of the clock and the finish of the packet before it in its flow, and finishes size / weight later. Packets
//! that arrive during a transmission count as arriving at its end: the caller's dequeue is the only clock.
//!
//! Arithmetic: virtual time counts 2^-20 bytes per unit of weight in 128 bits, and divisions carry their
//! remainders (per flow while it is backlogged, and for the clock), so errors stay below one tick and do not
//! add up. 2^108 bytes overflow it.
//! Cost: O(log flows) per packet.
//! Limits: a new weight counts for packets that arrive after it; while older ones wait, the fluid server and
//! so the bound above are approximate.

use super::flow_queues::Weight;
use super::{FlowId, Scheduler};
use crate::units::Bytes;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque, binary_heap::PeekMut};

/// Bytes by weight, packet by packet; the weight is 1 until it is set.
///
/// ```
/// use isolane_core::sched::{FairQueueing, FlowId, Scheduler};
/// use isolane_core::units::Bytes;
/// let mut scheduler = FairQueueing::new();
/// scheduler.set_weight(FlowId(1), 2);
/// for _ in 0..4 {
///     scheduler.enqueue(FlowId(0), Bytes::new(100));
///     scheduler.enqueue(FlowId(1), Bytes::new(100));
/// }
/// let order: Vec<u32> = std::iter::from_fn(|| scheduler.dequeue()).map(|(flow, _)| flow.0).collect();
/// assert_eq!(order, [1, 0, 1, 1, 0, 1, 0, 0]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct FairQueueing {
    flows: Vec<Flow>,
    packets: usize,
    /// Flows with packets, by the finish of their first packet.
    heads: BinaryHeap<Reverse<(Ticks, FlowId)>>,
    clock: FluidClock,
}

/// Virtual time: 2^-20 bytes per unit of weight.
type Ticks = u128;

#[derive(Clone, Debug, Default)]
struct Flow {
    queue: VecDeque<(Bytes, Ticks)>,
    weight: Weight,
    /// The finish of its newest packet.
    last_finish: Ticks,
    /// What the division by the weight left over, in ticks times weight.
    remainder: u64,
    /// Whether the fluid server still has work of this flow.
    in_fluid: bool,
}

/// The fluid server: how far it is, and which flows it serves.
#[derive(Clone, Debug, Default)]
struct FluidClock {
    now: Ticks,
    /// Work too little to move the clock by a tick, in ticks times weight.
    work_left: u128,
    /// Summed weight of the flows in the fluid server.
    weight: u64,
    /// The flows in the fluid server, by when they run dry; too early where packets came since.
    flows: BinaryHeap<Reverse<(Ticks, FlowId)>>,
}

impl FairQueueing {
    /// No flows, no packets.
    pub fn new() -> Self {
        Self::default()
    }

    /// Weighs packets of `flow` that come from now on.
    ///
    /// # Panics
    /// When `weight` is zero.
    pub fn set_weight(&mut self, flow: FlowId, weight: u32) {
        let weight = Weight::new(weight);
        let known = self.flow_mut(flow);
        known.remainder = 0;
        let old = std::mem::replace(&mut known.weight, weight);
        if known.in_fluid {
            self.clock.weight = self.clock.weight + weight.factor() - old.factor();
        }
    }

    fn flow_mut(&mut self, flow: FlowId) -> &mut Flow {
        let index = flow.0 as usize;
        if index >= self.flows.len() {
            self.flows.resize_with(index + 1, Flow::default);
        }
        &mut self.flows[index]
    }
}

impl Scheduler for FairQueueing {
    fn enqueue(&mut self, flow: FlowId, size: Bytes) {
        self.packets += 1;
        let now = self.clock.now;
        let known = self.flow_mut(flow);
        if known.last_finish <= now {
            known.last_finish = now;
            known.remainder = 0;
        }
        let weight = known.weight.factor();
        let work = (u128::from(size.get()) << TICK_BITS) + u128::from(known.remainder);
        let finish = known.last_finish + work / u128::from(weight);
        known.remainder = (work % u128::from(weight)) as u64;
        known.last_finish = finish;
        known.queue.push_back((size, finish));
        let is_first = known.queue.len() == 1;
        let joins_fluid = !std::mem::replace(&mut known.in_fluid, true);
        if is_first {
            self.heads.push(Reverse((finish, flow)));
        }
        if joins_fluid {
            self.clock.weight += weight;
            self.clock.flows.push(Reverse((finish, flow)));
        }
    }

    fn dequeue(&mut self) -> Option<(FlowId, Bytes)> {
        let mut head = self.heads.peek_mut()?;
        let Reverse((_, flow)) = *head;
        let queue = &mut self.flows[flow.0 as usize].queue;
        let (size, _) = queue.pop_front().expect("a flow in the heap has a packet");
        if let Some(&(_, finish)) = queue.front() {
            head.0.0 = finish;
            drop(head);
        } else {
            PeekMut::pop(head);
        }
        self.packets -= 1;
        self.clock.advance(size, &mut self.flows);
        if self.packets == 0 {
            self.clock.settle(&mut self.flows);
        }
        Some((flow, size))
    }

    fn len(&self) -> usize {
        self.packets
    }
}

impl FluidClock {
    /// Serves `bytes` as the fluid server would.
    fn advance(&mut self, bytes: Bytes, flows: &mut [Flow]) {
        let mut work = (u128::from(bytes.get()) << TICK_BITS) + self.work_left;
        while let Some(mut first) = self.flows.peek_mut() {
            let Reverse((dry_at, flow)) = *first;
            let known = &mut flows[flow.0 as usize];
            if known.last_finish > dry_at {
                first.0.0 = known.last_finish;
                continue;
            }
            let weight = u128::from(self.weight);
            let needed = (dry_at - self.now) * weight;
            if work < needed {
                self.now += work / weight;
                self.work_left = work % weight;
                return;
            }
            PeekMut::pop(first);
            work -= needed;
            self.now = dry_at;
            self.weight -= known.weight.factor();
            known.in_fluid = false;
        }
        self.work_left = 0;
    }

    /// Lets the fluid server finish what rounding left in it once all packets are gone.
    fn settle(&mut self, flows: &mut [Flow]) {
        for Reverse((_, flow)) in self.flows.drain() {
            let known = &mut flows[flow.0 as usize];
            known.in_fluid = false;
            self.now = self.now.max(known.last_finish);
        }
        self.weight = 0;
        self.work_left = 0;
    }
}

/// Ticks are this fine so that a millionth of a byte decides, and exact for weights that are powers of two.
const TICK_BITS: u32 = 20;
