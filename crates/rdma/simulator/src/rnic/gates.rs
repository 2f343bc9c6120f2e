//! What a shim checks before a work request goes to the NIC, beyond tokens: a bound on queue pairs in use, and a
//! receive at the other end.
//!
//! **Working set.** A flow may have a bound on how many of its queue pairs have work in the NIC. The others wait in
//! order. A queue pair keeps its place for one slice at least; then, while others wait, it starts no further
//! message and leaves when its last one is acknowledged.
//!
//! **Receives.** With `receives` a SEND goes only when the sender has been told of a receive for it: the shim at the
//! other end counts what is posted and tells after [`TELL_DELAY`]. So there is no receiver-not-ready. Unreliable
//! transports promise their sender that it never waits for a receiver, so a pair without a receive may still send
//! one message every [`TRICKLE`].
//!
//! **Deregistrations** stop every tenant's translations for a while, so the driver delays those that come too fast, as
//! Harmonic's does (harmonic 5.5.2): each tenant has its part of a rate, by weight.
//!
//! **Costs.** What a request counts for in operations, as the policy's rates count them, by its verb. Bytes that loop
//! back count twice: they pass the bus in both directions.

use super::device::verb_index;
use super::enforce::{Flow, TELL_DELAY};
use super::policies::Setup;
use super::queue_pair::QueuePair;
use super::world::{Event, World};
use isolane_common_quantities::units::Instant;
use isolane_rdma_policy::harmonic::{ControlLimiter, ControlProfile, Objects};
use isolane_rdma_scenario::model::{ControlObject, Scenario, Transport, Verb};
use std::collections::VecDeque;

/// Time between two messages of an unreliable pair without a receive, ps: at the microseconds that dropping one
/// takes, some thousandths of the receive units' time for each pair.
const TRICKLE: u64 = 1_000_000_000;

/// What the shim checks, the same for all flows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gates {
    /// Hold SENDs until a receive is known of.
    pub(crate) receives: bool,
    /// Operations that one request counts for, by [`verb_index`]; everything counts once without.
    pub(crate) costs: Option<[u64; 5]>,
    /// Deregistrations per second that all tenants of a host may ask for together.
    pub(crate) deregistrations_per_s: Option<u64>,
}

/// What one message of a pair counts for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// Operations.
    pub(crate) operations: u64,
    /// Factor on its bytes.
    pub(crate) bytes: u64,
}

impl Default for Cost {
    fn default() -> Self {
        Self {
            operations: 1,
            bytes: 1,
        }
    }
}

impl Gates {
    /// Messages for which `queue_pair` knows a receive.
    #[inline]
    pub(crate) fn receives_for(&self, queue_pair: &QueuePair) -> u64 {
        if self.receives && queue_pair.verb == Verb::Send {
            queue_pair.receives_known
        } else {
            u64::MAX
        }
    }
}

/// A queue pair's place in its flow's working set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Membership {
    /// Waits for a place, or has never needed one.
    #[default]
    Out,
    /// May send.
    In,
    /// Finishes what it has begun.
    Leaving,
}

/// The queue pairs of one flow that may have work in the NIC.
#[derive(Clone, Debug)]
pub(crate) struct WorkingSet {
    /// Places.
    bound: u32,
    slice: u64,
    /// Places taken, by pairs that are in or leaving.
    taken: u32,
    /// Those that are in, longest first.
    members: VecDeque<u32>,
    /// Those that wait for a place.
    outside: VecDeque<u32>,
    /// A look is due at this time, ps.
    look_at: u64,
}

impl Default for WorkingSet {
    fn default() -> Self {
        Self {
            bound: u32::MAX,
            slice: 0,
            taken: 0,
            members: VecDeque::new(),
            outside: VecDeque::new(),
            look_at: u64::MAX,
        }
    }
}

impl WorkingSet {
    /// Whether the flow may not use all the queue pairs it likes.
    #[inline]
    pub(crate) fn is_bounded(&self) -> bool {
        self.bound != u32::MAX
    }

    /// So many places from now on.
    pub(crate) fn bound(&mut self, places: u32, slice: u64) {
        self.bound = places;
        self.slice = slice;
    }
}

impl World {
    /// Works out what the shim checks and counts, when all queue pairs are there.
    pub(crate) fn set_costs(&mut self, scenario: &Scenario, setup: &Setup) {
        self.enforcer.gates = setup.gates;
        if let Some(all) = setup.gates.deregistrations_per_s {
            let weights = scenario
                .tenants
                .iter()
                .map(|tenant| u64::from(tenant.weight));
            let sum: u64 = weights.clone().sum();
            let limiter = |weight: u64| {
                ControlLimiter::new(ControlProfile {
                    control_requests_per_s: Some(u64::max(all * weight / sum, 1)),
                    ..ControlProfile::default()
                })
            };
            let limiters: Vec<ControlLimiter> = weights.map(limiter).collect();
            self.enforcer.deregistrations = vec![limiters; self.nics.len()];
        }
        let Some(costs) = setup.gates.costs else {
            return;
        };
        for pair in &mut self.pairs {
            pair.cost = Cost {
                operations: costs[verb_index(pair.verb)],
                bytes: 1 + u64::from(pair.host == pair.peer),
            };
        }
    }

    /// How long a loop's next verb has to wait because it is one deregistration too many, ps.
    pub(crate) fn deregistration_waits(&mut self, now: u64, index: u32) -> u64 {
        let command = &self.loops[index as usize];
        if command.creating || command.object != ControlObject::MemoryRegion {
            return 0;
        }
        let limiters = self
            .enforcer
            .deregistrations
            .get_mut(usize::from(command.host));
        let limiter = limiters.and_then(|all| all.get_mut(usize::from(command.tenant)));
        limiter.map_or(0, |limiter| {
            limiter
                .destroy(Instant::from_ps(now), &Objects::default())
                .as_ps()
        })
    }

