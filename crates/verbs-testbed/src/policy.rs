//! Which policies real devices can run, and what would run the others.

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

/// Whether every part of the policy called `name` runs here, or what runs the part that does not.
pub(crate) fn runs(name: &str) -> Result<(), String> {
    let missing = name.split('+').find(|part| !PARTS.contains(part));
    match missing {
        None => Ok(()),
        Some(part) => Err(format!(
            "policy {part} is not run on real devices: {}",
            elsewhere(part)
        )),
    }
}
