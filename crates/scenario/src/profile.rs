//! A device profile: what one RDMA NIC and its host are made of, every number with its source.
//!
//! A profile holds parameters of mechanisms (engines, caches, buses, buffers), never results. `kind` says how
//! far a number can be trusted: read off a publication, fixed by a standard, worked out from published numbers,
//! or fitted to claims marked `calibration`. `docs/internals/rnic.md` explains each mechanism.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A number and how we know it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sourced {
    /// The value, in the unit that ends the parameter's name.
    pub value: f64,
    /// How it is known.
    pub kind: SourceKind,
    /// Paper and section, standard, or the derivation in one line.
    pub source: String,
}

/// How a number is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SourceKind {
    /// Printed in a paper or data sheet.
    Published,
    /// Fixed by a standard.
    Standard,
    /// Worked out from published numbers; `source` gives the arithmetic.
    Derived,
    /// Fitted to claims marked `calibration`.
    Calibrated,
}

/// What a link carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LinkLayer {
    /// RoCEv2 over Ethernet.
    Roce,
    /// InfiniBand.
    Infiniband,
    /// iWARP (RDMA over TCP).
    Iwarp,
}

/// The device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Short name, as `--profile` takes it.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// Which papers measured this device.
    pub papers: Vec<String>,
    /// What the link carries.
    pub link_layer: LinkLayer,
    /// Whether the device has RDMA atomics.
    pub atomics: bool,
    /// Virtual functions the device can make; 0 for none.
    pub virtual_functions: u32,
    /// Hardware traffic classes (lossless queues).
    pub traffic_classes: u32,
    /// Parameters by section and name; [`PARAMETERS`] lists them all, none may be missing.
    pub link: BTreeMap<String, Sourced>,
    /// PCIe and host memory.
    pub pcie: BTreeMap<String, Sourced>,
    /// Work queue elements.
    pub wqe: BTreeMap<String, Sourced>,
    /// The transmit scheduler.
    pub scheduler: BTreeMap<String, Sourced>,
    /// Processing units.
    pub processing: BTreeMap<String, Sourced>,
    /// On-NIC caches.
    pub cache: BTreeMap<String, Sourced>,
    /// The receive side.
    pub receive: BTreeMap<String, Sourced>,
    /// Error handling.
    pub errors: BTreeMap<String, Sourced>,
    /// Control verbs.
    pub control: BTreeMap<String, Sourced>,
    /// Congestion control (DCQCN reaction and notification points).
    pub congestion: BTreeMap<String, Sourced>,
    /// Host software: CPU cost of posting and polling.
    pub host: BTreeMap<String, Sourced>,
    /// What Justitia needs to know of the device; made by `isolane calibrate`.
    pub justitia: BTreeMap<String, Sourced>,
    /// Smallest token that reaches a rate, ascending (justitia 5.2, figure 10); made by `isolane calibrate`.
    #[serde(default)]
    pub token_dictionary: Vec<TokenSize>,
}

/// One entry of the token dictionary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenSize {
    /// Up to this rate, Gb/s.
    pub rate_gbps: f64,
    /// the token of this size suffices, bytes.
    pub token_bytes: u64,
}

/// A parameter that every profile must give.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Section of the profile.
    pub section: &'static str,
    /// Name; its unit ends it.
    pub name: &'static str,
    /// Smallest sensible value.
    pub min: f64,
    /// Largest sensible value.
    pub max: f64,
    /// What it is.
    pub about: &'static str,
}

const fn parameter(
    section: &'static str,
    name: &'static str,
    range: (f64, f64),
    about: &'static str,
) -> Parameter {
    Parameter {
        section,
        name,
        min: range.0,
        max: range.1,
        about,
    }
}

