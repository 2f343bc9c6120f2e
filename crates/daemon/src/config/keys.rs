//! The keys of the daemon's file: names, kinds, ranges, meanings.

use isolane_core::stats::SlidingQuantile;
use isolane_proto::message::WEIGHT_MAX;
use isolane_scenario::table::{Key, Kind, key, required};

/// A hundredth of a microsecond is below every NIC, a second above every network.
const TARGET: (u64, u64) = (10_000, 1_000_000_000_000);
/// 20 us is the paper's; a second still notices a change.
const PERIOD: (u64, u64) = (20_000_000, 1_000_000_000_000);
/// Times the idle latency; beyond a thousand nothing would be protected.
pub(super) const FACTOR_MAX: u64 = 1_000;
/// Longest name of a device or a tenant.
pub(super) const NAME_MAX: usize = 64;
/// Devices, peers and rules of one machine.
pub(super) const TABLES_MAX: usize = 4_096;

const CLASSES: Kind = Kind::Choice(&["latency", "throughput", "bandwidth", "auto"]);
const WEIGHT: Kind = Kind::Count {
    min: 1,
    max: WEIGHT_MAX as u64,
};

/// The top level.
pub(super) const TOP: &[Key] = &[
    key(
        "socket",
        Kind::Text,
        "where shims find the daemon (/run/isolane/isolaned.sock)",
    ),
    key(
        "socket_mode",
        Kind::Text,
        "mode bits of the socket, octal (\"0666\")",
    ),
    key(
        "control_socket",
        Kind::Text,
        "where isolane top finds the daemon (/run/isolane/control.sock)",
    ),
    key(
        "policy",
        Kind::Choice(&["justitia", "none"]),
        "what decides the rates (justitia)",
    ),
    key(
        "granularity",
        Kind::Choice(&["application", "tenant"]),
        "what one flow is (application)",
    ),
    key(
        "trust_declared",
        Kind::Flag,
        "believe a process that says it needs low latency (true)",
    ),
    key(
        "declared_weight_max",
        WEIGHT,
        "largest weight a process may claim by its own word (16)",
    ),
    required(
        "device",
        Kind::Tables,
        "the devices that are served, each as [[device]]",
    ),
    key("peer", Kind::Tables, "the other ends, each as [[peer]]"),
    key(
        "peering",
        Kind::Table,
        "how daemons of other machines reach this one",
    ),
    key("tenant", Kind::Tables, "who is who, each as [[tenant]]"),
    key("metrics", Kind::Table, "where metrics are read"),
];

/// `[[device]]`.
pub(super) const DEVICE: &[Key] = &[
    required("name", Kind::Text, "its name, as ibv_devices shows it"),
    key("port", Kind::Count { min: 1, max: 254 }, "its port (1)"),
    key(
        "gid_index",
        Kind::Count { min: 0, max: 255 },
        "entry of the GID table (the first that suits)",
    ),
    key(
        "rate",
        Kind::Rate,
        "payload rate of the idle device (the port's rate)",
    ),
    key(
        "messages_per_s",
        Kind::Count {
            min: 1,
            max: 10_000_000_000,
        },
        "message rate of the idle device",
    ),
    key(
        "target",
        Kind::Text,
        "what the reference flow's 99th percentile must stay below (\"auto\")",
    ),
    key(
        "target_factor",
        Kind::Count {
            min: 1,
            max: FACTOR_MAX,
        },
        "with target \"auto\": times the idle 99th percentile (2)",
    ),
    key(
        "reference_period",
        Kind::Duration {
            min: PERIOD.0,
            max: PERIOD.1,
        },
        "time between reference messages (from the measured latency)",
    ),
    key(
        "reference_count",
        Kind::Count {
            min: 1,
            max: SlidingQuantile::MAX_CAPACITY as u64,
        },
        "latencies the percentile is taken over (10000)",
    ),
];

/// The same key as `target` of a device where it holds a duration.
pub(super) const TARGET_KEY: &[Key] = &[Key {
    name: "target",
    kind: Kind::Duration {
        min: TARGET.0,
        max: TARGET.1,
    },
    required: false,
    about: "",
}];

/// `[[peer]]`.
pub(super) const PEER: &[Key] = &[
    required("device", Kind::Text, "our device, one of [[device]]"),
    key(
        "address",
        Kind::Text,
        "the daemon there, like \"10.0.0.2:7471\" (this daemon: two devices of one machine)",
    ),
    required("remote_device", Kind::Text, "the device there"),
];

/// `[peering]`.
pub(super) const PEERING: &[Key] = &[
    key(
        "listen",
        Kind::Text,
        "where this daemon listens for others, like \"10.0.0.1:7471\"",
    ),
    required(
        "key_file",
        Kind::Text,
        "file of the key that all daemons of the cluster share",
    ),
];

/// `[[tenant]]`.
pub(super) const TENANT: &[Key] = &[
    required("name", Kind::Text, "its name"),
    key(
        "cgroup",
        Kind::Text,
        "patterns of control group paths, comma separated, * for any text",
    ),
    key(
        "user",
        Kind::Count {
            min: 0,
            max: u32::MAX as u64,
        },
        "numeric user id",
    ),
    key(
        "program",
        Kind::Text,
        "patterns of program names; the process's own word",
    ),
    key(
        "declared",
        Kind::Text,
        "patterns of the tenant's name by the process's own word",
    ),
    key(
        "class",
        CLASSES,
        "what its processes need, over their own word (their own word)",
    ),
    key("weight", WEIGHT, "its weight, over its own word"),
];

/// `[metrics]`.
pub(super) const METRICS: &[Key] = &[
    required(
        "listen",
        Kind::Text,
        "\"unix:/run/isolane/metrics.sock\" or an address like \"127.0.0.1:9471\"",
    ),
    key(
        "expose",
        Kind::Flag,
        "allow an address that other machines reach (false)",
    ),
];
