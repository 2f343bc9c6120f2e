//! The numbers that a policy was given, checked against [`isolane_network_scenario::parameters`], where their names,
//! ranges and defaults are written down. Units end the names.

use super::congestion::ParameterError;
use isolane_common_quantities::units::Duration;
use isolane_network_scenario::model::FabricPolicy;
use isolane_network_scenario::parameters::{POLICY, policy as known_of};

/// What was given.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    policy: &'a FabricPolicy,
}

impl<'a> Given<'a> {
    /// Checks names and ranges; a scenario that was read from a file has passed that before. Fails for the first
    /// parameter that is unknown or out of range.
    pub fn new(policy: &'a FabricPolicy) -> Result<Self, ParameterError> {
        let known = known_of(policy.kind);
        let control = POLICY[policy.kind as usize];
        for (name, &value) in &policy.parameters {
            let Some(parameter) = known.iter().find(|parameter| parameter.name == name) else {
                let names: Vec<&str> = known.iter().map(|parameter| parameter.name).collect();
                return Err(ParameterError::Unknown {
                    control,
                    name: name.clone(),
                    known: names.join(", "),
                });
            };
            // A NaN is in no range.
            if !(parameter.min..=parameter.max).contains(&value) {
                return Err(ParameterError::Range {
                    control,
                    name: name.clone(),
                    value,
                    least: parameter.min,
                    most: parameter.max,
                });
            }
        }
        Ok(Self { policy })
    }

    /// The value of `name`, or `default`.
    pub fn or(&self, name: &str, default: f64) -> f64 {
        self.policy.parameters.get(name).copied().unwrap_or(default)
    }

    /// The value of `name` as a time, or `default`, both in microseconds.
    pub fn duration_us(&self, name: &str, default: f64) -> Duration {
        Duration::from_ns_f64(self.or(name, default) * 1e3)
    }
}