/// Every parameter, in the order of a work request's path.
pub const PARAMETERS: &[Parameter] = &[
    parameter(
        "link",
        "rate_gbps",
        (0.1, 1600.0),
        "rate at which frames leave, headers and gaps included",
    ),
    parameter(
        "link",
        "propagation_ns",
        (0.0, 1e6),
        "one-way delay of the cable, both PHYs and MACs",
    ),
    parameter(
        "link",
        "switch_ns",
        (0.0, 1e6),
        "one-way delay a switch adds",
    ),
    parameter(
        "link",
        "switch_buffer_bytes",
        (0.0, 1e9),
        "what the switch port holds when its receiver pauses it",
    ),
    parameter(
        "link",
        "switch_ecn_bytes",
        (0.0, 1e9),
        "switch queue beyond which packets are ECN-marked; 0 is off",
    ),
    parameter(
        "link",
        "frame_bytes",
        (20.0, 200.0),
        "per-packet overhead without the extended transport header",
    ),
    parameter(
        "link",
        "extended_header_bytes",
        (0.0, 64.0),
        "RDMA extended transport header (RETH)",
    ),
    parameter(
        "link",
        "ack_bytes",
        (20.0, 200.0),
        "an acknowledgement on the wire",
    ),
    parameter(
        "link",
        "mtu_max_bytes",
        (256.0, 16384.0),
        "largest path MTU",
    ),
    parameter(
        "link",
        "mtu_default_bytes",
        (256.0, 16384.0),
        "path MTU unless asked otherwise",
    ),
    parameter(
        "pcie",
        "rate_gbps",
        (1.0, 2000.0),
        "one direction, after line coding",
    ),
    parameter(
        "pcie",
        "payload_max_bytes",
        (64.0, 4096.0),
        "payload of one TLP",
    ),
    parameter(
        "pcie",
        "tlp_bytes",
        (8.0, 64.0),
        "header and framing of one TLP",
    ),
    parameter(
        "pcie",
        "read_ns",
        (50.0, 1e5),
        "read request to first byte, local memory",
    ),
    parameter(
        "pcie",
        "jitter_ns",
        (0.0, 1e5),
        "spread of that latency (uniform, added)",
    ),
    parameter(
        "pcie",
        "write_ns",
        (0.0, 1e5),
        "posted write until visible to the CPU",
    ),
    parameter(
        "pcie",
        "mmio_ns",
        (0.0, 1e5),
        "CPU store until the NIC sees the doorbell",
    ),
    parameter("pcie", "doorbell_bytes", (8.0, 512.0), "one doorbell write"),
    parameter(
        "pcie",
        "remote_socket_ns",
        (0.0, 1e5),
        "more latency for memory of the other socket",
    ),
    parameter("pcie", "gpu_ns", (0.0, 1e5), "more latency for GPU memory"),
    parameter(
        "wqe",
        "bytes",
        (16.0, 256.0),
        "RC and UC work request without extra elements",
    ),
    parameter("wqe", "ud_bytes", (16.0, 256.0), "UD work request"),
    parameter(
        "wqe",
        "element_bytes",
        (8.0, 64.0),
        "each further scatter-gather element",
    ),
    parameter(
        "wqe",
        "inline_max_bytes",
        (0.0, 1024.0),
        "payload that rides in the work request",
    ),
    parameter(
        "wqe",
        "prefetch",
        (1.0, 4096.0),
        "work requests fetched per read and queue pair",
    ),
    parameter("scheduler", "engines", (1.0, 64.0), "send engines"),
    parameter(
        "scheduler",
        "quantum_packets",
        (1.0, 1e6),
        "packets of one turn",
    ),
    parameter(
        "scheduler",
        "window_bytes",
        (0.0, 1e9),
        "payload prefetched for a waiting pair, added to its turn",
    ),
    parameter(
        "scheduler",
        "pipeline_ns",
        (0.0, 1e6),
        "how far payload reads run ahead of the wire",
    ),
    parameter("processing", "write_ns", (0.1, 1e6), "requester: one WRITE"),
    parameter("processing", "send_ns", (0.1, 1e6), "requester: one SEND"),
    parameter("processing", "read_ns", (0.1, 1e6), "requester: one READ"),
    parameter(
        "processing",
        "atomic_ns",
        (0.1, 1e6),
        "requester: one atomic",
    ),
    parameter(
        "processing",
        "respond_write_ns",
        (0.1, 1e6),
        "responder: one WRITE",
    ),
    parameter(
        "processing",
        "respond_send_ns",
        (0.1, 1e6),
        "responder: one SEND",
    ),
    parameter(
        "processing",
        "respond_read_ns",
        (0.1, 1e6),
        "responder: one READ",
    ),
    parameter(
        "processing",
        "respond_fetch_add_ns",
        (0.1, 1e6),
        "responder: one FETCH_AND_ADD",
    ),
    parameter(
        "processing",
        "respond_compare_swap_ns",
        (0.1, 1e6),
        "responder: one CMP_AND_SWAP",
    ),
    parameter(
        "processing",
        "packet_ns",
        (0.0, 1e6),
        "each packet beyond the first, either direction",
    ),
    parameter(
        "processing",
        "ack_ns",
        (0.0, 1e6),
        "requester: one acknowledgement",
    ),
    parameter(
        "cache",
        "context_entries",
        (1.0, 1e9),
        "queue-pair and CQ contexts the ICM cache holds",
    ),
    parameter(
        "cache",
        "context_miss_slots",
        (1.0, 1e4),
        "context misses in flight",
    ),
    parameter(
        "cache",
        "translation_entries",
        (1.0, 1e9),
        "4 KiB translations (MTT) the cache holds",
    ),
    parameter(
        "cache",
        "protection_entries",
        (1.0, 1e9),
        "memory regions (MPT) the cache holds",
    ),
    parameter(
        "cache",
        "translation_miss_slots",
        (1.0, 1e4),
        "translation misses in flight",
    ),
    parameter(
        "cache",
        "receive_wqe_entries",
        (1.0, 1e9),
        "receive work requests the cache holds",
    ),
    parameter(
        "cache",
        "receive_wqe_prefetch",
        (1.0, 1024.0),
        "receive work requests fetched per read",
    ),
    parameter("cache", "miss_ns", (10.0, 1e6), "one miss"),
    parameter("receive", "buffer_bytes", (4096.0, 1e9), "receive buffer"),
    parameter(
        "receive",
        "pause_bytes",
        (1024.0, 1e9),
        "occupancy at which the NIC pauses its link partner",
    ),
    parameter(
        "receive",
        "resume_bytes",
        (0.0, 1e9),
        "occupancy at which it lets it go on",
    ),
    parameter(
        "errors",
        "rnr_stall_us",
        (0.0, 1e9),
        "receive units stalled by one receiver-not-ready on RC",
    ),
    parameter(
        "errors",
        "unreliable_drop_us",
        (0.0, 1e6),
        "receive units stalled by one UC/UD message without a receive",
    ),
    parameter(
        "control",
        "registration_us",
        (0.1, 1e6),
        "kernel and firmware time of one region registration",
    ),
    parameter(
        "control",
        "page_ns",
        (0.0, 1e6),
        "more per 4 KiB page registered or deregistered",
    ),
    parameter(
        "control",
        "deregistration_us",
        (0.1, 1e6),
        "the same for deregistration",
    ),
    parameter(
        "control",
        "deregistration_stall_us",
        (0.0, 1e5),
        "translation blocked by one deregistration",
    ),
    parameter(
        "control",
        "queue_pair_us",
        (0.1, 1e6),
        "creation and connection of one queue pair",
    ),
    parameter(
        "control",
        "commands_in_parallel",
        (1.0, 256.0),
        "control verbs the command queue runs at once",
    ),
    parameter(
        "congestion",
        "enabled",
        (0.0, 1.0),
        "1 when DCQCN limits each pair's rate",
    ),
    parameter(
        "congestion",
        "alpha_shift",
        (1.0, 16.0),
        "g of DCQCN is 2^-this",
    ),
    parameter(
        "congestion",
        "increase_us",
        (1.0, 1e5),
        "rate increase timer",
    ),
    parameter(
        "congestion",
        "alpha_us",
        (1.0, 1e5),
        "time without a notification after which alpha falls",
    ),
    parameter(
        "congestion",
        "byte_counter_bytes",
        (1024.0, 1e10),
        "bytes sent per tick of the byte counter",
    ),
    parameter(
        "congestion",
        "fast_steps",
        (1.0, 100.0),
        "ticks of fast recovery before the target rises",
    ),
    parameter(
        "congestion",
        "additive_mbps",
        (0.1, 1e5),
        "additive increase step",
    ),
    parameter(
        "congestion",
        "hyper_mbps",
        (0.1, 1e6),
        "hyper increase step",
    ),
    parameter(
        "congestion",
        "minimum_mbps",
        (0.1, 1e5),
        "smallest rate of a pair",
    ),
    parameter(
        "congestion",
        "notification_us",
        (1.0, 1e5),
        "least time between two notifications of one pair",
    ),
    parameter(
        "host",
        "post_ns",
        (1.0, 1e6),
        "CPU time to build one work request",
    ),
    parameter(
        "host",
        "doorbell_ns",
        (1.0, 1e6),
        "CPU time to ring a doorbell",
    ),
    parameter(
        "host",
        "poll_ns",
        (1.0, 1e6),
        "CPU time to take one completion",
    ),
    parameter(
        "host",
        "jitter_ns",
        (0.0, 1e6),
        "spread of the CPU's reaction (uniform, added)",
    ),
    parameter(
        "host",
        "priority_queues",
        (1.0, 16.0),
        "hardware priority queues usable at once",
    ),
    parameter(
        "host",
        "reconfigure_us",
        (0.0, 1e7),
        "time to change a hardware rate limiter or queue mapping",
    ),
    parameter(
        "justitia",
        "rate_max_gbps",
        (0.1, 1600.0),
        "application-level bandwidth of the idle device",
    ),
    parameter(
        "justitia",
        "message_rate_max_mps",
        (0.01, 1e4),
        "application-level messages per second of the idle device, millions",
    ),
    parameter(
        "justitia",
        "target_us",
        (0.1, 1e6),
        "latency target unless the scenario sets one",
    ),
];

