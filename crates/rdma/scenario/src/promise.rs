//! `[tenant.guarantee]` and `[tenant.slo]`: what a tenant has been promised, and what it needs.

pub(crate) mod sums;

use crate::model::{Guarantee, Slo};
use crate::spec::{GUARANTEE, SLO};
use isolane_common_toml_input::error::InputError;
use isolane_common_toml_input::table::Table;

/// Reads a tenant's `guarantee`.
pub(crate) fn guarantee(tenant: &Table<'_>) -> Result<Guarantee, InputError> {
    let Some(table) = tenant.table("guarantee", GUARANTEE)? else {
        return Ok(Guarantee::default());
    };
    let priority = table.count32("priority")?.unwrap_or(0);
    Ok(Guarantee {
        queue_pairs: table.count("queue_pairs")?,
        work_requests: table.count("work_requests")?,
        memory_regions: table.count("memory_regions")?,
        completion_queues: table.count("completion_queues")?,
        completion_entries: table.count("completion_entries")?,
        region_bytes: table.size("region_total")?,
        rate: table.rate("rate")?,
        data_requests_per_s: table.count("data_requests_per_s")?,
        control_requests_per_s: table.count("control_requests_per_s")?,
        priority: u8::try_from(priority).expect("the key's range fits 8 bits"),
    })
}

/// Reads a tenant's `slo`.
pub(crate) fn slo(tenant: &Table<'_>) -> Result<Slo, InputError> {
    let Some(table) = tenant.table("slo", SLO)? else {
        return Ok(Slo::default());
    };
    Ok(Slo {
        goodput_min: table.rate("goodput_min")?,
        messages_per_s_min: table.count("messages_per_s_min")?,
        p50_max: table.duration("p50_max")?,
        p99_max: table.duration("p99_max")?,
    })
}
