//! The policies of the daemons, with the parameters of a scenario and the device's figures.

use super::parameter;
use crate::rnic::device::{Device, verb_index};
use isolane_common_quantities::OptionError;
use isolane_common_quantities::units::{BitRate, Bytes, Duration};
use isolane_rdma_policy::Policy;
use isolane_rdma_policy::chunking::{Chunking, ChunkingOptions};
use isolane_rdma_policy::granularity::Granularity;
use isolane_rdma_policy::hardware_priority::{HardwarePriority, HardwarePriorityOptions};
use isolane_rdma_policy::isolane::software::{Software, SoftwareOptions};
use isolane_rdma_policy::justitia::{Justitia, JustitiaOptions};
use isolane_rdma_policy::lite::{Lite, LiteOptions};
use isolane_rdma_scenario::model::{PolicySpec, Scenario, Topology, Verb};
use isolane_rdma_scenario::profile::Profile;

/// A policy of the daemons, with checked options.
#[derive(Clone, Debug)]
pub(crate) enum Pacing {
    Justitia(JustitiaOptions),
    Lite(LiteOptions),
    Chunking(ChunkingOptions),
    Priority(HardwarePriorityOptions),
    Software(SoftwareOptions),
}

impl Pacing {
    pub(super) fn justitia(spec: &PolicySpec, profile: &Profile) -> Result<Self, OptionError> {
        let options = justitia(spec, profile);
        options.check()?;
        Ok(Self::Justitia(options))
    }

    pub(super) fn lite(profile: &Profile) -> Result<Self, OptionError> {
        let options = lite(profile);
        Lite::new(options.clone())?;
        Ok(Self::Lite(options))
    }

    pub(super) fn chunking(scenario: &Scenario, profile: &Profile) -> Result<Self, OptionError> {
        let device = Device::of(profile);
        let round_trip = Duration::from_ps(idle_round_trip(&device, scenario.topology));
        let mut options = ChunkingOptions::for_device(device.link_rate, round_trip);
        if let Some(bytes) = parameter(&scenario.policy, "chunk_bytes") {
            options.chunk = Bytes::new(bytes as u64);
        }
        if let Some(chunks) = parameter(&scenario.policy, "chunks_outstanding") {
            options.outstanding = chunks as u32;
        }
        options.check()?;
        Ok(Self::Chunking(options))
    }

    pub(super) fn priority(spec: &PolicySpec, profile: &Profile) -> Result<Self, OptionError> {
        let default = profile.value("host", "reconfigure_us");
        let reconfigure = microseconds(parameter(spec, "reconfigure_us").unwrap_or(default));
        let options = HardwarePriorityOptions {
            reconfigure,
            ..HardwarePriorityOptions::for_device(messages_per_s(profile))
        };
        HardwarePriority::new(options.clone())?;
        Ok(Self::Priority(options))
    }

    /// A fresh instance for one host.
    pub(crate) fn instance(&self) -> Box<dyn Policy> {
        let checked = "options are checked when the setup is made";
        match self {
            Self::Justitia(options) => Box::new(Justitia::new(options.clone()).expect(checked)),
            Self::Lite(options) => Box::new(Lite::new(options.clone()).expect(checked)),
            Self::Chunking(options) => Box::new(Chunking::new(*options).expect(checked)),
            Self::Priority(options) => {
                Box::new(HardwarePriority::new(options.clone()).expect(checked))
            }
            Self::Software(options) => Box::new(Software::new(options.clone()).expect(checked)),
        }
    }
}

/// What the policy isolates: tenants unless the scenario says otherwise.
pub(super) fn granularity(spec: &PolicySpec) -> Granularity {
    match parameter(spec, "granularity").map(|value| value as u32) {
        Some(0) => Granularity::QueuePair,
        Some(1) => Granularity::Application,
        _ => Granularity::Tenant,
    }
}

pub(super) fn justitia(spec: &PolicySpec, profile: &Profile) -> JustitiaOptions {
    let rate_max = BitRate::from_gbps_f64(profile.value("justitia", "rate_max_gbps"));
    let messages = messages_per_s(profile);
    let target =
        parameter(spec, "target_us").unwrap_or_else(|| profile.value("justitia", "target_us"));
    let mut options = JustitiaOptions::for_device(rate_max, messages, microseconds(target));
    if !profile.token_dictionary.is_empty() {
        options.token_dictionary = profile
            .token_dictionary
            .iter()
            .map(|entry| {
                (
                    BitRate::from_gbps_f64(entry.rate_gbps),
                    Bytes::new(entry.token_bytes),
                )
            })
            .collect();
    }
    if let Some(bytes) = parameter(spec, "token_bytes") {
        options.token_dictionary = vec![(rate_max, Bytes::new(bytes as u64))];
    }
    if let Some(period) = parameter(spec, "ref_period_us") {
        options.reference_period = microseconds(period);
    }
    if let Some(count) = parameter(spec, "ref_count") {
        options.reference_count = count as usize;
    }
    if let Some(bytes) = parameter(spec, "token_without_latency_bytes") {
        options.token_without_latency = Bytes::new(bytes as u64);
    }
    if let Some(step) = parameter(spec, "additive_step_mbps") {
        options.additive_step = BitRate::from_gbps_f64(step / 1e3);
    }
    if let Some(tokens) = parameter(spec, "token_backlog_max") {
        options.token_backlog_max = tokens as u32;
    }
    if let Some(idle) = parameter(spec, "idle_after_us") {
        options.idle_after = microseconds(idle);
    }
    if let Some(as_one) = parameter(spec, "count_latency_as_one") {
        options.count_latency_as_one = as_one != 0.0;
    }
    if parameter(spec, "classify") == Some(0.0) {
        options.classifier = None;
    }
    if let (Some(trust), Some(classifier)) =
        (parameter(spec, "trust_declared"), &mut options.classifier)
    {
        classifier.trust_declared = trust != 0.0;
    }
    options
}

fn lite(profile: &Profile) -> LiteOptions {
    let rate_max = BitRate::from_gbps_f64(profile.value("justitia", "rate_max_gbps"));
    LiteOptions::for_device(rate_max, messages_per_s(profile))
}

/// From the doorbell of a small WRITE to its completion in host memory on an idle device, ps: work request and
/// payload are read, the packet and its acknowledgement cross the wire, both ends process it.
fn idle_round_trip(device: &Device, topology: Topology) -> u64 {
    let write = verb_index(Verb::Write);
    let one_way = match topology {
        Topology::BackToBack => device.propagation,
        Topology::Switch => 2 * device.propagation + device.switch,
    };
    let wire = device.link.of(device.frame + device.extended_header) + device.link.of(device.ack);
    let work = device.request[write] + device.respond[write] + device.ack_cost;
    device.mmio + 2 * device.pcie_read + work + wire + 2 * one_way + device.pcie_write
}

fn messages_per_s(profile: &Profile) -> u64 {
    (profile.value("justitia", "message_rate_max_mps") * 1e6).round() as u64
}

fn microseconds(us: f64) -> Duration {
    Duration::from_ns_f64(us * 1e3)
}
