//! A machine with tiered memory and its kernel: what the simulator's mechanisms are made of.
//!
//! As with device profiles (`isolane_rdma_scenario::profile`), a number has a value, a kind and a source, none may be missing, and none
//! is a result. [`MACHINE_PARAMETERS`] is the list; `docs/internals/memory-model.md` explains the mechanisms.

use isolane_common_toml_input::keys::{Key, Kind, key, required};
use isolane_common_toml_input::sourced::{Parameter, Sections, parameter};
use isolane_common_toml_input::sourced_profile;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemMachine {
    /// Short name.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// Parameters by section and name.
    pub sections: Sections,
}

/// Every parameter; the tiers first, nearest first.
#[rustfmt::skip]
pub const MACHINE_PARAMETERS: &[Parameter] = &[
    parameter("local", "capacity_gb", (0.1, 1e6), "memory of the tier"),
    parameter("local", "latency_ns", (1.0, 1e5), "of a load that misses all caches while nothing else runs"),
    parameter("local", "bandwidth_gb_per_s", (0.1, 1e5), "of all channels together"),
    parameter("local", "channels", (1.0, 64.0), "that serve requests beside each other"),
    parameter("local", "variation", (0.0, 100.0), "squared coefficient of variation of a channel's service time"),
    parameter("local", "entries", (1.0, 1e6), "requests that the tier's queue holds"),
    parameter("far", "capacity_gb", (0.1, 1e6), "memory of the tier"),
    parameter("far", "latency_ns", (1.0, 1e5), "of a load that misses all caches while nothing else runs"),
    parameter("far", "bandwidth_gb_per_s", (0.1, 1e5), "of all channels together"),
    parameter("far", "channels", (1.0, 64.0), "that serve requests beside each other"),
    parameter("far", "variation", (0.0, 100.0), "squared coefficient of variation of a channel's service time"),
    parameter("far", "entries", (1.0, 1e6), "requests that the tier's queue holds"),
    parameter("farther", "capacity_gb", (0.1, 1e6), "memory of the tier"),
    parameter("farther", "latency_ns", (1.0, 1e5), "of a load that misses all caches while nothing else runs"),
    parameter("farther", "bandwidth_gb_per_s", (0.1, 1e5), "of all channels together"),
    parameter("farther", "channels", (1.0, 64.0), "that serve requests beside each other"),
    parameter("farther", "variation", (0.0, 100.0), "squared coefficient of variation of a channel's service time"),
    parameter("farther", "entries", (1.0, 1e6), "requests that the tier's queue holds"),
    parameter("cpu", "cores", (1.0, 4096.0), "of the socket whose memory this is"),
    parameter("cpu", "request_slots", (1.0, 1e6), "requests of all cores and to all tiers that may be on their way"),
    parameter("kernel", "page_bytes", (4096.0, 2097152.0), "of a page that is moved"),
    parameter("kernel", "scan_mb_per_s", (0.01, 1e5), "address space of one application that is marked for hint faults"),
    parameter("kernel", "promote_window_s", (0.001, 1000.0), "a marked page that is touched within is hot"),
    parameter("kernel", "hint_fault_us", (0.0, 1000.0), "of an application's time"),
    parameter("kernel", "migrate_page_us", (0.01, 1000.0), "to move one page: unmapping, copying, flushing"),
    parameter("kernel", "migrate_threads", (1.0, 64.0), "that move pages beside each other"),
    parameter("kernel", "free_percent", (0.0, 50.0), "of the near tier that reclaim keeps free for promotion"),
    parameter("kernel", "indicator_noise_percent", (0.0, 20.0), "standard deviation of a measured latency, of sampling"),
];

const KEYS: &[Key] = &[
    required("name", Kind::Text, "short name"),
    required("title", Kind::Text, "one line for people"),
    required("local", Kind::Table, "section"),
    required("far", Kind::Table, "section"),
    key("farther", Kind::Table, "section of a third tier"),
    required("cpu", Kind::Table, "section"),
    required("kernel", Kind::Table, "section"),
];

const SECTIONS: [&str; 5] = ["local", "far", "farther", "cpu", "kernel"];

/// Sections that are tiers, nearest first.
const TIERS: [&str; 3] = ["local", "far", "farther"];

#[rustfmt::skip]
const EMBEDDED: &[(&str, &str)] = &[
    ("machines/genoa-cxl.toml", include_str!("../../../../machines/genoa-cxl.toml")),
    ("machines/xeon-6330.toml", include_str!("../../../../machines/xeon-6330.toml")),
    ("machines/xeon-8362.toml", include_str!("../../../../machines/xeon-8362.toml")),
];

sourced_profile!(MemMachine, KEYS, SECTIONS, MACHINE_PARAMETERS, EMBEDDED);

impl MemMachine {
    /// The sections of its tiers, nearest first.
    pub fn tiers(&self) -> impl Iterator<Item = &'static str> + '_ {
        TIERS
            .into_iter()
            .filter(|tier| self.sections.contains_key(*tier))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embedded_machines_are_valid_and_found_by_name() {
        for machine in MemMachine::embedded() {
            assert_eq!(MemMachine::named(&machine.name), Some(machine.clone()));
            assert_eq!(machine.tiers().count(), 2);
            let latency = |tier| machine.value(tier, "latency_ns");
            assert!(latency("far") > latency("local"), "{}", machine.name);
        }
        assert_eq!(MemMachine::named("no-such"), None);
    }

    #[test]
    fn a_parameter_without_a_source_or_out_of_range_is_refused() {
        let (file, text) = EMBEDDED[0];
        let wrong = text.replace("cores = { value = ", "cores = { value = 9e9, was = ");
        assert!(MemMachine::parse(&wrong, file).is_err());
        let wrong = text.replace("cores = {", "coers = {");
        let message = MemMachine::parse(&wrong, file)
            .expect_err("unknown")
            .to_string();
        assert!(message.contains("coers") && message.contains("cores"));
    }
}
