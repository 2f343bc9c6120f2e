//! Harmonic: guarantees for tenants that share an RDMA NIC, from the counters of its PCIe monitor (harmonic 5.3 to 5.5).
//!
//! * [`statistics`] - what the monitor counts for each tenant;
//! * [`usage`] - what these counts say about bandwidth, requests, the bus and the caches;
//! * [`allocation`] - who may use how much, from performance profiles;
//! * [`daemon`] - who is slowed, when, and by how much;
//! * [`control_verbs`] - how many objects a tenant may have, and how often it may ask.

pub mod allocation;
pub mod control_verbs;
pub mod daemon;
pub mod statistics;
pub mod usage;

pub use allocation::{
    Allocation, AllocationError, Capacity, ControlProfile, Dominant, PerformanceProfile, SHARE_ONE,
    allocate,
};
pub use control_verbs::{ControlLimiter, Limit, Objects, Verdict};
pub use daemon::{Batch, Harmonic, HarmonicOptions, Reaction, Reason};
pub use usage::{BusFormat, RequestCosts, TenantUsage};

#[cfg(test)]
mod tests;
