//! What runs report. Simulators and real devices fill the same types.
//!
//! * [`rdma`] - runs of tenants on RDMA NICs;
//! * [`settling`] - how long several of them took to settle;
//! * [`network`] - runs of networks;
//! * [`memory`] - runs on tiered memory;
//! * [`ethernet`] - studies of Ethernet NICs.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]
#![forbid(unsafe_code)]

pub mod ethernet;
pub mod memory;
pub mod network;
pub mod rdma;
pub mod settling;

#[cfg(test)]
mod tests {
    use schemars::schema_for;

    #[test]
    fn the_schemas_name_the_units() {
        for (schema, words) in [
            (
                schema_for!(crate::rdma::RunResult),
                ["goodput_gbps", "latency_us"],
            ),
            (
                schema_for!(crate::network::FabricResult),
                ["rnl_per_mtu_us", "measured_s"],
            ),
            (
                schema_for!(crate::memory::MemResult),
                ["latency_ns", "bandwidth_gb_per_s"],
            ),
            (
                schema_for!(crate::ethernet::NicResult),
                ["cpu_percent", "measured_s"],
            ),
        ] {
            let text = schema.to_value().to_string();
            assert!(words.iter().all(|word| text.contains(word)), "{words:?}");
        }
    }
}
