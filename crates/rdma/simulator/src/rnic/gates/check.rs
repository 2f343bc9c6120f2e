//! What the shim checks before a work request goes to the NIC.

use super::{Gates, WorkingSet};
use crate::rnic::device::verb_index;
use crate::rnic::enforce::{Flow, TELL_DELAY};
use crate::rnic::event::Event;
use crate::rnic::policies::Setup;
use crate::rnic::queue_pair::{Cost, Membership, QueuePair};
use crate::rnic::world::World;
use isolane_common_quantities::units::Instant;
use isolane_rdma_policy::harmonic::{ControlLimiter, ControlProfile, Objects};
use isolane_rdma_scenario::model::{ControlObject, Scenario, Transport};

impl<const RECORDS: bool> World<RECORDS> {
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

    /// The peer has posted receives and reports them to the sender.
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

impl Gates {
    /// Whether the next message of `queue_pair` may begin at `at` for want of nothing but tokens. If not, `look_at` becomes
    /// the time of a further look at its flow, ps, where one is not due yet.
    #[inline]
    pub(crate) fn lets_begin(
        &self,
        at: u64,
        queue_pair: &mut QueuePair,
        look_at: &mut Option<u64>,
    ) -> bool {
        if self.receives_for(queue_pair) > 0 || queue_pair.release_offset > 0 {
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
            *look_at = Some(due);
        }
        false
    }
}

impl QueuePair {
    /// So many messages begin: each uses up a receive.
    #[inline]
    pub(crate) fn claim_receives(&mut self, count: u64) {
        self.receives_known = self.receives_known.saturating_sub(count);
        self.trickle_watched = false;
    }
}

/// Time between two messages of an unreliable pair without a receive, ps: at the microseconds that dropping one
/// takes, some thousandths of the receive units' time for each pair.
const TRICKLE: u64 = 1_000_000_000;
