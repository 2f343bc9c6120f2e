//! Which policies real devices can run, and what would run the others.

use crate::error::VerbsError;
use isolane_scenario::model::Scenario;

/// The parts of policies that this testbed runs.
pub(crate) const PARTS: &[&str] = &["none"];

/// What runs a part that this testbed does not.
fn elsewhere(part: &str) -> &'static str {
    match part {
        "hw-tc" | "vl-qos" | "hw-priority" => {
            "the operator sets traffic classes on the device (see `isolane doctor`); then run it under policy none"
        }
        "sriov" => {
            "make virtual functions and name their devices in the target; then run it under policy none"
        }
        "harmonic" => "`isolane enforce` limits tenants on a real host; or use --target sim",
        _ => "only the simulator runs it: --target sim",
    }
}

/// Refuses what no run on `target` can answer.
pub(crate) fn check(scenario: &Scenario, target: &str) -> Result<(), VerbsError> {
    let parts = scenario.policy.name.split('+');
    for part in parts {
        if !PARTS.contains(&part) {
            return Err(VerbsError::Scenario {
                scenario: scenario.name.clone(),
                target: target.to_owned(),
                reason: format!(
                    "policy {part} is not run on real devices: {}",
                    elsewhere(part)
                ),
            });
        }
    }
    Ok(())
}
