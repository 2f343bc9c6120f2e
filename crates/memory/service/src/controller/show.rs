//! The status of the controller.

use super::{Controlled, Controller, Enforcement, is_met};
use crate::application::{Slo, amounts};
use crate::indicator::pressure::Pressure;
use crate::indicator::source_name;
use crate::profile::machine::HINT_FAULTS_UNKNOWN;
use crate::protocol::status::{
    ApplicationStatus, BackendEvents, Change, Measured, SourceStatus, Status, Thresholds,
    TierStatus,
};
use crate::protocol::{Lacks, Limits};
use isolane_common_quantities::units::{Duration, Instant};
use isolane_memory_policy::mercury;
use isolane_memory_policy::mercury::{AppId, AppView, PERIOD, Reading};

impl Controller {
    /// Everything at one moment.
    pub fn status(&self, now: Instant) -> Status {
        let pressures = self.parts.sensors.pressures();
        let age = self.parts.sensors.age();
        let pressure = |id| pressures.get(id).map(|pressure| (*pressure, age));
        let mut applications: Vec<ApplicationStatus> = self
            .apps
            .iter()
            .map(|(id, app)| self.application(now, *id, app, pressure(id)))
            .collect();
        applications.sort_by_key(|app| std::cmp::Reverse(app.priority));
        Status {
            release: env!("CARGO_PKG_VERSION").to_owned(),
            policy: self.about.policy.clone(),
            backend: self.parts.backend.name().to_owned(),
            period_ms: ms(PERIOD),
            uptime_ms: ms(now.saturating_since(self.started)),
            steps: self.counters.steps,
            step_max_us: self.counters.step_max_us,
            late_steps: self.counters.late_steps,
            changes: self.counters.changes,
            refused: self.counters.refused,
            refused_writes: self.counters.refused_writes,
            backend_events: BackendEvents {
                adoptions_refused: self.counters.adoptions_refused,
                releases_refused: self.counters.releases_refused,
                released: self.counters.released,
                stuck: self.counters.stuck,
            },
            tiers: self.seen.tiers.iter().enumerate().map(tier).collect(),
            hint_faults_per_s: self
                .seen
                .hint_faults_per_s
                .map(|reading| measured(&reading, |rate| rate)),
            thresholds: self
                .about
                .thresholds
                .map(|(thresholds, measured)| Thresholds {
                    local_bandwidth_bytes_per_s: thresholds.local_bandwidth,
                    hint_faults_per_s: Some(thresholds.hint_faults_per_s)
                        .filter(|faults| *faults < HINT_FAULTS_UNKNOWN),
                    measured,
                }),
            sources: self
                .parts
                .sensors
                .sources()
                .into_iter()
                .map(|source| SourceStatus {
                    name: source.name.to_owned(),
                    measures: source.measures.to_owned(),
                    works: source.works,
                    seen: source.seen,
                })
                .collect(),
            applications,
            problems: self.problems(),
        }
    }

