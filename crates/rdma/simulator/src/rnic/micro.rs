//! Mechanisms that only some devices show: what they have, what a NIC and a pair keep for them, and the smaller ones.
//!
//! Problem: workloads that run at line rate on one RDMA NIC stall another one. Units: picoseconds and bytes. Method:
//! each mechanism is a finite resource with parameters in the section `microarchitecture` of a profile, and is off
//! where the profile has no such section: then no state here is touched. Receives and kept requests are in
//! `micro_receives`; this file has the paths to far memory, ordered reads, reserved packet memory and lists in the packet
//! processor. Limits: caches of receives and requests replace in order of arrival, so a working set that does
//! not fit misses always; reads go before writes on a shared path. Sources: collie 3.11 (root causes),
//! `docs/internals/rnic-anomalies.md`.

mod paths;

use super::byte_time::ByteTime;
use super::cache::MissSlots;
use super::sizes::PAGE;
use isolane_common_quantities::units::Duration;
use isolane_rdma_scenario::model::Message;
use isolane_rdma_scenario::profile::Profile;

/// Elements up to this are short: two read requests fetch them, bytes.
const SHORT_ELEMENT: u32 = 1_024;
/// Elements from this on are long: they need more reads than a device has outstanding, bytes.
const LONG_ELEMENT: u32 = 65_536;

/// Parameters of the section `microarchitecture`, as the model uses them; zero is off.
#[derive(Clone, Copy, Debug)]
pub struct Micro {
    /// Bytes of receives the device keeps.
    pub receive_cache: u64,
    /// A datagram pair's receive there.
    pub receive_ud: u64,
    /// Receives and kept requests read again at once.
    pub miss_slots: usize,
    /// One such read, ps.
    pub miss: u64,
    /// So much longer for a datagram pair's displaced receive, ps.
    pub miss_ud: u64,
    /// A list of so many bytes is read ahead whole.
    pub receive_list: u64,
    /// A list of so many receives is read as it is posted.
    pub receive_burst: u64,
    /// What such lists may fill of a pair's window, bytes.
    pub receive_window: u64,
    /// Least room of a packet in the receive buffer, bytes.
    pub receive_cell: u64,
    /// Senders learn which receives were read.
    pub credits: bool,
    /// Bytes of requests kept until their list is done.
    pub request_cache: u64,
    /// Bytes that a pair's responder takes of the same memory, for READs it may have to answer.
    pub responder_pair: u64,
    /// Requester's work for a packet of a READ response, ps.
    pub response_packet: u64,
    /// Only a list's first request waits for translations.
    pub list_lookahead: bool,
    /// Region entries are read before translations.
    pub dependent_translation: bool,
    /// A translation entry covers two to the power of so many pages.
    pub translation_shift: u32,
    /// Fetching work requests needs the context.
    pub fetch_context: bool,
    /// Requests of lists inside the packet processor.
    pub hot_requests: u64,
    /// Bringing another pair's list in, ps.
    pub swap: u64,
    /// Packet memory that connections reserve, bytes.
    pub staging: u64,
    /// What an element reserves of it, bytes.
    pub staging_element: u64,
    /// What a change of element size costs ordered writes, ps.
    pub ordering: u64,
    /// Time per byte of the paths to the other socket's and to GPU memory; none where they are no bottleneck.
    pub paths: [Option<ByteTime>; 2],
    /// What the requester side works for a byte of payload that it sends.
    pub copy: ByteTime,
}

