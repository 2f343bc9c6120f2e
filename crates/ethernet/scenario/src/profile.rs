//! The profile of an ordinary network card and its host: what the simulator's mechanisms are made of.
//!
//! As with device profiles (`isolane_rdma_scenario::profile`), a number has a value, a kind and a source, none may be missing, and
//! none is a result. [`NIC_PARAMETERS`] is the list; `docs/internals/nic-model.md` explains the mechanisms.

use isolane_common_toml_input::keys::{Key, Kind, required};
use isolane_common_toml_input::sourced::{Parameter, Sections};
use isolane_common_toml_input::sourced_profile;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A card and its host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NicProfile {
    /// Short name.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// Parameters by section and name.
    pub sections: Sections,
}

const fn parameter(
    section: &'static str,
    name: &'static str,
    min: f64,
    max: f64,
    about: &'static str,
) -> Parameter {
    isolane_common_toml_input::sourced::parameter(section, name, (min, max), about)
}

/// Every parameter, from the wire upwards.
#[rustfmt::skip]
pub const NIC_PARAMETERS: &[Parameter] = &[
    parameter("link", "framing_bytes", 0.0, 100.0, "bytes of time on the wire beside a frame: preamble, check sequence, gap"),
    parameter("link", "ethernet_bytes", 14.0, 22.0, "Ethernet header of a frame"),
    parameter("link", "delay_ns", 0.0, 1e6, "from the card to the switch and back: cable, both ends, DMA"),
    parameter("switch", "delay_ns", 0.0, 1e6, "what a switch adds"),
    parameter("switch", "buffer_bytes", 1e4, 1e9, "shared by all ports of a switch"),
    parameter("switch", "alpha", 0.01, 100.0, "a port may hold this times what is free"),
    parameter("switch", "ecn_bytes", 0.0, 1e9, "depth from which packets that can be are marked"),
    parameter("switch", "trunk_gbps", 0.1, 1600.0, "between two switches, each way"),
    parameter("card", "ring_descriptors", 64.0, 65536.0, "of a transmit ring"),
    parameter("card", "descriptor_bytes", 64.0, 65536.0, "data of one descriptor"),
    parameter("card", "receive_descriptors", 64.0, 65536.0, "of a receive ring"),
    parameter("card", "receive_queues_weighted", 1.0, 64.0, "receive queues while queue weights are on"),
    parameter("card", "credit_bytes", 1.0, 65536.0, "credit of one unit of queue weight in a round"),
    parameter("card", "flow_credit_bytes", 1.0, 65536.0, "credit of one flow of a queue in a round, with Titan's driver"),
    parameter("card", "buffer_bytes", 0.0, 1e8, "packets that the card holds for the wire, above which it fetches none"),
    parameter("card", "fetch_percent", 1.0, 1e5, "rate at which the card fetches packets, of the line rate"),
    parameter("card", "write_back_descriptors", 1.0, 127.0, "finished descriptors that the card writes back together"),
    parameter("card", "weight_write_ns", 0.0, 1e7, "until a written weight is in force"),
    parameter("card", "interrupts_bulk_per_s", 100.0, 1e7, "adaptive moderation: of a busy vector"),
    parameter("card", "interrupts_low_per_s", 100.0, 1e7, "adaptive moderation: of a vector with some traffic"),
    parameter("card", "interrupts_lowest_per_s", 100.0, 1e7, "adaptive moderation: of a quiet vector"),
    parameter("card", "adaptive_low_bytes_per_us", 0.0, 1e6, "below: quiet"),
    parameter("card", "adaptive_bulk_bytes_per_us", 0.0, 1e6, "above: busy"),
    parameter("kernel", "poll_budget", 1.0, 4096.0, "packets received by one poll"),
    parameter("kernel", "dequeue_quota", 1.0, 4096.0, "segments that one run of a software queue moves"),
    parameter("kernel", "fifo_segments", 1.0, 1e6, "length of the first-in first-out queue"),
    parameter("kernel", "sfq_segments", 1.0, 1e6, "limit of all flows of stochastic fair queueing"),
    parameter("kernel", "gro_flows", 1.0, 4096.0, "flows that one receive poll merges at a time"),
    parameter("tcp", "initial_window", 1.0, 1000.0, "packets"),
    parameter("tcp", "timeout_min_ms", 0.1, 1e5, "least retransmission timeout"),
    parameter("tcp", "delayed_ack_ms", 0.0, 1e4, "longest wait of an acknowledgement"),
    parameter("tcp", "receive_window_bytes", 1e4, 1e9, "largest offered window"),
    parameter("tcp", "small_queue_bytes", 1e3, 1e9, "TCP Small Queues: most bytes of a flow below TCP"),
    parameter("tcp", "segment_overhead_bytes", 0.0, 65536.0, "memory of a segment beside its data"),
    parameter("tcp", "pacing_start_percent", 100.0, 1000.0, "of the window each round trip, in slow start"),
    parameter("tcp", "pacing_percent", 100.0, 1000.0, "later"),
    parameter("tcp", "segment_packets_min", 1.0, 44.0, "fewest packets of a full segment"),
    parameter("tcp", "write_bytes", 1.0, 1e8, "of one write of the application"),
    parameter("sleep", "c1_exit_ns", 0.0, 1e7, "waking from the lightest sleep state of a processor; 0 in all states: none sleeps"),
    parameter("sleep", "c1_residency_us", 0.0, 1e6, "least sleep that is worth the state, as the kernel predicts it"),
    parameter("sleep", "c1e_exit_ns", 0.0, 1e7, "the next state"),
    parameter("sleep", "c1e_residency_us", 0.0, 1e6, "of that state"),
    parameter("sleep", "c3_exit_ns", 0.0, 1e7, "the next state"),
    parameter("sleep", "c3_residency_us", 0.0, 1e6, "of that state"),
    parameter("sleep", "c6_exit_ns", 0.0, 1e7, "the deepest state"),
    parameter("sleep", "c6_residency_us", 0.0, 1e6, "of that state"),
    parameter("sleep", "timer_us", 0.0, 1e7, "time to an idle processor's next timer"),
    parameter("cost", "interrupt_ns", 0.0, 1e6, "entry, exit, scheduling of the poll"),
    parameter("cost", "poll_ns", 0.0, 1e6, "one poll of a vector"),
    parameter("cost", "completion_ns", 0.0, 1e6, "one segment that was sent: unmapped, freed"),
    parameter("cost", "segment_ns", 0.0, 1e6, "one segment through TCP, IP and the driver"),
    parameter("cost", "descriptor_ns", 0.0, 1e6, "each descriptor: mapped, written"),
    parameter("cost", "queue_ns", 0.0, 1e6, "one segment in and out of a software queue"),
    parameter("cost", "lock_ns", 0.0, 1e6, "a queue that another processor had: its lock and its lines come over"),
    parameter("cost", "contention_ns", 0.0, 1e6, "a queue whose owner is still at it: waiting for the lock"),
    parameter("cost", "wake_ns", 0.0, 1e6, "a flow's turn after completions"),
    parameter("cost", "ack_ns", 0.0, 1e6, "one acknowledgement received"),
    parameter("cost", "send_ack_ns", 0.0, 1e6, "one acknowledgement made"),
    parameter("cost", "receive_packet_ns", 0.0, 1e6, "one packet through the receive ring and merging"),
    parameter("cost", "receive_segment_ns", 0.0, 1e6, "one merged segment through TCP"),
    parameter("cost", "write_ns", 0.0, 1e6, "one write: system call, wake-up"),
    parameter("cost", "copy_ps_per_byte", 0.0, 1e5, "copying from the application"),
    parameter("cost", "software_packet_ns", 0.0, 1e6, "one packet cut off a segment by software"),
    parameter("cost", "weight_ns", 0.0, 1e6, "one write of a queue's weight: an uncached store"),
    parameter("cost", "assign_ns", 0.0, 1e6, "one choice of a queue by its weight"),
    parameter("cost", "sibling_percent", 100.0, 400.0, "time of a step while the other thread of the core is busy, of the time otherwise"),
    parameter("cost", "ping_ns", 0.0, 1e9, "both ends' processes in a round trip"),
];

