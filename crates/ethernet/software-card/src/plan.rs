//! What of a configuration the soft card does, how, and what not.
//!
//! Problem: TUN is a simple device: it takes a frame from the sender's socket at once, has no interrupts of its own,
//! and never makes the kernel wait. So some settings act differently from a real NIC, and a result has to state this.
//! Method: with the BPF programs of [`crate::queueing`] queues are assigned and limits kept; without them the byte
//! limit becomes the number of largest segments that a queue may hold. The rest is said in words. Units: bytes, frames.
//! Limits: as said. Source: titan 2.2 (what the settings are for).

use crate::error::SoftNicError;
use isolane_common_quantities::units::Bytes;
use isolane_ethernet_policy::titan::QUEUES_MAX;
use isolane_ethernet_scenario::config::{Assignment, ByteLimit, NicConfig, Qdisc};
use isolane_ethernet_scenario::model::{NicStudy, TcpCongestion};

/// What TUN's limit on segments is unless it is lowered.
const SEGMENT_MAX: u64 = 65_536;
/// Descriptors of a usual ring: frames that a queue holds where a limit in bytes comes first.
const RING: u32 = 512;
/// Frames of 64 KiB that the descriptors of a usual ring hold: 512 of 4 KiB each.
const RING_FRAMES: u64 = 30;
/// Frames that a dynamic limit would reach: one on the wire, one for the next interrupt.
const DYNAMIC_FRAMES: u64 = 2;
/// Part of the line that a run should fill, percent; below it the machine was the limit.
const FULL_PERCENT: f64 = 90.0;

/// What is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Frames that a queue holds.
    pub queue_frames: u32,
    /// Segment size to set, if not the kernel's own.
    pub segment: Option<Bytes>,
    /// TCP's congestion control, as the kernel names it, if it has the requested one.
    pub congestion: Option<&'static str>,
    /// What is not done, in words.
    pub not_done: Vec<String>,
}

impl Plan {
    /// For a study, on a kernel with these congestion controls; `programs` says whether BPF programs assign and limit.
    /// Fails if the card has more queues than are managed.
    pub(crate) fn of(
        study: &NicStudy,
        controls: &str,
        programs: bool,
    ) -> Result<Self, SoftNicError> {
        let queues = study.card.queues;
        if !(1..=QUEUES_MAX).contains(&queues) {
            return Err(SoftNicError::Input(format!(
                "the NIC has {queues} queues; 1 to {QUEUES_MAX} are possible"
            )));
        }
        let config = &study.config;
        let segment = match config.segmentation_offload {
            true => config.segment.get().clamp(1, SEGMENT_MAX),
            false => study.card.mtu.get(),
        };
        let queue_frames = match (programs, config.byte_limit) {
            (true, ByteLimit::Dynamic | ByteLimit::Fixed(_)) => RING,
            (_, ByteLimit::None) => frames_of(RING_FRAMES * SEGMENT_MAX, segment),
            (false, ByteLimit::Dynamic) => frames_of(DYNAMIC_FRAMES * SEGMENT_MAX, segment),
            (false, ByteLimit::Fixed(bytes)) => frames_of(bytes.get(), segment),
        };
        let mut not_done = not_done(config, programs);
        let name = match study.congestion {
            TcpCongestion::Cubic => "cubic",
            TcpCongestion::Dctcp => "dctcp",
        };
        let congestion = controls.split_whitespace().any(|known| known == name);
        if !congestion {
            not_done.push(format!(
                "congestion control: this kernel has no {name} (but: {}); its default ran",
                controls.trim()
            ));
        }
        Ok(Self {
            congestion: congestion.then_some(name),
            queue_frames,
            segment: (config.segmentation_offload && segment < SEGMENT_MAX)
                .then_some(Bytes::new(segment)),
            not_done,
        })
    }
}

fn frames_of(bytes: u64, segment: u64) -> u32 {
    u32::try_from((bytes / segment).max(1)).unwrap_or(u32::MAX)
}

/// Whether a configuration is nothing without the BPF programs.
pub(crate) fn needs_programs(config: &NicConfig) -> bool {
    config.assignment == Assignment::Dynamic
        || config.pools
        || config.latency_queue
        || config.queue_weights
        || config.shared_segment.is_some()
}

