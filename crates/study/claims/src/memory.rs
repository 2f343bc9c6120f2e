//! Runs of tiered memory, and their numbers by name.
//!
//! Units end the names. Method: a run of a claim is a scenario with a `[memory]` table, changed as any other; a measurement
//! is `label:redis.latency_ns` for an application, `label:local.utilisation` for a tier, and `label:machine.slot_wait_ns`
//! for the whole.
//! Limits: nanoseconds and gigabytes per second are those of the model.
//! Source: Mercury 5.2 to 5.6.

use crate::error::nearest;
use isolane_study_results::memory::{MemAppResult, MemResult, MemTierResult};

/// The name of the whole machine in a measurement.
const MACHINE: &str = "machine";

/// What a measurement may name of a run of tiered memory.
pub(crate) const FIELDS: [&str; 27] = [
    "latency_ns",
    "bandwidth_gb_per_s",
    "throughput",
    "operation_us",
    "slo_met_share",
    "slo_latency_ns",
    "slo_bandwidth_gb_per_s",
    "local_bytes",
    "far_bytes",
    "last_local_bytes",
    "last_far_bytes",
    "local_share",
    "cpu_share",
    "promoted_bytes",
    "demoted_bytes",
    "refused",
    "profile.local_bytes",
    "profile.cpu_share",
    "profile.bandwidth_gb_per_s",
    "used_bytes",
    "utilisation",
    "queue_full_share",
    "slots_busy_share",
    "slot_wait_ns",
    "hint_faults_per_s",
    "healthy_local_gb_per_s",
    "healthy_hint_faults_per_s",
];

/// The number `field` of what is called `name` in `result`.
pub(crate) fn value(result: &MemResult, name: &str, field: &str) -> Result<f64, String> {
    if name == MACHINE {
        let all = &result.machine_wide;
        return Ok(match field {
            "slots_busy_share" => all.slots_busy_share,
            "slot_wait_ns" => all.slot_wait_ns,
            "hint_faults_per_s" => all.hint_faults_per_s,
            "healthy_local_gb_per_s" => all.healthy_local_gb_per_s,
            "healthy_hint_faults_per_s" => all.healthy_hint_faults_per_s,
            _ => return Err(format!("a machine has no {field}")),
        });
    }
    if let Some(app) = result.app(name) {
        return of_app(app, field);
    }
    if let Some(tier) = result.tiers.iter().find(|tier| tier.name == name) {
        return of_tier(tier, field);
    }
    let apps = result.apps.iter().map(|app| app.name.as_str());
    let tiers = result.tiers.iter().map(|tier| tier.name.as_str());
    Err(format!(
        "the run has no application or tier {name:?}{}",
        nearest(name, apps.chain(tiers).chain([MACHINE]))
    ))
}

fn of_app(app: &MemAppResult, field: &str) -> Result<f64, String> {
    let absent = || format!("application {:?} has no {field}", app.name);
    let profile = || app.profile.ok_or_else(absent);
    Ok(match field {
        "latency_ns" => app.latency_ns.ok_or_else(absent)?,
        "bandwidth_gb_per_s" => app.bandwidth_gb_per_s,
        "throughput" => app.throughput,
        "operation_us" => app.operation_us.ok_or_else(absent)?,
        "slo_met_share" => app.slo_met_share,
        "slo_latency_ns" => app.slo_latency_ns.ok_or_else(absent)?,
        "slo_bandwidth_gb_per_s" => app.slo_bandwidth_gb_per_s.ok_or_else(absent)?,
        "local_bytes" => app.local_bytes as f64,
        "far_bytes" => app.far_bytes as f64,
        "last_local_bytes" => app.last_local_bytes as f64,
        "last_far_bytes" => app.last_far_bytes as f64,
        "local_share" if app.local_bytes + app.far_bytes > 0 => {
            app.local_bytes as f64 / (app.local_bytes + app.far_bytes) as f64
        }
        "cpu_share" => app.cpu_share,
        "promoted_bytes" => app.promoted_bytes as f64,
        "demoted_bytes" => app.demoted_bytes as f64,
        "refused" => f64::from(u8::from(app.is_refused())),
        "profile.local_bytes" => profile()?.local_bytes as f64,
        "profile.cpu_share" => profile()?.cpu_share,
        "profile.bandwidth_gb_per_s" => profile()?.bandwidth_gb_per_s,
        _ => return Err(absent()),
    })
}

fn of_tier(tier: &MemTierResult, field: &str) -> Result<f64, String> {
    Ok(match field {
        "latency_ns" => tier.latency_ns,
        "bandwidth_gb_per_s" => tier.bandwidth_gb_per_s,
        "used_bytes" => tier.used_bytes as f64,
        "utilisation" => tier.utilisation,
        "queue_full_share" => tier.queue_full_share,
        _ => return Err(format!("tier {:?} has no {field}", tier.name)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_memory_scenario::parse::parse;

    fn result() -> MemResult {
        let text = "duration = \"1s\"\n[memory]\nmachine = \"genoa-cxl\"\n[[app]]\nname = \"probe\"\n\
                    kind = \"latency\"\nworking_set = \"4GB\"\nfar_percent = 25\n";
        isolane_memory_simulator::run(&parse(text, "probe.toml").expect("valid"))
    }

    #[test]
    fn applications_tiers_and_the_machine_have_numbers() {
        let result = result();
        let number = |name, field| value(&result, name, field).expect("a number");
        assert!((number("probe", "local_share") - 0.75).abs() < 1e-9);
        assert!(number("local", "utilisation") > 0.0);
        assert_eq!(number("machine", "slot_wait_ns"), 0.0);
    }

    #[test]
    fn what_is_not_there_is_named() {
        let result = result();
        let wrong = |name, field| value(&result, name, field).expect_err("nothing");
        assert!(wrong("prob", "latency_ns").contains("did you mean \"probe\""));
        assert!(wrong("probe", "profile.cpu_share").contains("has no profile.cpu_share"));
        assert!(wrong("far", "cpu_share").contains("tier \"far\" has no cpu_share"));
        assert!(wrong("machine", "latency_ns").contains("a machine has no latency_ns"));
    }

    #[test]
    fn every_field_is_one_of_an_application_a_tier_or_the_machine() {
        let mut result = result();
        let app = &mut result.apps[0];
        app.slo_latency_ns = Some(1.0);
        app.slo_bandwidth_gb_per_s = Some(1.0);
        app.profile = Some(isolane_study_results::memory::MemProfileResult {
            admissible: true,
            local_bytes: 1,
            cpu_share: 1.0,
            bandwidth_gb_per_s: 1.0,
        });
        for field in FIELDS {
            let found = ["probe", "local", MACHINE]
                .iter()
                .any(|name| value(&result, name, field).is_ok());
            assert!(found, "{field}");
        }
    }
}
