//! Mean times per message: the sums of a trace by resource, by the tenants that caused the wait, and by stage.
//!
//! Times are picoseconds. A mean is over messages that completed in a window, or over given messages.

use isolane_rdma_simulator::rnic::trace::{FollowedMessage, Part, Resource, Stage, Trace};
use std::collections::BTreeMap;
use std::ops::Range;

/// ps per message, by resource and host.
pub(crate) type Waits = BTreeMap<(Resource, u8), f64>;

/// Mean times of one run, ps per message.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times {
    pub(crate) messages: u64,
    pub(crate) latency: f64,
    pub(crate) waits: Waits,
    /// By resource, host and tenant.
    pub(crate) caused_by: BTreeMap<(Resource, u8, u16), f64>,
    pub(crate) stages: BTreeMap<(Stage, bool), f64>,
}

impl Times {
    pub(crate) fn of(trace: &Trace, window: &Range<usize>, legs: f64) -> Self {
        let messages: u64 = trace.messages[window.clone()].iter().sum();
        let mut times = Self {
            messages,
            ..Self::default()
        };
        for (part, series) in &trace.waits {
            let ps: u64 = series[window.clone()].iter().sum();
            times.add(part, ps as f64 / messages.max(1) as f64 / legs);
        }
        times
    }

    pub(crate) fn of_messages(messages: &[FollowedMessage], legs: f64) -> Self {
        let mut times = Self::default();
        for message in messages {
            for span in &message.spans {
                times.add(&span.part, span.ps as f64 / messages.len() as f64 / legs);
            }
        }
        times
    }

    fn add(&mut self, part: &Part, ps: f64) {
        self.latency += ps;
        *self.stages.entry((part.stage, part.service)).or_default() += ps;
        if !part.service {
            let key = (part.resource, part.host);
            *self.waits.entry(key).or_default() += ps;
            let key = (part.resource, part.host, part.tenant);
            *self.caused_by.entry(key).or_default() += ps;
        }
    }
}
