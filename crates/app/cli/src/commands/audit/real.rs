//! An audit on real devices: times that suit them, workloads that they can run, and rates that they have.
//!
//! What a victim is owed is a part of what the device can do, so the device is measured first. The figures are in a
//! file beside the journal, so a resumed audit judges by the same figures.

use super::Arguments;
use crate::inputs::bad;
use crate::output;
use anyhow::{Result, bail};
use isolane_study_audit::plan::{AttackerPlan, Plan, VictimPlan};
use isolane_study_testbed_verbs::VerbsTestbed;
use isolane_study_testbed_verbs::calibrate::Calibration;
use isolane_study_testbed_verbs::testbed::{MEASURED_MIN, WARMUP_MIN};

/// Holds what the devices could do alone.
const FILE: &str = "device.json";

/// The cap over the least times: a measured time twice as long fits once.
const CAP_TIMES: u64 = 4;

/// Makes `plan` one for `devices`.
pub(super) fn suit(plan: &mut Plan, devices: &VerbsTestbed, arguments: &Arguments) -> Result<()> {
    if arguments.duration.is_none() {
        plan.duration = plan.duration.max(MEASURED_MIN);
    }
    if arguments.warmup.is_none() {
        plan.warmup = plan.warmup.max(WARMUP_MIN);
    }
    // A run that is measured again begins again: once is all that an audit of real seconds can afford.
    if arguments.cap.is_none() {
        let times = (plan.warmup + plan.duration) * CAP_TIMES;
        plan.cap = plan.cap.map(|_| times);
    }
    for VictimPlan { tenant, .. } in &mut plan.victims {
        if let Err(reason) = tenant.as_ref().map_or(Ok(()), |t| devices.runs_tenant(t)) {
            *tenant = Err(reason);
        }
    }
    for AttackerPlan { tenants, .. } in &mut plan.attackers {
        let refused = tenants
            .iter()
            .flatten()
            .find_map(|tenant| devices.runs_tenant(tenant).err());
        if let Some(reason) = refused {
            *tenants = Err(reason);
        }
    }
    let path = arguments.report.join(FILE);
    if arguments.resume
        && let Ok(text) = std::fs::read_to_string(&path)
    {
        let known: Result<Calibration, _> = serde_json::from_str(&text);
        match known {
            Ok(known) => devices.set_calibration(known),
            Err(error) => bail!(bad(format!(
                "{}: {error}; run without --resume to start over",
                path.display()
            ))),
        }
    }
    let calibration = devices.calibration()?;
    output::write_file(&path, &output::json(&calibration)?)?;
    output::note(&format!(
        "isolane: {} alone: {:.3} Gb/s, {:.0} messages/s, p99 {:.1} us; profile {} is not applied",
        isolane_study_testbed::Testbed::name(devices),
        calibration.goodput_gbps,
        calibration.messages_per_s,
        calibration.idle_p99_us,
        plan.profile.name
    ));
    plan.profile =
        calibration.applied_to(&plan.profile, isolane_study_testbed::Testbed::name(devices));
    Ok(())
}
