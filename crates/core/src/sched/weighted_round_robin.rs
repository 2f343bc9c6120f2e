//! Weighted round robin: as many packets of a flow as its weight, then the next flow.
//!
//! Flows share packets by weight: of flows that stay backlogged, none is more than one turn (its weight in
//! packets) off its share. Turns are not interleaved, so a flow of weight w sends w packets back to back; and
//! bytes are shared by weight only when packet sizes agree.

use super::flow_queues::{FlowQueues, Weight};
use super::{FlowId, Scheduler};
use crate::units::Bytes;
use std::collections::VecDeque;

/// `weight` packets per flow and round; the weight is 1 until it is set.
#[derive(Clone, Debug, Default)]
pub struct WeightedRoundRobin {
    queues: FlowQueues<Weight>,
    /// Flows with packets; the one whose turn it is stands in front.
    active: VecDeque<FlowId>,
    /// Packets the front flow has sent in this turn.
    sent_in_turn: u64,
}

impl WeightedRoundRobin {
    /// No flows, no packets.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives `flow` this many packets per round, at once.
    ///
    /// # Panics
    /// When `weight` is zero.
    pub fn set_weight(&mut self, flow: FlowId, weight: u32) {
        self.queues.flow_mut(flow).state = Weight::new(weight);
    }
}

impl Scheduler for WeightedRoundRobin {
    fn enqueue(&mut self, flow: FlowId, size: Bytes) {
        if self.queues.push(flow, size) {
            self.active.push_back(flow);
        }
    }

    fn dequeue(&mut self) -> Option<(FlowId, Bytes)> {
        let flow = *self.active.front()?;
        let (size, was_last) = self.queues.pop(flow);
        self.sent_in_turn += 1;
        if was_last {
            self.active.pop_front();
            self.sent_in_turn = 0;
        } else if self.sent_in_turn >= self.queues.known(flow).state.factor() {
            self.active.rotate_left(1);
            self.sent_in_turn = 0;
        }
        Some((flow, size))
    }

    fn len(&self) -> usize {
        self.queues.packets()
    }
}
