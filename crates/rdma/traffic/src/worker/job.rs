//! What a worker is asked to do, and the limits that nothing may exceed.

use isolane_rdma_scenario::model::{ControlObject, Message, Transport};
use serde::{Deserialize, Serialize};

/// One tenant's part on one host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// [`crate::worker::VERSION`].
    pub version: u32,
    /// The tenant's name, for messages and reports.
    pub tenant: String,
    /// The RDMA device, like `mlx5_0` or `r0`. A server over TCP uses its own instead.
    pub device: String,
    /// Its port, from 1.
    pub port: u8,
    /// Index in the port's GID table; without it the first RoCE v2 address over IPv4, then any RoCE v2, then 0.
    pub gid_index: Option<u32>,
    /// Time before measuring.
    pub warmup: Warmup,
    /// Measured time, nanoseconds.
    pub duration_ns: u64,
    /// Width of one point of the series, nanoseconds.
    pub sample_interval_ns: u64,
    /// Random sources derive from it.
    pub seed: u64,
    /// Every byte is written as a pattern and verified; slower, and queues are kept short.
    pub check: bool,
    /// Completions by event (sleeping) instead of polling.
    pub events: bool,
    /// What runs.
    pub ends: Vec<EndJob>,
}

/// Time before measuring starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Warmup {
    /// So long.
    Fixed {
        /// Nanoseconds.
        ns: u64,
    },
    /// Until the rate is steady, at most so long.
    Steady {
        /// Nanoseconds.
        max_ns: u64,
    },
}

impl Warmup {
    /// The longest it takes, nanoseconds.
    pub fn max_ns(self) -> u64 {
        match self {
            Self::Fixed { ns } | Self::Steady { max_ns: ns } => ns,
        }
    }
}

/// One process of a workload, seen from one host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndJob {
    /// Unique within the tenant over all hosts; the peer's is [`crate::worker::peer_of`] it.
    pub id: u32,
    /// The workload's name.
    pub name: String,
    /// When it begins to post, nanoseconds after the start of the run.
    pub begin_ns: u64,
    /// When it stops posting; at the end of the run if absent.
    pub end_ns: Option<u64>,
    /// What it does.
    pub work: Work,
}

/// What an end does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Work {
    /// Data verbs, with a peer.
    Data(DataWork),
    /// Control verbs in a loop.
    Control(ControlWork),
    /// Work requests that must fail, in a loop.
    Fault(FaultWork),
}

/// Which side of a connection an end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// Posts the requests.
    From,
    /// Is written to, read from, or receives; posts too if the traffic is bidirectional or ping-pong.
    To,
}

/// A data operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// RDMA WRITE.
    Write,
    /// RDMA WRITE with immediate data: consumes a receive at the other end.
    WriteImm,
    /// RDMA READ.
    Read,
    /// SEND into a posted receive.
    Send,
    /// 8-byte FETCH_AND_ADD.
    FetchAdd,
    /// 8-byte CMP_AND_SWAP.
    CompareSwap,
}

impl Operation {
    /// Whether the other end has to post receives.
    pub fn needs_receives(self) -> bool {
        matches!(self, Self::Send | Self::WriteImm)
    }

    /// Whether it is one of the 8-byte atomics.
    pub fn is_atomic(self) -> bool {
        matches!(self, Self::FetchAdd | Self::CompareSwap)
    }
}

/// Data traffic of one end; both ends of a connection get the same but for `side`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DataWork {
    /// Which side this is.
    pub side: Side,
    /// Every request's operation.
    pub operation: Operation,
    /// Every queue pair's transport.
    pub transport: Transport,
    /// Messages posted in turn, for ever.
    pub pattern: Vec<Message>,
    /// Queue pairs.
    pub queue_pairs: u32,
    /// Work requests per doorbell.
    pub post_list: u32,
    /// Work requests outstanding per queue pair.
    pub depth: u32,
    /// One in this many work requests asks for a completion.
    pub completion_every: u32,
    /// Receives kept posted per queue pair; 0 posts none.
    pub receive_depth: u32,
    /// Receives posted back at once; 0 posts none ever: the sender meets RNR.
    pub receive_batch: u32,
    /// Wait so long before receives are posted back, nanoseconds: the receiver that is late.
    pub receive_delay_ns: u64,
    /// RNR timer code of the IB specification, 0 to 31.
    pub min_rnr_timer: u8,
    /// READs and atomics outstanding per queue pair.
    pub max_read_atomic: u32,
    /// Largest payload sent inside the work request, bytes.
    pub inline_bytes: u32,
    /// Path MTU, bytes; lowered to the port's active one.
    pub mtu: u32,
    /// Memory regions at each end.
    pub memory_regions: u32,
    /// Length of each region, bytes.
    pub region_bytes: u64,
    /// How work is offered.
    pub arrival: Arrival,
    /// Both ends post.
    pub bidirectional: bool,
    /// Stop after so many work requests per queue pair.
    pub iterations: Option<u64>,
}

