//! The daemon's state at one moment, for metrics, `isolane rdma top` and tests.
//!
//! Units end the names. Counters start at zero when their object starts.

use isolane_rdma_inventory::unheld::{Session, Unheld};
use isolane_rdma_session::message::Class;
use isolane_rdma_session::region::SLOTS;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The whole state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Time of the snapshot, CLOCK_MONOTONIC, ns.
    pub now_ns: u64,
    /// Figures of the daemon itself.
    pub daemon: DaemonFigures,
    /// Devices in the order of the configuration.
    pub devices: Vec<DeviceSnapshot>,
    /// Tenants, sorted by name.
    pub tenants: Vec<TenantSnapshot>,
    /// The enforcer's limits, by the tenant's number at the enforcer.
    pub limits: Vec<LimitSnapshot>,
    /// Sessions in order of arrival.
    pub sessions: Vec<SessionSnapshot>,
    /// Processes whose work on the devices is not paced, by process id.
    pub unheld: Vec<Unheld>,
}

impl Snapshot {
    /// The sessions by process id, as the comparison with the kernel's list needs them.
    pub fn paced(&self) -> BTreeMap<u32, Session> {
        let paced = self.sessions.iter().map(|session| {
            // The latency class keeps its provider's functions; beyond the slots, queue pairs share one entry.
            let reports_all =
                session.class != Class::Latency.name() && session.queue_pairs.len() < SLOTS;
            let numbers = session.queue_pairs.iter().map(|one| one.queue_pair);
            let queue_pairs = reports_all.then(|| numbers.collect());
            (session.pid, Session { queue_pairs })
        });
        paced.collect()
    }
}

/// The daemon's own figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonFigures {
    /// Sessions at this moment.
    pub sessions: u64,
    /// Sessions opened since the start.
    pub sessions_total: u64,
    /// Sessions rejected since the start.
    pub refused_total: u64,
    /// Periods in which leases were computed.
    pub periods_total: u64,
    /// Leases written since the start.
    pub leases_total: u64,
    /// Times that a counter of a session ran backwards or faster than the device can.
    pub implausible_total: u64,
    /// Changes of a queue pair's class.
    pub reclassified_total: u64,
    /// Times that a tenant lost the latency class of a device because it sent bulk in it.
    pub latency_lost_total: u64,
}

/// One device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceSnapshot {
    /// Device name.
    pub name: String,
    /// Policy name.
    pub policy: String,
    /// Payload rate of the idle device, bits per second.
    pub rate_max_bps: u64,
    /// Rate that backlogged senders may use together at this moment (SafeUtil), bits per second.
    pub safe_util_bps: u64,
    /// Rate guaranteed to backlogged senders together, bits per second.
    pub minimum_rate_bps: u64,
    /// Active senders.
    pub active_sending: u64,
    /// Active senders of READs.
    pub active_reading: u64,
    /// Sum of the senders' leases, payload bytes per second.
    pub leased_bytes_per_s: u64,
    /// Sum of the weights of the latency flows.
    pub latency_weight: u64,
    /// Bytes per second that the port sent and no session posted; `None` if the driver has no such counters.
    pub foreign_bytes_per_s: Option<u64>,
    /// Bytes that the port sent and no session posted, since the start.
    pub foreign_bytes: u64,
    /// Whether such traffic keeps late reference messages from lowering rates.
    pub has_foreign: bool,
    /// Figures of the policy; units end the names.
    pub figures: BTreeMap<String, f64>,
}

/// One tenant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TenantSnapshot {
    /// Tenant name.
    pub name: String,
    /// Weight among tenants.
    pub weight: u32,
    /// Number of its sessions.
    pub sessions: u64,
    /// Payload bytes that its sessions, present and past, sent under a lease.
    pub passed_bytes: u64,
    /// Messages that its sessions, present and past, sent under a lease.
    pub passed_operations: u64,
    /// Devices on which it has lost the latency class because it sent bulk in it.
    pub latency_lost_on: Vec<String>,
}

