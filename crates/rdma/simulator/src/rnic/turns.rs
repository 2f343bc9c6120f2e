//! Turns of contexts on the engines of a lane.
//!
//! An engine serves its context packet by packet until the turn is over, then the context goes to the end of the
//! schedule queue. Engines of a lane take packets in rotation. A turn is `quantum_packets` long and longer by what was
//! prefetched while the context waited (`transmit` says why).

use super::lanes::{Engine, Served};
use super::queue_pair::NONE;
use super::world::{PAIRS_IN_CACHE, World};

impl World {
    /// A step of an engine is over; whether its context has left the lane.
    pub(super) fn after_packet(
        &mut self,
        now: u64,
        (host, lane): (usize, usize),
        (engine, context): (usize, u32),
        served: Served,
    ) -> bool {
        let slot = &mut self.nics[host].lanes.lanes[lane].engines[engine];
        slot.packets_left -= 1;
        if served == Served::More && slot.packets_left > 0 {
            return false;
        }
        slot.context = NONE;
        let is_response = context % 2 == 1;
        let queue_pair = &mut self.pairs[context as usize / 2];
        if served == Served::More {
            if is_response {
                queue_pair.response_queued_at = now;
            } else {
                queue_pair.queued_at = now;
            }
            let next = self.lane_of(host, context / 2);
            self.nics[host].lanes.push(next, context);
        } else if is_response {
            queue_pair.response_scheduled = false;
        } else {
            queue_pair.scheduled = false;
        }
        true
    }

    /// The next engine in turn of a lane with work that has, or can take, a context, and the context.
    pub(super) fn choose_engine(&mut self, now: u64, host: usize, lane: usize) -> (usize, u32) {
        let mut turn = self.nics[host].lanes.lanes[lane].next_engine;
        for _ in 0..self.device.engines {
            let state = &mut self.nics[host].lanes.lanes[lane];
            let engines = state.engines.len();
            let next = if turn + 1 == engines { 0 } else { turn + 1 };
            if state.engines[turn].context == NONE {
                let Some(context) = state.ready.pop_front() else {
                    turn = next;
                    continue;
                };
                let packets_left = self.turn_of(now, context);
                self.fetch_ahead(host, lane);
                self.nics[host].lanes.lanes[lane].engines[turn] = Engine {
                    context,
                    packets_left,
                };
            }
            let state = &mut self.nics[host].lanes.lanes[lane];
            state.next_engine = next;
            return (turn, state.engines[turn].context);
        }
        unreachable!("a lane in a ring has a context")
    }

    /// Asks memory for what the next two contexts of a lane will need while others are served: the pair of the second, and of
    /// the first, whose pair is there since, the request. Thousands of pairs do not fit a cache.
    #[inline]
    fn fetch_ahead(&self, host: usize, lane: usize) {
        if self.pairs.len() <= PAIRS_IN_CACHE {
            return;
        }
        let ready = &self.nics[host].lanes.lanes[lane].ready;
        if let (Some(first), Some(second)) = (ready.front(), ready.get(1)) {
            let first = &self.pairs[*first as usize / 2];
            isolane_common_events::prefetch::fetch(first.work_request(first.sent));
            let second = &self.pairs[*second as usize / 2];
            isolane_common_events::prefetch::fetch(second);
            isolane_common_events::prefetch::fetch(&second.visible);
            isolane_common_events::prefetch::fetch(&second.limiters);
        }
    }

    /// Packets of a context's turn: the quantum and what was prefetched while it waited.
    fn turn_of(&self, now: u64, context: u32) -> u32 {
        let window = self.device.window;
        if window == 0 {
            return self.device.quantum_packets;
        }
        let queue_pair = &self.pairs[context as usize / 2];
        let queued_at = if context % 2 == 1 {
            queue_pair.response_queued_at
        } else {
            queue_pair.queued_at
        };
        let prefetched = window.min((now - queued_at) / self.device.pcie.of(1).max(1));
        self.device.quantum_packets + (prefetched / u64::from(queue_pair.mtu)) as u32
    }
}
