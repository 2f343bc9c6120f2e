//! A profile turned into the integers the model works with.
//!
//! Profiles are in readable units (nanoseconds, gigabits); the model adds integers. Conversion rounds to the
//! nearest picosecond once, here, so that no floating-point sum can differ between machines.

use super::byte_time::ByteTime;
use super::micro::Micro;
use isolane_common_quantities::rng::Stream;
use isolane_common_quantities::units::{BitRate, Duration};
use isolane_rdma_scenario::model::{Transport, Verb};
use isolane_rdma_scenario::profile::{LinkLayer, Profile};

/// The device and its host, in picoseconds and bytes. Names follow the profile's parameters.
#[derive(Clone, Debug)]
pub(crate) struct Device {
    /// Wire time per byte.
    pub link: ByteTime,
    /// Wire rate.
    pub link_rate: BitRate,
    /// One-way delay, ps.
    pub propagation: u64,
    /// One-way delay of the switch, ps.
    pub switch: u64,
    /// Switch buffer before it pauses the sender, bytes.
    pub switch_buffer: u64,
    /// Switch queue beyond which packets are marked, bytes; 0 is off.
    pub switch_ecn: u64,
    /// Per-packet overhead, bytes.
    pub frame: u64,
    /// RETH, bytes.
    pub extended_header: u64,
    /// Acknowledgement, bytes.
    pub ack: u64,
    /// PCIe time per byte, each direction.
    pub pcie: ByteTime,
    /// PCIe rate, each direction.
    pub pcie_rate: BitRate,
    /// TLP payload, bytes.
    pub tlp_payload: u64,
    /// The power of two that the TLP payload is, if it is one.
    pub tlp_payload_bits: Option<u32>,
    /// TLP overhead, bytes.
    pub tlp: u64,
    /// DMA read latency, ps.
    pub pcie_read: u64,
    /// Its spread, ps.
    pub pcie_jitter: u64,
    /// DMA write latency, ps.
    pub pcie_write: u64,
    /// Doorbell latency, ps.
    pub mmio: u64,
    /// Doorbell, bytes.
    pub doorbell: u64,
    /// More read or write latency for the other socket's memory, ps.
    pub remote_socket: u64,
    /// More read or write latency for GPU memory, ps.
    pub gpu: u64,
    /// RC and UC work request, bytes.
    pub wqe: u64,
    /// UD work request, bytes.
    pub wqe_ud: u64,
    /// Each further element, bytes.
    pub wqe_element: u64,
    /// Inline payload limit, bytes.
    pub inline_max: u64,
    /// Work requests per fetch.
    pub wqe_prefetch: u32,
    /// Send engines.
    pub engines: usize,
    /// Packets per turn.
    pub quantum_packets: u32,
    /// Prefetch window of a waiting pair, bytes.
    pub window: u64,
    /// How far reads run ahead of the wire, ps.
    pub pipeline: u64,
    /// Requester cost by verb (index [`verb_index`]), ps.
    pub request: [u64; 5],
    /// Responder cost by verb, ps.
    pub respond: [u64; 5],
    /// Cost of a further packet that leaves, ps.
    pub packet: u64,
    /// Cost of the first packet of an answer to a READ, ps.
    pub answer: u64,
    /// Cost of a further packet that arrives, ps.
    pub packet_in: u64,
    /// Requester cost of an acknowledgement, ps.
    pub ack_cost: u64,
    /// Context cache entries.
    pub contexts: usize,
    /// Context misses in flight.
    pub context_slots: usize,
    /// Translation cache entries.
    pub translations: usize,
    /// Protection cache entries.
    pub protections: usize,
    /// Translation misses in flight.
    pub translation_slots: usize,
    /// Receive work request cache entries.
    pub receive_wqes: usize,
    /// Receive work requests per fetch.
    pub receive_wqe_prefetch: u32,
    /// One miss, ps.
    pub miss: u64,
    /// Pause threshold, bytes.
    pub pause_at: u64,
    /// Resume threshold, bytes.
    pub resume_at: u64,
    /// RC receiver-not-ready stall, ps.
    pub rnr_stall: u64,
    /// UC/UD drop stall, ps.
    pub drop_stall: u64,
    /// Region registration, ps.
    pub registration: u64,
    /// Per page of it, ps.
    pub registration_page: u64,
    /// Region deregistration, ps.
    pub deregistration: u64,
    /// Translation blocked by it, ps.
    pub deregistration_stall: u64,
    /// Queue pair creation, ps.
    pub queue_pair: u64,
    /// Control verbs at once.
    pub commands: u32,
    /// DCQCN on.
    pub congestion: bool,
    /// DCQCN g as a shift.
    pub alpha_shift: u32,
    /// DCQCN increase timer, ps.
    pub increase: u64,
    /// DCQCN alpha timer, ps.
    pub alpha: u64,
    /// DCQCN byte counter, bytes.
    pub byte_counter: u64,
    /// DCQCN ticks of fast recovery.
    pub fast_steps: u32,
    /// DCQCN additive step.
    pub additive: BitRate,
    /// DCQCN hyper step.
    pub hyper: BitRate,
    /// DCQCN least rate.
    pub rate_min: BitRate,
    /// Least time between notifications, ps.
    pub notification: u64,
    /// CPU: build one work request, ps.
    pub post: u64,
    /// CPU: ring a doorbell, ps.
    pub ring: u64,
    /// CPU: take one completion, ps.
    pub poll: u64,
    /// CPU reaction spread, ps.
    pub host_jitter: u64,
    /// Hardware priority queues.
    pub priority_queues: usize,
    /// Reconfiguration of queues or limiters, ps.
    pub reconfigure: u64,
    /// Mechanisms that only some devices show.
    pub micro: Micro,
}

