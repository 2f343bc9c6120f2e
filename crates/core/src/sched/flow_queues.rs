//! First-in first-out queues of packet sizes by flow, which several schedulers share.

use super::FlowId;
use crate::units::Bytes;
use std::collections::VecDeque;

/// One queue per flow, with the scheduler's own state `S` of the flow beside it.
#[derive(Clone, Debug, Default)]
pub(super) struct FlowQueues<S> {
    flows: Vec<Flow<S>>,
    packets: usize,
}

/// One flow.
#[derive(Clone, Debug, Default)]
pub(super) struct Flow<S> {
    /// Sizes of its packets, oldest first.
    pub(super) queue: VecDeque<Bytes>,
    /// What the scheduler keeps of it.
    pub(super) state: S,
}

impl<S: Default> FlowQueues<S> {
    /// Packets in all queues.
    pub(super) fn packets(&self) -> usize {
        self.packets
    }

    /// The flow, made when it is new.
    pub(super) fn flow_mut(&mut self, flow: FlowId) -> &mut Flow<S> {
        let index = flow.0 as usize;
        if index >= self.flows.len() {
            self.flows.resize_with(index + 1, Flow::default);
        }
        &mut self.flows[index]
    }

    /// The flow, which has been seen before.
    pub(super) fn known(&self, flow: FlowId) -> &Flow<S> {
        &self.flows[flow.0 as usize]
    }

    /// Queues a packet and says whether the flow had none before.
    pub(super) fn push(&mut self, flow: FlowId, size: Bytes) -> bool {
        self.packets += 1;
        let queue = &mut self.flow_mut(flow).queue;
        queue.push_back(size);
        queue.len() == 1
    }

    /// Takes the oldest packet of a flow known to have one, and says whether it was its last.
    pub(super) fn pop(&mut self, flow: FlowId) -> (Bytes, bool) {
        self.packets -= 1;
        let queue = &mut self.flows[flow.0 as usize].queue;
        let size = queue.pop_front().expect("an active flow has a packet");
        (size, queue.is_empty())
    }
}

/// A weight, one until it is set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weight(u32);

impl Weight {
    /// Checks a weight given by the caller.
    pub(super) fn new(weight: u32) -> Self {
        assert!(weight > 0, "a weight of zero would starve the flow");
        Self(weight)
    }

    /// The weight as a factor.
    pub(super) fn factor(self) -> u64 {
        u64::from(self.0)
    }
}

impl Default for Weight {
    fn default() -> Self {
        Self(1)
    }
}
