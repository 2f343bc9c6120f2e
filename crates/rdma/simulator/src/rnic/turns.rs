//! Turns of contexts on the engines of a lane.
//!
//! An engine serves its context packet by packet until the turn is over, then the context goes to the end of the
//! schedule queue. Engines of a lane take packets in rotation. A turn is `quantum_packets` long and longer by what was
//! prefetched while the context waited (`transmit` says why). A device that prefetches counts a turn in bytes, that of so
//! many full packets: small messages fill it with more packets. A device that does not, counts packets (palos II-B).

use super::device::Device;
use super::lanes::{Engine, Lane, Lanes, Served};
use super::queue_pair::{NONE, QueuePair};
use super::world::PAIRS_IN_CACHE;
use std::collections::VecDeque;

impl Lane {
    /// The next engine in turn of a lane with work that has, or can take, a context, and the context.
    #[inline(always)]
    pub(super) fn choose_engine(
        &mut self,
        now: u64,
        device: &Device,
        pairs: &[QueuePair],
    ) -> (usize, u32) {
        let engines = self.engines.len();
        for _ in 0..engines {
            let turn = self.next_engine;
            self.next_engine = if turn + 1 == engines { 0 } else { turn + 1 };
            let engine = &mut self.engines[turn];
            if engine.context == NONE {
                let Some(context) = self.ready.pop_front() else {
                    continue;
                };
                fetch_ahead(pairs, &self.ready);
                *engine = Engine {
                    context,
                    left: turn_of(device, pairs, now, context),
                };
            }
            return (turn, engine.context);
        }
        unreachable!("a lane in a ring has a context")
    }
}

impl Lanes {
    /// A step of an engine is over, which took `spent` of the turn; whether its context, which is of `queue_pair`, has left
    /// the lane.
    #[inline(always)]
    pub(super) fn after_packet(
        &mut self,
        now: u64,
        lane: usize,
        (engine, context): (usize, u32),
        (served, spent): (Served, u32),
        queue_pair: &mut QueuePair,
    ) -> bool {
        let slot = &mut self.lanes[lane].engines[engine];
        slot.left = slot.left.saturating_sub(spent);
        if served == Served::More && slot.left > 0 {
            return false;
        }
        slot.context = NONE;
        let is_response = context % 2 == 1;
        if served == Served::More {
            if is_response {
                queue_pair.response_queued_at = now;
            } else {
                queue_pair.queued_at = now;
            }
            let next = self.lane_of(queue_pair.queue, queue_pair.function);
            self.push(next, context);
        } else if is_response {
            queue_pair.response_scheduled = false;
        } else {
            queue_pair.scheduled = false;
        }
        true
    }
}

/// Asks memory for what the next two contexts of a lane will need while others are served: the pair of the second, and of the
/// first, whose pair is there since, the request. Thousands of pairs do not fit a cache.
#[inline]
fn fetch_ahead(pairs: &[QueuePair], ready: &VecDeque<u32>) {
    if pairs.len() <= PAIRS_IN_CACHE {
        return;
    }
    if let (Some(first), Some(second)) = (ready.front(), ready.get(1)) {
        let first = &pairs[*first as usize / 2];
        isolane_common_events::prefetch::fetch(first.work_request(first.sent));
        let second = &pairs[*second as usize / 2];
        isolane_common_events::prefetch::fetch(second);
        isolane_common_events::prefetch::fetch(&second.visible);
        isolane_common_events::prefetch::fetch(&second.limiters);
    }
}

impl Device {
    /// What one packet with `bytes` on the wire takes of a turn.
    #[inline(always)]
    pub(super) fn spent(&self, bytes: u64) -> u32 {
        if self.window == 0 { 1 } else { bytes as u32 }
    }
}

/// A context's turn: the quantum and what was prefetched while it waited; packets, or bytes on a device that prefetches.
#[inline]
fn turn_of(device: &Device, pairs: &[QueuePair], now: u64, context: u32) -> u32 {
    if device.window == 0 {
        return device.quantum_packets;
    }
    let queue_pair = &pairs[context as usize / 2];
    let queued_at = if context % 2 == 1 {
        queue_pair.response_queued_at
    } else {
        queue_pair.queued_at
    };
    let prefetched = device
        .window
        .min((now - queued_at) / device.pcie.of(1).max(1));
    let packets = device.quantum_packets + (prefetched / u64::from(queue_pair.mtu)) as u32;
    packets.saturating_mul(queue_pair.mtu + device.frame as u32)
}
