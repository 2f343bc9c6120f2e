//! The checked scenario of a network: topology, ports, classes, transport, policy and the calls that hosts make.
//!
//! A value is valid by construction of the parser: names are unique, every share vector has one entry per class and
//! sums to one, host numbers exist, rates and sizes are above zero. Models rely on it.
//!
//! Units: the types say them; `*_share` and loads are fractions of one host's line rate.

use isolane_common_quantities::units::{BitRate, Bytes, Duration};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Most hosts of one network.
pub const HOSTS_MAX: u32 = 16_384;
/// Most traffic classes of a port, as in the priority field of IEEE 802.1Q.
pub const CLASSES_MAX: usize = 8;

/// One experiment on a network.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FabricScenario {
    /// Name, for reports; the file's stem unless given.
    pub name: String,
    /// One or two sentences: what the experiment shows.
    pub description: String,
    /// Hosts, switches and links.
    pub topology: FabricTopology,
    /// What every port does with packets.
    pub ports: PortSettings,
    /// Traffic classes from the highest to the lowest; calls that are not admitted go to the last one.
    pub classes: Vec<TrafficClass>,
    /// How hosts send.
    pub transport: TransportSpec,
    /// What decides over the calls.
    pub policy: FabricPolicy,
    /// Who calls whom, how often, with how much.
    pub traffic: Vec<Traffic>,
    /// Calls that begin before this are not measured.
    pub warmup: Duration,
    /// Time measured after the warm-up; no call begins after it.
    pub duration: Duration,
    /// Calls after which no more begin, if given: the first of the two limits ends the run.
    pub calls: Option<u64>,
    /// How long calls may take to end after the last one began; those still open then are counted as such.
    pub drain: Duration,
    /// Run seed; every random source derives from it.
    pub seed: u64,
    /// Width of one point of the time series; none without.
    pub sample_interval: Option<Duration>,
    /// Report each pair of hosts too.
    pub per_pair: bool,
}

/// Hosts, switches and links.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FabricTopology {
    /// Shape.
    pub shape: Shape,
    /// Rate of a host's link.
    pub host_rate: BitRate,
    /// Rate at which a host's own port sends. Equal to `host_rate`, unless the queue at the sender shall not be part of the
    /// experiment: published simulators leave it out.
    pub nic_rate: BitRate,
    /// Propagation and switching time of every hop.
    pub hop_delay: Duration,
}

/// A network in the place of a scenario's cable or switch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Behind {
    /// Host of the network that each host of the scenario is, from a on.
    pub hosts: Vec<u32>,
    /// The network, and the traffic of its other hosts. Frames of the scenario's hosts run in the highest class.
    pub fabric: FabricScenario,
}

/// Shapes of networks. Hosts are numbered from 0, rack by rack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Shape {
    /// All hosts on one switch.
    SingleSwitch {
        /// Hosts.
        hosts: u32,
    },
    /// Racks joined by spines; each leaf has one link to each spine.
    LeafSpine {
        /// Leaf switches.
        leaves: u32,
        /// Spine switches.
        spines: u32,
        /// Hosts of each leaf.
        hosts_per_leaf: u32,
        /// Rate of a link between leaf and spine.
        uplink_rate: BitRate,
    },
    /// Three tiers with `k` pods of `k/2` edge and `k/2` aggregation switches, (k/2)^2 cores and k^3/4 hosts.
    FatTree {
        /// Ports of a switch; even.
        k: u32,
    },
    /// Two racks joined through one core switch (justitia figure 25).
    TwoRacks {
        /// Hosts of each rack.
        hosts_per_rack: u32,
        /// Rate of the link between a rack's switch and the core.
        uplink_rate: BitRate,
    },
}

impl Shape {
    /// Hosts of the network.
    pub fn hosts(self) -> u32 {
        match self {
            Self::SingleSwitch { hosts } => hosts,
            Self::LeafSpine {
                leaves,
                hosts_per_leaf,
                ..
            } => leaves * hosts_per_leaf,
            Self::FatTree { k } => k * k * k / 4,
            Self::TwoRacks { hosts_per_rack, .. } => 2 * hosts_per_rack,
        }
    }
}