    /// Whether `pair`, which has work waiting, has a place in its flow's working set; otherwise it waits for one,
    /// and no longer among those that may send.
    pub(crate) fn admit(&mut self, at: u64, state: &mut Flow, pair: u32) -> bool {
        let set = &mut state.working_set;
        if !set.is_bounded() || self.pairs[pair as usize].membership != Membership::Out {
            return true;
        }
        if set.outside.is_empty() && set.taken < set.bound {
            self.enter(at, set, pair);
            return true;
        }
        set.outside.push_back(pair);
        self.fill_places(at, state);
        self.watch_oldest(at, state);
        false
    }

    fn enter(&mut self, at: u64, set: &mut WorkingSet, pair: u32) {
        set.taken += 1;
        set.members.push_back(pair);
        let queue_pair = &mut self.pairs[pair as usize];
        queue_pair.membership = Membership::In;
        queue_pair.member_since = at;
    }

    /// Gives free places to those that wait longest.
    fn fill_places(&mut self, at: u64, state: &mut Flow) {
        while state.working_set.taken < state.working_set.bound {
            let Some(pair) = state.working_set.outside.pop_front() else {
                return;
            };
            self.enter(at, &mut state.working_set, pair);
            state.waiting.push_back(pair);
        }
    }

    /// Sees to it that the flow is looked at when its oldest member's slice ends.
    fn watch_oldest(&mut self, at: u64, state: &mut Flow) {
        let set = &mut state.working_set;
        let Some(&oldest) = set.members.front() else {
            return;
        };
        let due = (self.pairs[oldest as usize].member_since + set.slice).max(at);
        if !set.outside.is_empty() && due < set.look_at {
            set.look_at = due;
            self.look_again_at(due, state.host, state.number);
        }
    }

    /// Comes back to a flow at `at`.
    pub(crate) fn look_again_at(&mut self, at: u64, host: u8, flow: u32) {
        let at = at.max(self.queue.now().as_ps());
        self.schedule(at, Event::LookAgain { host, flow });
    }

    /// Ends the turns of members whose slice is over, as many as wait for a place.
    pub(crate) fn next_turns(&mut self, now: u64, state: &mut Flow) {
        state.working_set.look_at = u64::MAX;
        if !state.working_set.is_bounded() {
            let set = &mut state.working_set;
            state.waiting.append(&mut set.outside);
            return;
        }
        for _ in 0..state.working_set.outside.len() {
            let set = &mut state.working_set;
            let Some(&member) = set.members.front() else {
                break;
            };
            let queue_pair = &mut self.pairs[member as usize];
            if queue_pair.member_since + set.slice > now {
                break;
            }
            set.members.pop_front();
            queue_pair.membership = Membership::Leaving;
            self.vacate(state, member);
        }
        self.fill_places(now, state);
        self.watch_oldest(now, state);
    }

    /// A pair's work was acknowledged: if it is leaving and has nothing left in the NIC, its place is free.
    pub(crate) fn acknowledged_in_set(&mut self, now: u64, state: &mut Flow, pair: u32) {
        if self.pairs[pair as usize].membership == Membership::Leaving {
            self.vacate(state, pair);
            self.fill_places(now, state);
        }
    }

    fn vacate(&mut self, state: &mut Flow, pair: u32) {
        let queue_pair = &mut self.pairs[pair as usize];
        if queue_pair.posted == queue_pair.acknowledged && queue_pair.release_offset == 0 {
            queue_pair.membership = Membership::Out;
            state.working_set.taken -= 1;
        }
    }

    /// Whether the next message of `pair` may begin at `at` for want of nothing but tokens.
    pub(crate) fn has_receive(&mut self, at: u64, state: &Flow, pair: u32) -> bool {
        let queue_pair = &mut self.pairs[pair as usize];
        if self.enforcer.gates.receives_for(queue_pair) > 0 || queue_pair.release_offset > 0 {
            return true;
        }
        if queue_pair.transport == Transport::Rc {
            return false;
        }
        let due = queue_pair.trickled_at + TRICKLE;
        if queue_pair.trickled_at == 0 || due <= at {
            queue_pair.trickled_at = at.max(1);
            return true;
        }
        if !queue_pair.trickle_watched {
            queue_pair.trickle_watched = true;
            self.look_again_at(due, state.host, state.number);
        }
        false
    }

    /// One message of `pair` begins: it uses up a receive.
    pub(crate) fn claim_receive(&mut self, pair: u32, count: u64) {
        let queue_pair = &mut self.pairs[pair as usize];
        queue_pair.receives_known = queue_pair.receives_known.saturating_sub(count);
        queue_pair.trickle_watched = false;
    }

    /// The other end has posted receives and tells the sender.
    pub(crate) fn tell_receives(&mut self, now: u64, pair: u32, count: u16) {
        if self.enforcer.gates.receives {
            let at = now + self.one_way() + TELL_DELAY;
            self.schedule(at, Event::ReceivesKnown { pair, count });
        }
    }

    /// The sender learns of receives.
    pub(crate) fn receives_known(&mut self, now: u64, pair: u32, count: u16) {
        self.pairs[pair as usize].receives_known += u64::from(count);
        if self.pairs[pair as usize].in_backlog {
            self.room_again(now, pair);
        }
    }
}
