//! Whose object a PCIe transfer touches.
//!
//! Every use of the bus carries an [`Access`]. The model itself does not need it: what a transfer costs depends on
//! its bytes alone. Two readers do. Accounts of who kept the bus busy follow the owner to its tenant; a monitor on
//! the bus ([`super::tap`]) sees the address and nothing else of it.

/// Who causes a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Pair(u32),
    Loop(u32),
    /// The host's own daemon and drivers.
    Host,
}

/// Which end of a queue pair an object belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The host that posts requests.
    Requester,
    /// The host that answers them.
    Responder,
}

/// What a transfer touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    /// The doorbell register of a process.
    Doorbell,
    /// A pair's send queue.
    SendQueue,
    /// A pair's receive queue.
    ReceiveQueue,
    /// A process's completion queue.
    CompletionQueue,
    PairContext,
    /// A completion queue's context.
    QueueContext,
    /// Translation and protection entries of a process's regions; the offset is that of the payload they cover.
    Translation,
    /// Memory regions of a process; the offset counts from the first byte of the current message.
    Memory,
    /// Mapping entries and counters of a monitor on the bus.
    Monitor,
}

/// A transfer's owner and the object it touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) owner: Owner,
    pub(crate) end: End,
    pub(crate) object: Object,
    /// Payload that the transfer's headers name; zero for a transfer that only answers, or only asks: the bytes
    /// themselves are named once, where they pass.
    pub(crate) bytes: u64,
    /// Place within the object, bytes. A ring's offset counts on; it wraps where it is turned into an address.
    pub(crate) offset: u64,
}

impl Access {
    /// `bytes` at `offset` of a queue pair's object.
    #[inline]
    pub(crate) const fn of(pair: u32, end: End, object: Object, offset: u64, bytes: u64) -> Self {
        Self {
            owner: Owner::Pair(pair),
            end,
            object,
            bytes,
            offset,
        }
    }

    /// The request of a read whose data is accounted when it comes.
    #[inline]
    pub(crate) const fn asking(pair: u32, end: End, object: Object) -> Self {
        Self::of(pair, end, object, 0, 0)
    }

    /// The host's own traffic with a monitor, on behalf of `owner`.
    #[inline]
    pub(crate) const fn monitor(owner: Owner) -> Self {
        Self {
            owner,
            end: End::Requester,
            object: Object::Monitor,
            bytes: 0,
            offset: 0,
        }
    }
}
