//! Hardware priority queues: the NIC's own answer (justitia 6.3, E.1).
//!
//! Problem: keep latency flows out of the queue in which hungry ones wait. Method: the few queues the NIC has (two on
//! the paper's RoCE NIC) are given out by class: latency flows use queue 0, all others queue 1. Nothing is paced or
//! split, so flows that share a queue hurt each other as before. Limits: mapping a live flow to another queue takes the
//! NIC milliseconds (2 ms in justitia 6.3). The device takes that time; the policy requests no other queue for a flow
//! before it is over, and then requests the queue of the flow's class at that time.
//!
//! Units: picoseconds, queue numbers (0 is the highest).

use super::classify::{ClassifierOptions, FlowClassifier};
use super::{Action, Completion, FlowClass, FlowId, Policy, Signal};
use isolane_common_quantities::OptionError;
use isolane_common_quantities::units::{Bytes, Duration, Instant};
use std::collections::{BTreeMap, VecDeque};

/// Parameters of [`HardwarePriority`].
#[derive(Clone, Debug, PartialEq)]
pub struct HardwarePriorityOptions {
    /// Time the NIC needs to map a flow to another queue.
    pub reconfigure: Duration,
    /// How to find the class of flows that declare none; `None` treats them as bandwidth for ever.
    pub classifier: Option<ClassifierOptions>,
}

impl HardwarePriorityOptions {
    /// 2 ms to reconfigure (justitia 6.3), and the classifier's defaults.
    pub fn for_device(message_rate_max_per_s: u64) -> Self {
        Self {
            reconfigure: Duration::from_ms(2),
            classifier: Some(ClassifierOptions::for_device(message_rate_max_per_s)),
        }
    }
}

/// The policy of one host.
///
/// ```
/// use isolane_rdma_policy::hardware_priority::{HardwarePriority, HardwarePriorityOptions};
/// use isolane_rdma_policy::{Action, Direction, FlowClass, FlowId, FlowSpec, Policy, Signal};
/// use isolane_common_quantities::units::Instant;
/// let mut policy = HardwarePriority::new(HardwarePriorityOptions::for_device(30_000_000))?;
/// let class = Some(FlowClass::Latency);
/// let spec = FlowSpec { class, weight: 1, direction: Direction::Outgoing };
/// policy.on_signal(Instant::ZERO, &Signal::Joined(spec));
/// assert_eq!(policy.poll_action(), Some(Action::UseQueue { flow: FlowId(0), queue: 0 }));
/// assert_eq!(policy.poll_action(), Some(Action::Release(FlowId(0))));
/// # Ok::<(), isolane_common_quantities::OptionError>(())
/// ```
#[derive(Clone, Debug)]
pub struct HardwarePriority {
    options: HardwarePriorityOptions,
    flows: Vec<Flow>,
    /// Flows whose queue is not the one of their class, in the order in which the NIC can move them.
    moving: VecDeque<(Instant, FlowId)>,
    actions: VecDeque<Action>,
    reconfigured: u64,
}

#[derive(Clone, Debug)]
struct Flow {
    classifier: FlowClassifier,
    present: bool,
    queue: u8,
    settled_at: Instant,
    is_moving: bool,
}

impl HardwarePriority {
    /// A host without flows. Fails if the classifier's thresholds contradict each other.
    pub fn new(options: HardwarePriorityOptions) -> Result<Self, OptionError> {
        let classifier = options.classifier.as_ref();
        classifier.map_or(Ok(()), ClassifierOptions::check)?;
        Ok(Self {
            options,
            flows: Vec::new(),
            moving: VecDeque::new(),
            actions: VecDeque::new(),
            reconfigured: 0,
        })
    }

    fn queue_of(class: FlowClass) -> u8 {
        u8::from(class != FlowClass::Latency)
    }

    /// Requests the queue of the flow's class, now or when its last move is over.
    fn settle(&mut self, now: Instant, flow: FlowId) {
        let state = &mut self.flows[flow.0 as usize];
        let queue = Self::queue_of(state.classifier.class());
        if !state.present || queue == state.queue || state.is_moving {
            return;
        }
        if now < state.settled_at {
            state.is_moving = true;
            let due = state.settled_at;
            let place = self.moving.partition_point(|&(other, _)| other <= due);
            self.moving.insert(place, (due, flow));
            return;
        }
        state.queue = queue;
        state.settled_at = now.saturating_add(self.options.reconfigure);
        self.reconfigured += 1;
        self.actions.push_back(Action::UseQueue { flow, queue });
    }
}

