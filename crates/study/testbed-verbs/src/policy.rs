//! The policies that real devices can run, and the reason against each other one.
//!
//! Under `justitia` every run has a daemon of its own. It hands out a little less than the calibration's rates, for a queue into
//! which goes as much as comes out never drains. Its target is what the scenario's policy says (`target_us`), otherwise twice the
//! idle 99th percentile of the calibration: a profile's target is that of the profile's device, and the daemon's own
//! measurement would take longer than most runs and meet their traffic.

use crate::calibrate::Calibration;
use crate::conduct::UnderDaemon;
use crate::message::{Paced, PacedDevice, Pacing};
use crate::target::Target;
use isolane_rdma_scenario::model::Scenario;

/// The parts of policies that this testbed runs.
pub(crate) const PARTS: &[&str] = &["none", "justitia"];

/// Of the measured goodput, what the daemon hands out.
const HANDED_OUT: f64 = 0.96;
/// The daemon takes no target above a second.
const TARGET_MOST_US: u64 = 1_000_000;
/// Times the idle 99th percentile that the target is: the daemon's own default (`target_factor`).
const IDLE_FACTOR: f64 = 2.0;
/// The part that a daemon runs.
const PACED: &str = "justitia";

/// What runs a part that this testbed does not.
fn elsewhere(part: &str) -> &'static str {
    match part {
        "hw-tc" | "vl-qos" | "hw-priority" => {
            "the operator sets traffic classes on the device (see `isolane rdma doctor`); then run it under policy none"
        }
        "sriov" => {
            "make virtual functions and name their devices in the target; then run it under policy none"
        }
        "harmonic" => "`isolane rdma enforce` limits tenants on a real host; or use --target sim",
        _ => "only the simulator runs it: --target sim",
    }
}

/// Whether every part of the policy called `name` runs here, or what runs the part that does not.
pub(crate) fn runs(name: &str) -> Result<(), String> {
    let missing = name.split('+').find(|part| !PARTS.contains(part));
    match missing {
        None => Ok(()),
        Some(part) => Err(format!(
            "real devices do not run {part} here: {}",
            elsewhere(part)
        )),
    }
}

/// Whether the policy called `name` runs on all machines of `target`.
pub(crate) fn reaches(name: &str, target: &Target) -> Result<(), String> {
    let first = &target.places[0].machine;
    let one = target.places.iter().all(|place| place.machine == *first);
    match one || name != PACED {
        true => Ok(()),
        false => Err(format!(
            "policy {PACED} runs here with both devices in one machine; on several, start isolaned on each with the \
             other as its peer, and the programs with `isolane rdma run`"
        )),
    }
}

/// The daemon of a run of `scenario`, if its policy needs one.
pub(crate) fn under(
    scenario: &Scenario,
    target: &Target,
    calibration: &Calibration,
) -> Option<UnderDaemon> {
    if scenario.policy.name != PACED {
        return None;
    }
    let parameter = |name: &str| {
        let value = scenario.policy.parameters.get(name)?;
        Some(value.ceil() as u64).filter(|us| *us > 0)
    };
    let target_us = parameter("target_us").or_else(|| {
        let twice = (IDLE_FACTOR * calibration.idle_p99_us).ceil() as u64;
        Some(twice.min(TARGET_MOST_US)).filter(|us| *us > 0)
    });
    let rate_kbps = (calibration.goodput_gbps * HANDED_OUT * 1e6) as u64;
    let mut devices: Vec<PacedDevice> = Vec::new();
    for place in &target.places {
        if devices.iter().all(|device| device.name != place.device) {
            devices.push(PacedDevice {
                name: place.device.clone(),
                port: place.device_port,
                rate_kbps: rate_kbps.max(1),
                messages_per_s: (calibration.messages_per_s as u64).max(1),
                target_us,
                reference_period_us: parameter("ref_period_us"),
            });
        }
    }
    // By number: the daemon's names are narrower than a scenario's.
    let name = |index: usize| format!("t{index}");
    let tenants = scenario.tenants.iter().enumerate();
    Some(UnderDaemon {
        paced: Paced {
            devices,
            weights: tenants
                .clone()
                .map(|(index, tenant)| (name(index), tenant.weight))
                .collect(),
        },
        tenants: tenants
            .map(|(index, tenant)| Pacing {
                class: tenant.class.name().to_owned(),
                tenant: name(index),
            })
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_rdma_scenario::library::Library;

    fn paced(policy: &str) -> Vec<PacedDevice> {
        let text = format!(
            "profile = \"cx5-100g-roce\"\n{policy}[[tenant]]\nname = \"small\"\nclass = \"latency\"\n\
             [[tenant.traffic]]\nverb = \"write\"\nsize = 16\ndepth = 1\n"
        );
        let scenario =
            isolane_rdma_scenario::parse(&text, "test.toml", &Library::embedded()).unwrap();
        let target: Target = "verbs:r0,r1".parse().unwrap();
        let calibration = Calibration {
            goodput_gbps: 10.0,
            messages_per_s: 1_000_000.0,
            idle_p50_us: 3.0,
            idle_p99_us: 20.4,
        };
        under(&scenario, &target, &calibration)
            .expect("a daemon")
            .paced
            .devices
    }

    #[test]
    fn the_daemon_hands_out_less_than_was_measured_and_protects_twice_the_idle_latency() {
        for device in paced("[policy]\nname = \"justitia\"\n") {
            assert_eq!(device.rate_kbps, 9_600_000);
            assert_eq!(device.target_us, Some(41));
        }
    }

    #[test]
    fn a_target_that_the_scenario_names_is_kept() {
        for device in paced("[policy]\nname = \"justitia\"\ntarget_us = 7\n") {
            assert_eq!(device.target_us, Some(7));
        }
    }
}
