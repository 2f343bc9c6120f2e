//! The adapter between Harmonic's policy and the model: the daemon and the kernel driver of each host.
//!
//! The daemon polls the monitor on its NIC's bus, one tenant after the other, and has no other input: the policy gets
//! the monitor's counters alone. Reading a counter keeps its core for a round trip to the switch, and the bus for what
//! the monitor charges. The notifications of a batch go out one by one, each for the price of posting a request, round
//! after round over the senders of the tenant's data: the requester of WRITE, SEND and atomics, the responder of READ,
//! for every connection that ends at this host. One for a sender on the other host crosses the wire; one for this
//! host's own NIC turns round inside it. A batch that finds the tenant's last one still going out is dropped.
//!
//! The driver is in front of the command queue: verbs that come too often wait, verbs that would give a tenant more
//! than it may have are rejected and count as its errors. A loop that is rejected tries again after the time of one
//! verb. What data workloads set up before the run is judged too: a connection beyond its tenant's limits never starts,
//! and counts as one error.
//!
//! Units: picoseconds. The hosts' polls are spread over a period; their daemons exchange no messages. Source: harmonic
//! 5.5, 5.6.5, 5.12. Limits: the policy's own arithmetic takes no core time (tens of nanoseconds per tenant).

mod act;

use isolane_rdma_policy::harmonic::statistics::TenantStatistics;
use isolane_rdma_policy::harmonic::{ControlLimiter, Harmonic};
use std::collections::VecDeque;

pub(crate) struct HarmonicHosts {
    hosts: Vec<HarmonicHost>,
    /// Connections that were never made, for each tenant.
    refused: Vec<u64>,
    pair_refused: Vec<bool>,
    counter_read: u64,
}

/// Daemon and driver of one host.
struct HarmonicHost {
    policy: Harmonic,
    counters: Vec<TenantStatistics>,
    /// Per tenant: the senders of its data, as queue pairs and whether their responder sends.
    senders: Vec<Vec<(u32, bool)>>,
    limiters: Vec<ControlLimiter>,
    /// Batches going out.
    sending: VecDeque<Sending>,
    /// When the daemon's core is free, ps.
    core_free: u64,
    /// Per tenant: core time spent, ps, and notifications sent.
    spent: Vec<u64>,
    sent: Vec<u64>,
}

/// A batch that is going out.
struct Sending {
    tenant: usize,
    next: usize,
    rounds: u32,
    /// The explicit rate of each sender, bit/s; zero for notifications.
    rate: u64,
}
