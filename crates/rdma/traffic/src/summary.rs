//! Combines both ends' reports into the figures of a run.

use crate::worker::{LatencyNs, Plan, Report, Work};
use isolane_rdma_scenario::model::{Host, Transport};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the JSON form.
pub const SUMMARY_VERSION: u32 = 1;

/// Results of one tenant's run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// [`SUMMARY_VERSION`].
    pub version: u32,
    /// Tenant name.
    pub tenant: String,
    /// Length of the measured window, seconds.
    pub measured_s: f64,
    /// Whether the rate was steady when measuring began (always true with a fixed warm-up).
    pub steady: bool,
    /// Delivered payload, gigabits per second: completed at the sender, or for unreliable transports arrived at the
    /// receiver.
    pub goodput_gbps: f64,
    /// Delivered messages per second.
    pub messages_per_s: f64,
    /// Control verbs per second.
    pub control_verbs_per_s: f64,
    /// Intended failures per second (fault workloads).
    pub faults_per_s: f64,
    /// Latency in microseconds, over all posting ends.
    pub latency_us: Option<LatencyUs>,
    /// Sent messages that did not arrive, over the whole run; 0 if arrivals are not visible.
    pub lost_messages: u64,
    /// Number of completions with an error, by status name.
    pub errors: BTreeMap<String, u64>,
    /// Number of verified bytes.
    pub checked_bytes: u64,
    /// Number of bytes with wrong content.
    pub wrong_bytes: u64,
    /// Full report of each host.
    pub hosts: BTreeMap<Host, Report>,
}

/// Latency statistics, microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencyUs {
    /// Number of messages.
    pub samples: u64,
    /// Minimum.
    pub min: f64,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Maximum.
    pub max: f64,
}

impl From<LatencyNs> for LatencyUs {
    fn from(latency: LatencyNs) -> Self {
        let us = |ns: u64| ns as f64 / 1e3;
        Self {
            samples: latency.samples,
            min: us(latency.min),
            mean: latency.mean / 1e3,
            p50: us(latency.p50),
            p99: us(latency.p99),
            p999: us(latency.p999),
            max: us(latency.max),
        }
    }
}

impl Summary {
    /// Combines `reports` of the workers of `plan`.
    pub fn of(plan: &Plan, reports: BTreeMap<Host, Report>) -> Self {
        let counts = reports
            .values()
            .map(|report| report.latency_counts.as_slice());
        let latency = LatencyNs::merged(counts);
        let mut summary = Self {
            version: SUMMARY_VERSION,
            tenant: String::new(),
            measured_s: 0.0,
            steady: true,
            goodput_gbps: 0.0,
            messages_per_s: 0.0,
            control_verbs_per_s: 0.0,
            faults_per_s: 0.0,
            latency_us: latency.map(LatencyUs::from),
            lost_messages: 0,
            errors: BTreeMap::new(),
            checked_bytes: 0,
            wrong_bytes: 0,
            hosts: BTreeMap::new(),
        };
        let (mut sent, mut arrived) = (0_u64, 0_u64);
        for (host, report) in &reports {
            let Some(job) = plan.jobs.get(host) else {
                continue;
            };
            summary.tenant.clone_from(&report.tenant);
            if job.posts() {
                summary.steady &= report.steady;
                summary.measured_s = summary.measured_s.max(report.window.seconds());
            }
            for (end, figures) in job.ends.iter().zip(&report.ends) {
                let seconds = figures.window.seconds();
                let per_second = |count: u64| match seconds > 0.0 {
                    true => count as f64 / seconds,
                    false => 0.0,
                };
                let (mut messages, mut bytes) = (figures.posted_messages, figures.posted_bytes);
                if let Work::Data(data) = &end.work
                    && data.transport != Transport::Rc
                    && data.operation.needs_receives()
                {
                    sent += figures.posted_messages_total;
                    arrived += figures.received_messages_total;
                    (messages, bytes) = (figures.received_messages, figures.received_bytes);
                }
                summary.goodput_gbps += per_second(bytes) * 8.0 / 1e9;
                summary.messages_per_s += per_second(messages);
                summary.control_verbs_per_s += per_second(figures.control_verbs);
                summary.faults_per_s += per_second(figures.faults);
                summary.checked_bytes += figures.checked_bytes;
                summary.wrong_bytes += figures.wrong_bytes;
                for (name, count) in &figures.errors {
                    *summary.errors.entry(name.clone()).or_default() += count;
                }
            }
        }
        summary.lost_messages = sent.saturating_sub(arrived);
        summary.hosts = reports;
        summary
    }

    /// Whether no completion failed and every checked byte was right.
    pub fn sound(&self) -> bool {
        self.errors.is_empty() && self.wrong_bytes == 0
    }
}
