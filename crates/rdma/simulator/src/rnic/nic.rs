//! The state of one RDMA NIC: its timelines, caches, buffers and counters.
//!
//! A timeline is the time, ps, at which a resource is free again.

use super::apart::Apart;
use super::cache::{Cache, MissSlots};
use super::device::Device;
use super::event::{Arrived, Packet};
use super::lanes::Lanes;
use super::micro::MicroNic;
use isolane_rdma_policy::harmonic::statistics::BusDirection;
use std::collections::VecDeque;

/// How far the receiving side's timeline may run ahead of the clock before arrivals wait in a queue, ps. Later
/// resources are reserved in order of processing, so a long backlog must not be processed ahead of its time.
pub(crate) const RUN_AHEAD: u64 = 500_000;

#[derive(Clone, Debug)]
pub(crate) struct Nic {
    /// The hardware queues: where contexts that can send wait.
    pub(crate) lanes: Lanes,
    /// When the transmitter's next step is due, ps; the end of time when none is.
    pub(crate) step_due: u64,
    pub(crate) paused_since: u64,
    pub(crate) requester_free: u64,
    /// When the scheduler has written the current work request, ps; zero where that takes no time.
    pub(crate) turn_ready: u64,
    pub(crate) responder_free: u64,
    /// When the wire is free for each rank of the arbiter's, the best first: what waits below does not count.
    pub(crate) wire_free: Vec<u64>,
    pub(crate) loop_free: u64,
    pub(crate) ack_free: u64,
    pub(crate) pcie_in_free: u64,
    pub(crate) pcie_out_free: u64,
    /// A monitor is on its bus, or the run is recorded.
    pub(crate) watched: bool,
    pub(crate) translation_blocked: u64,
    pub(crate) contexts: Cache,
    pub(crate) translations: Cache,
    pub(crate) protections: Cache,
    pub(crate) receive_wqes: Cache,
    pub(crate) context_slots: MissSlots,
    pub(crate) translation_slots: MissSlots,
    pub(crate) receive_slots: MissSlots,
    /// When each virtual function has handled its exceptions, ps; empty without SR-IOV.
    pub(crate) functions: Vec<u64>,
    /// Arrivals that wait for a processing unit.
    pub(crate) waiting: VecDeque<(u32, Arrived)>,
    pub(crate) buffers: Vec<Buffer>,
    /// Buffers for which this host has paused its link partner, a bit each.
    pub(crate) pausing: u16,
    /// Since when there is any, ps.
    pub(crate) pausing_since: u64,
    /// The switch port towards this host sends what it holds.
    pub(crate) draining: bool,
    /// The buffer whose packet that port sends first.
    pub(crate) next_buffer: usize,
    /// When that port has sent everything it let through, ps.
    pub(crate) port_free: u64,
    /// Buffers for which the switch has paused this host, a bit each.
    pub(crate) switch_pauses: u16,
    pub(crate) commands: Vec<u64>,
    /// What a NIC that keeps its tenants apart has for each of them.
    pub(crate) apart: Option<Box<Apart>>,
    pub(crate) micro: MicroNic,
    pub(crate) count: Counts,
}

impl Nic {
    /// Brings the transmitter's next step forward to when work of `rank` can go out, but no earlier than `now`. That time, ps, if
    /// no step was due by then. What a worse rank has read `ahead` of the wire does not hold the step up.
    #[inline(always)]
    pub(crate) fn step_by(&mut self, now: u64, rank: usize, ahead: u64) -> Option<u64> {
        let at = now
            .max(self.requester_free)
            .max(self.wire_free[rank].saturating_sub(ahead))
            .max(self.pcie_in_free.saturating_sub(ahead));
        if at >= self.step_due {
            return None;
        }
        self.step_due = at;
        Some(at)
    }

    /// The processing unit of the requester side spends `cost`, no earlier than `now`: since when it was free, and when it is
    /// done, ps.
    #[inline(always)]
    pub(crate) fn requester_works(&mut self, now: u64, cost: u64) -> (u64, u64) {
        self.count.requester_busy += cost;
        let before = self.requester_free;
        self.requester_free = before.max(now) + cost;
        (before, self.requester_free)
    }

