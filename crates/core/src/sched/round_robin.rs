//! Round robin: one packet of each flow with packets, in turn.
//!
//! Flows share packets evenly: of flows that stay backlogged, none is more than one packet ahead. They do not
//! share bytes evenly when packet sizes differ; [`super::DeficitRoundRobin`] does. This is how multiqueue NICs
//! serve their transmit queues by default (titan 2).

use super::flow_queues::FlowQueues;
use super::{FlowId, Scheduler};
use crate::units::Bytes;
use std::collections::VecDeque;

/// One packet per flow and round.
#[derive(Clone, Debug, Default)]
pub struct RoundRobin {
    queues: FlowQueues<()>,
    /// Flows with packets; the next one to serve is in front.
    active: VecDeque<FlowId>,
}

impl RoundRobin {
    /// No flows, no packets.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Scheduler for RoundRobin {
    fn enqueue(&mut self, flow: FlowId, size: Bytes) {
        if self.queues.push(flow, size) {
            self.active.push_back(flow);
        }
    }

    fn dequeue(&mut self) -> Option<(FlowId, Bytes)> {
        let flow = self.active.pop_front()?;
        let (size, was_last) = self.queues.pop(flow);
        if !was_last {
            self.active.push_back(flow);
        }
        Some((flow, size))
    }

    fn len(&self) -> usize {
        self.queues.packets()
    }
}