/// Index of a verb in cost tables.
#[inline]
pub(super) const fn verb_index(verb: Verb) -> usize {
    match verb {
        Verb::Write => 0,
        Verb::Send => 1,
        Verb::Read => 2,
        Verb::FetchAdd => 3,
        Verb::CompareSwap => 4,
    }
}

impl Device {
    /// The device a profile describes.
    pub(crate) fn of(profile: &Profile) -> Self {
        let value = |section: &str, name: &str| profile.value(section, name);
        let ns = |section: &str, name: &str| Duration::from_ns_f64(value(section, name)).as_ps();
        let us =
            |section: &str, name: &str| Duration::from_ns_f64(value(section, name) * 1e3).as_ps();
        let count = |section: &str, name: &str| value(section, name).round() as u64;
        let mbps = |name: &str| BitRate::from_gbps_f64(value("congestion", name) / 1e3);
        let atomic = ns("processing", "atomic_ns");
        let packet = ns("processing", "packet_ns");
        // One processor does all of a device in software: what it does where a packet arrives, or for the first packet of an
        // answer, is in the time of the packet that left, or of the request.
        let beside = |time: u64| match profile.micro("copy_gbps") > 0.0 {
            true => 0,
            false => time,
        };
        Self {
            link: ByteTime::at_gbps(value("link", "rate_gbps")),
            link_rate: BitRate::from_gbps_f64(value("link", "rate_gbps")),
            propagation: ns("link", "propagation_ns"),
            switch: ns("link", "switch_ns"),
            switch_buffer: count("link", "switch_buffer_bytes"),
            switch_ecn: count("link", "switch_ecn_bytes"),
            frame: count("link", "frame_bytes"),
            extended_header: count("link", "extended_header_bytes"),
            ack: count("link", "ack_bytes"),
            pcie: ByteTime::at_gbps(profile.pcie_transaction_gbps()),
            pcie_rate: BitRate::from_gbps_f64(profile.pcie_transaction_gbps()),
            tlp_payload: count("pcie", "payload_max_bytes"),
            tlp_payload_bits: power_of_two(count("pcie", "payload_max_bytes")),
            tlp: count("pcie", "tlp_bytes"),
            pcie_read: ns("pcie", "read_ns"),
            pcie_jitter: ns("pcie", "jitter_ns"),
            pcie_write: ns("pcie", "write_ns"),
            mmio: ns("pcie", "mmio_ns"),
            doorbell: count("pcie", "doorbell_bytes"),
            remote_socket: ns("pcie", "remote_socket_ns"),
            gpu: ns("pcie", "gpu_ns"),
            wqe: count("wqe", "bytes"),
            wqe_ud: count("wqe", "ud_bytes"),
            wqe_element: count("wqe", "element_bytes"),
            inline_max: count("wqe", "inline_max_bytes"),
            wqe_prefetch: count("wqe", "prefetch") as u32,
            engines: count("scheduler", "engines") as usize,
            quantum_packets: count("scheduler", "quantum_packets") as u32,
            window: count("scheduler", "window_bytes"),
            pipeline: ns("scheduler", "pipeline_ns"),
            request: [
                ns("processing", "write_ns"),
                ns("processing", "send_ns"),
                ns("processing", "read_ns"),
                atomic,
                atomic,
            ],
            respond: [
                ns("processing", "respond_write_ns"),
                ns("processing", "respond_send_ns"),
                ns("processing", "respond_read_ns"),
                ns("processing", "respond_fetch_add_ns"),
                ns("processing", "respond_compare_swap_ns"),
            ],
            packet,
            answer: beside(packet),
            packet_in: beside(packet),
            ack_cost: ns("processing", "ack_ns"),
            contexts: count("cache", "context_entries") as usize,
            context_slots: count("cache", "context_miss_slots") as usize,
            translations: count("cache", "translation_entries") as usize,
            protections: count("cache", "protection_entries") as usize,
            translation_slots: count("cache", "translation_miss_slots") as usize,
            receive_wqes: count("cache", "receive_wqe_entries") as usize,
            receive_wqe_prefetch: count("cache", "receive_wqe_prefetch") as u32,
            miss: ns("cache", "miss_ns"),
            pause_at: count("receive", "pause_bytes"),
            resume_at: count("receive", "resume_bytes"),
            rnr_stall: us("errors", "rnr_stall_us"),
            drop_stall: us("errors", "unreliable_drop_us"),
            registration: us("control", "registration_us"),
            registration_page: ns("control", "page_ns"),
            deregistration: us("control", "deregistration_us"),
            deregistration_stall: us("control", "deregistration_stall_us"),
            queue_pair: us("control", "queue_pair_us"),
            commands: count("control", "commands_in_parallel") as u32,
            congestion: value("congestion", "enabled") >= 0.5
                && profile.link_layer == LinkLayer::Roce,
            alpha_shift: count("congestion", "alpha_shift") as u32,
            increase: us("congestion", "increase_us"),
            alpha: us("congestion", "alpha_us"),
            byte_counter: count("congestion", "byte_counter_bytes"),
            fast_steps: count("congestion", "fast_steps") as u32,
            additive: mbps("additive_mbps"),
            hyper: mbps("hyper_mbps"),
            rate_min: mbps("minimum_mbps"),
            notification: us("congestion", "notification_us"),
            post: ns("host", "post_ns"),
            ring: ns("host", "doorbell_ns"),
            poll: ns("host", "poll_ns"),
            host_jitter: ns("host", "jitter_ns"),
            priority_queues: count("host", "priority_queues") as usize,
            reconfigure: us("host", "reconfigure_us"),
            micro: Micro::of(profile),
        }
    }