    /// Whether an arrival at `now` is processed at once.
    #[inline(always)]
    pub(crate) fn takes_now(&self, now: u64) -> bool {
        self.apart.is_none() && self.waiting.is_empty() && self.responder_free <= now + RUN_AHEAD
    }

    /// Occupies the bus in this direction with `bytes`, headers included, no earlier than `at`: since when the bus was free, and
    /// when it is free again, ps.
    #[inline(always)]
    pub(crate) fn occupy_bus(
        &mut self,
        direction: BusDirection,
        device: &Device,
        at: u64,
        bytes: u64,
    ) -> (u64, u64) {
        let (carried, free) = match direction {
            BusDirection::ToNic => (&mut self.count.pcie_in_bytes, &mut self.pcie_in_free),
            BusDirection::ToHost => (&mut self.count.pcie_out_bytes, &mut self.pcie_out_free),
        };
        *carried += bytes;
        let before = *free;
        *free = before.max(at) + device.pcie.of(bytes);
        (before, *free)
    }
}

/// One receive buffer of a port, and the room in the switch that goes with it.
#[derive(Clone, Debug)]
pub(crate) struct Buffer {
    /// The classes whose packets it holds, a bit each.
    pub(crate) classes: u16,
    /// Arrived packets: when each leaves the buffer, ps, and its bytes.
    pub(crate) packets: VecDeque<(u64, u32)>,
    pub(crate) buffered: u64,
    /// Most of it since measuring began.
    pub(crate) peak: u64,
    /// Above this many bytes the link partner is paused, below `resume_at` it goes on.
    pub(crate) pause_at: u64,
    pub(crate) resume_at: u64,
    /// What the switch holds for this host.
    pub(crate) held: VecDeque<(u32, Packet)>,
    pub(crate) held_bytes: u64,
    /// What arrives while the switch holds more than this many bytes is marked; 0 marks nothing.
    pub(crate) ecn_at: u64,
    /// Bytes from this host that the switch holds for others: above `switch_at` it pauses this host.
    pub(crate) in_switch: u64,
    pub(crate) switch_at: u64,
}

impl Buffer {
    /// Frees what has left by now.
    #[inline]
    pub(crate) fn free(&mut self, now: u64) {
        while let Some((_, bytes)) = self.packets.pop_front_if(|entry| entry.0 <= now) {
            self.buffered -= u64::from(bytes);
        }
    }
}

/// Monotone counters of one NIC.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) tx_bytes: u64,
    pub(crate) tx_packets: u64,
    pub(crate) rx_bytes: u64,
    pub(crate) rx_packets: u64,
    pub(crate) loop_bytes: u64,
    pub(crate) tx_acks: u64,
    pub(crate) pauses_sent: u64,
    pub(crate) pauses_received: u64,
    pub(crate) pausing_ps: u64,
    pub(crate) paused_ps: u64,
    pub(crate) pcie_in_bytes: u64,
    pub(crate) pcie_out_bytes: u64,
    pub(crate) requester_busy: u64,
    pub(crate) responder_busy: u64,
    pub(crate) rnr_stall: u64,
    pub(crate) drop_stall: u64,
    pub(crate) translation_stall: u64,
    pub(crate) rnr_naks: u64,
    pub(crate) drops: u64,
    pub(crate) out_of_sequence: u64,
    pub(crate) doorbells: u64,
    pub(crate) wqe_fetches: u64,
    pub(crate) cqes: u64,
    pub(crate) marks: u64,
    pub(crate) notifications_sent: u64,
    pub(crate) notifications_handled: u64,
    pub(crate) icm: [u64; 2],
    pub(crate) mtt: [u64; 2],
    pub(crate) mpt: [u64; 2],
    pub(crate) receive_wqe: [u64; 2],
    pub(crate) context_waited: u64,
    pub(crate) translation_waited: u64,
    pub(crate) context_busy: u64,
    pub(crate) translation_busy: u64,
    pub(crate) registrations: u64,
    pub(crate) deregistrations: u64,
    pub(crate) translation_prefetches: u64,
    /// Time for which the paths to the other socket's and to GPU memory worked, ps.
    pub(crate) paths_busy: [u64; 2],
}

/// What was true when measuring began.
#[derive(Clone, Debug, Default)]
pub(crate) struct Baseline {
    pub(crate) counts: Vec<Counts>,
    pub(crate) grants: Vec<u64>,
}
