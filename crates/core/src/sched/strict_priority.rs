//! Strict priority: the highest level with packets goes first, round robin within a level.
//!
//! Level 0 is the highest, as for hardware priority queues. A busy level starves all below it; there is no
//! fairness between levels.

use super::flow_queues::FlowQueues;
use super::{FlowId, Scheduler};
use crate::units::Bytes;
use std::collections::VecDeque;

/// Levels from 0 (first) to 255 (last); a flow is on level 0 until it is set.
#[derive(Clone, Debug, Default)]
pub struct StrictPriority {
    queues: FlowQueues<u8>,
    /// By level: flows with packets, the next one to serve in front.
    active: Vec<VecDeque<FlowId>>,
}

impl StrictPriority {
    /// No flows, no packets.
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves `flow` and its packets to a level, at once. Costs O(flows of its old level).
    pub fn set_level(&mut self, flow: FlowId, level: u8) {
        let known = self.queues.flow_mut(flow);
        let old = std::mem::replace(&mut known.state, level);
        if old == level || known.queue.is_empty() {
            return;
        }
        self.active[usize::from(old)].retain(|&other| other != flow);
        self.activate(flow, level);
    }

    fn activate(&mut self, flow: FlowId, level: u8) {
        let level = usize::from(level);
        if level >= self.active.len() {
            self.active.resize_with(level + 1, VecDeque::new);
        }
        self.active[level].push_back(flow);
    }
}

impl Scheduler for StrictPriority {
    fn enqueue(&mut self, flow: FlowId, size: Bytes) {
        if self.queues.push(flow, size) {
            self.activate(flow, self.queues.known(flow).state);
        }
    }

    fn dequeue(&mut self) -> Option<(FlowId, Bytes)> {
        let level = self.active.iter_mut().find(|flows| !flows.is_empty())?;
        let flow = level.pop_front().expect("the level has a flow");
        let (size, was_last) = self.queues.pop(flow);
        if !was_last {
            level.push_back(flow);
        }
        Some((flow, size))
    }

    fn len(&self) -> usize {
        self.queues.packets()
    }
}
