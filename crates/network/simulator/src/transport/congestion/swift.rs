//! Swift: a window that follows the round-trip time towards a target.
//!
//! Below the target each acknowledgement adds `increase_packets` per window; above it the window is cut in proportion
//! to the excess, by at most half, once per round trip. Windows below one packet become gaps between packets.
//!
//! Source: Kumar et al., "Swift: Delay is Simple and Effective for Congestion Control in the Datacenter", SIGCOMM
//! 2020, algorithm 1 and section 3.5. The defaults are those that the public Aequitas simulator runs it with: a target
//! of 10 us without scaling, a first window of 2, between 1 and 30 packets, so without gaps. The paper's form is had
//! by `hop_target_us` (topology scaling), `flow_target_us` (flow scaling) and `window_min_packets` below 1; the paper
//! publishes the shape of the flow scaling, and of its range only that 0.1 and 100 packets were used.
//! Limits: one delay for fabric and endpoint (the model's hosts add none), no separate endpoint window.

use super::{Acked, Limit, Loss, Parameter, ParameterError, Values, Way, whole};
use isolane_common_quantities::units::{Duration, Instant};

/// What can be set.
pub const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "target_us",
        default: 10.0,
        least: 0.1,
        most: 1e5,
        meaning: "round-trip time aimed at (Aequitas simulator: 10 us)",
    },
    Parameter {
        name: "hop_target_us",
        default: 0.0,
        least: 0.0,
        most: 1e4,
        meaning: "added to the target for each hop (paper, topology scaling); 0 for none",
    },
    Parameter {
        name: "flow_target_us",
        default: 0.0,
        least: 0.0,
        most: 1e5,
        meaning: "most that is added to the target of small windows (paper, flow scaling); 0 for none",
    },
    Parameter {
        name: "flow_window_min_packets",
        default: 0.1,
        least: 1e-6,
        most: 1e6,
        meaning: "window at and below which flow scaling adds all of it (paper: 0.1)",
    },
    Parameter {
        name: "flow_window_max_packets",
        default: 100.0,
        least: 1e-6,
        most: 1e6,
        meaning: "window from which flow scaling adds nothing (paper: 100)",
    },
    Parameter {
        name: "window_start_packets",
        default: 2.0,
        least: 0.001,
        most: 1e6,
        meaning: "first window (Aequitas simulator: 2)",
    },
    Parameter {
        name: "window_min_packets",
        default: 1.0,
        least: 0.001,
        most: 1e6,
        meaning: "least window; below 1, packets are spaced (Aequitas simulator: 1; paper: 0.001)",
    },
    Parameter {
        name: "window_max_packets",
        default: 30.0,
        least: 1.0,
        most: 1e6,
        meaning: "greatest window (Aequitas simulator: 30)",
    },
    Parameter {
        name: "increase_packets",
        default: 1.0,
        least: 0.0,
        most: 1e3,
        meaning: "added per round trip below the target (paper: ai)",
    },
    Parameter {
        name: "decrease_gain",
        default: 0.8,
        least: 0.0,
        most: 1.0,
        meaning: "part of the relative excess that is cut (paper: beta 0.8)",
    },
    Parameter {
        name: "decrease_max",
        default: 0.5,
        least: 0.0,
        most: 0.99,
        meaning: "greatest cut at once (paper: max_mdf 0.5)",
    },
    Parameter {
        name: "reset_after_timeouts",
        default: 5.0,
        least: 1.0,
        most: 1e3,
        meaning: "timeouts in a row after which the window is the least (Aequitas simulator: 5)",
    },
];

/// The control.
#[derive(Clone, Debug)]
pub struct Swift {
    target_ps: f64,
    hop_ps: f64,
    flow_ps: f64,
    /// Factor and offset of the flow scaling: `factor / sqrt(window) - offset`, both ps.
    flow_factor: f64,
    flow_offset: f64,
    start: f64,
    least: f64,
    most: f64,
    increase: f64,
    gain: f64,
    cut_max: f64,
    reset_after: u32,
}