impl Profile {
    /// The parameter `name` of `section`.
    ///
    /// # Panics
    /// When it is missing: a loaded profile has every member of [`PARAMETERS`], so asking for another name is
    /// our own mistake.
    pub fn value(&self, section: &str, name: &str) -> f64 {
        self.section(section)
            .and_then(|map| map.get(name))
            .unwrap_or_else(|| panic!("profile {} has no {section}.{name}", self.name))
            .value
    }

    /// The map behind a section's name, to change it.
    pub fn section_mut(&mut self, section: &str) -> Option<&mut BTreeMap<String, Sourced>> {
        Some(match section {
            "link" => &mut self.link,
            "pcie" => &mut self.pcie,
            "wqe" => &mut self.wqe,
            "scheduler" => &mut self.scheduler,
            "processing" => &mut self.processing,
            "cache" => &mut self.cache,
            "receive" => &mut self.receive,
            "errors" => &mut self.errors,
            "control" => &mut self.control,
            "congestion" => &mut self.congestion,
            "host" => &mut self.host,
            "justitia" => &mut self.justitia,
            _ => return None,
        })
    }

    /// The map behind a section's name.
    pub fn section(&self, section: &str) -> Option<&BTreeMap<String, Sourced>> {
        Some(match section {
            "link" => &self.link,
            "pcie" => &self.pcie,
            "wqe" => &self.wqe,
            "scheduler" => &self.scheduler,
            "processing" => &self.processing,
            "cache" => &self.cache,
            "receive" => &self.receive,
            "errors" => &self.errors,
            "control" => &self.control,
            "congestion" => &self.congestion,
            "host" => &self.host,
            "justitia" => &self.justitia,
            _ => return None,
        })
    }
}