    fn application(
        &self,
        now: Instant,
        id: AppId,
        app: &Controlled,
        seen: Option<(Pressure, Duration)>,
    ) -> ApplicationStatus {
        let view: Option<&AppView> = self.seen.apps.iter().find(|view| view.id == id);
        let application = &app.entry.application;
        let tiers = self.seen.tiers.len();
        let problem = app.trouble.first();
        let pressure = |value: fn(Pressure) -> f64| {
            seen.map(|(pressure, age)| Measured {
                value: value(pressure),
                age_ms: ms(age),
                source: source_name(mercury::Source::Kernel).to_owned(),
            })
        };
        ApplicationStatus {
            name: application.name.clone(),
            id: id.0,
            kind: application.slo.kind().to_owned(),
            slo: application.slo,
            priority: application.priority,
            cgroup: app.entry.cgroup.clone(),
            own_cgroup: app.entry.own,
            lacks: app.lacks.map(|lacks| Lacks {
                local_bytes: lacks.local.get(),
                bandwidth_bytes_per_s: lacks.bandwidth,
            }),
            slo_met: is_met(&self.seen, id, application.slo.objective()),
            slo_met_share: (app.judged > 0).then(|| app.met as f64 / app.judged as f64),
            latency_ns: view
                .and_then(|view| view.latency)
                .map(|reading| measured(&reading, Duration::as_ns_f64)),
            bandwidth_bytes_per_s: view
                .and_then(|view| view.bandwidth)
                .map(|reading| measured(&reading, |rate| rate as f64)),
            cpu_used_per_mille: view
                .and_then(|view| view.cpu_used)
                .map(|reading| measured(&reading, f64::from)),
            pressure_some_percent: pressure(|pressure| pressure.some_percent),
            pressure_full_percent: pressure(|pressure| pressure.full_percent),
            held_bytes: view.map_or_else(Vec::new, |view| {
                view.held
                    .iter()
                    .take(tiers)
                    .map(|bytes| bytes.get())
                    .collect()
            }),
            limits: limits(&app.wanted, tiers),
            last_change: Some(Change {
                ago_ms: ms(now.saturating_since(app.last_change.0)),
                reason: app.last_change.1.clone(),
                refused: problem.cloned(),
            }),
            enforcement: match app.enforcement {
                Enforcement::None => "none",
                Enforcement::Moving => "moving",
                Enforcement::Reached => "reached",
                Enforcement::Stuck => "stuck",
            }
            .to_owned(),
            problem: problem.cloned(),
        }
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = self.about.problems.clone();
        for app in self.apps.values() {
            let trouble = &app.trouble;
            let all = [
                &trouble.tiers,
                &trouble.moving,
                &trouble.cpu,
                &trouble.floors,
            ];
            for problem in all.into_iter().flatten() {
                problems.push(format!("{}: {problem}", app.entry.application.name));
            }
        }
        for entry in self.journal.entries.iter().filter(|entry| entry.let_go) {
            let name = &entry.application.name;
            let cgroup = &entry.cgroup;
            problems.push(match self.lifting.get(&entry.id) {
                Some((_, why)) => format!(
                    "{name} is released, but our limits in {cgroup} are not lifted yet; the service tries again every second: {why}"
                ),
                None if entry.limited => {
                    format!("{name} is released; our limits in {cgroup} are being lifted")
                }
                None => format!(
                    "{name} is released; its cgroup {cgroup} is removed when its processes have ended"
                ),
            });
        }
        problems
    }
}

fn tier((index, view): (usize, &mercury::TierView)) -> TierStatus {
    TierStatus {
        tier: u8::try_from(index).unwrap_or(u8::MAX),
        capacity_bytes: view.capacity.get(),
        used_bytes: view.used.get(),
        bandwidth_bytes_per_s: view
            .bandwidth
            .map(|reading| measured(&reading, |rate| rate as f64)),
    }
}

fn measured<T: Copy>(reading: &Reading<T>, value: impl Fn(T) -> f64) -> Measured {
    Measured {
        value: value(reading.value),
        age_ms: ms(reading.age),
        source: source_name(reading.source).to_owned(),
    }
}

fn ms(duration: Duration) -> u64 {
    duration.as_ps() / 1_000_000_000
}

/// Limits as they are shown, for a machine of so many tiers.
pub(super) fn limits(limits: &mercury::Limits, tiers: usize) -> Limits {
    Limits {
        tier_bytes: limits
            .tiers
            .iter()
            .take(tiers.max(1))
            .map(|limit| limit.map(|bytes| bytes.get()))
            .collect(),
        cpu_per_mille: limits.cpu,
    }
}

/// An objective for people.
pub(super) fn slo(slo: Slo) -> String {
    match slo {
        Slo::LatencyPs(ps) => format!("latency {}", Duration::from_ps(ps)),
        Slo::BandwidthBytesPerS(rate) => {
            format!("bandwidth {}", amounts::bandwidth_text(rate))
        }
        Slo::BestEffort => "nothing".to_owned(),
    }
}
