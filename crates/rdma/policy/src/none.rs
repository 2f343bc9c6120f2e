//! No policy: every flow posts as it likes, and the NIC decides.
//!
//! The baseline all others are compared with.

use super::{Action, Completion, FlowClass, FlowId, Policy, Signal};
use isolane_common_quantities::units::{Bytes, Instant};
use std::collections::{BTreeMap, VecDeque};

/// Releases every flow.
///
/// ```
/// use isolane_rdma_policy::none::Unmanaged;
/// use isolane_rdma_policy::{Action, Direction, FlowId, FlowSpec, Policy, Signal};
/// use isolane_common_quantities::units::Instant;
/// let mut policy = Unmanaged::default();
/// let flow = FlowSpec { class: None, weight: 1, direction: Direction::Outgoing };
/// policy.on_signal(Instant::ZERO, &Signal::Joined(flow));
/// assert_eq!(policy.poll_action(), Some(Action::Release(FlowId(0))));
/// assert_eq!(policy.poll_timeout(), None);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Unmanaged {
    classes: Vec<Option<FlowClass>>,
    actions: VecDeque<Action>,
}

impl Policy for Unmanaged {
    fn name(&self) -> &'static str {
        "none"
    }

    fn on_sent(&mut self, _now: Instant, _flow: FlowId, _bytes: Bytes) {}

    fn on_completion(&mut self, _now: Instant, _completion: &Completion) {}

    fn on_signal(&mut self, _now: Instant, signal: &Signal) {
        match signal {
            Signal::Joined(spec) => {
                let flow = FlowId(self.classes.len() as u32);
                self.classes.push(spec.class);
                self.actions.push_back(Action::Release(flow));
            }
            Signal::Left(flow) => self.classes[flow.0 as usize] = None,
            _ => {}
        }
    }

    fn handle_timeout(&mut self, _now: Instant) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn snapshot(&self) -> BTreeMap<&'static str, f64> {
        BTreeMap::new()
    }

    fn class_of(&self, flow: FlowId) -> Option<FlowClass> {
        self.classes.get(flow.0 as usize).copied().flatten()
    }
}
