//! Calls in flight: 32 bytes each, in a slab whose slots are used again, last freed first.
//!
//! Problem: a run makes tens of millions of calls, and memory must not grow with their number.
//! Method: a call lives from its start to its end in a slot, whose number is the message's token; the free slots form
//! a list through the slots themselves.
//! Limits: at most 2^32 - 1 calls in flight.

use crate::packet::HostId;
use isolane_common_quantities::units::Instant;

#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    /// When it was handed to the transport.
    pub started: Instant,
    /// Payload, bytes.
    pub size: u64,
    /// Which generator made it; the next free slot in one that is free.
    pub generator: u32,
    /// Its pair of hosts, as [`super::groups::Groups`] numbers them.
    pub pair: u32,
    pub to: HostId,
    /// Requested class.
    pub asked: u8,
    /// Class it runs in.
    pub ran: u8,
    /// Whether it counts (it began after the warm-up).
    pub measured: bool,
    live: bool,
}

const _: () = assert!(size_of::<Call>() == 32, "half a cache line");

impl Call {
    /// A call that is not kept yet.
    pub(super) fn new(started: Instant, size: u64, generator: u32, pair: u32, to: HostId) -> Self {
        Self {
            started,
            size,
            generator,
            pair,
            to,
            asked: 0,
            ran: 0,
            measured: false,
            live: true,
        }
    }
}

const NIL: u32 = u32::MAX;

#[derive(Clone, Debug)]
pub(super) struct InFlight {
    slots: Vec<Call>,
    free: u32,
    live: usize,
}

impl Default for InFlight {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: NIL,
            live: 0,
        }
    }
}

impl InFlight {
    /// Keeps `call` and says where.
    #[inline]
    pub(super) fn insert(&mut self, call: Call) -> u32 {
        self.live += 1;
        if self.free == NIL {
            let token = u32::try_from(self.slots.len()).expect("fewer than 2^32 calls in flight");
            assert!(token != NIL, "2^32 - 1 calls in flight");
            self.slots.push(call);
            return token;
        }
        let token = self.free;
        self.free = self.slots[token as usize].generator;
        self.slots[token as usize] = call;
        token
    }

    /// Takes a call out. Panics if no call has this token: the transport ended a message twice.
    #[inline]
    pub(super) fn remove(&mut self, token: u32) -> Call {
        let slot = &mut self.slots[token as usize];
        assert!(slot.live, "message {token} ended twice");
        let call = *slot;
        slot.live = false;
        slot.generator = self.free;
        self.free = token;
        self.live -= 1;
        call
    }

    pub(super) fn len(&self) -> usize {
        self.live
    }

    /// Most calls that were in flight at a time.
    #[cfg(test)]
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Each of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Call> {
        self.slots.iter().filter(|call| call.live)
    }
}
