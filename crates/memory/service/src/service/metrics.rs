//! The service's figures as OpenMetrics families.
//!
//! Units: base units as the format wants them (bytes, seconds), named at the end of each name; shares are 0 to 1.
//! Limits: an unknown value is absent. Source: the OpenMetrics specification, version 1.0.0.

use crate::protocol::status::{ApplicationStatus, Measured, Status};
use std::fmt::Write;
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
    let mut text = String::new();
    service(&mut text, status);
    tiers(&mut text, status);
    applications(&mut text, status);
    text
}

fn service(text: &mut String, status: &Status) {
    let counters = [
        (
            "steps",
            status.steps,
            "Periods in which limits were worked out",
        ),
        (
            "late_steps",
            status.late_steps,
            "Periods that came late by more than a period",
        ),
        ("limit_changes", status.changes, "Changes of limits"),
        (
            "refused_applications",
            status.refused,
            "Applications that were not admitted",
        ),
        (
            "refused_writes",
            status.refused_writes,
            "Writes that the kernel refused",
        ),
    ];
    for (name, value, help) in counters {
        let name = format!("isolane_memory_{name}");
        head(text, &name, "counter", "", help);
        sample(text, &format!("{name}_total"), &[], value as f64);
    }
    let name = "isolane_memory_backend_events";
    head(
        text,
        name,
        "counter",
        "",
        "What the mechanism that moves pages told of its work",
    );
    let events = &status.backend_events;
    for (event, count) in [
        ("adoption_refused", events.adoptions_refused),
        ("release_refused", events.releases_refused),
        ("released", events.released),
        ("stuck", events.stuck),
    ] {
        let labels = [("backend", status.backend.as_str()), ("event", event)];
        sample(text, &format!("{name}_total"), &labels, count as f64);
    }
    let name = "isolane_memory_step_max_seconds";
    head(
        text,
        name,
        "gauge",
        "seconds",
        "Longest step since the start",
    );
    sample(text, name, &[], status.step_max_us as f64 / 1e6);
    if let Some(rate) = &status.hint_faults_per_s {
        let name = "isolane_memory_hint_faults_per_second";
        head(
            text,
            name,
            "gauge",
            "",
            "Accesses found to go to far memory, per second",
        );
        sample(text, name, &[("source", &rate.source)], rate.value);
    }
}

fn tiers(text: &mut String, status: &Status) {
    let families = [
        (
            "isolane_memory_tier_capacity_bytes",
            "Memory of the tier",
            0,
        ),
        ("isolane_memory_tier_used_bytes", "Memory in use", 1),
    ];
    for (name, help, which) in families {
        head(text, name, "gauge", "bytes", help);
        for tier in &status.tiers {
            let value = if which == 0 {
                tier.capacity_bytes
            } else {
                tier.used_bytes
            };
            sample(
                text,
                name,
                &[("tier", &tier.tier.to_string())],
                value as f64,
            );
        }
    }
    let name = "isolane_memory_tier_bandwidth_bytes_per_second";
    head(
        text,
        name,
        "gauge",
        "bytes_per_second",
        "Bandwidth of the tier",
    );
    for tier in &status.tiers {
        if let Some(bandwidth) = &tier.bandwidth_bytes_per_s {
            let labels = [
                ("tier", tier.tier.to_string()),
                ("source", bandwidth.source.clone()),
            ];
            let labels = labels.each_ref().map(|(key, value)| (*key, value.as_str()));
            sample(text, name, &labels, bandwidth.value);
        }
    }
}

/// Name, unit, help and value of a family of applications.
type Row = (
    &'static str,
    &'static str,
    &'static str,
    fn(&ApplicationStatus) -> Option<f64>,
);

const APPLICATIONS: &[Row] = &[
    (
        "latency_seconds",
        "seconds",
        "Mean latency of its memory accesses",
        |app| value(&app.latency_ns).map(|ns| ns / 1e9),
    ),
    (
        "bandwidth_bytes_per_second",
        "bytes_per_second",
        "Its memory bandwidth",
        |app| value(&app.bandwidth_bytes_per_s),
    ),
    ("slo_met", "", "1 while its promise is kept", |app| {
        app.slo_met.map(|met| f64::from(u8::from(met)))
    }),
    (
        "slo_met_ratio",
        "ratio",
        "Share of the periods in which its promise was kept",
        |app| app.slo_met_share,
    ),
    (
        "cpu_limit_ratio",
        "ratio",
        "Processor time that it may use, of its cores",
        |app| Some(f64::from(app.limits.cpu_per_mille) / 1e3),
    ),
    ("priority", "", "Larger is more important", |app| {
        Some(f64::from(app.priority))
    }),
    (
        "in_trouble",
        "",
        "1 while its limits cannot be kept",
        |app| Some(f64::from(u8::from(app.problem.is_some()))),
    ),
];

