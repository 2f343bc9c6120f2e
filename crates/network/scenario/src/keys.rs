//! The keys of a network's scenario: names, kinds and ranges, in one place for the parser and the JSON schema.

use super::model::HOSTS_MAX;
use super::parameters::{CONGESTION, POLICY as POLICIES};
use isolane_common_toml_input::keys::{DESCRIPTION, Key, Kind, NAME, SEED, count, key, required};

/// Longest run, picoseconds (100 s).
const RUN_MAX_PS: u64 = 100_000_000_000_000;
/// Largest call, bytes (64 GiB).
pub(crate) const CALL_MAX: u64 = 1 << 36;
/// Groups of callers of one scenario.
pub(crate) const GROUPS_MAX: usize = 64;
/// Most links of a fat tree's switch: 40^3 / 4 hosts are just below [`HOSTS_MAX`].
const ARITY_MAX: u64 = 40;
/// Largest load, in line rates.
const LOAD_MAX: f64 = 1_000.0;

const ANY_TIME: Kind = Kind::duration(0, RUN_MAX_PS);
const SOME_TIME: Kind = Kind::duration(1, RUN_MAX_PS);
const HOSTS: Kind = count(0, HOSTS_MAX as u64);
const BUFFER: Kind = Kind::size(64, 1 << 40);

/// Keys of the top level.
#[rustfmt::skip]
pub(crate) const TOP: &[Key] = &[
    NAME,
    DESCRIPTION,
    SEED,
    key("warmup", ANY_TIME, "calls that begin before this are not measured (2ms)"),
    key("duration", SOME_TIME, "measured time; no call begins after it (20ms)"),
    key("calls", count(1, 1_000_000_000_000), "calls after which no more begin, if that is earlier"),
    key("drain", ANY_TIME, "time for calls to end after the last began (duration)"),
    key("sample_interval", Kind::duration(1_000_000, RUN_MAX_PS), "width of one point of the time series; none without"),
    key("per_pair", Kind::Flag, "report each pair of hosts too (false)"),
    key("overload", Kind::Flag, "the mean load may be above 1 at a link (false)"),
    required("fabric", Kind::Table, "hosts, switches and links: [fabric]"),
    key("ports", Kind::Table, "what every port does"),
    required("class", Kind::Tables, "traffic classes, the highest first: [[class]]"),
    key("transport", Kind::Table, "how hosts send"),
    key("policy", Kind::Table, "what decides over the calls"),
    required("traffic", Kind::Tables, "who calls whom: [[traffic]]"),
];

/// Keys of `[network]` in a scenario of RDMA hosts.
#[rustfmt::skip]
pub(crate) const BEHIND: &[Key] = &[
    required("hosts", Kind::Hosts, "hosts of the network that the scenario's hosts a, b, ... are"),
    required("fabric", Kind::Table, "hosts, switches and links"),
    required("ports", Kind::Table, "what every port does; pfc is needed, because the devices repeat nothing"),
    key("class", Kind::Tables, "traffic classes, the highest first; the devices' frames run in it (one)"),
    key("transport", Kind::Table, "how the network's other hosts send"),
    key("traffic", Kind::Tables, "who of the other hosts calls whom"),
];

/// Spelling of every shape.
pub(crate) const SHAPES: &[&str] = &["single-switch", "leaf-spine", "fat-tree", "two-racks"];

/// Keys of `[fabric]`.
#[rustfmt::skip]
pub(crate) const FABRIC: &[Key] = &[
    required("topology", Kind::Choice(SHAPES), "shape of the network"),
    key("hosts", HOSTS, "single-switch: hosts"),
    key("leaves", HOSTS, "leaf-spine: leaf switches"),
    key("spines", count(0, 1_024), "leaf-spine: spine switches, each with one link to each leaf"),
    key("hosts_per_leaf", HOSTS, "leaf-spine: hosts of each leaf"),
    key("k", count(0, ARITY_MAX), "fat-tree: ports of a switch; even"),
    key("hosts_per_rack", HOSTS, "two-racks: hosts of each rack"),
    key("rate", Kind::Rate, "rate of a host's link (100Gb/s)"),
    key("nic_rate", Kind::Rate, "rate at which a host's own port sends; far above rate: no queue at the sender (rate)"),
    key("uplink_rate", Kind::Rate, "leaf-spine, two-racks: rate of a link above the racks (rate)"),
    key("hop_delay", Kind::duration(0, 1_000_000_000_000), "propagation and switching time of every hop (200ns)"),
];

