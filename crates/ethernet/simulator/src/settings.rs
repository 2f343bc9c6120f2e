//! The numbers of a study and a profile in the units of the loop.
//!
//! Units: times as [`Duration`], sizes in bytes, rates as picoseconds for a byte, rounded down to whole picoseconds (10 Gb/s
//! and its simple multiples are exact).

use crate::moderation::Rates;
use crate::segment::Kind;
use crate::sleep::{Sleep, State};
use isolane_common_quantities::units::{BitRate, Duration};
use isolane_ethernet_scenario::config::NicConfig;
use isolane_ethernet_scenario::model::{NicStudy, TcpCongestion};
use isolane_ethernet_scenario::profile::NicProfile;

/// Headers of IP and of TCP with timestamps.
pub(crate) const HEADERS: u32 = 20 + 32;
/// Headers of IP and ICMP.
pub(crate) const PING_HEADERS: u32 = 20 + 8;

/// What the parts of the model need to know.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) config: NicConfig,
    pub(crate) congestion: TcpCongestion,
    pub(crate) processors: u16,
    pub(crate) queues: u16,
    /// Payload of a full packet.
    pub(crate) mss: u32,
    /// Bytes of a frame beside the payload.
    pub(crate) header: u32,
    pub(crate) ethernet: u32,
    pub(crate) framing: u32,
    pub(crate) ps_per_byte: u64,
    pub(crate) link_delay: Duration,
    pub(crate) switch_delay: Duration,
    pub(crate) switch_buffer: u64,
    pub(crate) switch_alpha: f64,
    pub(crate) switch_ecn: u64,
    pub(crate) trunk_ps_per_byte: u64,
    pub(crate) ring: u32,
    pub(crate) descriptor: u32,
    pub(crate) receive_ring: usize,
    pub(crate) receive_queues: u16,
    /// Credit of one unit of a queue's weight in a round of the card.
    pub(crate) credit: u32,
    /// Titan's driver: the weight of a queue is its number of flows, written whenever it changes.
    pub(crate) weights_at_once: bool,
    pub(crate) weight_write: Duration,
    /// Bytes in a card's packet buffer above which it fetches nothing.
    pub(crate) buffer_threshold: u32,
    /// Rate of fetching packets, as a part of the line rate.
    pub(crate) fetch_percent: u64,
    /// Finished descriptors of which a card tells the host at once.
    pub(crate) write_back: u32,
    pub(crate) moderation: Rates,
    pub(crate) poll_budget: usize,
    pub(crate) dequeue_quota: u32,
    pub(crate) fifo_segments: u32,
    pub(crate) sfq_segments: u32,
    pub(crate) gro_flows: usize,
    pub(crate) initial_window: u32,
    pub(crate) timeout_min: Duration,
    pub(crate) delayed_ack: Duration,
    pub(crate) receive_window: u64,
    pub(crate) small_queue: u64,
    pub(crate) overhead: u32,
    pub(crate) pacing_start: f64,
    pub(crate) pacing: f64,
    pub(crate) packets_min: u32,
    pub(crate) write: u64,
    pub(crate) sleep: Sleep,
    pub(crate) cost: Costs,
}

/// Processor time of each step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Costs {
    pub(crate) interrupt: Duration,
    pub(crate) poll: Duration,
    pub(crate) completion: Duration,
    pub(crate) segment: Duration,
    pub(crate) descriptor: Duration,
    pub(crate) queue: Duration,
    pub(crate) lock: Duration,
    pub(crate) contention: Duration,
    pub(crate) wake: Duration,
    pub(crate) ack: Duration,
    pub(crate) send_ack: Duration,
    pub(crate) receive_packet: Duration,
    pub(crate) receive_segment: Duration,
    pub(crate) write: Duration,
    pub(crate) copy_ps_per_byte: u64,
    pub(crate) software_packet: Duration,
    pub(crate) weight: Duration,
    pub(crate) assign: Duration,
    pub(crate) ping: Duration,
    pub(crate) sibling_percent: u64,
}

impl Costs {
    fn of(profile: &NicProfile) -> Self {
        let ns = |name| Duration::from_ns_f64(profile.value("cost", name));
        let integer = |name| profile.value("cost", name).round() as u64;
        Self {
            interrupt: ns("interrupt_ns"),
            poll: ns("poll_ns"),
            completion: ns("completion_ns"),
            segment: ns("segment_ns"),
            descriptor: ns("descriptor_ns"),
            queue: ns("queue_ns"),
            lock: ns("lock_ns"),
            contention: ns("contention_ns"),
            wake: ns("wake_ns"),
            ack: ns("ack_ns"),
            send_ack: ns("send_ack_ns"),
            receive_packet: ns("receive_packet_ns"),
            receive_segment: ns("receive_segment_ns"),
            write: ns("write_ns"),
            copy_ps_per_byte: integer("copy_ps_per_byte"),
            software_packet: ns("software_packet_ns"),
            weight: ns("weight_ns"),
            assign: ns("assign_ns"),
            ping: ns("ping_ns"),
            sibling_percent: integer("sibling_percent"),
        }
    }
}

