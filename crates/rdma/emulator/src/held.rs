//! What each client holds, counted as it comes and goes.
//!
//! Problem: each request is checked against the limits of its client and against what uses an object. A client that has many
//! objects and sends many requests must not make each request take longer, because the broker serves all clients in turn.
//! Method: counts in place of searches. A client's counts end with it; an object's with the object.

use isolane_rdma_emulated_verbs::context::OBJECTS_MAX;

/// Objects of which a client may have [`OBJECTS_MAX`] of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Domain,
    Region,
    Window,
    Completions,
    Shared,
    Pair,
}

const KINDS: usize = Kind::Pair as usize + 1;

/// The counts of one client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    objects: [usize; KINDS],
    /// Entries of completion queues.
    pub(crate) entries: u64,
    /// Work requests and receives for which queues have room.
    pub(crate) places: u64,
    /// Queue pairs of the model.
    pub(crate) lanes: usize,
    /// Bytes of messages that have left and not arrived.
    pub(crate) flying: u64,
}

impl Held {
    /// Fails with `ENOMEM` if the client may have no more of a kind.
    pub(crate) const fn room(&self, kind: Kind) -> Result<(), i32> {
        match self.objects[kind as usize] < OBJECTS_MAX as usize {
            true => Ok(()),
            false => Err(libc::ENOMEM),
        }
    }

    pub(crate) const fn add(&mut self, kind: Kind) {
        self.objects[kind as usize] += 1;
    }

    pub(crate) const fn remove(&mut self, kind: Kind) {
        self.objects[kind as usize] -= 1;
    }
}