/// Keys of `[ports]`.
#[rustfmt::skip]
pub(crate) const PORTS: &[Key] = &[
    key(
        "scheduler",
        Kind::Choice(&["wfq", "virtual-clock", "dwrr", "strict"]),
        "order between classes (wfq); virtual-clock takes its tags from wall time",
    ),
    key("mtu", Kind::size(64, 65_000), "payload of a full packet (5080B)"),
    key("header", Kind::size(1, 500), "bytes of headers on each packet (40B)"),
    key("buffer", BUFFER, "buffer of one switch port (512KiB)"),
    key("shared", Kind::Flag, "a switch's ports share its buffer by dynamic thresholds (false)"),
    key("ecn", Kind::Table, "marks instead of drops"),
    key("pfc", Kind::Table, "pauses instead of drops"),
];

/// Keys of `ports.ecn`.
pub(crate) const ECN: &[Key] = &[
    required("min", BUFFER, "class queue from which packets are marked"),
    required("max", BUFFER, "class queue from which all are marked"),
    key(
        "max_probability",
        Kind::number(0.0, 1.0),
        "probability just below max (1)",
    ),
];

/// Keys of `ports.pfc`.
#[rustfmt::skip]
pub(crate) const PFC: &[Key] = &[
    required("xoff", BUFFER, "bytes of one ingress port and class at which it pauses its peer"),
    required("xon", BUFFER, "bytes below which the peer may send again"),
    key("quanta", count(1, 65_535), "for how long a pause frame holds, in times of 512 bits; repeated after half of that (until taken back)"),
];

/// Keys of `[[class]]`.
#[rustfmt::skip]
pub(crate) const CLASS: &[Key] = &[
    required("name", Kind::Text, "unique name"),
    key("weight", count(0, 1_000_000), "weight for wfq, virtual-clock and dwrr, at least 1 (1)"),
    key("buffer", BUFFER, "most bytes of the class that may wait at one port of a switch (that of the port)"),
    key("slo", Kind::Table, "what calls are promised; not for the last class"),
];

/// Keys of `class.slo`.
#[rustfmt::skip]
pub(crate) const SLO: &[Key] = &[
    required("target", SOME_TIME, "longest network latency"),
    key("per_mtu", Kind::Flag, "target counts for each MTU of the call (true)"),
    key("percentile", Kind::number(0.0, 100.0), "part of the calls that must meet it, percent (99.9)"),
];

/// Own keys of `[transport]`; parameters follow.
#[rustfmt::skip]
pub(crate) const TRANSPORT: &[Key] = &[
    key("congestion", Kind::Choice(CONGESTION), "congestion control (swift)"),
    key("recovery", Kind::Choice(&["go-back-n", "selective"]), "what happens to lost packets (go-back-n)"),
];

/// Own keys of `[policy]`; parameters follow.
pub(crate) const POLICY: &[Key] = &[key("name", Kind::Choice(POLICIES), "the policy (none)")];

/// Spelling of every pattern.
pub(crate) const PATTERNS: &[&str] = &["all-to-all", "incast", "permutation", "shuffle", "pairs"];

/// Spelling of every phase of bursts.
pub(crate) const BURSTS: &[&str] = &["together", "per-host", "per-pair"];

/// Keys of `[[traffic]]`.
#[rustfmt::skip]
pub(crate) const TRAFFIC: &[Key] = &[
    key("name", Kind::Text, "unique name (traffic-1, ...)"),
    required("pattern", Kind::Choice(PATTERNS), "who calls whom"),
    key("hosts", Kind::Hosts, "all-to-all, permutation, shuffle: the hosts (all)"),
    key("senders", Kind::Hosts, "the callers; incast: all but the receiver, all-to-all: all hosts"),
    key("receiver", HOSTS, "incast: the host they call"),
    key("pairs", Kind::Pairs, "pairs: [[caller, called], ...]"),
    key("mix", Kind::Shares, "part of each class, the highest first; sums to 1"),
    required("sizes", Kind::Sizes, "payload of the calls"),
    key("arrivals", Kind::Choice(&["poisson", "even", "closed"]), "when calls begin (poisson)"),
    key("load", Kind::number(0.0, LOAD_MAX), "poisson, even: mean load of each caller, in line rates"),
    key("burst", Kind::number(0.0, LOAD_MAX), "poisson, even: load within a burst (load: no bursts)"),
    key("period", SOME_TIME, "poisson, even: one burst and the idle time behind it"),
    key("bursts", Kind::Choice(BURSTS), "poisson, even: which bursts begin together (together: those of all hosts)"),
    key("outstanding", count(1, 1 << 20), "closed: calls in flight per pair (1)"),
    key("calls_per_pair", count(1, 1_000_000_000_000), "closed: calls of each pair in all (no limit)"),
    key("start", ANY_TIME, "when the group starts (0us)"),
    key("stop", SOME_TIME, "when it stops (end of the run)"),
];
