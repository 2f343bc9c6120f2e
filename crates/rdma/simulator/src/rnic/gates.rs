//! What a shim checks before a work request goes to the NIC, beyond tokens: a bound on queue pairs in use, and a
//! receive at the other end.
//!
//! **Working set.** A flow may have a bound on how many of its queue pairs have work in the NIC. The others wait in
//! order. A queue pair keeps its place for one slice at least; then, while others wait, it starts no further
//! message and leaves when its last one is acknowledged.
//!
//! **Receives.** With `receives` a SEND leaves only when the sender knows of a receive for it: the shim of the peer
//! counts posted receives and reports them after [`TELL_DELAY`]. So there is no receiver-not-ready. Unreliable
//! transports promise their sender that it never waits for a receiver, so a pair without a receive may still send one
//! message every [`TRICKLE`].
//!
//! **Deregistrations** stop every tenant's translations for a while, so the driver delays those that come too fast, as
//! Harmonic's does (harmonic 5.5.2): each tenant has its part of a rate, by weight.
//!
//! **Costs.** What a request counts for in operations, as the policy's rates count them, by its verb. Bytes that loop
//! back count twice: they pass the bus in both directions.

mod check;

use super::queue_pair::QueuePair;
use isolane_rdma_scenario::model::Verb;
use std::collections::VecDeque;

/// What the shim checks, the same for all flows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gates {
    /// Hold SENDs until a receive is known of.
    pub(crate) receives: bool,
    /// Operations that one request counts for, by [`verb_index`]; everything counts once without.
    pub(crate) costs: Option<[u64; 5]>,
    /// Deregistrations per second that all tenants of a host may request together.
    pub(crate) deregistrations_per_s: Option<u64>,
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