/// What every port does.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PortSettings {
    /// Order between classes.
    pub scheduler: PortScheduler,
    /// Payload of a full packet.
    pub mtu: Bytes,
    /// Bytes of headers on each packet.
    pub header: Bytes,
    /// Buffer of one switch port; every switch shares `buffer * ports` between its ports.
    pub buffer: Bytes,
    /// True when a switch's ports share its buffer by dynamic thresholds, false when each has only its own.
    pub shared_buffer: bool,
    /// Marks instead of drops, per class or for all.
    pub ecn: Option<Ecn>,
    /// Pauses instead of drops.
    pub pfc: Option<Pfc>,
}

/// Order between the classes of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PortScheduler {
    /// Packet-by-packet generalised processor sharing with the classes' weights.
    Wfq,
    /// Virtual clock: tags from wall time at each class's guaranteed rate, what the public Aequitas simulator calls weighted
    /// fair queueing.
    VirtualClock,
    /// Deficit weighted round robin with the classes' weights.
    Dwrr,
    /// The highest class first.
    Strict,
}

/// Marking by queue length (RED on the instantaneous queue, as RoCE switches do).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ecn {
    /// Class queue from which packets are marked with rising probability.
    pub min: Bytes,
    /// Class queue from which all are marked.
    pub max: Bytes,
    /// Probability just below `max`, 0 to 1.
    pub max_probability: f64,
}

/// Priority flow control (IEEE 802.1Qbb), per class and ingress port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Pfc {
    /// Bytes of one ingress port and class at which it pauses its peer.
    pub xoff: Bytes,
    /// Bytes below which the peer may send again.
    pub xon: Bytes,
    /// For how long a pause frame holds, in times of 512 bits on its link; it is repeated after half of that. Without,
    /// a pause holds until it is taken back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quanta: Option<u16>,
}

/// One traffic class.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrafficClass {
    /// Unique name.
    pub name: String,
    /// Weight for `wfq`, `virtual-clock` and `dwrr`, at least 1.
    pub weight: u32,
    /// Most bytes of the class that may wait at one port of a switch, beside the port's own limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer: Option<Bytes>,
    /// What its calls were promised; none for the scavenger class.
    pub slo: Option<CallSlo>,
}

/// The promise of a class.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CallSlo {
    /// Longest network latency of a call, for each MTU of its size if `per_mtu`, else for the whole call.
    pub target: Duration,
    /// Whether `target` counts per MTU.
    pub per_mtu: bool,
    /// Part of the calls that must meet it, percent.
    pub percentile: f64,
}

/// How hosts send.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TransportSpec {
    /// Congestion control.
    pub congestion: Congestion,
    /// What happens to packets that are lost.
    pub recovery: Recovery,
    /// Named parameters of the congestion control, units in the names; defaults are the protocol's.
    pub parameters: BTreeMap<String, f64>,
}

/// Congestion controls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Congestion {
    /// At line rate, without limit (theory runs).
    None,
    /// A fixed window of packets (parameter `window_packets`).
    Window,
    /// Swift: delay target, window in packets.
    Swift,
    /// DCQCN: rate, marks, notifications.
    Dcqcn,
    /// DCTCP: window, fraction of marks.
    Dctcp,
    /// TIMELY: rate, gradient of the round-trip time.
    Timely,
    /// HPCC: window from telemetry of each hop.
    Hpcc,
}

impl Congestion {
    /// In the order of [`crate::parameters::CONGESTION`], their names.
    pub const ALL: [Self; 7] = [
        Self::None,
        Self::Window,
        Self::Swift,
        Self::Dcqcn,
        Self::Dctcp,
        Self::Timely,
        Self::Hpcc,
    ];
}

/// What happens to lost packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Recovery {
    /// The receiver takes packets in order only and requests the first missing one.
    GoBackN,
    /// The receiver keeps what arrives and the sender repeats what is missing.
    Selective,
}

/// What decides over the calls.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FabricPolicy {
    /// Which.
    pub kind: FabricPolicyKind,
    /// Named parameters, units in the names.
    pub parameters: BTreeMap<String, f64>,
}

