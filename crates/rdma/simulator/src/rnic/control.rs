//! Control verbs: loops that create and destroy objects through kernel, command queue and firmware (stage 10).
//!
//! One command takes its kernel and firmware time, plus a time per 4 KiB page for memory regions; the command queue
//! runs `commands_in_parallel` of them at once for the whole NIC. Registration inserts the new region's entries into
//! the translation caches. Deregistration has priority in the NIC: it invalidates the translation and protection caches
//! and blocks translation for `deregistration_stall_us` (husky 4.3.2, table 4.1).
//!
//! A run is much shorter than one real loop over thousands of objects, so threads start spread evenly over the
//! loop: at any moment the same share of threads creates and destroys as in a long run.

mod run;

use super::sizes::PAGE;
use isolane_rdma_scenario::model::{ControlObject, ControlPhase, ControlTraffic};

#[derive(Clone, Debug)]
pub(crate) struct ControlLoop {
    pub(crate) tenant: u16,
    pub(crate) host: u8,
    pub(crate) object: ControlObject,
    pub(crate) phase: ControlPhase,
    pub(crate) objects: u64,
    pub(crate) pages: u64,
    /// Objects made (rising) or left to destroy (falling).
    pub(crate) alive: u64,
    pub(crate) creating: bool,
    /// Region keys of this loop start here.
    pub(crate) region_base: u64,
}

impl ControlLoop {
    /// Thread `number` of a workload's loop, at its place in the cycle.
    pub(crate) fn new(
        traffic: &ControlTraffic,
        tenant: u16,
        host: u8,
        number: u32,
        region_base: u64,
    ) -> Self {
        let objects = u64::from(traffic.objects);
        // Positions 0..objects create, objects..2*objects destroy.
        let position = match traffic.phase {
            ControlPhase::Cycle => {
                u64::from(number % traffic.threads) * 2 * objects / u64::from(traffic.threads)
            }
            ControlPhase::Create => 0,
            ControlPhase::Destroy => objects,
        };
        let creating = position < objects;
        Self {
            tenant,
            host,
            object: traffic.object,
            phase: traffic.phase,
            objects,
            pages: traffic.region_bytes.get().div_ceil(PAGE),
            alive: if creating {
                position
            } else {
                2 * objects - position
            },
            creating,
            region_base,
        }
    }
}