/// Limit of one of the enforcer's tenants. The daemon may know its processes under other tenants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitSnapshot {
    /// The tenant's place in the enforcement file, from zero.
    pub number: u32,
    /// Payload per second that its processes together may send by each device; the same for READs.
    pub bytes_per_s: u64,
    /// Its processes that have a session.
    pub sessions: u64,
    /// Its processes of the latency class, which have no lease and are therefore not limited.
    pub unheld: u64,
    /// Names of the daemon's tenants that its processes belong to.
    pub tenants: Vec<String>,
}

/// One session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionSnapshot {
    /// Session number.
    pub session: u64,
    /// Tenant name.
    pub tenant: String,
    /// Process id.
    pub pid: u32,
    /// User id.
    pub user: u32,
    /// Program name, as the process sent it.
    pub program: String,
    /// Its class: `auto`, `latency`, `throughput` or `bandwidth`.
    pub class: String,
    /// Weight among the processes of the tenant.
    pub weight: u32,
    /// Number of the enforcer's limit that applies: [`LimitSnapshot::number`].
    pub limit: Option<u32>,
    /// Work requests that wait in the process.
    pub waiting: u64,
    /// One entry per opened device and direction.
    pub meters: Vec<MeterSnapshot>,
    /// Entries of its queue pairs.
    pub queue_pairs: Vec<QueuePairSnapshot>,
}

/// One device and direction of a session, READs from all ports together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeterSnapshot {
    /// Device name.
    pub device: String,
    /// Whether the direction is READs.
    pub remote_read: bool,
    /// Whether the meter counts as active.
    pub active: bool,
    /// Payload rate of its lease; zero while released.
    pub lease_bytes_per_s: u64,
    /// Message rate of its lease; zero while released.
    pub lease_operations_per_s: u64,
    /// Its current share of the process's limit; `None` without a limit.
    pub limit_bytes_per_s: Option<u64>,
    /// Payload bytes sent under a lease.
    pub passed_bytes: u64,
    /// Messages sent under a lease.
    pub passed_operations: u64,
    /// Payload bytes that paced queue pairs posted.
    pub posted_bytes: u64,
    /// Messages that paced queue pairs posted.
    pub posted_operations: u64,
    /// How long its first work request has been waiting, ns; zero if none waits.
    pub waiting_ns: u64,
}

impl MeterSnapshot {
    /// Adds a meter of the same device and direction. Standing leases of idle meters are alternatives and not added.
    pub(crate) fn add(&mut self, other: &Self) {
        let lease = |ours: u64, theirs: u64| match (self.active, other.active) {
            (true, true) => ours.saturating_add(theirs),
            (true, false) => ours,
            (false, true) => theirs,
            (false, false) => ours.max(theirs),
        };
        let limit = self.limit_bytes_per_s.zip(other.limit_bytes_per_s);
        *self = Self {
            device: std::mem::take(&mut self.device),
            remote_read: self.remote_read,
            lease_bytes_per_s: lease(self.lease_bytes_per_s, other.lease_bytes_per_s),
            lease_operations_per_s: lease(
                self.lease_operations_per_s,
                other.lease_operations_per_s,
            ),
            limit_bytes_per_s: limit.map(|(ours, theirs)| lease(ours, theirs)),
            active: self.active || other.active,
            passed_bytes: self.passed_bytes.saturating_add(other.passed_bytes),
            passed_operations: self
                .passed_operations
                .saturating_add(other.passed_operations),
            posted_bytes: self.posted_bytes.wrapping_add(other.posted_bytes),
            posted_operations: self.posted_operations.wrapping_add(other.posted_operations),
            waiting_ns: self.waiting_ns.max(other.waiting_ns),
        };
    }
}

/// One queue pair.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuePairSnapshot {
    /// Queue pair number. The last entry of a long list has the sum of all further queue pairs.
    pub queue_pair: u32,
    /// Class that applies to it.
    pub class: String,
    /// Messages posted by the application.
    pub posted_messages: u64,
    /// Payload bytes posted by the application.
    pub posted_bytes: u64,
    /// Completed messages.
    pub completed_messages: u64,
    /// Payload bytes of completed messages.
    pub completed_bytes: u64,
    /// Work requests made by splitting messages.
    pub chunks: u64,
    /// Sum of its messages' waits for credit, ns.
    pub waited_ns: u64,
}
