//! Congestion controls: how fast a channel may send, decided from what comes back to it.
//!
//! Each control is a pure state machine in its own file: its inputs are acknowledgements, losses, notifications and
//! sent bytes, with the time as an argument. Its output is how many packets may be unacknowledged and how far apart
//! they leave ([`Limit`]). No control depends on the network, so the same decisions could run in a real sender.
//!
//! Parameters are named numbers with units in their names; each has the default of its protocol, a range and a
//! source ([`Parameter`]). An unknown or impossible one is an error that lists what there is.
//!
//! Units: picoseconds, bytes, bits per second; windows count full packets. Floats decide rates and windows, never the
//! order of events; only sums, products, quotients and square roots are used, which are the same on every machine.

pub mod dcqcn;
pub mod dctcp;
pub mod hpcc;
pub mod swift;
pub mod timely;
pub mod window;

use crate::packet::HopTelemetry;
use isolane_common_quantities::units::{BitRate, Bytes, Duration, Instant};
use isolane_network_scenario::model::Congestion;
use std::collections::BTreeMap;

/// A named number that a control can be given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameter {
    /// Name, ending in its unit.
    pub name: &'static str,
    /// Value if none is given.
    pub default: f64,
    /// Least value.
    pub least: f64,
    /// Greatest value.
    pub most: f64,
    /// Its effect, and the source of the default.
    pub meaning: &'static str,
}

/// Why the parameters of a transport are not accepted.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum ParameterError {
    #[error("transport `{control}` has no parameter `{name}`; it has {known}")]
    Unknown {
        control: &'static str,
        name: String,
        known: String,
    },
    #[error(
        "parameter `{name}` of transport `{control}` is {value}; it must be from {least} to {most}"
    )]
    Range {
        control: &'static str,
        name: String,
        value: f64,
        least: f64,
        most: f64,
    },
    /// Two parameters contradict each other.
    #[error("parameters of transport `{control}`: {reason}")]
    Contradiction {
        control: &'static str,
        /// What is wrong, with values and remedy.
        reason: String,
    },
}

/// Values of all parameters of a control: the given ones, else the defaults.
#[derive(Clone, Debug)]
pub struct Values {
    control: &'static str,
    values: BTreeMap<&'static str, f64>,
}

impl Values {
    /// Checks `given` against what `control` and every transport know. Fails for an unknown name, or a value out of its
    /// range.
    pub fn new(control: Congestion, given: &BTreeMap<String, f64>) -> Result<Self, ParameterError> {
        let known: Vec<Parameter> = parameters(control);
        let mut values: BTreeMap<&'static str, f64> =
            known.iter().map(|one| (one.name, one.default)).collect();
        for (name, &value) in given {
            let Some(parameter) = known.iter().find(|one| one.name == name) else {
                return Err(ParameterError::Unknown {
                    control: name_of(control),
                    name: name.clone(),
                    known: known
                        .iter()
                        .map(|one| one.name)
                        .collect::<Vec<_>>()
                        .join(", "),
                });
            };
            // A NaN is in no range.
            if !(parameter.least..=parameter.most).contains(&value) {
                return Err(ParameterError::Range {
                    control: name_of(control),
                    name: name.clone(),
                    value,
                    least: parameter.least,
                    most: parameter.most,
                });
            }
            values.insert(parameter.name, value);
        }
        Ok(Self {
            control: name_of(control),
            values,
        })
    }

    /// The value of `name`. Panics if the control's table lacks it, which is our own mistake.
    pub fn of(&self, name: &str) -> f64 {
        *self
            .values
            .get(name)
            .expect("every parameter that is read is in its control's table")
    }

    /// The value of `name`, which ends in `_us`, as a duration.
    pub fn duration(&self, name: &str) -> Duration {
        Duration::from_secs_f64(self.of(name) * 1e-6)
    }

    fn contradiction(&self, reason: String) -> ParameterError {
        ParameterError::Contradiction {
            control: self.control,
            reason,
        }
    }
}

/// All parameters that a transport with `control` takes.
pub fn parameters(control: Congestion) -> Vec<Parameter> {
    let own: &[Parameter] = match control {
        Congestion::None => &[],
        Congestion::Window => window::PARAMETERS,
        Congestion::Swift => swift::PARAMETERS,
        Congestion::Dcqcn => dcqcn::PARAMETERS,
        Congestion::Dctcp => dctcp::PARAMETERS,
        Congestion::Timely => timely::PARAMETERS,
        Congestion::Hpcc => hpcc::PARAMETERS,
    };
    let timeout = Parameter {
        name: "timeout_us",
        default: default_timeout_us(control),
        least: 0.0,
        most: 1e7,
        meaning: "time without an acknowledgement after which everything unacknowledged is sent again; 0 for never. \
                  Default 450 us (Aequitas simulator), never without congestion control, where queues have no bound",
    };
    let fast = Parameter {
        name: "fast_repeat",
        default: 1.0,
        least: 0.0,
        most: 1.0,
        meaning: "1: gaps that the receiver sees are repaired at once; 0: only by timeouts (Aequitas simulator)",
    };
    own.iter().copied().chain([timeout, fast]).collect()
}

