//! What counts as one flow: a queue pair, an application or a tenant (justitia 4, D, F).
//!
//! Problem: policies isolate flows and know nothing of queue pairs; the operator says what a flow is.
//! Method: a map from the owner of a queue pair, cut to the chosen granularity, to the flow. Sending and
//! READing are separate flows, for their data leaves different NICs. A flow ends with its last queue pair;
//! ids are not used again.
//! Limits: 2^32 flows per run.

use super::{Direction, FlowId};
use std::collections::BTreeMap;

/// What shares one set of tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Granularity {
    /// Each queue pair.
    QueuePair,
    /// Each process: the default (justitia 4).
    #[default]
    Application,
    /// Each tenant, with all its processes.
    Tenant,
}

/// Whose queue pair it is; numbers are the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// The tenant.
    pub tenant: u32,
    /// The process, unique on the host.
    pub process: u32,
    /// The queue pair, unique on the host.
    pub queue_pair: u32,
}

/// The flows of one host.
///
/// ```
/// use isolane_rdma_policy::granularity::{FlowMap, Granularity, Opened, Owner};
/// use isolane_rdma_policy::{Direction, FlowId};
/// let mut map = FlowMap::new(Granularity::Tenant);
/// let first = Owner { tenant: 7, process: 1, queue_pair: 1 };
/// let second = Owner { tenant: 7, process: 2, queue_pair: 2 };
/// assert_eq!(map.open(first, Direction::Outgoing), Opened::New(FlowId(0)));
/// assert_eq!(map.open(second, Direction::Outgoing), Opened::Known(FlowId(0)));
/// assert_eq!(map.close(first, Direction::Outgoing), None);
/// assert_eq!(map.close(second, Direction::Outgoing), Some(FlowId(0))); // Report to the policy that it left.
/// ```
#[derive(Clone, Debug, Default)]
pub struct FlowMap {
    granularity: Granularity,
    flows: BTreeMap<Key, (FlowId, u32)>,
    next: u32,
}

type Key = (u32, u32, u32, bool);

/// The flow of a queue pair that was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    /// The first of its flow: report to the policy that the flow joined.
    New(FlowId),
    /// One more of a flow the policy knows.
    Known(FlowId),
}

impl FlowMap {
    /// No flows yet.
    pub fn new(granularity: Granularity) -> Self {
        Self {
            granularity,
            ..Self::default()
        }
    }

    /// A queue pair starts to be used in `direction`.
    pub fn open(&mut self, owner: Owner, direction: Direction) -> Opened {
        let key = self.key(owner, direction);
        if let Some((flow, queue_pairs)) = self.flows.get_mut(&key) {
            *queue_pairs += 1;
            return Opened::Known(*flow);
        }
        let flow = FlowId(self.next);
        self.next += 1;
        self.flows.insert(key, (flow, 1));
        Opened::New(flow)
    }

    /// A queue pair is gone. Returns the flow when this was its last.
    pub fn close(&mut self, owner: Owner, direction: Direction) -> Option<FlowId> {
        let key = self.key(owner, direction);
        let (flow, queue_pairs) = self.flows.get_mut(&key)?;
        *queue_pairs -= 1;
        let flow = *flow;
        if *queue_pairs > 0 {
            return None;
        }
        self.flows.remove(&key);
        Some(flow)
    }

    fn key(&self, owner: Owner, direction: Direction) -> Key {
        let reads = direction == Direction::RemoteRead;
        match self.granularity {
            Granularity::QueuePair => (owner.tenant, owner.process, owner.queue_pair, reads),
            Granularity::Application => (owner.tenant, owner.process, 0, reads),
            Granularity::Tenant => (owner.tenant, 0, 0, reads),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flows(granularity: Granularity) -> u32 {
        let mut map = FlowMap::new(granularity);
        for queue_pair in 0..8 {
            let owner = Owner {
                tenant: queue_pair / 4,
                process: queue_pair / 2,
                queue_pair,
            };
            map.open(owner, Direction::Outgoing);
        }
        map.next
    }

    #[test]
    fn eight_pairs_are_four_applications_and_two_tenants() {
        assert_eq!(flows(Granularity::QueuePair), 8);
        assert_eq!(flows(Granularity::Application), 4);
        assert_eq!(flows(Granularity::Tenant), 2);
    }

    #[test]
    fn reads_are_a_flow_of_their_own_and_ids_are_not_reused() {
        let mut map = FlowMap::new(Granularity::Application);
        let owner = Owner {
            tenant: 0,
            process: 0,
            queue_pair: 0,
        };
        assert_eq!(map.open(owner, Direction::Outgoing), Opened::New(FlowId(0)));
        assert_eq!(
            map.open(owner, Direction::RemoteRead),
            Opened::New(FlowId(1))
        );
        assert_eq!(map.close(owner, Direction::Outgoing), Some(FlowId(0)));
        assert_eq!(map.close(owner, Direction::Outgoing), None);
        assert_eq!(map.open(owner, Direction::Outgoing), Opened::New(FlowId(2)));
    }
}