/// Policies of a network. All but the first three have a port discipline or a transport of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FabricPolicyKind {
    /// Calls run in the class that they request.
    None,
    /// Admission by measured latency (Aequitas algorithm 2).
    Aequitas,
    /// Admission by equal parts of a port, with evidence shared among callers.
    #[serde(rename = "aequitas-2")]
    Aequitas2,
    /// Strict priority between classes.
    Spq,
    /// pFabric: shortest remaining first, in the network.
    Pfabric,
    /// QJump: higher levels are rate-limited at the host so that they cannot queue.
    Qjump,
    /// D3: rates reserved for deadlines, first come first served.
    D3,
    /// PDQ: flows pre-empt each other by deadline.
    Pdq,
    /// Homa: receiver-driven, priorities by remaining size.
    Homa,
}

impl FabricPolicyKind {
    /// Whether the policy leaves ports and transport as the scenario has them, and sends calls that it does not admit in
    /// the lowest class.
    pub fn is_admission(self) -> bool {
        matches!(self, Self::Aequitas | Self::Aequitas2)
    }
}

/// One group of callers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Traffic {
    /// Unique name.
    pub name: String,
    /// Who calls whom.
    pub pattern: Pattern,
    /// Part of each class in the calls (or in the bytes), highest first; sums to one.
    pub mix: Vec<f64>,
    /// Sizes of the calls' payload, one distribution for all classes or one per class.
    pub sizes: Vec<SizeDistribution>,
    /// When calls begin.
    pub arrivals: Arrivals,
    /// When the group starts.
    pub start: Duration,
    /// When it stops; the end of the run if absent.
    pub stop: Option<Duration>,
}

/// Who calls whom.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Pattern {
    /// Each of these hosts calls each other one of them, chosen evenly per call.
    AllToAll {
        /// Hosts.
        hosts: Vec<u32>,
    },
    /// All senders call one receiver.
    Incast {
        /// Hosts that call.
        senders: Vec<u32>,
        /// The host they call.
        receiver: u32,
    },
    /// Host i calls one other host, chosen once by the run seed; each host is called once.
    Permutation {
        /// Hosts.
        hosts: Vec<u32>,
    },
    /// As all-to-all, but every pair moves the same amount, each host through its peers in turn.
    Shuffle {
        /// Hosts.
        hosts: Vec<u32>,
    },
    /// These pairs (caller, called).
    Pairs {
        /// Pairs.
        pairs: Vec<(u32, u32)>,
    },
}

/// Sizes of calls.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum SizeDistribution {
    /// All the same.
    Fixed {
        /// Payload of a call.
        size: Bytes,
    },
    /// Points of a cumulative distribution, linear between them; the last share is 1. A share above 0 at the first
    /// point is the part of calls of exactly that size, and two points of one size are a step there.
    Cumulative {
        /// Name of the public distribution, or `inline`.
        name: String,
        /// (size, part of calls not larger); neither ever falls, and no point is there twice.
        points: Vec<(Bytes, f64)>,
    },
}

/// When calls begin, per calling host.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Arrivals {
    /// Open loop, at exponential or even gaps.
    Open {
        /// Mean load of payload, fraction of the caller's line rate; a caller's peers or pairs share it evenly.
        load: f64,
        /// Load within a burst; equal to `load` for none.
        burst: f64,
        /// One burst and the idle time behind it; zero for no bursts. A burst lasts `period * load / burst`.
        period: Duration,
        /// Who bursts when.
        bursts: BurstPhase,
        /// Exponential gaps rather than even ones.
        poisson: bool,
    },
    /// A fixed number of calls in flight per pair; the next begins when one ends.
    Closed {
        /// Calls in flight per pair.
        outstanding: u32,
        /// Calls of each pair in all, if limited (permutation of single flows).
        calls_per_pair: Option<u64>,
    },
}

/// Whose bursts begin together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BurstPhase {
    /// Those of all hosts: the worst case, which delay bounds cover.
    #[default]
    Together,
    /// Those of one caller; callers burst at times of their own.
    PerHost,
    /// None: each pair of hosts bursts at times of its own, with its even part of the caller's load.
    PerPair,
}
