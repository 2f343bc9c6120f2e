//! What the maps say at a moment: flows, queues, events, cost.
//!
//! Limits: each number is read for itself while packets flow, so numbers of one snapshot may be a packet apart.
//! Units: bytes, link headers included; weights in parts of [`WEIGHT_ONE`](isolane_ethernet_policy::titan::WEIGHT_ONE).

use crate::ProgramCost;
use crate::intf::{self, Flow};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The flows of a device, read in place.
#[derive(Clone, Copy)]
pub struct FlowTable<'a> {
    pub(crate) flows: &'a [Flow],
    pub(crate) tick_ns: u32,
}

/// A flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowSnapshot {
    /// The kernel's hash of its packets.
    pub key: u32,
    /// Where its outstanding packets are; with none, where the last ones were.
    pub queue: u16,
    /// Packets not yet completed, as they appear on the wire: segments, where one is cut.
    pub outstanding: u32,
    /// Bytes not yet completed.
    pub outstanding_bytes: u32,
    /// What it adds to its queue while it has anything outstanding.
    pub weight: u32,
    /// Bytes handed to the device's queues since the flow got its entry, without those that were dropped there.
    pub sent_bytes: u64,
    /// Packets, likewise; a packet that the device segments is one.
    pub sent_packets: u64,
    /// How often it took another queue than before.
    pub moves: u32,
    /// Its container's cgroup, or its socket's; 0 when unknown, as always without [`crate::WeightSource::Containers`].
    pub owner: u64,
    /// Time of its last packet or completion, since boot and in whole ticks; comparable among flows only.
    pub touched: Duration,
}

impl FlowSnapshot {
    /// Bytes that left the device's queues.
    pub fn completed_bytes(&self) -> u64 {
        self.sent_bytes
            .saturating_sub(u64::from(self.outstanding_bytes))
    }
}

impl<'a> FlowTable<'a> {
    /// Every flow that has an entry, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = FlowSnapshot> + use<'a> {
        let tick_ns = u64::from(self.tick_ns);
        let flows: &'a [Flow] = self.flows;
        flows.iter().filter_map(move |flow| snapshot(flow, tick_ns))
    }
}

impl std::fmt::Debug for FlowTable<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

fn snapshot(flow: &Flow, tick_ns: u64) -> Option<FlowSnapshot> {
    let key = flow.key.load(Relaxed);
    if key == 0 {
        return None;
    }
    let (outstanding, outstanding_bytes) = intf::backlog(flow.backlog.load(Relaxed));
    let (queue, weight) = intf::place(flow.place.load(Relaxed));
    Some(FlowSnapshot {
        key,
        queue,
        outstanding,
        outstanding_bytes,
        weight,
        sent_bytes: flow.sent_bytes.load(Relaxed),
        sent_packets: flow.sent_packets.load(Relaxed),
        moves: flow.moves.load(Relaxed),
        owner: flow.owner.load(Relaxed),
        touched: Duration::from_nanos(flow.touched.load(Relaxed).wrapping_mul(tick_ns)),
    })
}

/// A transmit queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueSnapshot {
    /// Weights of the flows with anything outstanding in it.
    pub weight: u64,
    /// How many they are.
    pub flows: u32,
    /// Bytes in it; counted only with a [`crate::Gate`].
    pub bytes: u64,
}

/// Events since the programs were loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DqaCounters {
    /// Packets that found their flow with nothing outstanding: a queue was chosen.
    pub assigned: u64,
    /// Packets that followed others of their flow.
    pub kept: u64,
    /// Packets left to the kernel, because the table had no place for their flow.
    pub full: u64,
    /// Of `assigned`, those that took the latency queue.
    pub sparse: u64,
    /// Flows that were declared drained after a second without a word.
    pub healed: u64,
    /// Packets left to the kernel: nothing completed any more, or another processor was choosing their flow's queue.
    pub untouched: u64,
    /// Packets dropped by the gate.
    pub gated: u64,
    /// Times a driver or a filter used another queue than the assigned one.
    pub moved: u64,
    /// Packets done.
    pub completed: u64,
    /// Packets dropped on their way.
    pub dropped: u64,
    /// Completions that also completed packets whose own completion was missed.
    pub recovered: u64,
    /// Completions of flows unknown or with nothing outstanding.
    pub unknown: u64,
    /// Flows that lost their entry to another.
    pub evicted: u64,
    /// Flows without a socket at the device whose container was noted at the container's cgroup ([`crate::Dqa::carry`]).
    pub carried: u64,
    /// Of `assigned`, those for a packet whose socket the kernel let keep its queue.
    pub socket: u64,
    /// Choices whose effect is known, since one of their packets completed. A choice whose packets were all dropped is none.
    pub checked: u64,
}

impl DqaCounters {
    pub(crate) fn of(words: &[u64; intf::COUNTERS]) -> Self {
        let mut words = words.iter().copied();
        let mut next = || words.next().unwrap_or_default();
        Self {
            assigned: next(),
            kept: next(),
            full: next(),
            sparse: next(),
            healed: next(),
            untouched: next(),
            gated: next(),
            moved: next(),
            completed: next(),
            dropped: next(),
            recovered: next(),
            unknown: next(),
            evicted: next(),
            carried: next(),
            socket: next(),
            checked: next(),
        }
    }
}

/// What the programs cost, for those that are loaded for the device's kind of completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunTime {
    /// At egress: once a packet.
    pub egress: ProgramCost,
    /// At completion: once for every packet that anything in the system frees, or hands to a device.
    pub completed: ProgramCost,
    /// At drops: once for every packet that anything in the system drops.
    pub dropped: ProgramCost,
    /// Steering of a TUN device.
    pub steer: ProgramCost,
}