const KEYS: &[Key] = &[
    required("name", Kind::Text, "short name"),
    required("title", Kind::Text, "one line for people"),
    required("link", Kind::Table, "section"),
    required("switch", Kind::Table, "section"),
    required("card", Kind::Table, "section"),
    required("kernel", Kind::Table, "section"),
    required("tcp", Kind::Table, "section"),
    required("sleep", Kind::Table, "section"),
    required("cost", Kind::Table, "section"),
];

const SECTIONS: [&str; 7] = ["link", "switch", "card", "kernel", "tcp", "sleep", "cost"];

const EMBEDDED: &[(&str, &str)] = &[(
    "cards/82599-10g.toml",
    include_str!("../../../../cards/82599-10g.toml"),
)];

sourced_profile!(NicProfile, KEYS, SECTIONS, NIC_PARAMETERS, EMBEDDED);

impl NicProfile {
    /// The card of the study: Intel 82599.
    pub fn of_paper() -> Self {
        Self::named("82599-10g").expect("it is compiled in")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embedded_profiles_are_valid_and_found_by_name() {
        let profile = NicProfile::of_paper();
        assert_eq!(profile.value("link", "framing_bytes"), 24.0);
        assert_eq!(NicProfile::named("no-such"), None);
    }

    #[test]
    fn a_parameter_out_of_range_is_named_with_its_range() {
        let text = EMBEDDED[0].1.replace(
            "framing_bytes = { value = 24",
            "framing_bytes = { value = 2400",
        );
        let error = NicProfile::parse(&text, "card.toml").expect_err("out of range");
        let message = error.to_string();
        assert!(
            message.contains("2400") && message.contains("0 to 100"),
            "{message}"
        );
    }
}
