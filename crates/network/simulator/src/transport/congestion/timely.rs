//! TIMELY: a rate that follows the gradient of the round-trip time.
//!
//! A segment's last acknowledgement gives a round-trip time. Below `low_us` the rate rises by `additive_mbps`, above
//! `high_us` it is cut towards it; between them it rises while the smoothed gradient is not positive (five-fold after
//! `hyper_after` such segments in a row) and is cut in proportion to the gradient otherwise.
//!
//! Source: Mittal et al., "TIMELY: RTT-based Congestion Control for the Datacenter", SIGCOMM 2015, algorithm 1 and
//! section 4. A gradient has no single fixed point (Zhu et al., "ECN or Delay", CoNEXT 2016), so equal shares are not
//! promised; that is the protocol, not the model. Limits: the round-trip time is that of the segment's last packet,
//! without the time to send the segment, which the paper subtracts.

use super::{Acked, Limit, Parameter, ParameterError, Values, Way};
use isolane_common_quantities::units::BitRate;

/// What can be set.
pub const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "low_us",
        default: 50.0,
        least: 0.0,
        most: 1e6,
        meaning: "round-trip time below which the rate rises at any gradient (paper: 50 us)",
    },
    Parameter {
        name: "high_us",
        default: 500.0,
        least: 0.1,
        most: 1e6,
        meaning: "round-trip time above which it falls at any gradient (paper: 500 us)",
    },
    Parameter {
        name: "round_trip_min_us",
        default: 20.0,
        least: 0.1,
        most: 1e6,
        meaning: "what gradients are measured in (paper: minRTT 20 us)",
    },
    Parameter {
        name: "segment_bytes",
        default: 16_384.0,
        least: 1.0,
        most: 1e9,
        meaning: "bytes per decision (paper: 16 to 64 KB)",
    },
    Parameter {
        name: "additive_mbps",
        default: 10.0,
        least: 0.0,
        most: 1e6,
        meaning: "rise per segment (paper: 10 Mb/s)",
    },
    Parameter {
        name: "hyper_after",
        default: 5.0,
        least: 1.0,
        most: 1e6,
        meaning: "segments in a row after which rises are five-fold (paper: 5)",
    },
    Parameter {
        name: "weight",
        default: 0.875,
        least: 0.0,
        most: 1.0,
        meaning: "weight of the newest difference in the gradient (paper: 0.875)",
    },
    Parameter {
        name: "decrease_gain",
        default: 0.8,
        least: 0.0,
        most: 1.0,
        meaning: "strength of cuts (paper: beta 0.8)",
    },
    Parameter {
        name: "rate_min_mbps",
        default: 10.0,
        least: 0.1,
        most: 1e6,
        meaning: "least rate; the paper gives none",
    },
    Parameter {
        name: "rate_start_share",
        default: 1.0,
        least: 1e-6,
        most: 1.0,
        meaning: "first rate, part of the line's; the paper leaves it to the number of flows of the host",
    },
];

/// Rises after `hyper_after` segments without a positive gradient (paper: N = 5).
const HYPER: f64 = 5.0;

/// The control.
#[derive(Clone, Debug)]
pub struct Timely {
    low_ps: f64,
    high_ps: f64,
    round_trip_ps: f64,
    segment: f64,
    additive: f64,
    hyper_after: u32,
    weight: f64,
    gain: f64,
    least: f64,
    start: f64,
}

/// One channel's state.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// Bits per second.
    rate: f64,
    /// Round-trip time of the last segment, ps; 0 before the first.
    last: f64,
    /// Smoothed difference of round-trip times, ps.
    difference: f64,
    /// Packets acknowledged of the segment.
    packets: u32,
    /// Segments in a row without a positive gradient.
    falling: u32,
}

impl Timely {
    /// With these parameters. Fails for thresholds that are the wrong way round.
    pub fn new(values: &Values) -> Result<Self, ParameterError> {
        let (low, high) = (values.of("low_us"), values.of("high_us"));
        if low >= high {
            return Err(values.contradiction(format!(
                "low_us is {low}, but must be below high_us, {high}"
            )));
        }
        Ok(Self {
            low_ps: low * 1e6,
            high_ps: high * 1e6,
            round_trip_ps: values.of("round_trip_min_us") * 1e6,
            segment: values.of("segment_bytes"),
            additive: values.of("additive_mbps") * 1e6,
            hyper_after: values.of("hyper_after") as u32,
            weight: values.of("weight"),
            gain: values.of("decrease_gain"),
            least: values.of("rate_min_mbps") * 1e6,
            start: values.of("rate_start_share"),
        })
    }

    /// A new channel.
    pub fn start(&self, way: &Way) -> Flow {
        Flow {
            rate: (self.start * way.line_rate.as_bps() as f64).max(self.least),
            last: 0.0,
            difference: 0.0,
            packets: 0,
            falling: 0,
        }
    }

    /// Packets were delivered.
    #[inline]
    pub fn acked(&self, flow: &mut Flow, way: &Way, acked: &Acked<'_>) {
        flow.packets += acked.packets;
        if f64::from(flow.packets) * (way.packet.get() as f64) < self.segment {
            return;
        }
        flow.packets = 0;
        let round_trip = acked.round_trip.as_ps() as f64;
        if flow.last == 0.0 {
            flow.last = round_trip;
            return;
        }
        let difference = round_trip - flow.last;
        flow.last = round_trip;
        flow.difference = (1.0 - self.weight) * flow.difference + self.weight * difference;
        let gradient = flow.difference / self.round_trip_ps;
        if round_trip < self.low_ps {
            flow.falling = 0;
            flow.rate += self.additive;
        } else if round_trip > self.high_ps {
            flow.falling = 0;
            flow.rate *= 1.0 - self.gain * (1.0 - self.high_ps / round_trip);
        } else if gradient <= 0.0 {
            flow.falling += 1;
            let times = if flow.falling >= self.hyper_after {
                HYPER
            } else {
                1.0
            };
            flow.rate += times * self.additive;
        } else {
            flow.falling = 0;
            flow.rate *= (1.0 - self.gain * gradient).max(0.0);
        }
        flow.rate = flow.rate.clamp(self.least, way.line_rate.as_bps() as f64);
    }

    /// What the channel may do.
    #[inline]
    pub fn limit(&self, flow: &Flow, way: &Way) -> Limit {
        Limit::paced(way, BitRate::from_bps(flow.rate as u64))
    }
}
