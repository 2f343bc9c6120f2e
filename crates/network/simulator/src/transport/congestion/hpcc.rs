//! HPCC: a window from each hop's report of its queue and its sent bytes.
//!
//! An acknowledgement has the telemetry of the hops. From two of them each hop's bytes in flight are known, as a part
//! of what its link holds in a base round trip; the fullest hop counts, smoothed over a round trip. The window aims at
//! `utilisation` of it: multiplicatively when over it, or after `stages` additive steps; relative to a reference window
//! that moves once per round trip. Packets leave spaced at window per base round trip.
//!
//! Source: Li et al., "HPCC: High Precision Congestion Control", SIGCOMM 2019, algorithm 1. The additive part is the
//! paper's W_init (1 - eta) / N with N = `flows`. The base round trip is each channel's own; the paper uses one for
//! the whole network.
//!
//! Limit, of the algorithm: only the additive part makes shares even, and the queue term works against it. A packet
//! finds the packets of the other flows behind it, never its own flow's, which are paced; so a flow with more sees less
//! queue and yields less. Each packet seen counts as its part of what the link holds in a base round trip. Steps must
//! outweigh that: where a packet is more than about a hundredth of it, `flows` has to be near the real number of flows.

use super::{Acked, Limit, Parameter, Values, Way, whole};
use crate::packet::{HopTelemetry, TELEMETRY_HOPS};
use isolane_common_quantities::units::Duration;

/// What can be set.
pub const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "utilisation",
        default: 0.95,
        least: 0.1,
        most: 1.0,
        meaning: "part of the fullest link aimed at (paper: eta 0.95)",
    },
    Parameter {
        name: "stages",
        default: 5.0,
        least: 0.0,
        most: 1e3,
        meaning: "additive steps before a multiplicative one (paper: maxStage 5)",
    },
    Parameter {
        name: "flows",
        default: 20.0,
        least: 1.0,
        most: 1e6,
        meaning: "flows at one link for which additive steps fit in the head room (paper: N; example 100, with packets \
                  of 1 KB; those of networks here are 5 KB by default, and steps must be felt beside packets)",
    },
];

/// The control.
#[derive(Clone, Debug)]
pub struct Hpcc {
    utilisation: f64,
    stages: u32,
    flows: f64,
}

/// One channel's state.
#[derive(Clone, Debug)]
pub struct Flow {
    /// Bytes.
    window: f64,
    reference: f64,
    /// Smoothed part of the fullest link.
    part: f64,
    stage: u32,
    /// The reference moves when this packet is acknowledged.
    update_at: u32,
    hops: usize,
    last: [HopTelemetry; TELEMETRY_HOPS],
}

impl Hpcc {
    /// With these parameters.
    pub fn new(values: &Values) -> Self {
        Self {
            utilisation: values.of("utilisation"),
            stages: values.of("stages") as u32,
            flows: values.of("flows"),
        }
    }

    /// A new channel.
    pub fn start(&self, way: &Way) -> Flow {
        let window = first_window(way);
        Flow {
            window,
            reference: window,
            part: 0.0,
            stage: 0,
            update_at: 0,
            hops: 0,
            last: [HopTelemetry::default(); TELEMETRY_HOPS],
        }
    }

    /// Packets were delivered.
    pub fn acked(&self, flow: &mut Flow, way: &Way, acked: &Acked<'_>) {
        let hops = acked.hops.len().min(TELEMETRY_HOPS);
        if hops == 0 {
            return;
        }
        let known = flow.hops == hops;
        if known {
            measure(flow, way.round_trip.as_ps() as f64, &acked.hops[..hops]);
        }
        flow.hops = hops;
        flow.last[..hops].copy_from_slice(&acked.hops[..hops]);
        if !known {
            flow.update_at = acked.next;
            return;
        }
        let update = acked.expected > flow.update_at;
        self.move_window(flow, way, update);
        if update {
            flow.update_at = acked.next;
        }
    }

    fn move_window(&self, flow: &mut Flow, way: &Way, update: bool) {
        let first = first_window(way);
        let step = first * (1.0 - self.utilisation) / self.flows;
        let multiply = flow.part >= self.utilisation || flow.stage >= self.stages;
        let base = if multiply {
            flow.reference / (flow.part / self.utilisation).max(f64::MIN_POSITIVE)
        } else {
            flow.reference
        };
        flow.window = (base + step).min(first);
        if update {
            flow.stage = if multiply { 0 } else { flow.stage + 1 };
            flow.reference = flow.window;
        }
    }

    /// What the channel may do.
    #[inline]
    pub fn limit(&self, flow: &Flow, way: &Way) -> Limit {
        let packet = way.packet.get() as f64;
        let gap = way.round_trip.as_ps() as f64 * packet / flow.window;
        Limit {
            // The packet that the window ends in may still leave, as a window in bytes lets it.
            window: whole((flow.window / packet).ceil()),
            gap: Duration::from_ps(gap as u64),
            each: false,
        }
    }
}

/// Line rate times base round trip, bytes: the window before anything is known, and the greatest.
fn first_window(way: &Way) -> f64 {
    way.line_rate.as_bps() as f64 / 8.0 * way.round_trip.as_ps() as f64 * 1e-12
}

/// Moves the smoothed part of the fullest link by the telemetry of two acknowledgements.
fn measure(flow: &mut Flow, round_trip: f64, hops: &[HopTelemetry]) {
    let mut fullest = 0.0;
    let mut between = 0.0;
    for (hop, last) in hops.iter().zip(&flow.last) {
        let time = hop.at.saturating_since(last.at).as_ps() as f64;
        if time == 0.0 {
            continue;
        }
        let per_byte = hop.ps_per_byte as f64;
        let queue = hop.queue_bytes.min(last.queue_bytes) as f64;
        let sent = hop.sent_bytes.saturating_sub(last.sent_bytes) as f64;
        let part = queue * per_byte / round_trip + sent * per_byte / time;
        if part > fullest {
            (fullest, between) = (part, time);
        }
    }
    let weight = between.min(round_trip) / round_trip;
    flow.part = (1.0 - weight) * flow.part + weight * fullest;
}
