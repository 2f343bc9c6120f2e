//! Processes of the hosts, and what all processes of one workload share.

use isolane_rdma_scenario::model::Arrival;

/// One message of a request vector.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PatternEntry {
    pub(crate) bytes: u64,
    pub(crate) elements: u16,
    /// Changes between short and long elements.
    pub(crate) changes: u64,
}

/// One process: a thread that posts and polls for its queue pairs.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    /// When its core is free, ps.
    pub(crate) cpu_free: u64,
    pub(crate) plan: u32,
    /// Bytes of regions and how they are used.
    pub(crate) regions: u64,
    pub(crate) pages_per_region: u64,
    pub(crate) random_access: bool,
}

/// What all processes of one workload share.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) pattern: Vec<PatternEntry>,
    pub(crate) post_list: u32,
    pub(crate) depth: u32,
    pub(crate) completion_every: u32,
    pub(crate) receive_batch: u32,
    pub(crate) retry_after: u64,
    pub(crate) queue_pairs: u64,
    pub(crate) max_read_atomic: u32,
    pub(crate) inline_bytes: u64,
    pub(crate) arrival: Arrival,
    /// Weight of each queue pair within its tenant.
    pub(crate) weight: u32,
    pub(crate) iterations: u64,
}

impl Plan {
    /// What message `number` is, the request vector being sent again and again.
    #[inline]
    pub(crate) fn entry(&self, number: u64) -> &PatternEntry {
        match &self.pattern[..] {
            [only] => only,
            several => &several[number as usize % several.len()],
        }
    }
}

/// Whether `number` is a multiple of `every`; most workloads have a one there, which needs no division.
#[inline]
pub(crate) fn is_multiple(number: u64, every: u32) -> bool {
    every == 1 || number.is_multiple_of(u64::from(every))
}
