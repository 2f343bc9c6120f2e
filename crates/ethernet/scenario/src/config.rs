//! Configurations of a host's transmit path.
//!
//! [`CATALOGUE`] has those of Titan's study by their names there (tables 2 and 3), those that people use today, and ours.
//! A testbed does what it can with each and says what it cannot: a kernel without SFQ, say.
//! Units: the types say them. Sizes of segments count headers, as the kernel's limit does.
//! Source: titan 2.2 (table 1), 3 (table 2), 6; the last ones are ours.

use isolane_common_quantities::units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One way to set up a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct NicConfig {
    /// Name: `C6`, `TX3`, `isolane`.
    pub name: &'static str,
    /// What it is, in a few words.
    pub title: &'static str,
    /// How a flow gets its queue.
    pub assignment: Assignment,
    /// Queues belong to processors (XPS): a flow takes one of its processor's.
    pub pools: bool,
    /// The NIC's scheduler gets the weight of each queue (DQWA); otherwise it serves queues in turn.
    pub queue_weights: bool,
    /// Segments while queues are shared (DSOS).
    pub shared_segment: Option<Bytes>,
    /// One queue is kept for small packets (ours).
    pub latency_queue: bool,
    /// Flows of one batch of completions enqueue before any of them is dequeued (TCP Xmit Batching, titan 5; a patch).
    pub transmit_batching: bool,
    /// TCP Small Queues: what a flow may have below TCP.
    pub small_queues: bool,
    /// The software queue above each hardware queue.
    pub qdisc: Qdisc,
    /// The limit on bytes in a hardware queue.
    pub byte_limit: ByteLimit,
    /// Transmit interrupts in a second at most; `None` is the driver's default moderation.
    pub interrupts_per_s: Option<u32>,
    /// The card cuts segments into packets.
    pub segmentation_offload: bool,
    /// Largest segment.
    pub segment: Bytes,
}

/// How a flow gets its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Assignment {
    /// A hash of the flow, over all queues or those of the pool.
    Hash,
    /// Dynamic queue assignment.
    Dynamic,
}

/// Software queues.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Qdisc {
    /// First in, first out (`pfifo_fast`); pings are not preferred.
    Fifo,
    /// Strict priority for pings over stochastic fair queueing among flows (`prio` over `sfq`).
    SfqPrio,
    /// `fq`: one queue a flow, deficit round robin, pacing.
    Fq,
    /// `fq_codel`: stochastic fair queueing, new flows first, CoDel on each.
    FqCodel,
    /// `cake`, unshaped.
    Cake,
}

/// Limits on bytes in a hardware queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ByteLimit {
    /// Only the ring's length limits.
    None,
    /// Dynamic queue limits: as much as keeps the card busy from one completion to the next.
    Dynamic,
    /// As `Dynamic`, up to this (the kernel's `limit_max`).
    Fixed(Bytes),
}

const KIB: u64 = 1024;

/// `C1`: what Linux did unasked.
const VANILLA: NicConfig = NicConfig {
    name: "C1",
    title: "Linux as it comes",
    assignment: Assignment::Hash,
    pools: false,
    queue_weights: false,
    shared_segment: None,
    latency_queue: false,
    transmit_batching: false,
    small_queues: true,
    qdisc: Qdisc::Fifo,
    byte_limit: ByteLimit::Dynamic,
    interrupts_per_s: None,
    segmentation_offload: true,
    segment: Bytes::new(64 * KIB),
};

/// Plain `mq`, to measure against what our programs cost: nothing of ours is on the device, so nothing but the ring
/// limits what waits. Not in the [`CATALOGUE`], as it differs from `C1` on a real kernel only.
pub const PLAIN: NicConfig = NicConfig {
    name: "mq",
    title: "mq alone, with nothing of ours on the device",
    byte_limit: ByteLimit::None,
    ..VANILLA
};

const C3: NicConfig = NicConfig {
    name: "C3",
    title: "C1 with sfq and prio",
    qdisc: Qdisc::SfqPrio,
    ..VANILLA
};

