//! What the caller decides: about a device once, and about its flows at any time.
//!
//! Units: bytes of packets as the stack hands them over, link header included; weights in parts of
//! [`WEIGHT_ONE`](isolane_ethernet_policy::titan::WEIGHT_ONE).

use crate::EbpfError;
use crate::intf::{PRIORITIES, PROCESSORS_MAX};
use isolane_ethernet_policy::titan::{QUEUES_MAX, QueueSet, WEIGHT_ONE};
use std::path::PathBuf;

/// When a packet no longer counts as outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// When the driver frees it after transmission: network cards; TUN, which frees what is read.
    Freed,
    /// When it is handed to the driver, which passes it on at once: veth, IFB. Only the queueing discipline counts.
    HandedOver,
    /// When the software NIC that reads a TUN device reports it ([`crate::Dqa::left`]): a read only takes a packet in
    /// hand. One packet of each queue may be in hand; the device segments.
    InHand,
}

/// A device, and where its programs and maps are pinned.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// The device, in the network namespace of the calling thread.
    pub ifindex: u32,
    /// Transmit queues that are managed, from 1 to 64; the rest of the device's queues stay unused by these programs.
    pub queues: u16,
    /// When a packet is done.
    pub completion: Completion,
    /// Whether the device cuts packets itself (TSO): the kinds are those that it says it can, packet by packet. False
    /// where a queueing discipline cuts all of them before it (cake). Only for [`Completion::Freed`]; what is handed
    /// over says it by itself.
    pub hardware_segmentation: bool,
    /// A directory on a BPF file system, made if absent ([`crate::bpffs::find_or_mount`] has a place for it).
    pub pins: PathBuf,
    /// Flows in the table, a power of two from 4 to 16,384; 0 means the most.
    pub flows: u32,
}

/// The source of a flow's weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WeightSource {
    /// Every flow weighs one.
    #[default]
    Flow,
    /// By its code point.
    Dscp,
    /// Its container's weight, divided by the container's backlogged flows.
    Containers,
}

/// Which queues a processor may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CpuPools {
    /// All.
    #[default]
    Off,
    /// The set of each processor, in their order; a processor beyond the end may use all.
    PerProcessor(Vec<QueueSet>),
}

/// Limits in place of TCP small queues and byte queue limits where a device disables these (TUN forgets the socket as
/// soon as a packet enters its ring). A packet beyond them is dropped before it is sent, which TCP takes as a reason to
/// wait; a flow with nothing outstanding always passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    /// Bytes of one flow; 0 means no limit.
    pub flow_bytes: u32,
    /// Bytes of one queue, divided among its flows by weight: a full one holds back each flow that has its part, as a
    /// fair software queue above it would; 0 means no limit.
    pub queue_bytes: u32,
}

/// Default size of a small packet: less than any full packet of a usual network, with or without its Ethernet header.
/// So bulk in single packets does not count as a request. IPv6 requires this size of every link.
pub const SMALL_BYTES: u32 = 1280;

/// What may change while packets flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DqaSettings {
    /// The source of weights.
    pub weights: WeightSource,
    /// Queues of processors.
    pub pools: CpuPools,
    /// The queue kept light for small and marked packets.
    pub latency_queue: Option<u16>,
    /// What is small.
    pub small_bytes: u32,
    /// Weight of each code point, for [`WeightSource::Dscp`].
    pub dscp_weights: [u32; 64],
    /// The queues of the traffic class of each priority (`SO_PRIORITY`, lowest four bits); an empty set means all queues.
    pub priority_queues: [QueueSet; PRIORITIES],
    /// Limits of the soft NIC.
    pub gate: Option<Gate>,
    /// Queues by the flow's hash, as the kernel does it, instead of by load: to compare with under the same limits.
    pub by_hash: bool,
    /// Whether queues are assigned at all; else packets pass untouched.
    pub enabled: bool,
}

impl Default for DqaSettings {
    fn default() -> Self {
        Self {
            weights: WeightSource::Flow,
            pools: CpuPools::Off,
            latency_queue: None,
            small_bytes: SMALL_BYTES,
            dscp_weights: [WEIGHT_ONE; 64],
            priority_queues: [QueueSet::EMPTY; PRIORITIES],
            gate: None,
            by_hash: false,
            enabled: true,
        }
    }
}

impl LoadOptions {
    pub(crate) fn check(&self) -> Result<(), EbpfError> {
        check_queues(self.queues)?;
        let known = self.flows == 0
            || self.flows.is_power_of_two() && (4..=crate::FLOWS_MAX).contains(&self.flows);
        if !known {
            return Err(EbpfError::BadInput(format!(
                "a table of {} flows: a power of two from 4 to {}, or 0 for the most",
                self.flows,
                crate::FLOWS_MAX
            )));
        }
        Ok(())
    }
}

pub(crate) fn check_queues(queues: u16) -> Result<(), EbpfError> {
    match queues {
        1..=QUEUES_MAX => Ok(()),
        _ => Err(EbpfError::BadInput(format!(
            "{queues} transmit queues: the programs manage 1 to {QUEUES_MAX}"
        ))),
    }
}

impl DqaSettings {
    pub(crate) fn check(&self, queues: u16) -> Result<(), EbpfError> {
        let bad = |message: String| Err(EbpfError::BadInput(message));
        if let Some(queue) = self.latency_queue
            && (queue >= queues || queues < 2)
        {
            return bad(format!(
                "latency queue {queue} of {queues}: one of at least two, counted from 0"
            ));
        }
        if let CpuPools::PerProcessor(sets) = &self.pools
            && sets.len() > PROCESSORS_MAX
        {
            return bad(format!(
                "pools of {} processors: at most {PROCESSORS_MAX}",
                sets.len()
            ));
        }
        Ok(())
    }
}
