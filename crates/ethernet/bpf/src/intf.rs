//! The maps' layouts as `bpf/intf.h` has them, for memory that the kernel changes at the same time.
//!
//! Problem: two languages describe the same bytes. Method: sizes are asserted here and there, offsets by a test that
//! reads the compiled object's type information. Every field is atomic, because programs write while we read.
//! Units: bytes; ticks of the kernel ([`crate::sys::tick_ns`]); weights in parts of
//! [`WEIGHT_ONE`](isolane_ethernet_policy::titan::WEIGHT_ONE).

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64};

pub(crate) const QUEUES_MAX: usize = 64;
pub(crate) const WAYS: usize = 4;
pub(crate) const SETS: usize = 4096;
pub(crate) const PROCESSORS_MAX: usize = 512;
pub(crate) const CONTAINERS_MAX: usize = 256;
pub(crate) const PRIORITIES: usize = 16;
pub(crate) const NO_QUEUE: u32 = u32::MAX;
pub(crate) const OFF: u32 = 0;
pub(crate) const BY_LOAD: u32 = 1;
pub(crate) const BY_HASH: u32 = 2;

const PACKETS_BITS: u32 = 20;
const BYTES_BITS: u32 = 29;
/// Run and number begin here in `dqa_flow.backlog`: what stays of a flow that has drained.
const KEPT_SHIFT: u32 = PACKETS_BITS + BYTES_BITS;
const NUMBER_SHIFT: u32 = KEPT_SHIFT + 1;
const NUMBER_MASK: u32 = (1 << 14) - 1;
/// The mark of a healed flow in `dqa_flow.last`.
pub(crate) const LAST_HEALED: u32 = 1 << 31;
const QUEUE_SHIFT: u32 = 32;
const FLOWS_SHIFT: u32 = 40;

/// `struct dqa_flow`.
#[repr(C)]
pub(crate) struct Flow {
    pub(crate) key: AtomicU32,
    pub(crate) moves: AtomicU32,
    pub(crate) backlog: AtomicU64,
    pub(crate) place: AtomicU64,
    pub(crate) touched: AtomicU64,
    pub(crate) sent_bytes: AtomicU64,
    pub(crate) sent_packets: AtomicU64,
    pub(crate) owner: AtomicU64,
    pub(crate) container: AtomicU32,
    pub(crate) last: AtomicU32,
}

/// `struct dqa_state`.
#[repr(C)]
pub(crate) struct State {
    pub(crate) load: [AtomicU64; QUEUES_MAX],
    pub(crate) bytes: [AtomicI64; QUEUES_MAX],
    pub(crate) completed: AtomicU64,
    pub(crate) waiting: AtomicU64,
    reserved: [AtomicU64; 6],
    pub(crate) last_queue: AtomicU32,
    pub(crate) sweep: AtomicU32,
    reserved_too: [AtomicU64; 7],
    pub(crate) hand: [AtomicU64; QUEUES_MAX],
}

/// `struct dqa_config`.
#[repr(C)]
pub(crate) struct Config {
    pub(crate) enabled: AtomicU32,
    pub(crate) queues: AtomicU32,
    pub(crate) ifindex: AtomicU32,
    pub(crate) sets_mask: AtomicU32,
    pub(crate) net_cookie: AtomicU64,
    pub(crate) completion: AtomicU32,
    pub(crate) hardware_segmentation: AtomicU32,
    pub(crate) gate_flow_bytes: AtomicU32,
    pub(crate) gate_queue_bytes: AtomicU32,
    pub(crate) weights: AtomicU32,
    pub(crate) latency_queue: AtomicU32,
    pub(crate) small_bytes: AtomicU32,
    pub(crate) processor_pools: AtomicU32,
    pub(crate) stale_ticks: AtomicU32,
    pub(crate) fallback_ticks: AtomicU32,
    pub(crate) dscp_weights: [AtomicU32; 64],
    pub(crate) processor_queues: [AtomicU64; PROCESSORS_MAX],
    pub(crate) priority_queues: [AtomicU64; PRIORITIES],
    pub(crate) clsact_added: AtomicU32,
    pub(crate) tick_ns: AtomicU32,
    pub(crate) preference: AtomicU32,
    pub(crate) untagged: AtomicU32,
}

