//! The keys of a file of `isolane rdma enforce`: names, kinds and ranges.

use isolane_common_toml_input::keys::{Key, Kind, count, key, required};

/// Keys of a file of `isolane rdma enforce`.
pub(super) const ENFORCEMENT: &[Key] = &[
    key(
        "on_death",
        Kind::Choice(&["open", "closed"]),
        "what becomes of control verbs while no enforcer runs: they go on, or wait for the next one (open)",
    ),
    key(
        "capacity",
        Kind::Table,
        "what the NIC has; needed with guarantees of rate or data requests",
    ),
    required("tenant", Kind::Tables, "the tenants"),
];

/// Keys of `[capacity]` of such a file.
pub(super) const CAPACITY: &[Key] = &[
    required("rate", Kind::Rate, "rate of the link"),
    key(
        "data_requests_per_s",
        count(1, 10_000_000_000),
        "normalised data requests per second (as many as can be written)",
    ),
];

/// Keys of `[[tenant]]` of such a file.
#[rustfmt::skip]
pub(super) const ENFORCED_TENANT: &[Key] = &[
    required("name", Kind::Text, "unique name"),
    key("cgroup", Kind::Text, "processes of this cgroup and those below it, a path that begins with /"),
    key("container", Kind::Text, "processes of the container of this identifier, 12 characters at least"),
    key("pod", Kind::Text, "processes of the pod of this UID"),
    key("label", Kind::Text, "containers with this annotation, written key=value"),
    key("user", count(0, u32::MAX as u64), "processes of this user, by number"),
    key("others", Kind::Flag, "all processes that no other tenant selects (false)"),
    key("weight", count(1, 1_000_000), "part of the capacity without a guarantee (1)"),
    key("guarantee", Kind::Table, "what it has been promised, and may not exceed"),
    key("control", Kind::Table, "control verbs per second by what they work on"),
    key("cap", Kind::Table, "limits of the rdma cgroup controller"),
];

/// Keys of `[tenant.control]`.
#[rustfmt::skip]
pub(super) const CONTROL_RATES: &[Key] = &[
    key("queue_pairs", CALLS, "calls per second on queue pairs and shared receive queues"),
    key("completion_queues", CALLS, "calls per second on completion queues and channels"),
    key("memory_regions", CALLS, "calls per second on memory regions and windows"),
    key("address_handles", CALLS, "calls per second on address handles"),
    key("others", CALLS, "other calls per second that change something"),
    key("queries", CALLS, "calls per second that change nothing"),
    key("burst", count(1, 1_000_000), "calls at once after a pause, of every limit (the calls of one millisecond)"),
];

/// Keys of `[tenant.cap]`.
#[rustfmt::skip]
pub(super) const CAP: &[Key] = &[
    key("objects", count(1, u32::MAX as u64), "RDMA objects of every kind at most"),
    key("handles", count(1, u32::MAX as u64), "open RDMA device files at most"),
];
const CALLS: Kind = count(1, 10_000_000);
