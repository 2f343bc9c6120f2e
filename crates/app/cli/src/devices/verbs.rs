//! Real devices, by the crate `isolane-study-testbed-verbs`.
//!
//! Environment: `ISOLANE_SSH` names the program that is called as ssh is.

use crate::inputs::bad;
use crate::output;
use anyhow::{Context, Result};
use isolane_common_quantities::units::Duration;
use isolane_rdma_scenario::model::Scenario;
use isolane_rdma_scenario::profile::Profile;
use isolane_study_hunt::space::convert::Times;
use isolane_study_testbed::{Testbed, TestbedError};
use isolane_study_testbed_verbs::target::TargetError;
pub(crate) use isolane_study_testbed_verbs::testbed::{MEASURED_MIN, WARMUP_MIN};
use isolane_study_testbed_verbs::testbed::{lengthen, settle};
use isolane_study_testbed_verbs::{Reach, Target};
pub(crate) use isolane_study_testbed_verbs::{Stage, VerbsTestbed};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The devices that `target` names, with the certificates in `identity`.
pub(crate) fn open(
    target: &str,
    identity: Option<&PathBuf>,
    cancel: impl FnOnce() -> Result<Arc<AtomicBool>>,
    stage: impl Fn(Stage) + Send + Sync + 'static,
) -> Result<VerbsTestbed> {
    let target: Target = target
        .parse()
        .map_err(|error: TargetError| bad(error.to_string()))?;
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    let mut reach = Reach::of(program);
    if let Some(ssh) = std::env::var_os("ISOLANE_SSH").filter(|name| !name.is_empty()) {
        reach.ssh = ssh;
    }
    reach.identity = identity.cloned();
    Ok(VerbsTestbed::new(target, reach, cancel()?, Box::new(stage)))
}

/// Gives `scenario` times that suit real devices; a measured time of the user's own stays as it is.
pub(crate) fn suit(_: &VerbsTestbed, scenario: &mut Scenario, own: Option<Duration>) {
    let grown = match own {
        Some(_) => {
            settle(scenario);
            false
        }
        None => lengthen(scenario),
    };
    if grown {
        output::note(&format!(
            "isolane: {}'s times are a simulator's; real devices are measured for {} after at least {WARMUP_MIN} \
             (--duration sets another time)",
            scenario.name, scenario.duration
        ));
    }
    output::note(&format!(
        "isolane: profile {} is not applied: real devices are as they are",
        scenario.profile
    ));
}

/// The times of one experiment of a hunt on real devices.
pub(crate) fn times(_: &VerbsTestbed) -> Times {
    Times {
        warmup: WARMUP_MIN,
        duration: MEASURED_MIN,
    }
}

/// What runs on `devices` take place on: firmware, driver, kernel and settings.
pub(crate) fn environment(devices: &VerbsTestbed) -> Result<BTreeMap<String, String>> {
    Ok(devices.environment().map_err(TestbedError::from)?)
}

/// What the progress bar says of a stage, and how long the stage takes where that is known.
pub(crate) fn words(stage: Stage) -> (&'static str, Option<std::time::Duration>) {
    match stage {
        Stage::Connecting => ("connecting", None),
        Stage::Calibrating => ("finding out what the devices can do", None),
        Stage::Pacing => ("starting the daemon", None),
        Stage::Preparing => ("preparing queue pairs and memory", None),
        Stage::Running(time) => ("running", Some(time)),
        Stage::Collecting => ("collecting", None),
    }
}

/// `profile` with the rates that the devices have, which are measured now.
pub(crate) fn measured(devices: &VerbsTestbed, profile: &Profile) -> Result<Profile> {
    let calibration = devices.calibration()?;
    output::note(&format!(
        "isolane: {} alone: {:.3} Gb/s, {:.0} messages/s; of profile {} only transports and MTUs count",
        Testbed::name(devices),
        calibration.goodput_gbps,
        calibration.messages_per_s,
        profile.name
    ));
    Ok(calibration.applied_to(profile, Testbed::name(devices)))
}
