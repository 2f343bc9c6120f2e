//! The checked scenario: what the tenants of some hosts do, for how long, under which policy.
//!
//! A value of these types is valid by construction of the parsers in this crate; models may rely on the limits
//! stated here (counts are non-zero, sizes within [`MESSAGE_MAX`], an MTU is one of [`MTUS`]).

use crate::application::ApplicationTraffic;
use isolane_common_quantities::units::{BitRate, Bytes, Duration};
use isolane_network_scenario::model::Behind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The largest message of the RDMA transports (IB specification: 2^31 bytes).
pub const MESSAGE_MAX: Bytes = Bytes::new(1 << 31);

/// What an RDMA atomic reads and writes, bytes (IB specification).
pub const ATOMIC_BYTES: u64 = 8;

/// Path MTUs of the RDMA transports, bytes of payload per packet.
pub const MTUS: [u32; 5] = [256, 512, 1024, 2048, 4096];

/// One experiment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scenario {
    /// Name, for reports; the file's stem unless given.
    pub name: String,
    /// One or two sentences: what the experiment shows.
    pub description: String,
    /// Name of the device profile all hosts use.
    pub profile: String,
    /// How the hosts are joined, unless a network joins them.
    pub topology: Topology,
    /// A network in the place of cable or switch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Box<Behind>>,
    /// Time before measuring starts.
    pub warmup: Duration,
    /// Time measured after the warm-up.
    pub duration: Duration,
    /// Run seed; every random source derives from it.
    pub seed: u64,
    /// Width of one point of the time series.
    pub sample_interval: Duration,
    /// The policy and its parameters.
    pub policy: PolicySpec,
    /// The tenants, in the order of the file.
    pub tenants: Vec<Tenant>,
}

/// How the hosts are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Topology {
    /// One cable between hosts A and B.
    BackToBack,
    /// All hosts on one switch.
    Switch,
}

/// A policy by its name, with named parameters.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PolicySpec {
    /// A stack of parts, as [`crate::stack::canonical`] writes it: `none`, `justitia`, `justitia+hw-tc`, ...
    pub name: String,
    /// Numeric parameters by name, units in the names (`target_us`, `ref_period_us`, `ref_count`, `token_bytes`).
    pub parameters: BTreeMap<String, f64>,
}

/// One tenant: the unit that is isolated from the others.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tenant {
    /// Unique name.
    pub name: String,
    /// What the tenant says it needs.
    pub class: Class,
    /// Relative weight, at least 1.
    pub weight: u32,
    /// What it has been promised, and may not exceed; an equal part of the NIC by weight where nothing is said.
    pub guarantee: Guarantee,
    /// What it needs, for those who judge a run.
    pub slo: Slo,
    /// When its workloads start.
    pub start: Duration,
    /// When they stop posting; the end of the run if absent.
    pub stop: Option<Duration>,
    /// What it runs.
    pub workloads: Vec<Workload>,
}

/// A performance profile (harmonic 5.3, table 5.1). What is absent is not limited, or shared by weight.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Guarantee {
    /// Queue pairs at most.
    pub queue_pairs: Option<u64>,
    /// Work queue entries at most.
    pub work_requests: Option<u64>,
    /// Memory regions at most.
    pub memory_regions: Option<u64>,
    /// Completion queues at most.
    pub completion_queues: Option<u64>,
    /// Completion queue entries at most.
    pub completion_entries: Option<u64>,
    /// Bytes of all memory regions at most.
    pub region_bytes: Option<Bytes>,
    /// Payload, bits per second ("BPS").
    pub rate: Option<BitRate>,
    /// Normalised data requests per second ("DRPS").
    pub data_requests_per_s: Option<u64>,
    /// Control verbs per second ("CRPS").
    pub control_requests_per_s: Option<u64>,
    /// 0 is slowed down last when the NIC's caches are short.
    pub priority: u8,
}

/// Service-level objectives of a tenant; absent ones do not count.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Slo {
    /// Payload per second at least.
    pub goodput_min: Option<BitRate>,
    /// Messages per second at least.
    pub messages_per_s_min: Option<u64>,
    /// Median latency at most.
    pub p50_max: Option<Duration>,
    /// 99th percentile of latency at most.
    pub p99_max: Option<Duration>,
}

