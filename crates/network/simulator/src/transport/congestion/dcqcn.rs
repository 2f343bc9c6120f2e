//! DCQCN: a rate cut by the receiver's notifications of marks, recovered by a timer and a byte counter.
//!
//! A sender that was never notified sends at line rate. A notification makes the rate the target, cuts the rate by
//! alpha / 2 and raises alpha; without one, alpha falls every `alpha_interval_us`. Each tick of the increase timer or
//! of the byte counter moves the rate half way to the target. After `fast_steps` ticks of either the target rises
//! additively, after as many of both hyper-fast. A sender back at line rate forgets everything.
//!
//! Timers are evaluated when the rate is read, in the order in which they were due: the same rates as with timer
//! events, without the events.
//!
//! Source: Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015, section 5. The paper gives
//! no least rate and no hyper increase; 10 Mb/s and ten additive steps are what the RNIC model's profiles use.

use super::{Limit, Parameter, Values, Way};
use isolane_common_quantities::units::{BitRate, Duration, Instant};

/// What can be set.
pub const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "notification_interval_us",
        default: 50.0,
        least: 0.0,
        most: 1e5,
        meaning: "least time between two notifications of a receiver for one channel (paper: 50 us)",
    },
    Parameter {
        name: "alpha_interval_us",
        default: 55.0,
        least: 0.1,
        most: 1e5,
        meaning: "time without a notification after which alpha falls (paper: 55 us)",
    },
    Parameter {
        name: "increase_interval_us",
        default: 55.0,
        least: 0.1,
        most: 1e5,
        meaning: "ticks of the increase timer (paper: 55 us)",
    },
    Parameter {
        name: "byte_counter_bytes",
        default: 10e6,
        least: 1e3,
        most: 1e12,
        meaning: "ticks of the byte counter (paper: 10 MB)",
    },
    Parameter {
        name: "fast_steps",
        default: 5.0,
        least: 0.0,
        most: 1e3,
        meaning: "ticks of fast recovery (paper: F = 5)",
    },
    Parameter {
        name: "gain",
        default: 1.0 / 256.0,
        least: 1e-5,
        most: 1.0,
        meaning: "weight of a notification in alpha (paper: g = 1/256)",
    },
    Parameter {
        name: "additive_mbps",
        default: 40.0,
        least: 0.0,
        most: 1e6,
        meaning: "rise of the target per tick after fast recovery (paper: 40 Mb/s)",
    },
    Parameter {
        name: "hyper_mbps",
        default: 400.0,
        least: 0.0,
        most: 1e6,
        meaning: "rise once both clocks are past fast recovery (ten additive steps)",
    },
    Parameter {
        name: "rate_min_mbps",
        default: 10.0,
        least: 0.1,
        most: 1e6,
        meaning: "least rate",
    },
];

/// The control.
#[derive(Clone, Debug)]
pub struct Dcqcn {
    notification: Duration,
    alpha_interval: Duration,
    increase_interval: Duration,
    byte_counter: u64,
    fast_steps: u32,
    gain: f64,
    additive: f64,
    hyper: f64,
    least: f64,
}

/// One channel's state. A `rate` of zero is line rate, untouched.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flow {
    /// Bits per second.
    rate: f64,
    target: f64,
    alpha: f64,
    counted: u64,
    increase_due: Instant,
    alpha_due: Instant,
    timer_steps: u32,
    byte_steps: u32,
}

impl Dcqcn {
    /// With these parameters.
    pub fn new(values: &Values) -> Self {
        Self {
            notification: values.duration("notification_interval_us"),
            alpha_interval: values.duration("alpha_interval_us"),
            increase_interval: values.duration("increase_interval_us"),
            byte_counter: values.of("byte_counter_bytes") as u64,
            fast_steps: values.of("fast_steps") as u32,
            gain: values.of("gain"),
            additive: values.of("additive_mbps") * 1e6,
            hyper: values.of("hyper_mbps") * 1e6,
            least: values.of("rate_min_mbps") * 1e6,
        }
    }

    /// Least time between two notifications for one channel.
    pub fn notification_interval(&self) -> Duration {
        self.notification
    }

    /// A new channel.
    pub fn start(&self) -> Flow {
        Flow::default()
    }

    /// A notification has come.
    pub fn notified(&self, flow: &mut Flow, way: &Way, now: Instant) {
        self.advance(flow, way, now);
        if flow.rate == 0.0 {
            flow.rate = line(way);
            flow.alpha = 1.0;
        }
        flow.target = flow.rate;
        flow.rate = (flow.rate * (1.0 - flow.alpha / 2.0)).max(self.least);
        flow.alpha = (1.0 - self.gain) * flow.alpha + self.gain;
        (flow.timer_steps, flow.byte_steps, flow.counted) = (0, 0, 0);
        flow.increase_due = now + self.increase_interval;
        flow.alpha_due = now + self.alpha_interval;
    }

    /// Lets the timers tick that were due by `now`.
    #[inline]
    pub fn advance(&self, flow: &mut Flow, way: &Way, now: Instant) {
        while flow.rate != 0.0 && flow.increase_due.min(flow.alpha_due) <= now {
            if flow.alpha_due <= flow.increase_due {
                flow.alpha *= 1.0 - self.gain;
                flow.alpha_due += self.alpha_interval;
            } else {
                flow.timer_steps += 1;
                flow.increase_due += self.increase_interval;
                self.increase(flow, way);
            }
        }
    }

    /// `bytes` were sent; true if that changed the rate.
    #[inline]
    pub fn sent(&self, flow: &mut Flow, way: &Way, now: Instant, bytes: u64) -> bool {
        if flow.rate == 0.0 {
            return false;
        }
        self.advance(flow, way, now);
        flow.counted += bytes;
        if flow.rate == 0.0 || flow.counted < self.byte_counter {
            return flow.rate == 0.0;
        }
        flow.counted -= self.byte_counter;
        flow.byte_steps += 1;
        self.increase(flow, way);
        true
    }

    fn increase(&self, flow: &mut Flow, way: &Way) {
        let (first, last) = (
            flow.timer_steps.min(flow.byte_steps),
            flow.timer_steps.max(flow.byte_steps),
        );
        if first > self.fast_steps {
            flow.target += self.hyper;
        } else if last > self.fast_steps {
            flow.target += self.additive;
        }
        flow.target = flow.target.min(line(way));
        flow.rate = (flow.rate + flow.target) / 2.0;
        if flow.rate + self.additive >= line(way) {
            *flow = Flow::default();
        }
    }

    /// How long the rate holds without a notification; none at line rate.
    #[inline]
    pub fn tick(&self, flow: &Flow, now: Instant) -> Option<Duration> {
        (flow.rate != 0.0).then(|| flow.increase_due.saturating_since(now))
    }

    /// What the channel may do.
    #[inline]
    pub fn limit(&self, flow: &Flow, way: &Way) -> Limit {
        if flow.rate == 0.0 {
            return Limit::paced(way, way.line_rate);
        }
        Limit::paced(way, BitRate::from_bps(flow.rate as u64))
    }
}

fn line(way: &Way) -> f64 {
    way.line_rate.as_bps() as f64
}