    /// Puts a PCIe switch in front of the NIC that adds `latency`, ps, to every transaction.
    pub(crate) const fn behind_switch(&mut self, latency: u64) {
        self.pcie_read += latency;
        self.pcie_write += latency;
        self.mmio += latency;
        self.miss += latency;
        // As many reads on their way as fill the longer path: a bandwidth of 23.0 Gb/s falls by 0.2 (harmonic table 5.2).
        self.pipeline += latency;
    }

    /// Bytes of one work request of `elements` scatter-gather elements.
    #[inline]
    pub(crate) const fn wqe_bytes(&self, transport: Transport, elements: u64) -> u64 {
        let base = match transport {
            Transport::Rc | Transport::Uc => self.wqe,
            Transport::Ud => self.wqe_ud,
        };
        base + self.wqe_element * elements.saturating_sub(1)
    }

    /// Latency of one DMA read, with its spread, ps.
    #[inline]
    pub(crate) fn read_latency(&self, jitter: &mut Stream) -> u64 {
        match self.pcie_jitter {
            0 => self.pcie_read,
            spread => self.pcie_read + jitter.below(spread + 1),
        }
    }

    /// PCIe bytes that move `payload` bytes, TLP headers included; an empty transfer needs none.
    #[inline]
    pub(crate) const fn pcie_bytes(&self, payload: u64) -> u64 {
        // A division takes longer than the rest of a transfer.
        let packets = match self.tlp_payload_bits {
            Some(bits) => (payload + self.tlp_payload - 1) >> bits,
            None => payload.div_ceil(self.tlp_payload),
        };
        payload + self.tlp * packets
    }
}

/// The power of two that `number` is, if it is one.
const fn power_of_two(number: u64) -> Option<u32> {
    if number.is_power_of_two() {
        Some(number.trailing_zeros())
    } else {
        None
    }
}
