//! Means over the measured time, and the series.
//!
//! Units: nanoseconds, bytes, seconds. Method: every step counts for its length. An objective is met in a step when the mean
//! of the last [`WINDOW`] steps is within [`SLACK`] of it: a controller that gives an application just what it needs stays
//! on both sides of its objective.

use crate::balance::Balance;
use crate::host::App;
use crate::settings::Machine;
use crate::tier::LINE;
use crate::words;
use isolane_common_quantities::units::{Bytes, Instant};
use isolane_memory_policy::mercury::{Action, CPU_ONE, Objective, Profile, Thresholds};
use isolane_memory_scenario::model::MemScenario;
use isolane_study_results::memory::{
    MEM_RESULT_VERSION, MemAppPoint, MemAppResult, MemChange, MemMachineResult, MemPoint,
    MemProfileResult, MemResult, MemTierResult,
};
use std::collections::BTreeMap;

/// How far from its objective an application may be: the step of memory limits and the noise of indicators are of this size.
const SLACK: f64 = 0.05;
/// Steps whose mean is compared with the objective: one second.
const WINDOW: usize = 10;

#[derive(Clone, Debug, Default)]
struct AppSum {
    ran: f64,
    latency: f64,
    rate: f64,
    met: f64,
    local: f64,
    far: f64,
    cpu: f64,
    used: f64,
    recent: Vec<f64>,
    before: (f64, f64),
}

#[derive(Clone, Debug, Default)]
struct TierSum {
    used: f64,
    rate: f64,
    latency: f64,
    full: f64,
}

/// Everything measured so far.
#[derive(Clone, Debug)]
pub(crate) struct Measure {
    apps: Vec<AppSum>,
    tiers: Vec<TierSum>,
    time: f64,
    slots: f64,
    wait: f64,
    faults: f64,
    series: Vec<MemPoint>,
}

impl Measure {
    pub(crate) fn new(apps: usize, tiers: usize) -> Self {
        Self {
            apps: vec![AppSum::default(); apps],
            tiers: vec![TierSum::default(); tiers],
            time: 0.0,
            slots: 0.0,
            wait: 0.0,
            faults: 0.0,
            series: Vec::new(),
        }
    }