fn not_done(config: &NicConfig, programs: bool) -> Vec<String> {
    let mut words = Vec::new();
    let mut say = |text: &str| words.push(text.to_owned());
    if config.qdisc != Qdisc::Fifo {
        say(
            "software queues: TUN takes frames at once, so none forms above the NIC and no discipline acts",
        );
    }
    if config.byte_limit == ByteLimit::Dynamic {
        say("dynamic byte limit: fixed at two frames of 64 KiB a queue");
    }
    if !programs {
        say("byte limit: without BPF, kept as a number of largest segments a queue");
        if config.small_queues {
            say(
                "TCP Small Queues: TUN takes frames out of the socket's account, so without BPF nothing limits a flow",
            );
        }
    }
    if config.interrupts_per_s.is_some() {
        say(
            "transmit interrupts: TUN frees a frame when the NIC takes it, so there is nothing to moderate",
        );
    }
    words
}

/// Reports a line of `line` Gb/s that was not filled.
pub(crate) fn note_rate(line: f64, gbps: f64, not_done: &mut Vec<String>) {
    if gbps * 100.0 < line * FULL_PERCENT {
        not_done.push(format!(
            "line rate: {:.0} of {:.0} Mb/s; the machine was the limit",
            gbps * 1e3,
            line * 1e3
        ));
    }
}

/// The processors that senders are bound to, at most `wanted`.
pub(crate) fn processors(wanted: u16) -> Vec<usize> {
    let here = std::thread::available_parallelism().map_or(1, usize::from);
    (0..here.min(usize::from(wanted).max(1))).collect()
}

/// The congestion controls that the kernel has, by name.
pub(crate) fn congestion_controls() -> String {
    let path = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    std::fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use isolane_ethernet_scenario::config::{CATALOGUE, named};

    fn plan(name: &str) -> Plan {
        let config = named(name).expect("a configuration");
        Plan::of(&NicStudy::of_paper(*config, 3, 1), "reno cubic\n", false).expect("a plan")
    }

    #[test]
    fn byte_limits_are_frames_and_small_segments_are_set() {
        let mut table = String::new();
        for config in CATALOGUE {
            let plan = plan(config.name);
            let segment = plan.segment.map_or(0, Bytes::get);
            table.push_str(&format!(
                "{} {} {segment}\n",
                config.name, plan.queue_frames
            ));
        }
        expect![[r#"
            C1 2 0
            C2 2 0
            C3 2 0
            C4 30 0
            C5 4 0
            C6 4 0
            C7 1 0
            C8 174 0
            C9 16 16384
            XPS 4 0
            T1 4 0
            T2 4 0
            T3 4 0
            TX1 4 0
            TX2 4 0
            TX3 4 0
            fq_codel 2 0
            fq 2 0
            cake 2 0
            isolane 2 0
        "#]]
        .assert_eq(&table);
    }

    #[test]
    fn what_is_not_done_is_said() {
        expect![[r#"
            [
                "software queues: TUN takes frames at once, so none forms above the NIC and no discipline acts",
                "byte limit: without BPF, kept as a number of largest segments a queue",
                "TCP Small Queues: TUN takes frames out of the socket's account, so without BPF nothing limits a flow",
                "transmit interrupts: TUN frees a frame when the NIC takes it, so there is nothing to moderate",
            ]
        "#]].assert_debug_eq(&plan("XPS").not_done);
        let study = NicStudy::of_paper(*named("C1").expect("C1"), 3, 1);
        let without = Plan::of(&study, "reno bbr", true).expect("a plan");
        assert_eq!(without.congestion, None);
        assert!(
            without
                .not_done
                .iter()
                .any(|words| words.contains("no cubic"))
        );
    }

    #[test]
    fn a_card_of_65_queues_is_refused() {
        let mut study = NicStudy::of_paper(*named("C1").expect("C1"), 3, 1);
        study.card.queues = 65;
        let error = Plan::of(&study, "cubic", true).expect_err("too many");
        assert_eq!(
            error.to_string(),
            "the NIC has 65 queues; 1 to 64 are possible"
        );
    }
}
