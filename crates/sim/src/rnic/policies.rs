//! Policies by name, with the parameters of a scenario and the device's figures.

use isolane_core::policy::granularity::Granularity;
use isolane_core::policy::hardware_priority::{HardwarePriority, HardwarePriorityOptions};
use isolane_core::policy::justitia::{Justitia, JustitiaOptions};
use isolane_core::policy::lite::{Lite, LiteOptions};
use isolane_core::policy::{OptionError, Policy};
use isolane_core::units::{BitRate, Bytes, Duration};
use isolane_scenario::model::PolicySpec;
use isolane_scenario::profile::Profile;

/// The names [`crate::rnic::run`] accepts.
pub const POLICIES: [&str; 4] = ["none", "justitia", "lite", "hw-priority"];

/// Why a scenario cannot be simulated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SimError {
    /// No policy has this name.
    #[error("policy {name:?} is not one of the simulator's: choose one of {}", POLICIES.join(", "))]
    UnknownPolicy {
        /// The name asked for.
        name: String,
    },
    /// The policy refuses its parameters.
    #[error("policy {name}: {problem}")]
    Parameters {
        /// The policy.
        name: String,
        /// What is wrong and what would be right.
        problem: OptionError,
    },
}

/// A fresh instance of the policy for one host; `None` where nothing is enforced.
pub(crate) fn make(
    spec: &PolicySpec,
    profile: &Profile,
) -> Result<Option<Box<dyn Policy>>, SimError> {
    let refused = |problem| SimError::Parameters {
        name: spec.name.clone(),
        problem,
    };
    Ok(match spec.name.as_str() {
        "none" => None,
        "justitia" => Some(Box::new(
            Justitia::new(justitia(spec, profile)).map_err(refused)?,
        )),
        "lite" => Some(Box::new(Lite::new(lite(profile)).map_err(refused)?)),
        "hw-priority" => {
            let default = profile.value("host", "reconfigure_us");
            let reconfigure = microseconds(parameter(spec, "reconfigure_us").unwrap_or(default));
            let options = HardwarePriorityOptions {
                reconfigure,
                ..HardwarePriorityOptions::for_device(messages_per_s(profile))
            };
            Some(Box::new(HardwarePriority::new(options).map_err(refused)?))
        }
        name => {
            return Err(SimError::UnknownPolicy {
                name: name.to_owned(),
            });
        }
    })
}

/// What the policy isolates: tenants unless the scenario says otherwise.
pub(crate) fn granularity(spec: &PolicySpec) -> Granularity {
    match parameter(spec, "granularity").map(|value| value as u32) {
        Some(0) => Granularity::QueuePair,
        Some(1) => Granularity::Application,
        _ => Granularity::Tenant,
    }
}

fn justitia(spec: &PolicySpec, profile: &Profile) -> JustitiaOptions {
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

fn messages_per_s(profile: &Profile) -> u64 {
    (profile.value("justitia", "message_rate_max_mps") * 1e6).round() as u64
}

fn parameter(spec: &PolicySpec, name: &str) -> Option<f64> {
    spec.parameters.get(name).copied()
}

fn microseconds(us: f64) -> Duration {
    Duration::from_ns_f64(us * 1e3)
}
