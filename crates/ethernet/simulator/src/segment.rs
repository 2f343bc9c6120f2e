//! Segments that hosts pass to their cards, and lists of segments.
//!
//! Method: segments live in one slab and are linked by index, so that a list is three words and nothing is allocated
//! once the slab has grown. The content of acknowledgements is in a slab of its own, as most segments have none.
//! Limits: 2^32 - 1 segments.

use isolane_common_quantities::units::Instant;

/// No segment.
pub(crate) const NIL: u32 = u32::MAX;
/// Blocks of out-of-order data in an acknowledgement, beside timestamps (RFC 2018).
pub(crate) const BLOCKS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Data,
    /// An acknowledgement, from the flow's destination.
    Ack,
    /// An echo request.
    Ping,
    /// An echo reply.
    Pong,
}

/// One segment of a flow, as TCP makes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    /// First byte of the flow in it.
    pub(crate) seq: u64,
    /// When it entered a software queue.
    pub(crate) entered: Instant,
    /// Bytes a second that pacing allows its flow.
    pub(crate) rate: u64,
    pub(crate) flow: u32,
    pub(crate) next: u32,
    pub(crate) payload: u32,
    /// Payload that the card has taken already.
    pub(crate) taken: u32,
    /// What the sending socket is charged.
    pub(crate) memory: u32,
    /// The acknowledgement or the ping.
    pub(crate) info: u32,
    /// All its packets with their headers: what byte limits count.
    pub(crate) bytes: u32,
    pub(crate) descriptors: u16,
    pub(crate) header: u16,
    pub(crate) kind: Kind,
    /// Sent before.
    pub(crate) again: bool,
}

impl Segment {
    /// Headers of each of its packets.
    #[inline]
    pub(crate) fn header(&self) -> u32 {
        u32::from(self.header)
    }

    /// Descriptors that the card has finished; each but the first two has `data` bytes at most.
    #[inline]
    pub(crate) fn finished(&self, data: u32) -> u32 {
        match self.taken {
            0 => 0,
            taken if taken >= self.payload => u32::from(self.descriptors),
            taken => (2 + taken / data).min(u32::from(self.descriptors)),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Segments {
    slab: Vec<Segment>,
    free: u32,
    live: usize,
}

impl Segments {
    pub(crate) fn new() -> Self {
        Self {
            slab: Vec::new(),
            free: NIL,
            live: 0,
        }
    }

    #[inline]
    pub(crate) fn insert(&mut self, segment: Segment) -> u32 {
        self.live += 1;
        if self.free == NIL {
            self.slab.push(segment);
            return u32::try_from(self.slab.len() - 1).expect("fewer than 2^32 segments");
        }
        let id = self.free;
        self.free = self.slab[id as usize].next;
        self.slab[id as usize] = segment;
        id
    }

    #[inline]
    pub(crate) fn remove(&mut self, id: u32) -> Segment {
        let segment = self.slab[id as usize];
        self.slab[id as usize].next = self.free;
        self.free = id;
        self.live -= 1;
        segment
    }

    #[inline]
    pub(crate) fn get(&self, id: u32) -> &Segment {
        &self.slab[id as usize]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: u32) -> &mut Segment {
        &mut self.slab[id as usize]
    }
}

/// A first-in first-out list of segments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    head: u32,
    tail: u32,
    len: u32,
}

impl Default for List {
    fn default() -> Self {
        Self {
            head: NIL,
            tail: NIL,
            len: 0,
        }
    }
}

impl List {
    #[inline]
    pub(crate) fn push(&mut self, segments: &mut Segments, id: u32) {
        segments.get_mut(id).next = NIL;
        if self.head == NIL {
            self.head = id;
        } else {
            segments.get_mut(self.tail).next = id;
        }
        self.tail = id;
        self.len += 1;
    }

    #[inline]
    pub(crate) fn pop(&mut self, segments: &Segments) -> Option<u32> {
        if self.head == NIL {
            return None;
        }
        let id = self.head;
        self.head = segments.get(id).next;
        self.len -= 1;
        Some(id)
    }

    #[inline]
    pub(crate) fn head(&self) -> Option<u32> {
        (self.head != NIL).then_some(self.head)
    }

    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head == NIL
    }
}

/// What an acknowledgement says.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AckInfo {
    /// Everything before arrived.
    pub(crate) ack: u64,
    /// Out-of-order data: beginning after `ack`, length.
    pub(crate) blocks: [(u32, u32); BLOCKS],
    /// Bytes that arrived with a mark since the last one.
    pub(crate) marked: u32,
}

/// Acknowledgements on their way.
#[derive(Debug, Default)]
pub(crate) struct Acks {
    slab: Vec<AckInfo>,
    free: Vec<u32>,
}

impl Acks {
    pub(crate) fn insert(&mut self, info: AckInfo) -> u32 {
        if let Some(id) = self.free.pop() {
            self.slab[id as usize] = info;
            return id;
        }
        self.slab.push(info);
        (self.slab.len() - 1) as u32
    }

    pub(crate) fn remove(&mut self, id: u32) -> AckInfo {
        self.free.push(id);
        self.slab[id as usize]
    }
}