    /// Follows the objectives, also before anything is measured.
    pub(crate) fn watch(&mut self, apps: &[App<'_>]) {
        for (sum, app) in self.apps.iter_mut().zip(apps) {
            if !app.is_running() {
                sum.recent.clear();
                continue;
            }
            if sum.recent.len() == WINDOW {
                sum.recent.remove(0);
            }
            sum.recent.push(match app.spec.objective {
                Objective::Bandwidth(_) => app.rate * LINE * 1e9,
                _ => app.latency,
            });
        }
    }

    pub(crate) fn begin(&mut self, apps: &[App<'_>]) {
        for (sum, app) in self.apps.iter_mut().zip(apps) {
            sum.before = (app.promoted, app.demoted);
        }
    }

    /// Counts one step of `seconds`.
    pub(crate) fn step(
        &mut self,
        machine: &Machine,
        apps: &[App<'_>],
        balance: &Balance,
        seconds: f64,
    ) {
        self.time += seconds;
        self.slots += seconds * balance.slots_used / machine.slots;
        self.wait += seconds * balance.slot_wait;
        for (sum, app) in self.apps.iter_mut().zip(apps) {
            if !app.is_running() {
                continue;
            }
            let near = app.pages.held(0);
            sum.ran += seconds;
            sum.latency += seconds * app.latency;
            sum.rate += seconds * app.rate;
            sum.local += seconds * near;
            sum.far += seconds * (app.pages.bytes() - near);
            sum.cpu += seconds * app.cpu_share();
            sum.used += seconds * app.cpu_used();
            sum.met += match met(app, &sum.recent) {
                true => seconds,
                false => 0.0,
            };
            self.faults += seconds * app.faults;
        }
        for (index, sum) in self.tiers.iter_mut().enumerate() {
            let tier = &machine.tiers[index];
            let held: f64 = apps.iter().map(|app| app.pages.held(index)).sum();
            sum.used += seconds * held;
            sum.rate += seconds * balance.rate[index];
            sum.latency += seconds * (balance.slot_wait + balance.response[index]);
            if balance.response[index] >= tier.full {
                sum.full += seconds;
            }
        }
    }

    /// Adds a point to the series.
    pub(crate) fn point(&mut self, at_s: f64, apps: &[App<'_>]) {
        let running = apps.iter().filter(|app| app.is_running());
        let apps: BTreeMap<String, MemAppPoint> = running
            .map(|app| {
                let point = MemAppPoint {
                    latency_ns: shown(app.latency),
                    bandwidth_gb_per_s: shown(app.rate * LINE),
                    throughput: shown(app.rate * 1e9 / app.access.work),
                    local_bytes: app.pages.held(0).round() as u64,
                    cpu_share: app.cpu_share(),
                };
                (app.spec.name.clone(), point)
            })
            .collect();
        let at_s = shown(at_s);
        self.series.push(MemPoint { at_s, apps });
    }

    /// What came out.
    pub(crate) fn result(
        self,
        scenario: &MemScenario,
        machine: &Machine,
        apps: &[App<'_>],
        found: &Found,
    ) -> MemResult {
        let time = self.time.max(f64::MIN_POSITIVE);
        let sums = self.apps.iter().zip(apps).zip(&found.profiles);
        let results: Vec<MemAppResult> = sums
            .map(|((sum, app), profile)| MemAppResult {
                last_reason: app.reason.map(|reason| words::of_reason(reason, apps)),
                ..app_result(sum, app, profile.as_ref())
            })
            .collect();
        let tiers = self.tiers.iter().enumerate().map(|(index, sum)| {
            let tier = &machine.tiers[index];
            MemTierResult {
                name: machine.names[index].to_owned(),
                capacity_bytes: tier.capacity.round() as u64,
                used_bytes: (sum.used / time).round() as u64,
                bandwidth_gb_per_s: shown(sum.rate / time * LINE),
                utilisation: shown(sum.rate / time / tier.rate),
                latency_ns: shown(sum.latency / time),
                queue_full_share: shown(sum.full / time),
            }
        });
        let page = machine.kernel.page;
        let moved = |of: fn(&MemAppResult) -> u64| {
            let bytes: u64 = results.iter().map(of).sum();
            (bytes as f64 / page).round() as u64
        };
        let counts = BTreeMap::from([
            ("actions".to_owned(), found.actions),
            ("promoted_pages".to_owned(), moved(|app| app.promoted_bytes)),
            ("demoted_pages".to_owned(), moved(|app| app.demoted_bytes)),
        ]);
        MemResult {
            version: MEM_RESULT_VERSION,
            scenario: scenario.name.clone(),
            machine: scenario.machine.clone(),
            policy: scenario.policy.name().to_owned(),
            seed: scenario.seed,
            warmup_s: shown(scenario.warmup.as_secs_f64()),
            measured_s: shown(self.time),
            tiers: tiers.collect(),
            machine_wide: MemMachineResult {
                slots_busy_share: shown(self.slots / time),
                slot_wait_ns: shown(self.wait / time),
                hint_faults_per_s: shown(self.faults / time),
                healthy_local_gb_per_s: shown(found.thresholds.local_bandwidth as f64 / 1e9),
                healthy_hint_faults_per_s: shown(found.thresholds.hint_faults_per_s),
                counts,
            },
            apps: results,
            series: self.series,
            changes: changes(&found.changes, apps),
        }
    }
}

/// What was found besides measuring.
pub(crate) struct Found {
    pub(crate) thresholds: Thresholds,
    pub(crate) profiles: Vec<Option<Profile>>,
    pub(crate) actions: u64,
    pub(crate) changes: Vec<(Instant, Action)>,
}

/// Rounded as results are written: digits beyond the eighth are noise of sums and of the solver.
fn shown(value: f64) -> f64 {
    format!("{value:.7e}").parse().unwrap_or(value)
}

fn changes(all: &[(Instant, Action)], apps: &[App<'_>]) -> Vec<MemChange> {
    let of = |(at, action): &(Instant, Action)| {
        let app = apps.get(action.app.0 as usize)?;
        Some(MemChange {
            at_s: shown(at.saturating_since(Instant::ZERO).as_secs_f64()),
            app: app.spec.name.clone(),
            local_limit_bytes: action.limits.tiers[0].map(Bytes::get),
            cpu_share: f64::from(action.limits.cpu) / f64::from(CPU_ONE),
            reason: words::of_reason(action.reason, apps),
        })
    };
    all.iter().filter_map(of).collect()
}

fn met(app: &App<'_>, recent: &[f64]) -> bool {
    let mean = recent.iter().sum::<f64>() / recent.len().max(1) as f64;
    match app.spec.objective {
        Objective::Latency(limit) => mean <= limit.as_ns_f64() * (1.0 + SLACK),
        Objective::Bandwidth(least) => mean >= least as f64 * (1.0 - SLACK),
        Objective::BestEffort => true,
    }
}

fn app_result(sum: &AppSum, app: &App<'_>, profile: Option<&Profile>) -> MemAppResult {
    let ran = sum.ran.max(f64::MIN_POSITIVE);
    let throughput = sum.rate / ran * 1e9 / app.access.work;
    let cores = match app.access.parallel {
        true => 1.0,
        false => f64::from(app.spec.cores) * sum.used / ran,
    };
    let (slo_latency_ns, slo_bandwidth) = match app.spec.objective {
        Objective::Latency(limit) => (Some(limit.as_ns_f64()), None),
        Objective::Bandwidth(least) => (None, Some(least as f64 / 1e9)),
        Objective::BestEffort => (None, None),
    };
    let near = app.pages.held(0);
    MemAppResult {
        name: app.spec.name.clone(),
        kind: app.spec.kind.clone(),
        priority: app.spec.priority,
        slo_latency_ns,
        slo_bandwidth_gb_per_s: slo_bandwidth,
        verdict: app.verdict.map(str::to_owned),
        ran_s: shown(sum.ran),
        latency_ns: (sum.ran > 0.0).then(|| shown(sum.latency / ran)),
        bandwidth_gb_per_s: shown(sum.rate / ran * LINE),
        throughput: shown(throughput),
        operation: app.operation.clone(),
        operation_us: (throughput > 0.0).then(|| shown(cores / throughput * 1e6)),
        slo_met_share: shown(sum.met / ran).min(1.0),
        local_bytes: (sum.local / ran).round() as u64,
        far_bytes: (sum.far / ran).round() as u64,
        last_local_bytes: near.round() as u64,
        last_far_bytes: (app.pages.bytes() - near).round() as u64,
        cpu_share: shown(sum.cpu / ran),
        promoted_bytes: (app.promoted - sum.before.0).round() as u64,
        demoted_bytes: (app.demoted - sum.before.1).round() as u64,
        last_reason: None,
        verdict_reason: app.verdict_reason.clone(),
        profile: profile.map(|profile| MemProfileResult {
            admissible: profile.admissible,
            local_bytes: profile.local.get(),
            cpu_share: f64::from(profile.cpu) / 1000.0,
            bandwidth_gb_per_s: profile.bandwidth as f64 / 1e9,
        }),
    }
}