impl Settings {
    pub(crate) fn new(study: &NicStudy, profile: &NicProfile) -> Self {
        let integer = |section, name| profile.value(section, name).round() as u64;
        let short = |section, name| integer(section, name) as u32;
        let ns = |section, name| Duration::from_ns_f64(profile.value(section, name));
        let ms = |section, name| Duration::from_ns_f64(profile.value(section, name) * 1e6);
        let every = |name| Duration::from_ns_f64(1e9 / profile.value("card", name));
        let config = study.config;
        let fixed = config
            .interrupts_per_s
            .map(|rate| Duration::from_ns_f64(1e9 / f64::from(rate)));
        let moderation = [
            "interrupts_lowest_per_s",
            "interrupts_low_per_s",
            "interrupts_bulk_per_s",
        ]
        .map(|name| fixed.unwrap_or_else(|| every(name)));
        let queues = study.card.queues;
        let weighted = short("card", "receive_queues_weighted") as u16;
        let weights_at_once = config.queue_weights && !config.latency_queue;
        let ethernet = short("link", "ethernet_bytes");
        Self {
            config,
            congestion: study.congestion,
            processors: study.card.processors,
            queues,
            mss: study.card.mtu.get() as u32 - HEADERS,
            header: HEADERS + ethernet,
            ethernet,
            framing: short("link", "framing_bytes"),
            ps_per_byte: ps_per_byte(study.card.rate),
            link_delay: ns("link", "delay_ns"),
            switch_delay: ns("switch", "delay_ns"),
            switch_buffer: integer("switch", "buffer_bytes"),
            switch_alpha: profile.value("switch", "alpha"),
            switch_ecn: integer("switch", "ecn_bytes"),
            trunk_ps_per_byte: ps_per_byte(BitRate::from_gbps_f64(
                profile.value("switch", "trunk_gbps"),
            )),
            ring: short("card", "ring_descriptors"),
            descriptor: short("card", "descriptor_bytes"),
            receive_ring: integer("card", "receive_descriptors") as usize,
            receive_queues: match config.queue_weights {
                true => queues.min(weighted),
                false => queues,
            },
            credit: match weights_at_once {
                true => short("card", "flow_credit_bytes"),
                false => short("card", "credit_bytes"),
            },
            weights_at_once,
            weight_write: ns("card", "weight_write_ns"),
            buffer_threshold: short("card", "buffer_bytes"),
            fetch_percent: integer("card", "fetch_percent"),
            write_back: short("card", "write_back_descriptors"),
            moderation: Rates {
                pauses: moderation,
                bounds: [
                    profile.value("card", "adaptive_low_bytes_per_us"),
                    profile.value("card", "adaptive_bulk_bytes_per_us"),
                ],
            },
            poll_budget: integer("kernel", "poll_budget") as usize,
            dequeue_quota: short("kernel", "dequeue_quota"),
            fifo_segments: short("kernel", "fifo_segments"),
            sfq_segments: short("kernel", "sfq_segments"),
            gro_flows: integer("kernel", "gro_flows") as usize,
            initial_window: short("tcp", "initial_window"),
            timeout_min: ms("tcp", "timeout_min_ms"),
            delayed_ack: ms("tcp", "delayed_ack_ms"),
            receive_window: integer("tcp", "receive_window_bytes"),
            small_queue: integer("tcp", "small_queue_bytes"),
            overhead: short("tcp", "segment_overhead_bytes"),
            pacing_start: profile.value("tcp", "pacing_start_percent") / 100.0,
            pacing: profile.value("tcp", "pacing_percent") / 100.0,
            packets_min: short("tcp", "segment_packets_min"),
            write: integer("tcp", "write_bytes"),
            sleep: sleep(profile),
            cost: Costs::of(profile),
        }
    }

    /// The interrupt vector of a transmit queue. There is a vector for each receive queue; with fewer of them than
    /// transmit queues, neighbours share one.
    #[inline]
    pub(crate) fn vector_of(&self, queue: u16) -> u16 {
        (u32::from(queue) * u32::from(self.receive_queues) / u32::from(self.queues)) as u16
    }

    /// Whether what is sent counts as a flow of its queue. A raw socket keeps no route, and Titan's kernel counts only
    /// sockets with one, so pings do not; for ours they do.
    #[inline]
    pub(crate) fn counts(&self, kind: Kind) -> bool {
        matches!(kind, Kind::Data | Kind::Ack) || self.config.latency_queue
    }

    #[inline]
    pub(crate) fn packets(&self, payload: u32) -> u32 {
        payload.div_ceil(self.mss).max(1)
    }

    #[inline]
    pub(crate) fn wire_time(&self, frame: u32) -> Duration {
        Duration::from_ps(u64::from(frame + self.framing) * self.ps_per_byte)
    }

    #[inline]
    pub(crate) fn fetch_time(&self, frame: u32) -> Duration {
        Duration::from_ps(u64::from(frame) * self.ps_per_byte * 100 / self.fetch_percent)
    }
}

fn ps_per_byte(rate: BitRate) -> u64 {
    (8_000_000_000_000 / rate.as_bps()).max(1)
}

fn sleep(profile: &NicProfile) -> Sleep {
    let integer = |name| profile.value("sleep", name).round() as u64;
    Sleep {
        states: [
            ("c1_exit_ns", "c1_residency_us"),
            ("c1e_exit_ns", "c1e_residency_us"),
            ("c3_exit_ns", "c3_residency_us"),
            ("c6_exit_ns", "c6_residency_us"),
        ]
        .map(|(exit, residency)| State {
            exit: Duration::from_ns_f64(profile.value("sleep", exit)),
            residency_us: integer(residency),
        }),
        timer_us: integer("timer_us"),
    }
}