/// What a tenant says of itself (justitia 3).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Few small messages; each one's latency counts.
    Latency,
    /// Many small messages in batches; messages per second count.
    Throughput,
    /// Large messages; bits per second count.
    Bandwidth,
    /// Says nothing; a policy has to find out.
    Auto,
}

impl Class {
    /// Its name in scenarios and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Throughput => "throughput",
            Self::Bandwidth => "bandwidth",
            Self::Auto => "auto",
        }
    }
}

/// Declares the hosts, their list and their letters from one list of names.
macro_rules! hosts {
    ($($name:ident),+ $(,)?) => {
        /// One of the hosts on the cable or the switch. Host A runs clients by default, host B servers; a cable joins no
        /// others.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[derive(Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "lowercase")]
        pub enum Host {
            $(#[doc = concat!("Host ", stringify!($name), ".")] $name,)+
        }

        /// Letters of the hosts as people write them.
        const LETTERS: &[&str] = &[$(stringify!($name),)+];

        impl Host {
            /// All hosts, in order: one switch of 40 ports, enough for an incast of 33 senders.
            pub const ALL: [Self; LETTERS.len()] = [$(Self::$name,)+];
        }
    };
}

hosts! {
    A, B, C, D, E, F, G, H, I, J, K, L, M, N, O, P, Q, R, S, T,
    U, V, W, X, Y, Z, Aa, Ab, Ac, Ad, Ae, Af, Ag, Ah, Ai, Aj, Ak, Al, Am, An,
}

impl Host {
    /// Its place in [`Host::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Its letter or letters, as people write them: `A`, after `Z` comes `Aa`.
    pub const fn letter(self) -> &'static str {
        LETTERS[self as usize]
    }

    /// The host that a file calls `name`: `a`, `aa`.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|host| host.letter().to_ascii_lowercase() == name)
    }
}

/// A number of equal processes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Workload {
    /// Name within the tenant, for drill-downs.
    pub name: String,
    /// How many processes (each one thread), at least 1.
    pub processes: u32,
    /// The host whose processes post requests.
    pub from: Host,
    /// The host at the other end; equal to `from` for loopback.
    pub to: Host,
    /// What each process does.
    pub traffic: Traffic,
}

impl Workload {
    /// The hosts it has an end on, perhaps more than once.
    pub fn hosts(&self) -> Vec<Host> {
        match &self.traffic {
            Traffic::Application(application) => application.hosts.clone(),
            Traffic::Data(_) | Traffic::Control(_) => vec![self.from, self.to],
        }
    }
}

/// What one process does.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Traffic {
    /// Data verbs.
    Data(DataTraffic),
    /// Control verbs in a loop.
    Control(ControlTraffic),
    /// A distributed application; `processes`, `from` and `to` of its workload say nothing.
    Application(ApplicationTraffic),
}

/// A data verb.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Verb {
    /// RDMA WRITE.
    #[default]
    Write,
    /// RDMA READ.
    Read,
    /// SEND into a posted receive.
    Send,
    /// 8-byte FETCH_AND_ADD.
    FetchAdd,
    /// 8-byte CMP_AND_SWAP.
    CompareSwap,
}

impl Verb {
    /// Its name in the verbs manual.
    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "WRITE",
            Self::Read => "READ",
            Self::Send => "SEND",
            Self::FetchAdd => "FETCH_AND_ADD",
            Self::CompareSwap => "CMP_AND_SWAP",
        }
    }
}

/// A transport service.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// Reliable connection.
    #[default]
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
}