/// One channel's state.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    window: f64,
    cut_at: Instant,
    round_trip: Duration,
    timeouts: u32,
}

impl Swift {
    /// With these parameters. Fails for windows or scaling ranges that are the wrong way round.
    pub fn new(values: &Values) -> Result<Self, ParameterError> {
        let (least, most) = (
            values.of("window_min_packets"),
            values.of("window_max_packets"),
        );
        let (low, high) = (
            values.of("flow_window_min_packets"),
            values.of("flow_window_max_packets"),
        );
        for (name, low, high) in [("window", least, most), ("flow_window", low, high)] {
            if low >= high {
                return Err(values.contradiction(format!(
                    "{name}_min_packets is {low}, but must be below {name}_max_packets, {high}"
                )));
            }
        }
        let flow_ps = values.of("flow_target_us") * 1e6;
        let flow_factor = flow_ps / (1.0 / low.sqrt() - 1.0 / high.sqrt());
        Ok(Self {
            target_ps: values.of("target_us") * 1e6,
            hop_ps: values.of("hop_target_us") * 1e6,
            flow_ps,
            flow_factor,
            flow_offset: flow_factor / high.sqrt(),
            start: values.of("window_start_packets").clamp(least, most),
            least,
            most,
            increase: values.of("increase_packets"),
            gain: values.of("decrease_gain"),
            cut_max: values.of("decrease_max"),
            reset_after: whole(values.of("reset_after_timeouts")),
        })
    }

    /// A new channel.
    pub fn start(&self) -> Flow {
        Flow {
            window: self.start,
            cut_at: Instant::ZERO,
            round_trip: Duration::ZERO,
            timeouts: 0,
        }
    }

    /// The delay aimed at, ps.
    #[inline]
    pub fn target_ps(&self, flow: &Flow, hops: u8) -> f64 {
        let mut target = self.target_ps + self.hop_ps * f64::from(hops);
        if self.flow_ps > 0.0 {
            let scaled = self.flow_factor / flow.window.sqrt() - self.flow_offset;
            target += scaled.clamp(0.0, self.flow_ps);
        }
        target
    }

    /// Packets were delivered.
    #[inline]
    pub fn acked(&self, flow: &mut Flow, way: &Way, acked: &Acked<'_>) {
        flow.timeouts = 0;
        flow.round_trip = acked.round_trip;
        let delay = acked.round_trip.as_ps() as f64;
        let target = self.target_ps(flow, way.hops);
        if delay < target {
            let more = self.increase * f64::from(acked.packets);
            flow.window += if flow.window >= 1.0 {
                more / flow.window
            } else {
                more
            };
            flow.window = flow.window.min(self.most);
        } else {
            let cut = (self.gain * (delay - target) / delay).min(self.cut_max);
            self.cut(flow, acked.now, cut);
        }
    }

    /// Packets were lost.
    pub fn lost(&self, flow: &mut Flow, now: Instant, loss: Loss) {
        if loss == Loss::Gap {
            flow.timeouts = 0;
        } else {
            flow.timeouts += 1;
            if flow.timeouts >= self.reset_after {
                flow.window = self.least;
                flow.cut_at = now;
                return;
            }
        }
        self.cut(flow, now, self.cut_max);
    }

    /// Takes `part` off the window, once per round trip.
    #[inline]
    fn cut(&self, flow: &mut Flow, now: Instant, part: f64) {
        if now.saturating_since(flow.cut_at) < flow.round_trip {
            return;
        }
        flow.window = (flow.window * (1.0 - part)).max(self.least);
        flow.cut_at = now;
    }

    /// What the channel may do.
    #[inline]
    pub fn limit(&self, flow: &Flow) -> Limit {
        if flow.window >= 1.0 {
            return Limit {
                window: flow.window as u32,
                ..Limit::OPEN
            };
        }
        Limit {
            window: 1,
            gap: Duration::from_ps((flow.round_trip.as_ps() as f64 / flow.window) as u64),
            each: true,
        }
    }
}
