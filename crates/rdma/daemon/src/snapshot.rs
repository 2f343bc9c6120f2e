//! What the daemon knows at one moment, for metrics, `isolane rdma top` and tests.
//!
//! Units end the names. Counters count from the start of what they belong to.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Everything at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// When, CLOCK_MONOTONIC.
    pub now_ns: u64,
    /// Of the daemon itself.
    pub daemon: DaemonFigures,
    /// In the order of the configuration.
    pub devices: Vec<DeviceSnapshot>,
    /// By name.
    pub tenants: Vec<TenantSnapshot>,
    /// What whoever enforces guarantees on this host lets its tenants send, by their number there.
    pub limits: Vec<LimitSnapshot>,
    /// In order of arrival.
    pub sessions: Vec<SessionSnapshot>,
}

/// The daemon's own figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonFigures {
    /// Sessions that are served.
    pub sessions: u64,
    /// Sessions ever served.
    pub sessions_total: u64,
    /// Sessions ever refused.
    pub refused_total: u64,
    /// Periods in which leases were worked out.
    pub periods_total: u64,
    /// Leases written.
    pub leases_total: u64,
    /// Times that a counter of a session ran backwards or faster than any device.
    pub implausible_total: u64,
    /// Times that a queue pair's class was changed.
    pub reclassified_total: u64,
    /// Times that a tenant lost the latency class of a device, because it sent bulk in it.
    pub latency_lost_total: u64,
}

/// One device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceSnapshot {
    /// Its name.
    pub name: String,
    /// Its policy's name.
    pub policy: String,
    /// Application-level bandwidth of the idle device.
    pub rate_max_bps: u64,
    /// What hungry senders may use together now.
    pub safe_util_bps: u64,
    /// What they may count on.
    pub minimum_rate_bps: u64,
    /// Senders that are active now.
    pub active_sending: u64,
    /// READers that are active now.
    pub active_reading: u64,
    /// Summed leases of the senders.
    pub leased_bytes_per_s: u64,
    /// Weight of latency flows.
    pub latency_weight: u64,
    /// The policy's own figures, units end the names.
    pub figures: BTreeMap<String, f64>,
}

/// One tenant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TenantSnapshot {
    /// Its name.
    pub name: String,
    /// Its weight.
    pub weight: u32,
    /// Its sessions.
    pub sessions: u64,
    /// Payload that its sessions, present and past, gave to the devices under a lease.
    pub passed_bytes: u64,
    /// The same in messages.
    pub passed_operations: u64,
    /// The devices where it has lost the latency class for now, because it sent bulk in it.
    pub latency_lost_on: Vec<String>,
}

/// The limit of one of the enforcer's tenants, which need not be the daemon's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitSnapshot {
    /// The tenant's number at the enforcer: its place in the file, from zero.
    pub number: u32,
    /// Payload that its processes may send together by each device, and READ by each.
    pub bytes_per_s: u64,
    /// Its processes that are served here.
    pub sessions: u64,
    /// Those of them that no lease holds: processes of the latency class.
    pub unheld: u64,
    /// The daemon's tenants that they are of, by name.
    pub tenants: Vec<String>,
}

/// One process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionSnapshot {
    /// Its number.
    pub session: u64,
    /// Its tenant's name.
    pub tenant: String,
    /// Its process.
    pub pid: u32,
    /// Its user.
    pub user: u32,
    /// Its program, by its own word.
    pub program: String,
    /// Its class: `auto`, `latency`, `throughput` or `bandwidth`.
    pub class: String,
    /// Its weight among its tenant's processes.
    pub weight: u32,
    /// The limit that the enforcer set it under: [`LimitSnapshot::number`].
    pub limit: Option<u32>,
    /// Work requests that wait in the process.
    pub waiting: u64,
    /// One for each device it opened and direction.
    pub meters: Vec<MeterSnapshot>,
    /// Its queue pairs.
    pub queue_pairs: Vec<QueuePairSnapshot>,
}

/// One device and direction of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeterSnapshot {
    /// The device's name.
    pub device: String,
    /// Whether it is READs.
    pub remote_read: bool,
    /// Whether it counts among those that send.
    pub active: bool,
    /// Its lease's payload rate; zero while released.
    pub lease_bytes_per_s: u64,
    /// Its lease's message rate; zero while released.
    pub lease_operations_per_s: u64,
    /// The part of its process's limit that it may use now; nothing where no limit holds it.
    pub limit_bytes_per_s: Option<u64>,
    /// Payload that took credit.
    pub passed_bytes: u64,
    /// The same in messages.
    pub passed_operations: u64,
    /// Payload that paced queue pairs posted.
    pub posted_bytes: u64,
    /// The same in messages.
    pub posted_operations: u64,
    /// How long something has been waiting; zero where nothing does.
    pub waiting_ns: u64,
}

/// One queue pair.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuePairSnapshot {
    /// Its number in the device; the last of a long list stands for all further ones.
    pub queue_pair: u32,
    /// The class that it is treated as.
    pub class: String,
    /// Messages that the application posted.
    pub posted_messages: u64,
    /// Their payload.
    pub posted_bytes: u64,
    /// Messages that completed.
    pub completed_messages: u64,
    /// Their payload.
    pub completed_bytes: u64,
    /// Work requests made by splitting.
    pub chunks: u64,
    /// How long its messages waited for credit, summed.
    pub waited_ns: u64,
}
