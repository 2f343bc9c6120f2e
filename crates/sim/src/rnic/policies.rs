//! Policies by name, for the simulator.

use isolane_core::policy::Policy;
use isolane_core::policy::granularity::Granularity;
use isolane_scenario::model::PolicySpec;
use isolane_scenario::profile::Profile;

/// The names [`crate::rnic::run`] accepts.
pub const POLICIES: [&str; 4] = ["none", "justitia", "lite", "hw-priority"];

/// Why a scenario cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SimError {
    /// No policy has this name.
    UnknownPolicy {
        /// The name asked for.
        name: String,
    },
}

pub(crate) fn make(spec: &PolicySpec, _profile: &Profile) -> Result<Option<Box<dyn Policy>>, SimError> {
    match spec.name.as_str() {
        "none" => Ok(None),
        name => Err(SimError::UnknownPolicy { name: name.to_owned() }),
    }
}

pub(crate) fn granularity(_spec: &PolicySpec) -> Result<Granularity, SimError> {
    Ok(Granularity::Tenant)
}
