//! The service's figures as OpenMetrics families.
//!
//! Limits: an unknown value is absent.

use crate::protocol::status::{ApplicationStatus, Measured, Status};
use isolane_common_text_output::openmetrics::{Families, Family, Kind, Labels};
use std::sync::{Mutex, PoisonError};

/// What the service of this process left last.
static LATEST: Mutex<String> = Mutex::new(String::new());

/// The figures of the service of this process, if it publishes any; empty otherwise.
pub fn latest() -> String {
    LATEST
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}

/// Leaves figures for [`latest`].
pub(super) fn publish(families: String) {
    *LATEST.lock().unwrap_or_else(PoisonError::into_inner) = families;
}

/// The families, without the end mark.
pub fn families(status: &Status) -> String {
    let mut text = Families::default();
    service(&mut text, status);
    tiers(&mut text, status);
    applications(&mut text, status);
    text.into_families()
}

fn service(text: &mut Families, status: &Status) {
    for (name, value, help) in [
        (
            "isolane_memory_steps",
            status.steps,
            "Periods in which limits were worked out",
        ),
        (
            "isolane_memory_late_steps",
            status.late_steps,
            "Periods that came late by more than a period",
        ),
        (
            "isolane_memory_limit_changes",
            status.changes,
            "Changes of limits",
        ),
        (
            "isolane_memory_refused_applications",
            status.refused,
            "Applications that were not admitted",
        ),
        (
            "isolane_memory_refused_writes",
            status.refused_writes,
            "Writes that the kernel rejected",
        ),
    ] {
        text.family(Kind::Counter, name, help).sample(&[], value);
    }
    let help = "Events that the mechanism that moves pages reported";
    let mut family = text.family(Kind::Counter, "isolane_memory_backend_events", help);
    let events = &status.backend_events;
    for (event, count) in [
        ("adoption_refused", events.adoptions_refused),
        ("release_refused", events.releases_refused),
        ("released", events.released),
        ("stuck", events.stuck),
    ] {
        family.sample(&[("backend", &status.backend), ("event", &event)], count);
    }
    let help = "Longest step since the start";
    text.family(Kind::Gauge, "isolane_memory_step_max_seconds", help)
        .sample(&[], status.step_max_us as f64 / 1e6);
    if let Some(rate) = &status.hint_faults_per_s {
        let help = "Accesses found to go to far memory, per second";
        text.family(Kind::Gauge, "isolane_memory_hint_faults_per_second", help)
            .sample(&[("source", &rate.source)], rate.value);
    }
}

fn tiers(text: &mut Families, status: &Status) {
    let help = "Memory of the tier";
    let mut family = text.family(Kind::Gauge, "isolane_memory_tier_capacity_bytes", help);
    for tier in &status.tiers {
        family.sample(&[("tier", &tier.tier)], tier.capacity_bytes);
    }
    let help = "Memory in use";
    let mut family = text.family(Kind::Gauge, "isolane_memory_tier_used_bytes", help);
    for tier in &status.tiers {
        family.sample(&[("tier", &tier.tier)], tier.used_bytes);
    }
    let name = "isolane_memory_tier_bandwidth_bytes_per_second";
    let mut family = text.family(Kind::Gauge, name, "Bandwidth of the tier");
    for tier in &status.tiers {
        if let Some(bandwidth) = &tier.bandwidth_bytes_per_s {
            let labels: &Labels<'_> = &[("tier", &tier.tier), ("source", &bandwidth.source)];
            family.sample(labels, bandwidth.value);
        }
    }
}

/// Name, help and value of a family of applications.
type Row = (
    &'static str,
    &'static str,
    fn(&ApplicationStatus) -> Option<f64>,
);