impl DataWork {
    /// Whether this end posts send work requests of its own accord.
    pub fn posts(&self) -> bool {
        self.side == Side::From || self.bidirectional
    }

    /// Bytes of the largest message.
    pub fn largest_message(&self) -> u64 {
        let sizes = self.pattern.iter().map(|message| message.bytes().get());
        sizes.max().unwrap_or(0)
    }

    /// Elements of the message with most.
    pub fn most_elements(&self) -> usize {
        let counts = self.pattern.iter().map(|message| message.elements.len());
        counts.max().unwrap_or(1)
    }
}

/// How an end offers work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Arrival {
    /// As much as `depth` allows; after each completion a pause of this mean (exponential), nanoseconds.
    Closed {
        /// Mean pause, nanoseconds; 0 for none.
        think_ns: u64,
    },
    /// One message at a time, answered by the same from the other end; latency is half the round trip.
    PingPong,
    /// Lists arrive whatever the device does; latency counts from the arrival.
    Open {
        /// Mean time between the lists of one queue pair, nanoseconds.
        interval_ns: u64,
        /// Exponential intervals; otherwise constant.
        poisson: bool,
    },
    /// No more than this rate, bits per second of payload.
    Paced {
        /// Bits per second.
        rate_bps: u64,
    },
}

/// A loop of control verbs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControlWork {
    /// What is made and destroyed.
    pub object: ControlObject,
    /// Threads, each with its own context.
    pub threads: u32,
    /// Objects alive at once per thread.
    pub objects: u32,
    /// Protection domains in use.
    pub protection_domains: u32,
    /// Length of each region, bytes.
    pub region_bytes: u64,
    /// Which verbs count.
    pub phase: ControlPhase,
    /// At most so many verbs per second and thread; 0 for no limit.
    pub verbs_per_s: u64,
}

/// Which control verbs count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ControlPhase {
    /// Creation and destruction.
    Cycle,
    /// Creation.
    Create,
    /// Destruction.
    Destroy,
    /// Queue pairs are moved through their states instead (queue pairs only).
    Modify,
}

/// Work requests that must fail, on a pair of queue pairs of this device, made anew after each failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultWork {
    /// A WRITE with a remote key that nobody gave out: the other side refuses it.
    RemoteKey,
    /// A SEND from memory that is not registered: the own device refuses it.
    LocalKey,
    /// A SEND to a receiver without receives, with no retries.
    ReceiverNotReady,
}

impl Job {
    /// Whether some end of it posts, so that it reports without being told to stop.
    pub fn posts(&self) -> bool {
        self.ends.iter().any(|end| match &end.work {
            Work::Data(data) => data.posts(),
            Work::Control(_) | Work::Fault(_) => true,
        })
    }

    /// Bytes of memory that its ends register at most, roughly.
    pub fn memory_bytes(&self) -> u64 {
        let bytes = self.ends.iter().map(|end| match &end.work {
            Work::Data(data) => {
                let regions = u64::from(data.memory_regions).saturating_mul(data.region_bytes);
                let largest = data.largest_message() + 64;
                // With checking, each message in flight has a place at each end, and one to be read back to.
                let each = u64::from(data.depth.min(16)) * 3;
                let checked = if self.check { each * largest } else { largest };
                let pairs = u64::from(data.queue_pairs).saturating_mul(checked);
                regions.saturating_mul(2).saturating_add(pairs)
            }
            Work::Control(control) => u64::from(control.threads)
                .saturating_mul(u64::from(control.objects))
                .saturating_mul(control.region_bytes),
            Work::Fault(_) => 4_096,
        });
        bytes.fold(0, u64::saturating_add)
    }
}
