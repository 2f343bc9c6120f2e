//! Deficit round robin (Shreedhar and Varghese 1996): bytes by weight at constant cost.
//!
//! On each visit a flow earns a quantum of bytes times its weight and sends packets while its credit (the
//! deficit counter) covers them; what is left is kept for the next visit, and lost when the queue empties.
//! NICs that take queue weights work like this (titan 4.2).
//!
//! Bound: between flows that stay backlogged from the start, sent bytes per unit of weight differ by at most
//! one quantum plus one largest packet over the smallest weight.
//! Cost: O(1) per packet when the quantum is at least the largest packet. Smaller quanta need several rounds
//! for a packet; those rounds are skipped in one step over the active flows, with the same result.

use super::flow_queues::{FlowQueues, Weight};
use super::{FlowId, Scheduler};
use crate::units::Bytes;
use std::collections::VecDeque;

/// `quantum` times `weight` bytes per flow and round; the weight is 1 until it is set.
///
/// ```
/// use isolane_core::sched::{DeficitRoundRobin, FlowId, Scheduler};
/// use isolane_core::units::Bytes;
/// let mut scheduler = DeficitRoundRobin::new(Bytes::new(1_500));
/// for _ in 0..2 {
///     scheduler.enqueue(FlowId(0), Bytes::new(1_000));
///     scheduler.enqueue(FlowId(1), Bytes::new(500));
/// }
/// let order: Vec<u32> = std::iter::from_fn(|| scheduler.dequeue()).map(|(flow, _)| flow.0).collect();
/// assert_eq!(order, [0, 1, 1, 0]); // 500 bytes of credit stay with flow 0
/// ```
#[derive(Clone, Debug)]
pub struct DeficitRoundRobin {
    quantum: u64,
    queues: FlowQueues<Account>,
    /// Flows with packets; the one being visited stands in front.
    active: VecDeque<FlowId>,
    /// Whether the front flow has had the quantum of this visit.
    visiting: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Account {
    weight: Weight,
    /// Bytes the flow may still send.
    credit: u64,
}

impl DeficitRoundRobin {
    /// No flows, no packets; a flow of weight one earns `quantum` bytes per round.
    ///
    /// # Panics
    /// When `quantum` is zero.
    pub fn new(quantum: Bytes) -> Self {
        assert!(quantum > Bytes::ZERO, "a quantum of zero serves nothing");
        Self {
            quantum: quantum.get(),
            queues: FlowQueues::default(),
            active: VecDeque::new(),
            visiting: false,
        }
    }

    /// Gives `flow` this many quanta per visit, from its next visit on.
    ///
    /// # Panics
    /// When `weight` is zero.
    pub fn set_weight(&mut self, flow: FlowId, weight: u32) {
        self.queues.flow_mut(flow).state.weight = Weight::new(weight);
    }

    /// Bytes `flow` earns per visit.
    fn earning(&self, flow: FlowId) -> u64 {
        let weight = self.queues.known(flow).state.weight;
        self.quantum.saturating_mul(weight.factor())
    }

    /// Bytes the first packet of an active flow lacks.
    fn lacking(&self, flow: FlowId) -> u64 {
        let known = self.queues.known(flow);
        let head = known.queue.front().expect("an active flow has a packet");
        head.get().saturating_sub(known.state.credit)
    }

    /// Grants at once all rounds but the last that the luckiest flow still needs. No packet could leave in
    /// the rounds skipped.
    fn skip_fruitless_rounds(&mut self) {
        let rounds_of = |&flow: &FlowId| self.lacking(flow).div_ceil(self.earning(flow));
        let rounds = self.active.iter().map(rounds_of).min().unwrap_or(1);
        for index in 0..self.active.len() {
            let flow = self.active[index];
            let earned = self.earning(flow).saturating_mul(rounds - 1);
            self.queues.flow_mut(flow).state.credit += earned;
        }
    }
}

impl Scheduler for DeficitRoundRobin {
    fn enqueue(&mut self, flow: FlowId, size: Bytes) {
        if self.queues.push(flow, size) {
            self.active.push_back(flow);
        }
    }

    fn dequeue(&mut self) -> Option<(FlowId, Bytes)> {
        let mut fruitless_visits = 0;
        loop {
            let flow = *self.active.front()?;
            if !self.visiting {
                let earned = self.earning(flow);
                let account = &mut self.queues.flow_mut(flow).state;
                account.credit = account.credit.saturating_add(earned);
                self.visiting = true;
            }
            if self.lacking(flow) == 0 {
                let (size, was_last) = self.queues.pop(flow);
                let account = &mut self.queues.flow_mut(flow).state;
                account.credit -= size.get();
                if was_last {
                    account.credit = 0;
                    self.active.pop_front();
                    self.visiting = false;
                }
                return Some((flow, size));
            }
            self.active.rotate_left(1);
            self.visiting = false;
            fruitless_visits += 1;
            if fruitless_visits == self.active.len() {
                self.skip_fruitless_rounds();
                fruitless_visits = 0;
            }
        }
    }

    fn len(&self) -> usize {
        self.queues.packets()
    }
}
