//! The model's NICs under work that a caller posts: no scenario, no end, queue pairs that are created and destroyed.
//!
//! Problem: an emulator runs real programs. What they post is known only when they post it. Method: a world without
//! workloads. [`LiveNics::connect`] adds a queue pair, [`LiveNics::post`] writes work requests and rings the doorbell,
//! [`LiveNics::next_report`] says what happened to them, in order of time. Everything between is the model as it is:
//! post, doorbell, fetch, schedule, caches, PCIe, wire, receive, acknowledgement, completion.
//!
//! The caller owns the clock. It calls [`LiveNics::run_until`] before it posts, so a post is never before a processed
//! event. The same calls give the same reports.
//!
//! Units: picoseconds, bytes. One queue pair of the model is one direction and one verb (`queue_pair.rs`).
//! Limits: the caller decides about errors, memory and receives. To the model each SEND finds a receive, which the device
//! has read before: a device's limits of receives have no effect.

mod nics;

pub use nics::LiveNics;

use isolane_rdma_scenario::model::{Transport, Verb};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// Most hosts on the switch: what scenarios allow too.
pub const HOSTS_MAX: usize = 40;
/// A queue pair of the model: one direction, one verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LivePair(u32);

/// A thread that posts and polls: its processor time is shared by its pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Core(usize);

/// What a new queue pair is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Connection {
    /// The host that posts.
    pub from: u8,
    /// The host that answers; the same for loopback.
    pub to: u8,
    /// What it does.
    pub verb: Verb,
    /// How.
    pub transport: Transport,
    /// Path MTU, bytes.
    pub mtu: u32,
    /// Work requests that may wait in its send queue.
    pub depth: u32,
    /// READs and atomics on their way at once.
    pub read_atomic_max: u32,
    /// Bytes of the memory of its messages: pages of the translation cache.
    pub region_bytes: u64,
    /// The thread that posts.
    pub core: Core,
}

/// One work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveRequest {
    /// Payload, bytes; 8 for an atomic.
    pub bytes: u64,
    /// Scatter-gather elements.
    pub elements: u16,
    /// Whether a completion is written.
    pub signalled: bool,
    /// Whether the payload rides in the work request.
    pub inline: bool,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Report {
    /// Message `message` of a pair (modulo 2^32, from 0) is in the receiver's memory, for WRITE and SEND.
    Delivered {
        /// The pair.
        pair: LivePair,
        /// Its number.
        message: u32,
    },
    /// The poster's thread can see the completions of all messages below `upto` (modulo 2^32).
    Completed {
        /// The pair.
        pair: LivePair,
        /// One past the last.
        upto: u32,
    },
}

/// What the world reports, by time and order of happening.
#[derive(Default)]
pub(crate) struct Reports {
    heap: BinaryHeap<Reverse<(u64, u64, Report)>>,
    made: u64,
    core_of: Vec<usize>,
    /// When each core is free, ps.
    cores: Vec<u64>,
    /// Work requests that found no slot, by pair.
    waiting: BTreeMap<u32, VecDeque<LiveRequest>>,
}

impl Reports {
    fn push(&mut self, at: u64, report: Report) {
        self.made += 1;
        self.heap.push(Reverse((at, self.made, report)));
    }
}