fn default_timeout_us(control: Congestion) -> f64 {
    match control {
        Congestion::None => 0.0,
        _ => 450.0,
    }
}

/// The name of a control in files and results.
pub fn name_of(control: Congestion) -> &'static str {
    match control {
        Congestion::None => "none",
        Congestion::Window => "window",
        Congestion::Swift => "swift",
        Congestion::Dcqcn => "dcqcn",
        Congestion::Dctcp => "dctcp",
        Congestion::Timely => "timely",
        Congestion::Hpcc => "hpcc",
    }
}

/// What a channel's way through the network is like without queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Rate of the sender's link.
    pub line_rate: BitRate,
    /// Bytes of a full packet on the wire.
    pub packet: Bytes,
    /// Time of a full packet and its acknowledgement.
    pub round_trip: Duration,
    /// Links on the way.
    pub hops: u8,
}

/// An acknowledgement with something new.
#[derive(Clone, Copy, Debug)]
pub struct Acked<'a> {
    /// Now.
    pub now: Instant,
    /// From when the packet that it answers left the transport until now.
    pub round_trip: Duration,
    /// A switch marked that packet.
    pub marked: bool,
    /// Packets acknowledged for the first time.
    pub packets: u32,
    /// All packets before this one are acknowledged.
    pub expected: u32,
    /// The first packet that was never sent.
    pub next: u32,
    /// The telemetry of the hops.
    pub hops: &'a [HopTelemetry],
}

/// How a loss was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The receiver reported a gap.
    Gap,
    /// Nothing came back in time.
    Timeout,
}

/// What a channel may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Packets that may be unacknowledged, at least 1.
    pub window: u32,
    /// From the start of a full packet to that of the next; zero for no pacing.
    pub gap: Duration,
    /// Whether `gap` holds for a packet of any size, rather than in proportion to its bytes.
    pub each: bool,
}

impl Limit {
    /// No limit at all.
    pub const OPEN: Self = Self {
        window: u32::MAX,
        gap: Duration::ZERO,
        each: false,
    };

    /// Paced at `rate`.
    pub fn paced(way: &Way, rate: BitRate) -> Self {
        Self {
            gap: rate.time_for(way.packet),
            ..Self::OPEN
        }
    }
}

/// The control of all channels of a run, and its state of each.
#[derive(Clone, Debug)]
pub enum Control {
    /// Line rate.
    None,
    /// Fixed window.
    Window(window::Window),
    /// Swift.
    Swift(swift::Swift, Vec<swift::Flow>),
    /// DCQCN.
    Dcqcn(dcqcn::Dcqcn, Vec<dcqcn::Flow>),
    /// DCTCP.
    Dctcp(dctcp::Dctcp, Vec<dctcp::Flow>),
    /// TIMELY.
    Timely(timely::Timely, Vec<timely::Flow>),
    /// HPCC.
    Hpcc(hpcc::Hpcc, Vec<hpcc::Flow>),
}

impl Control {
    /// The control with these parameters and no channels. Fails for parameters that contradict each other.
    pub fn new(control: Congestion, values: &Values) -> Result<Self, ParameterError> {
        Ok(match control {
            Congestion::None => Self::None,
            Congestion::Window => Self::Window(window::Window::new(values)),
            Congestion::Swift => Self::Swift(swift::Swift::new(values)?, Vec::new()),
            Congestion::Dcqcn => Self::Dcqcn(dcqcn::Dcqcn::new(values), Vec::new()),
            Congestion::Dctcp => Self::Dctcp(dctcp::Dctcp::new(values)?, Vec::new()),
            Congestion::Timely => Self::Timely(timely::Timely::new(values)?, Vec::new()),
            Congestion::Hpcc => Self::Hpcc(hpcc::Hpcc::new(values), Vec::new()),
        })
    }