/// `struct dqa_container`.
#[repr(C)]
pub(crate) struct Container {
    pub(crate) cgroup: AtomicU64,
    pub(crate) queues: AtomicU64,
    pub(crate) weight: AtomicU32,
    pub(crate) flows: AtomicU32,
    reserved: [AtomicU64; 5],
}

/// `struct dqa_counters`, as numbers in its order.
pub(crate) const COUNTERS: usize = 16;

const _: () = assert!(size_of::<Flow>() == 64);
const _: () = assert!(size_of::<State>() == 64 * 26);
const _: () = assert!(size_of::<Config>() == 64 + 256 + 4096 + 128 + 16);
const _: () = assert!(size_of::<Container>() == 64);
const _: () = assert!(QUEUES_MAX == isolane_ethernet_policy::titan::QUEUES_MAX as usize);
const _: () = assert!(isolane_ethernet_policy::titan::WEIGHT_ONE == 1024);

/// The parts of `dqa_flow.backlog`: packets, bytes.
pub(crate) fn backlog(word: u64) -> (u32, u32) {
    let packets = word & ((1 << PACKETS_BITS) - 1);
    let bytes = word >> PACKETS_BITS & ((1 << BYTES_BITS) - 1);
    (packets as u32, bytes as u32)
}

/// The parts of `dqa_flow.place`: queue, weight.
pub(crate) fn place(word: u64) -> (u16, u32) {
    ((word >> QUEUE_SHIFT & 63) as u16, word as u32)
}

/// The parts of `dqa_state.load`: weight, flows.
pub(crate) fn load(word: u64) -> (u64, u32) {
    (
        word & ((1 << FLOWS_SHIFT) - 1),
        (word >> FLOWS_SHIFT) as u32,
    )
}

/// `dqa_state.hand`: the number and the key of the packet that the card took and has not sent, if there is one.
pub(crate) fn hand(word: u64) -> Option<(u32, u32)> {
    const HELD: u64 = 1 << 63;
    let number = (word >> 32) as u32 & NUMBER_MASK;
    (word & HELD != 0).then_some((number, word as u32))
}

/// `dqa_flow.backlog` after the packet of this `number` and `length` has left, and all before it; the bytes that left. The
/// twin of `complete` in `completion.h`.
pub(crate) fn backlog_after(word: u64, number: u32, length: u32) -> Option<(u64, u32)> {
    let (packets, bytes) = backlog(word);
    let sent = (word >> NUMBER_SHIFT) as u32;
    let left = packets
        .checked_sub(1)?
        .min(sent.wrapping_sub(number) & NUMBER_MASK);
    let rest = if left > 0 {
        bytes.saturating_sub(length)
    } else {
        0
    };
    let kept = word >> KEPT_SHIFT << KEPT_SHIFT;
    Some((
        kept | u64::from(rest) << PACKETS_BITS | u64::from(left),
        bytes - rest,
    ))
}

/// Whether a flow was healed after it had sent the packet of this `number`, and has completed no later one; `last` is
/// `dqa_flow.last`.
pub(crate) fn is_before_healing(last: u32, number: u32) -> bool {
    last & LAST_HEALED != 0 && last.wrapping_sub(number) & NUMBER_MASK <= NUMBER_MASK / 2
}

/// A flow's part of `dqa_state.load`.
pub(crate) fn load_of_flow(weight: u32) -> u64 {
    u64::from(weight) + (1 << FLOWS_SHIFT)
}

#[cfg(test)]
mod tests;