#[rustfmt::skip]
const APPLICATIONS: &[Row] = &[
    ("isolane_memory_application_latency_seconds", "Mean latency of its memory accesses", |app| value(&app.latency_ns).map(|ns| ns / 1e9)),
    ("isolane_memory_application_bandwidth_bytes_per_second", "Its memory bandwidth", |app| value(&app.bandwidth_bytes_per_s)),
    ("isolane_memory_application_pressure_some_ratio", "Part of the last ten seconds in which at least one task waited for memory",
        |app| value(&app.pressure_some_percent).map(|percent| percent / 1e2)),
    ("isolane_memory_application_pressure_full_ratio", "Part of the last ten seconds in which all tasks waited for memory",
        |app| value(&app.pressure_full_percent).map(|percent| percent / 1e2)),
    ("isolane_memory_application_slo_met", "1 while its objective is kept", |app| app.slo_met.map(|met| f64::from(u8::from(met)))),
    ("isolane_memory_application_slo_met_ratio", "Share of the periods in which its objective was kept", |app| app.slo_met_share),
    ("isolane_memory_application_cpu_limit_ratio", "Processor time that it may use, of its cores",
        |app| Some(f64::from(app.limits.cpu_per_mille) / 1e3)),
    ("isolane_memory_application_priority", "Larger is more important", |app| Some(f64::from(app.priority))),
    ("isolane_memory_application_in_trouble", "1 while its limits cannot be kept", |app| Some(f64::from(u8::from(app.problem.is_some())))),
];

fn applications(text: &mut Families, status: &Status) {
    for (name, help, value) in APPLICATIONS {
        let mut family = text.family(Kind::Gauge, name, help);
        for app in &status.applications {
            if let Some(value) = value(app) {
                family.sample(&[("application", &app.name), ("type", &app.kind)], value);
            }
        }
    }
    let help = "What it holds of a tier";
    let family = text.family(Kind::Gauge, "isolane_memory_application_held_bytes", help);
    each_tier(family, status, |app| {
        app.held_bytes.iter().copied().map(Some).collect()
    });
    let help = "What it may hold of a tier; absent without a limit";
    let family = text.family(Kind::Gauge, "isolane_memory_application_limit_bytes", help);
    each_tier(family, status, |app| app.limits.tier_bytes.clone());
}

fn each_tier(
    mut family: Family<'_>,
    status: &Status,
    values: impl Fn(&ApplicationStatus) -> Vec<Option<u64>>,
) {
    for app in &status.applications {
        for (tier, value) in values(app).into_iter().enumerate() {
            if let Some(value) = value {
                family.sample(&[("application", &app.name), ("tier", &tier)], value);
            }
        }
    }
}

fn value(measured: &Option<Measured>) -> Option<f64> {
    measured.as_ref().map(|measured| measured.value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::application::Slo;
    use crate::protocol::Limits;
    use crate::protocol::status::TierStatus;
    use expect_test::expect_file;

    fn status() -> Status {
        Status {
            steps: 7,
            step_max_us: 1_500,
            tiers: vec![TierStatus {
                capacity_bytes: 10,
                used_bytes: 4,
                ..TierStatus::default()
            }],
            applications: vec![ApplicationStatus {
                name: "redis".into(),
                id: 1,
                kind: "ls".into(),
                slo: Slo::LatencyPs(160_000),
                priority: 3,
                cgroup: "/isolane-mem/redis".into(),
                own_cgroup: true,
                lacks: None,
                slo_met: Some(true),
                slo_met_share: Some(0.75),
                latency_ns: Some(Measured {
                    value: 143.5,
                    age_ms: 12,
                    source: "perf".into(),
                }),
                bandwidth_bytes_per_s: None,
                cpu_used_per_mille: None,
                pressure_some_percent: Some(Measured {
                    value: 12.5,
                    age_ms: 12,
                    source: "kernel".into(),
                }),
                pressure_full_percent: None,
                held_bytes: vec![3, 1],
                limits: Limits {
                    tier_bytes: vec![Some(5), None],
                    cpu_per_mille: 640,
                },
                last_change: None,
                enforcement: "reached".into(),
                problem: None,
            }],
            ..Status::default()
        }
    }

    #[test]
    fn samples_have_base_units_and_unknown_values_are_absent() {
        expect_file!["../../golden/metrics.txt"].assert_eq(&families(&status()));
    }
}