    /// A new channel, numbered after the last; what it may do at first.
    pub fn start(&mut self, way: &Way) -> Limit {
        match self {
            Self::None => Limit::OPEN,
            Self::Window(control) => control.limit(),
            Self::Swift(control, flows) => add(flows, control.start(), |flow| control.limit(flow)),
            Self::Dcqcn(control, flows) => {
                add(flows, control.start(), |flow| control.limit(flow, way))
            }
            Self::Dctcp(control, flows) => add(flows, control.start(), |flow| control.limit(flow)),
            Self::Timely(control, flows) => {
                add(flows, control.start(way), |flow| control.limit(flow, way))
            }
            Self::Hpcc(control, flows) => {
                add(flows, control.start(way), |flow| control.limit(flow, way))
            }
        }
    }

    /// Channel `index` got an acknowledgement.
    #[inline]
    pub fn acked(&mut self, index: usize, way: &Way, acked: &Acked<'_>) -> Limit {
        match self {
            Self::None => Limit::OPEN,
            Self::Window(control) => control.limit(),
            Self::Swift(control, flows) => {
                let flow = &mut flows[index];
                control.acked(flow, way, acked);
                control.limit(flow)
            }
            Self::Dcqcn(control, flows) => {
                let flow = &mut flows[index];
                control.advance(flow, way, acked.now);
                control.limit(flow, way)
            }
            Self::Dctcp(control, flows) => {
                let flow = &mut flows[index];
                control.acked(flow, acked);
                control.limit(flow)
            }
            Self::Timely(control, flows) => {
                let flow = &mut flows[index];
                control.acked(flow, way, acked);
                control.limit(flow, way)
            }
            Self::Hpcc(control, flows) => {
                let flow = &mut flows[index];
                control.acked(flow, way, acked);
                control.limit(flow, way)
            }
        }
    }

    /// Channel `index` lost packets; `next` is its first packet that was never sent.
    pub fn lost(&mut self, index: usize, way: &Way, now: Instant, next: u32, loss: Loss) -> Limit {
        match self {
            Self::None => Limit::OPEN,
            Self::Window(control) => control.limit(),
            Self::Swift(control, flows) => {
                let flow = &mut flows[index];
                control.lost(flow, now, loss);
                control.limit(flow)
            }
            Self::Dcqcn(control, flows) => {
                let flow = &mut flows[index];
                control.advance(flow, way, now);
                control.limit(flow, way)
            }
            Self::Dctcp(control, flows) => {
                let flow = &mut flows[index];
                control.lost(flow, next, loss);
                control.limit(flow)
            }
            Self::Timely(control, flows) => control.limit(&flows[index], way),
            Self::Hpcc(control, flows) => control.limit(&flows[index], way),
        }
    }

    /// A congestion notification for channel `index`.
    pub fn notified(&mut self, index: usize, way: &Way, now: Instant) -> Option<Limit> {
        match self {
            Self::Dcqcn(control, flows) => {
                let flow = &mut flows[index];
                control.notified(flow, way, now);
                Some(control.limit(flow, way))
            }
            _ => None,
        }
    }

    /// Channel `index` has sent `bytes`; a new limit if that changes it.
    #[inline]
    pub fn sent(&mut self, index: usize, way: &Way, now: Instant, bytes: u64) -> Option<Limit> {
        match self {
            Self::Dcqcn(control, flows) => {
                let flow = &mut flows[index];
                control
                    .sent(flow, way, now, bytes)
                    .then(|| control.limit(flow, way))
            }
            _ => None,
        }
    }

    /// What channel `index` may do now, for controls whose rate rises with time alone, and how long that holds at most.
    #[inline]
    pub fn review(&mut self, index: usize, way: &Way, now: Instant) -> Option<(Limit, Duration)> {
        match self {
            Self::Dcqcn(control, flows) => {
                let flow = &mut flows[index];
                control.advance(flow, way, now);
                Some((control.limit(flow, way), control.tick(flow, now)?))
            }
            _ => None,
        }
    }

    /// Whether packets ask switches to mark them.
    pub fn wants_marks(&self) -> bool {
        matches!(self, Self::Dcqcn(..) | Self::Dctcp(..))
    }

    /// Whether packets collect telemetry.
    pub fn wants_telemetry(&self) -> bool {
        matches!(self, Self::Hpcc(..))
    }

    /// Least time between two notifications that a receiver sends for one channel; none if it sends none.
    pub fn notification_interval(&self) -> Option<Duration> {
        match self {
            Self::Dcqcn(control, _) => Some(control.notification_interval()),
            _ => None,
        }
    }
}

fn add<F>(flows: &mut Vec<F>, flow: F, limit: impl Fn(&F) -> Limit) -> Limit {
    let first = limit(&flow);
    flows.push(flow);
    first
}

/// A window of `packets`, as a whole number that is at least one.
pub(crate) fn whole(packets: f64) -> u32 {
    // The cast saturates; a window beyond 2^32 packets is no limit.
    (packets as u32).max(1)
}

#[cfg(test)]
mod tests;
