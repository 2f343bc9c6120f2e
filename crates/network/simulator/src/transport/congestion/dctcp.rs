//! DCTCP: a window cut in proportion to the part of packets that switches marked.
//!
//! Once per window of packets the estimate of that part, alpha, moves by `gain` towards what was seen; a window with
//! marks is cut by alpha / 2, one without grows by a packet (doubles before the first cut).
//!
//! Source: Alizadeh et al., "Data Center TCP (DCTCP)", SIGCOMM 2010, section 3; loss as TCP NewReno: half for a gap,
//! one packet after a timeout. Limits: acknowledgements are per packet, so the receiver needs no state of its own.

use super::{Acked, Limit, Loss, Parameter, ParameterError, Values, whole};

/// What can be set.
pub const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "gain",
        default: 0.0625,
        least: 1e-4,
        most: 1.0,
        meaning: "weight of the newest window in alpha (paper: g = 1/16)",
    },
    Parameter {
        name: "window_start_packets",
        default: 10.0,
        least: 1.0,
        most: 1e6,
        meaning: "first window (RFC 6928: 10)",
    },
    Parameter {
        name: "window_max_packets",
        default: 1000.0,
        least: 1.0,
        most: 1e6,
        meaning: "greatest window, as the receiver's buffer would set it",
    },
    Parameter {
        name: "alpha_start",
        default: 1.0,
        least: 0.0,
        most: 1.0,
        meaning: "first estimate of the marked part (RFC 8257: 1)",
    },
];

/// The control.
#[derive(Clone, Debug)]
pub struct Dctcp {
    gain: f64,
    start: f64,
    most: f64,
    alpha_start: f64,
}

/// One channel's state.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    window: f64,
    threshold: f64,
    alpha: f64,
    /// Packets acknowledged, and marked among them, since the observed window began.
    acked: u32,
    marked: u32,
    /// The observed window ends when this packet is acknowledged.
    window_end: u32,
    /// No second cut before this packet is acknowledged.
    cut_until: u32,
}

impl Dctcp {
    /// With these parameters. Fails for a first window above the greatest.
    pub fn new(values: &Values) -> Result<Self, ParameterError> {
        let (start, most) = (
            values.of("window_start_packets"),
            values.of("window_max_packets"),
        );
        if start > most {
            return Err(values.contradiction(format!(
                "window_start_packets is {start}, but must not be above window_max_packets, {most}"
            )));
        }
        Ok(Self {
            gain: values.of("gain"),
            start,
            most,
            alpha_start: values.of("alpha_start"),
        })
    }

    /// A new channel.
    pub fn start(&self) -> Flow {
        Flow {
            window: self.start,
            threshold: self.most,
            alpha: self.alpha_start,
            acked: 0,
            marked: 0,
            window_end: 0,
            cut_until: 0,
        }
    }

    /// Packets were delivered.
    #[inline]
    pub fn acked(&self, flow: &mut Flow, acked: &Acked<'_>) {
        flow.acked += acked.packets;
        if acked.marked {
            flow.marked += acked.packets;
            if acked.expected >= flow.cut_until {
                flow.window = (flow.window * (1.0 - flow.alpha / 2.0)).max(1.0);
                flow.threshold = flow.window;
                flow.cut_until = acked.next;
            }
        } else {
            let packets = f64::from(acked.packets);
            flow.window += if flow.window < flow.threshold {
                packets
            } else {
                packets / flow.window
            };
            flow.window = flow.window.min(self.most);
        }
        if acked.expected >= flow.window_end && flow.acked > 0 {
            let part = f64::from(flow.marked) / f64::from(flow.acked);
            flow.alpha = (1.0 - self.gain) * flow.alpha + self.gain * part;
            (flow.acked, flow.marked) = (0, 0);
            flow.window_end = acked.next;
        }
    }

    /// Packets were lost.
    pub fn lost(&self, flow: &mut Flow, next: u32, loss: Loss) {
        if loss == Loss::Timeout {
            flow.threshold = (flow.window / 2.0).max(2.0);
            flow.window = 1.0;
        } else if next > flow.cut_until {
            flow.window = (flow.window / 2.0).max(1.0);
            flow.threshold = flow.window;
            flow.cut_until = next;
        }
    }

    /// What the channel may do.
    #[inline]
    pub fn limit(&self, flow: &Flow) -> Limit {
        Limit {
            window: whole(flow.window),
            ..Limit::OPEN
        }
    }
}