/// Data traffic of one process. All counts are per process and at least 1 unless stated.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DataTraffic {
    /// The verb of every request.
    pub verb: Verb,
    /// The transport of every queue pair.
    pub transport: Transport,
    /// The request vector: messages posted in turn, for ever.
    pub pattern: Vec<Message>,
    /// Queue pairs.
    pub queue_pairs: u32,
    /// Work requests posted per doorbell (perftest `--post_list`).
    pub post_list: u32,
    /// Work requests a queue pair may have outstanding (perftest `--tx-depth`).
    pub depth: u32,
    /// One in this many work requests is signaled (perftest `--cq-mod`).
    pub completion_every: u32,
    /// Receive queue length per queue pair (SEND only).
    pub receive_depth: u32,
    /// Receives posted back at once; 0 means that none is ever posted (SEND only).
    pub receive_batch: u32,
    /// RNR timer code of the IB specification, 0..=31 (0 is 655.36 ms).
    pub min_rnr_timer: u8,
    /// READs and atomics a queue pair may have outstanding.
    pub max_read_atomic: u32,
    /// Largest payload sent inside the work request, bytes.
    pub inline_bytes: u32,
    /// Path MTU, bytes; one of [`MTUS`].
    pub mtu: u32,
    /// Memory regions at each end, shared by the process's queue pairs.
    pub memory_regions: u32,
    /// Length of each region.
    pub region_bytes: Bytes,
    /// How new work is offered.
    pub arrival: Arrival,
    /// Weight of each queue pair within its tenant, at least 1 (palos IV-B).
    pub weight: u32,
    /// Both ends send (perftest `-b`).
    pub bidirectional: bool,
    /// Stop after this many work requests per queue pair.
    pub iterations: Option<u64>,
    /// Where the sender's memory is.
    pub memory: MemoryPlace,
    /// Where the receiver's memory is.
    pub remote_memory: MemoryPlace,
}

/// The place of a process's buffers, seen from the NIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryPlace {
    /// DRAM of the NIC's own socket.
    #[default]
    Local,
    /// DRAM of the other socket.
    RemoteSocket,
    /// A GPU under the same PCIe bridge.
    Gpu,
}

/// One message: its scatter-gather elements' lengths in bytes. Never empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Message {
    /// Lengths of the elements, bytes.
    pub elements: Vec<u32>,
}

impl Message {
    /// A message of one element.
    pub fn of(bytes: u32) -> Self {
        Self {
            elements: vec![bytes],
        }
    }

    /// Sum of the elements.
    pub fn bytes(&self) -> Bytes {
        self.elements
            .iter()
            .map(|&n| Bytes::new(u64::from(n)))
            .sum()
    }
}

/// How a process offers work.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Arrival {
    /// Keep the queue as full as `depth` allows; wait `think` after each completion before posting again.
    Closed {
        /// Mean pause between a completion and the next post (exponential when not zero).
        think: Duration,
    },
    /// One message at a time, answered by the same message from the other end; latency is half the round trip
    /// (perftest `ib_write_lat`, `ib_send_lat`).
    PingPong,
    /// New lists arrive independent of completions; work beyond `depth` waits in the application.
    Open {
        /// Mean time between lists of one queue pair.
        interval: Duration,
        /// Exponential intervals; otherwise constant.
        poisson: bool,
    },
    /// Closed loop that offers no more than this rate per process (perftest `--rate_limit`).
    Paced {
        /// Offered payload rate per process.
        rate: BitRate,
    },
}

/// A loop of control verbs of one process (husky 4.3.2).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ControlTraffic {
    /// Objects the loop creates and destroys.
    pub object: ControlObject,
    /// Threads that issue verbs.
    pub threads: u32,
    /// Objects alive at once per thread.
    pub objects: u32,
    /// Protection domains in use.
    pub protection_domains: u32,
    /// Length of each region (regions only).
    pub region_bytes: Bytes,
    /// Which half of the loop runs.
    pub phase: ControlPhase,
}

/// What a control loop makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ControlObject {
    /// Memory regions.
    MemoryRegion,
    /// Queue pairs.
    QueuePair,
    /// Completion queues.
    CompletionQueue,
}

/// Which control verbs a loop repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ControlPhase {
    /// Create `objects`, then destroy them, for ever.
    Cycle,
    /// Only creation counts: destruction happens outside the measured time.
    Create,
    /// Only destruction counts: creation happens outside the measured time.
    Destroy,
}
