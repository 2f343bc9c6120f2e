//! The job of a worker.

use isolane_rdma_scenario::model::{ControlObject, MemoryPlace, Message, Transport};
use serde::{Deserialize, Serialize};

/// One tenant's part on one host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// [`crate::worker::VERSION`].
    pub version: u32,
    /// The tenant's name, for messages and reports.
    pub tenant: String,
    /// RDMA device, such as `mlx5_0` or `r0`. A server over TCP uses its own instead.
    pub device: String,
    /// Port number, from 1.
    pub port: u8,
    /// Index in the port's GID table; without it the first RoCE v2 address over IPv4, then any RoCE v2, then 0.
    pub gid_index: Option<u32>,
    /// Time before measuring.
    pub warmup: Warmup,
    /// Measured time, nanoseconds.
    pub duration_ns: u64,
    /// Width of one point of the series, nanoseconds.
    pub sample_interval_ns: u64,
    /// Seed of all random sources.
    pub seed: u64,
    /// Whether every byte is written as a pattern and verified; slower, with short queues.
    pub check: bool,
    /// Whether completions are taken by event (sleeping) instead of polling.
    pub events: bool,
    /// The ends to run.
    pub ends: Vec<EndJob>,
}

/// Time before measuring starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Warmup {
    /// A fixed time.
    Fixed {
        /// Nanoseconds.
        ns: u64,
    },
    /// Until the rate is steady, with an upper bound.
    Steady {
        /// Nanoseconds.
        max_ns: u64,
    },
}

impl Warmup {
    /// Longest warm-up, nanoseconds.
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
    /// Unique within the tenant over all hosts; [`crate::worker::peer_of`] gives the peer's.
    pub id: u32,
    /// Name of the workload.
    pub name: String,
    /// First post, nanoseconds after the start of the run.
    pub begin_ns: u64,
    /// Last post, nanoseconds after the start; absent: the end of the run.
    pub end_ns: Option<u64>,
    /// Kind of work and its parameters.
    pub work: Work,
}

/// Work of an end.
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
    /// Target of the requests; posts too if the traffic is bidirectional or ping-pong.
    To,
}

/// A data operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// RDMA WRITE.
    Write,
    /// RDMA WRITE with immediate data; consumes a receive of the peer.
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
    /// Whether the peer has to post receives.
    pub fn needs_receives(self) -> bool {
        matches!(self, Self::Send | Self::WriteImm)
    }

    /// Whether it is one of the 8-byte atomics.
    pub fn is_atomic(self) -> bool {
        matches!(self, Self::FetchAdd | Self::CompareSwap)
    }
}

/// Data traffic of one end; both ends of a connection get the same values except `side` and `memory`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DataWork {
    /// Side of this end.
    pub side: Side,
    /// Every request's operation.
    pub operation: Operation,
    /// Every queue pair's transport.
    pub transport: Transport,
    /// Messages to post in turn, repeatedly.
    pub pattern: Vec<Message>,
    /// Number of queue pairs.
    pub queue_pairs: u32,
    /// Work requests per doorbell.
    pub post_list: u32,
    /// Outstanding work requests per queue pair.
    pub depth: u32,
    /// One in this many work requests is signalled.
    pub completion_every: u32,
    /// Receives kept posted per queue pair; 0 posts none.
    pub receive_depth: u32,
    /// Receives reposted at once; 0 never reposts, so the sender gets RNR errors.
    pub receive_batch: u32,
    /// Delay before receives are reposted, nanoseconds: models a slow receiver.
    pub receive_delay_ns: u64,
    /// RNR timer code of the IB specification, 0 to 31.
    pub min_rnr_timer: u8,
    /// Outstanding READs and atomics per queue pair.
    pub max_read_atomic: u32,
    /// Largest payload sent inside the work request, bytes.
    pub inline_bytes: u32,
    /// Path MTU, bytes; lowered to the port's active one.
    pub mtu: u32,
    /// Memory regions at each end.
    pub memory_regions: u32,
    /// Length of each region, bytes.
    pub region_bytes: u64,
    /// Where this end's buffers are, seen from its device.
    pub memory: MemoryPlace,
    /// When work arrives.
    pub arrival: Arrival,
    /// Whether both ends post.
    pub bidirectional: bool,
    /// Stops after this many work requests per queue pair.
    pub iterations: Option<u64>,
}

impl DataWork {
    /// Whether this end posts send work requests on its own.
    pub fn posts(&self) -> bool {
        self.side == Side::From || self.bidirectional
    }

    /// Bytes of the largest message.
    pub fn largest_message(&self) -> u64 {
        let sizes = self.pattern.iter().map(|message| message.bytes().get());
        sizes.max().unwrap_or(0)
    }

    /// Largest number of elements of a message.
    pub fn most_elements(&self) -> usize {
        let counts = self.pattern.iter().map(|message| message.elements.len());
        counts.max().unwrap_or(1)
    }
}

/// When an end posts work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Arrival {
    /// As many requests as `depth` permits; after each completion an exponential pause with this mean, nanoseconds.
    Closed {
        /// Mean pause, nanoseconds; 0 for none.
        think_ns: u64,
    },
    /// One message at a time, answered by the peer with the same; latency is half the round trip.
    PingPong,
    /// Lists arrive independently of completions; latency counts from the arrival.
    Open {
        /// Mean time between the lists of one queue pair, nanoseconds.
        interval_ns: u64,
        /// Whether intervals are exponential; otherwise constant.
        poisson: bool,
    },
    /// At most this rate, bits per second of payload.
    Paced {
        /// Bits per second.
        rate_bps: u64,
    },
}

/// A loop of control verbs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControlWork {
    /// Kind of object to create and destroy.
    pub object: ControlObject,
    /// Number of threads, each with its own context.
    pub threads: u32,
    /// Live objects per thread.
    pub objects: u32,
    /// Number of protection domains.
    pub protection_domains: u32,
    /// Length of each region, bytes.
    pub region_bytes: u64,
    /// The counted verbs.
    pub phase: ControlPhase,
    /// Limit of verbs per second and thread; 0 for no limit.
    pub verbs_per_s: u64,
}

/// The control verbs that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ControlPhase {
    /// Creation and destruction.
    Cycle,
    /// Creation.
    Create,
    /// Destruction.
    Destroy,
    /// Queue pairs change their state instead (queue pairs only).
    Modify,
}

/// Work requests that must fail, on two queue pairs of this device, recreated after each failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultWork {
    /// A WRITE with an invalid remote key: the remote side rejects it.
    RemoteKey,
    /// A SEND from unregistered memory: the own device rejects it.
    LocalKey,
    /// A SEND to a receiver without posted receives, with no retries.
    ReceiverNotReady,
}

impl Job {
    /// Whether an end of the job posts, so that the worker reports without `stop`.
    pub fn posts(&self) -> bool {
        self.ends.iter().any(|end| match &end.work {
            Work::Data(data) => data.posts(),
            Work::Control(_) | Work::Fault(_) => true,
        })
    }

    /// Upper estimate of the memory that its ends register, bytes.
    pub fn memory_bytes(&self) -> u64 {
        let bytes = self.ends.iter().map(|end| match &end.work {
            Work::Data(data) => {
                let regions = u64::from(data.memory_regions).saturating_mul(data.region_bytes);
                let largest = data.largest_message() + 64;
                // With checking, each message in flight has a slot at each end, and one for reading back.
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
