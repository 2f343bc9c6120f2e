//! The keys of the daemon's file: names, types, ranges and meanings.

use isolane_common_quantities::stats::SlidingQuantile;
use isolane_common_toml_input::keys::{Key, Kind, key, required};
use isolane_rdma_session::message::WEIGHT_MAX;

/// 10 ns is below the latency of every RNIC, 1 s above that of every network.
const TARGET: (u64, u64) = (10_000, 1_000_000_000_000);
/// 20 us is the paper's period; a period of 1 s still shows a change.
const PERIOD: (u64, u64) = (20_000_000, 1_000_000_000_000);
/// Largest multiple of the idle latency; a larger target would protect nothing.
const FACTOR_MAX: u64 = 1_000;
/// Longest name of a device or a tenant, bytes.
pub(super) const NAME_MAX: usize = 64;
/// Devices, peers, rules or tenants of one machine.
pub(super) const TABLES_MAX: usize = 4_096;

const CLASSES: Kind = Kind::Choice(&["latency", "throughput", "bandwidth", "auto"]);
const WEIGHT: Kind = count(1, WEIGHT_MAX as u64);
/// From one packet to a size that an RNIC sends for milliseconds without interruption.
const CHUNK: Kind = Kind::size(256, 64 << 20);
const TIME: Kind = Kind::duration(1_000_000, 1_000_000_000_000);

const fn count(min: u64, max: u64) -> Kind {
    Kind::Count { min, max }
}

#[rustfmt::skip]
pub(super) const TOP: &[Key] = &[
    key("socket", Kind::Text, "path of the socket for shims (/run/isolane/clients/isolaned.sock)"),
    key("socket_mode", Kind::Text, "mode bits of the socket, octal (\"0666\")"),
    key("control_socket", Kind::Text, "path of the socket for isolane rdma top (/run/isolane/control/isolaned.sock)"),
    key("granularity", Kind::Choice(&["application", "tenant"]), "what gets one share of a device (tenant)"),
    key("trust_names", Kind::Flag, "a process without a rule may name its tenant and weight (false)"),
    key("trust_classes", Kind::Flag, "a process that declares the latency class starts in it and is checked (false)"),
    key("own_weight_max", WEIGHT, "largest weight that a process may name (4)"),
    key("own_names_max", count(1, TABLES_MAX as u64), "most tenants that one owner's processes may name (8)"),
    key("period", TIME, "time between two sets of leases (1ms)"),
    key("idle_after", TIME, "a sender without activity for this long returns its share (20ms)"),
    key("sessions_max", count(1, 65_536), "most sessions (4096)"),
    key("sessions_per_account_max", count(1, 65_536), "most sessions of one user in one container (1024)"),
    required("device", Kind::Tables, "the devices to serve, each as [[device]]"),
    key("peer", Kind::Tables, "the peers, each as [[peer]]"),
    key("peering", Kind::Table, "connections with daemons of other machines"),
    key("rule", Kind::Tables, "rules that assign processes to tenants, each as [[rule]]; the first match counts"),
    key("tenant", Kind::Tables, "the weights of tenants, each as [[tenant]]"),
    key("metrics", Kind::Table, "the address of the metrics"),
];

/// `[[device]]`.
#[rustfmt::skip]
pub(super) const DEVICE: &[Key] = &[
    required("name", Kind::Text, "its name, as ibv_devices shows it"),
    key("policy", Kind::Choice(&["justitia", "none"]), "the policy that sets the rates (justitia)"),
    key("port", count(1, 254), "its port (1)"),
    key("gid_index", count(0, 255), "entry of the GID table (the first usable one)"),
    key("rate", Kind::Rate, "payload rate of the idle device (92 % of the port's rate)"),
    key("messages_per_s", count(1, 10_000_000_000), "message rate of the idle device (from the rate)"),
    key("target", Kind::Text, "upper bound of the reference flow's 99th percentile (\"auto\")"),
    key("target_factor", count(1, FACTOR_MAX), "with target \"auto\": the target as a multiple of the idle 99th percentile (2)"),
    key("reference_period", Kind::duration(PERIOD.0, PERIOD.1), "time between reference messages (period)"),
    key("reference_count", count(1, SlidingQuantile::MAX_CAPACITY as u64), "number of latencies in the percentile (200)"),
    key("chunk", CHUNK, "chunk size while a latency flow exists (5000B, or more if the target allows it)"),
    key("chunk_without_latency", CHUNK, "chunk size while no latency flow exists"),
    key("additive_step", Kind::Rate, "increase of SafeUtil per reference period while the target is met"),
    key("burst", TIME, "credit that a sender may save while a latency flow exists, as time at its rate"),
    key("burst_without_latency", TIME, "the same while no latency flow exists"),
];

/// The key `target` of a device when its value is a duration.
pub(super) const TARGET_KEY: &[Key] = &[key("target", Kind::duration(TARGET.0, TARGET.1), "")];

/// `[[peer]]`.
pub(super) const PEER: &[Key] = &[
    required("device", Kind::Text, "our device, one of [[device]]"),
    key(
        "address",
        Kind::Text,
        "the peer's daemon, like \"10.0.0.2:7471\" (this daemon: two devices of one machine)",
    ),
    required("remote_device", Kind::Text, "the device there"),
];

/// `[peering]`.
#[rustfmt::skip]
pub(super) const PEERING: &[Key] = &[
    key("listen", Kind::Text, "where this daemon listens for others, like \"10.0.0.1:7471\""),
    required("key_file", Kind::Text, "file with the key that all daemons of the cluster share"),
];

#[rustfmt::skip]
pub(super) const ASSIGNMENT: &[Key] = &[
    key("cgroup", Kind::Text, "pattern of the control group's path: * for any text without /, ** at the end for all below"),
    key("pod", Kind::Text, "instead of cgroup: UID of a Kubernetes pod"),
    key("tenant", Kind::Text, "the tenant of the workload's processes"),
    key("class", CLASSES, "the class of the workload's processes"),
    key("weight", WEIGHT, "weight of the tenant"),
    key("lasts_while", Kind::Text, "absolute path: the assignment ends when the path is gone"),
];

/// `[[rule]]`.
#[rustfmt::skip]
pub(super) const RULE: &[Key] = &[
    key("cgroup", Kind::Text, "pattern of the control group's path: * for any text without /, ** at the end for all below"),
    key("pod", Kind::Text, "UID of its Kubernetes pod"),
    key("user", count(0, u32::MAX as u64), "numeric user id"),
    key("program", Kind::Text, "pattern of the program's name, as the process sends it"),
    key("claim", Kind::Text, "pattern of the tenant's name, as the process sends it"),
    key("tenant", Kind::Text, "the tenant it belongs to; {owner}, {user}, {claim} and {cgroup} are replaced by the process's values"),
    key("class", CLASSES, "the class of the process; overrides what the process sends"),
    key("weight", WEIGHT, "its weight among its tenant's processes; overrides what the process sends"),
];

/// `[[tenant]]`.
pub(super) const TENANT: &[Key] = &[
    required("name", Kind::Text, "its name"),
    required("weight", WEIGHT, "its weight among tenants"),
];

/// `[metrics]`.
#[rustfmt::skip]
pub(super) const METRICS: &[Key] = &[
    required("listen", Kind::Text, "\"unix:/run/isolane/metrics.sock\" or an address like \"127.0.0.1:9471\""),
    key("expose", Kind::Flag, "allow an address that other machines reach (false)"),
];