/// `C6`: the best of the study, and the base of Titan's experiments (titan 6).
const C6: NicConfig = NicConfig {
    name: "C6",
    title: "C3, 256 KiB byte limit, 20,000 interrupts/s",
    byte_limit: ByteLimit::Fixed(Bytes::new(256 * KIB)),
    interrupts_per_s: Some(20_000),
    ..C3
};

const T1: NicConfig = NicConfig {
    name: "T1",
    title: "C6 with DQA",
    assignment: Assignment::Dynamic,
    transmit_batching: true,
    ..C6
};

const T2: NicConfig = NicConfig {
    name: "T2",
    title: "C6 with DQA and DQWA",
    queue_weights: true,
    ..T1
};

const T3: NicConfig = NicConfig {
    name: "T3",
    title: "C6 with DQA, DQWA and DSOS at 16 KiB",
    shared_segment: Some(Bytes::new(16 * KIB)),
    ..T2
};

/// Every named configuration, in the order of the study's tables.
pub const CATALOGUE: &[NicConfig] = &[
    VANILLA,
    NicConfig {
        name: "C2",
        title: "C1 without TCP Small Queues",
        small_queues: false,
        ..VANILLA
    },
    C3,
    NicConfig {
        name: "C4",
        title: "C3 without a byte limit",
        byte_limit: ByteLimit::None,
        ..C3
    },
    NicConfig {
        name: "C5",
        title: "C3 with a 256 KiB byte limit",
        byte_limit: ByteLimit::Fixed(Bytes::new(256 * KIB)),
        ..C3
    },
    C6,
    NicConfig {
        name: "C7",
        title: "C6 with a 64 KiB byte limit",
        byte_limit: ByteLimit::Fixed(Bytes::new(64 * KIB)),
        ..C6
    },
    NicConfig {
        name: "C8",
        title: "C6 without segmentation offload",
        segmentation_offload: false,
        segment: Bytes::new(1514),
        ..C6
    },
    NicConfig {
        name: "C9",
        title: "C6 with 16 KiB segments",
        segment: Bytes::new(16 * KIB),
        ..C6
    },
    NicConfig {
        name: "XPS",
        title: "C6 with queues of processors",
        pools: true,
        ..C6
    },
    T1,
    T2,
    T3,
    NicConfig {
        name: "TX1",
        title: "T1 with queues of processors",
        pools: true,
        ..T1
    },
    NicConfig {
        name: "TX2",
        title: "T2 with queues of processors",
        pools: true,
        ..T2
    },
    NicConfig {
        name: "TX3",
        title: "T3 with queues of processors",
        pools: true,
        ..T3
    },
    NicConfig {
        name: "fq_codel",
        title: "mq with fq_codel, as distributions ship",
        qdisc: Qdisc::FqCodel,
        ..VANILLA
    },
    NicConfig {
        name: "fq",
        title: "mq with fq",
        qdisc: Qdisc::Fq,
        ..VANILLA
    },
    NicConfig {
        name: "cake",
        title: "mq with cake",
        qdisc: Qdisc::Cake,
        ..VANILLA
    },
    NicConfig {
        name: "isolane",
        title: "T3 with a latency queue and a 128 KiB byte limit",
        latency_queue: true,
        // An unmodified kernel makes segments smaller in TCP itself, which then keeps less in the host: the limit must stay
        // below that of a few flows, or their shares are decided in the hardware queue and no software queue evens them.
        byte_limit: ByteLimit::Fixed(Bytes::new(128 * KIB)),
        transmit_batching: false,
        ..T3
    },
];

impl NicConfig {
    /// Whether this is unmodified Linux, with settings alone: no part of Titan, nothing of ours.
    pub fn is_linux(&self) -> bool {
        self.assignment == Assignment::Hash
            && !self.queue_weights
            && self.shared_segment.is_none()
            && !self.latency_queue
    }
}

/// The configuration of this name, in any case of letters.
pub fn named(name: &str) -> Option<&'static NicConfig> {
    CATALOGUE
        .iter()
        .find(|config| config.name.eq_ignore_ascii_case(name))
}