fn applications(text: &mut String, status: &Status) {
    for (name, unit, help, value) in APPLICATIONS {
        let name = format!("isolane_memory_application_{name}");
        head(text, &name, "gauge", unit, help);
        for app in &status.applications {
            if let Some(value) = value(app) {
                sample(
                    text,
                    &name,
                    &[("application", &app.name), ("type", &app.kind)],
                    value,
                );
            }
        }
    }
    let name = "isolane_memory_application_held_bytes";
    head(text, name, "gauge", "bytes", "What it holds of a tier");
    each_tier(text, name, status, |app| {
        app.held_bytes.iter().copied().map(Some).collect()
    });
    let name = "isolane_memory_application_limit_bytes";
    head(
        text,
        name,
        "gauge",
        "bytes",
        "What it may hold of a tier; absent without a limit",
    );
    each_tier(text, name, status, |app| app.limits.tier_bytes.clone());
}

fn each_tier(
    text: &mut String,
    name: &str,
    status: &Status,
    values: impl Fn(&ApplicationStatus) -> Vec<Option<u64>>,
) {
    for app in &status.applications {
        for (tier, value) in values(app).into_iter().enumerate() {
            if let Some(value) = value {
                let labels = [
                    ("application", app.name.as_str()),
                    ("tier", &tier.to_string()),
                ];
                sample(text, name, &labels, value as f64);
            }
        }
    }
}

fn value(measured: &Option<Measured>) -> Option<f64> {
    measured.as_ref().map(|measured| measured.value)
}

fn head(text: &mut String, name: &str, kind: &str, unit: &str, help: &str) {
    let _ = writeln!(text, "# TYPE {name} {kind}");
    if !unit.is_empty() {
        let _ = writeln!(text, "# UNIT {name} {unit}");
    }
    let _ = writeln!(text, "# HELP {name} {help}");
}

/// Names of applications and sources hold nothing that would need escaping.
fn sample(text: &mut String, name: &str, labels: &[(&str, &str)], value: f64) {
    text.push_str(name);
    for (index, (label, value)) in labels.iter().enumerate() {
        text.push(if index == 0 { '{' } else { ',' });
        let _ = write!(text, "{label}=\"{value}\"");
    }
    if !labels.is_empty() {
        text.push('}');
    }
    let _ = writeln!(text, " {value}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::application::Promise;
    use crate::protocol::Limits;
    use crate::protocol::status::TierStatus;
    use expect_test::expect;

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
                promise: Promise::LatencyPs(160_000),
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
        let text = families(&status());
        let samples: Vec<&str> = text.lines().filter(|line| line.contains("redis")).collect();
        expect![[r#"
            isolane_memory_application_latency_seconds{application="redis",type="ls"} 0.0000001435
            isolane_memory_application_slo_met{application="redis",type="ls"} 1
            isolane_memory_application_slo_met_ratio{application="redis",type="ls"} 0.75
            isolane_memory_application_cpu_limit_ratio{application="redis",type="ls"} 0.64
            isolane_memory_application_priority{application="redis",type="ls"} 3
            isolane_memory_application_in_trouble{application="redis",type="ls"} 0
            isolane_memory_application_held_bytes{application="redis",tier="0"} 3
            isolane_memory_application_held_bytes{application="redis",tier="1"} 1
            isolane_memory_application_limit_bytes{application="redis",tier="0"} 5"#]]
        .assert_eq(&samples.join("\n"));
    }

    #[test]
    fn every_sample_belongs_to_the_family_before_it() {
        let mut family = String::new();
        for line in families(&status()).lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                family = rest.split(' ').next().unwrap().to_owned();
            } else if !line.starts_with('#') {
                assert!(line.starts_with(&family), "{line} after {family}");
            }
        }
    }
}