impl Micro {
    /// What `profile` says.
    pub fn of(profile: &Profile) -> Self {
        let count = |name: &str| profile.micro(name).round() as u64;
        let ns = |name: &str| Duration::from_ns_f64(profile.micro(name)).as_ps();
        let flag = |name: &str| profile.micro(name) >= 0.5;
        let path = |name: &str| {
            let gbps = profile.micro(name);
            (gbps > 0.0).then(|| ByteTime::at_gbps(gbps))
        };
        Self {
            receive_cache: count("receive_cache_bytes"),
            receive_ud: count("receive_ud_bytes"),
            miss_slots: count("receive_miss_slots") as usize,
            miss: ns("receive_miss_ns"),
            miss_ud: ns("receive_ud_miss_ns"),
            receive_list: count("receive_list_bytes"),
            receive_burst: count("receive_burst"),
            receive_window: count("receive_window_bytes"),
            receive_cell: count("receive_cell_bytes"),
            credits: flag("receive_credits"),
            request_cache: count("request_cache_bytes"),
            responder_pair: count("responder_pair_bytes"),
            response_packet: ns("response_packet_ns"),
            list_lookahead: flag("list_lookahead"),
            dependent_translation: profile.micro("translation_levels") >= 1.5,
            translation_shift: (count("translation_page_bytes") / PAGE).max(1).ilog2(),
            fetch_context: flag("fetch_context"),
            hot_requests: count("hot_requests"),
            swap: ns("swap_ns"),
            staging: count("staging_bytes"),
            staging_element: count("staging_element_bytes"),
            ordering: ns("ordering_ns"),
            paths: [path("remote_socket_gbps"), path("gpu_gbps")],
            copy: path("copy_gbps").unwrap_or(ByteTime::NONE),
        }
    }
}

/// What one NIC keeps for these mechanisms.
#[derive(Clone, Debug)]
pub(crate) struct MicroNic {
    /// Receives posted and unused, bytes.
    pub(super) receives: u64,
    /// Requests kept, bytes.
    pub(super) kept: u64,
    /// Most of both since measuring began.
    pub(super) peak: Kept,
    /// Packet memory that connections have reserved, bytes.
    pub(super) reserved: u64,
    /// Requests of the lists whose packets passed the packet processor.
    passed: u64,
    /// Paths to the other socket and to GPU memory: when each is free for reads, and for writes after them, ps.
    paths: [(u64, u64); 2],
    /// Slots in which receives and kept requests are read again.
    pub(super) slots: MissSlots,
}

impl MicroNic {
    pub(crate) fn new(micro: &Micro) -> Self {
        Self {
            receives: 0,
            kept: 0,
            peak: Kept::default(),
            reserved: 0,
            passed: 0,
            paths: [(0, 0); 2],
            slots: MissSlots::new(micro.miss_slots, micro.miss),
        }
    }
}

/// What a NIC keeps, bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kept {
    /// Receives posted and unused.
    pub(super) receives: u64,
    /// Requests.
    pub(super) requests: u64,
}

/// What one pair keeps for these mechanisms.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MicroPair {
    /// Bytes of one of its receives.
    pub(super) receive: u64,
    /// Receives that are posted at once.
    pub(super) list: u64,
    /// Receives that the responder has read, where it reads one at a time.
    pub(super) read: u64,
    pub(super) reading: u64,
    /// When the receive it reads now is there, ps.
    pub(super) read_at: u64,
    /// Work requests that the sender may have sent.
    pub(super) granted: u64,
    /// Bytes of one of its requests.
    pub(super) request: u64,
    /// Receives below this were displaced.
    pub(super) displaced: u64,
    /// Requests of one list of the sender's.
    pub(super) requests: u64,
    /// The progress of its first list when the run began, as running applications are at different points.
    pub(super) phase: u64,
    /// Requests below this, counted from the beginning of the first list, are no longer kept.
    pub(super) kept_from: u64,
    /// Requests that are posted at once.
    pub(super) posted_at_once: u64,
    /// The packet processors' count when its list was last inside: at its host, and at its peer.
    at_hand: [u64; 2],
}

/// How often a read of these elements changes between short and long.
pub(crate) fn changes(message: &Message) -> u64 {
    let long = |size: u32| match size {
        size if size <= SHORT_ELEMENT => Some(false),
        size if size >= LONG_ELEMENT => Some(true),
        _ => None,
    };
    let pairs = message.elements.windows(2);
    pairs
        .filter(|pair| matches!((long(pair[0]), long(pair[1])), (Some(a), Some(b)) if a != b))
        .count() as u64
}

#[cfg(test)]
mod tests;