impl Policy for HardwarePriority {
    fn on_sent(&mut self, now: Instant, flow: FlowId, bytes: Bytes) {
        let Some(options) = &self.options.classifier else {
            return;
        };
        let state = &mut self.flows[flow.0 as usize];
        if state.classifier.on_sent(options, now, bytes).is_some() {
            self.settle(now, flow);
        }
    }

    fn on_completion(&mut self, _now: Instant, completion: &Completion) {
        self.flows[completion.flow.0 as usize]
            .classifier
            .on_completion();
    }

    fn on_signal(&mut self, now: Instant, signal: &Signal) {
        match signal {
            Signal::Joined(spec) => {
                let flow = FlowId(self.flows.len() as u32);
                let classifier = FlowClassifier::new(spec);
                let queue = Self::queue_of(classifier.class());
                // A queue pair that is being created takes its queue with it, at no cost.
                self.flows.push(Flow {
                    classifier,
                    present: true,
                    queue,
                    settled_at: now,
                    is_moving: false,
                });
                self.moving.reserve(self.flows.len() - self.moving.len());
                self.actions.push_back(Action::UseQueue { flow, queue });
                self.actions.push_back(Action::Release(flow));
            }
            Signal::Left(flow) => self.flows[flow.0 as usize].present = false,
            _ => {}
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some(&(due, flow)) = self.moving.front()
            && due <= now
        {
            self.moving.pop_front();
            self.flows[flow.0 as usize].is_moving = false;
            self.settle(now, flow);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.moving.front().map(|&(due, _)| due)
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn snapshot(&self) -> BTreeMap<&'static str, f64> {
        let in_queue = |queue| {
            let flows = self.flows.iter();
            flows
                .filter(|flow| flow.present && flow.queue == queue)
                .count() as f64
        };
        BTreeMap::from([
            ("queue_0_flows", in_queue(0)),
            ("queue_1_flows", in_queue(1)),
            ("reconfigurations", self.reconfigured as f64),
        ])
    }

    fn class_of(&self, flow: FlowId) -> Option<FlowClass> {
        let flow = self.flows.get(flow.0 as usize)?;
        flow.present.then(|| flow.classifier.class())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Direction, FlowSpec};

    fn queues(policy: &mut HardwarePriority) -> Vec<u8> {
        std::iter::from_fn(|| policy.poll_action())
            .filter_map(|action| match action {
                Action::UseQueue { queue, .. } => Some(queue),
                _ => None,
            })
            .collect()
    }

    fn post(policy: &mut HardwarePriority, now: &mut Instant, bytes: u64, until: Instant) {
        while *now < until {
            policy.on_sent(*now, FlowId(0), Bytes::new(bytes));
            policy.on_completion(*now, &Completion::one(FlowId(0), bytes, 1));
            *now += Duration::from_us(10);
        }
    }

    #[test]
    fn latency_has_queue_0_and_the_rest_share_queue_1() {
        let options = HardwarePriorityOptions::for_device(30_000_000);
        let mut policy = HardwarePriority::new(options).unwrap();
        for class in [
            Some(FlowClass::Latency),
            Some(FlowClass::Throughput),
            Some(FlowClass::Bandwidth),
            None,
        ] {
            let direction = Direction::Outgoing;
            let spec = FlowSpec {
                class,
                weight: 1,
                direction,
            };
            policy.on_signal(Instant::ZERO, &Signal::Joined(spec));
        }
        assert_eq!(queues(&mut policy), [0, 1, 1, 1]);
    }

    #[test]
    fn a_flow_moves_at_most_once_per_reconfiguration() {
        let mut options = HardwarePriorityOptions::for_device(30_000_000);
        options.reconfigure = Duration::from_ms(50);
        let mut policy = HardwarePriority::new(options).unwrap();
        let direction = Direction::Outgoing;
        let spec = FlowSpec {
            class: None,
            weight: 1,
            direction,
        };
        policy.on_signal(Instant::ZERO, &Signal::Joined(spec));
        let (mut now, ms) = (Instant::ZERO, |ms| Instant::ZERO + Duration::from_ms(ms));
        post(&mut policy, &mut now, 16, ms(10));
        assert_eq!(queues(&mut policy), [1, 0]);
        post(&mut policy, &mut now, 1 << 20, ms(20));
        assert_eq!(policy.class_of(FlowId(0)), Some(FlowClass::Bandwidth));
        assert_eq!(queues(&mut policy), []);
        let due = policy.poll_timeout().unwrap();
        assert!(due > ms(50) && due < ms(60));
        policy.handle_timeout(due);
        assert_eq!(queues(&mut policy), [1]);
        assert_eq!(policy.poll_timeout(), None);
    }
}
