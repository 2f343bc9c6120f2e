//! The adapter of a policy: its observations of the machine, and its actions.
//!
//! Units: as the types say. Method: a policy sees what a host can see, each reading with the noise of sampling, as of the last
//! step. `none` and `tpp` have no policy: the kernel's mechanisms are all there is. `memtis` and `colloid` set no limits;
//! [`crate::sampled`] drives them.

use crate::balance::Balance;
use crate::bench;
use crate::host::App;
use crate::settings::Machine;
use crate::tier::LINE;
use crate::words;
use isolane_common_quantities::rng::Stream;
use isolane_common_quantities::units::{Bytes, Duration, Instant};
use isolane_memory_policy::mercury::{
    Action, AppId, AppSpec, AppView, Fcfs, Fixed, Limits, MemoryPolicy, Mercury, MercuryOptions,
    Observation, Profile, Reading, Sharing, Source, TIERS_MAX, Thresholds, TierView, Verdict,
};
use isolane_memory_scenario::model::{MemPolicyName, MemScenario};

/// The policy and its inputs.
pub(crate) struct Drive {
    policy: Option<Box<dyn MemoryPolicy>>,
    noise: Stream,
    pub(crate) thresholds: Thresholds,
    pub(crate) profiles: Vec<Option<Profile>>,
    pub(crate) actions: u64,
    /// Every action with its time, where the scenario requests a series.
    pub(crate) changes: Option<Vec<(Instant, Action)>>,
}

impl Drive {
    pub(crate) fn new(
        scenario: &MemScenario,
        machine: &Machine,
        apps: &[App<'_>],
        thresholds: Thresholds,
    ) -> Self {
        let profiles = apps.iter().map(|app| {
            let needed = scenario.policy.has_limits() && app.is_managed();
            needed.then(|| bench::profile(machine, app))
        });
        Self {
            policy: policy_of(scenario, machine, thresholds),
            noise: Stream::named(scenario.seed, "indicator-noise"),
            thresholds,
            profiles: profiles.collect(),
            actions: 0,
            changes: scenario.sample_interval.map(|_| Vec::new()),
        }
    }

    /// Requests admission for application `index`. Returns whether it may run.
    pub(crate) fn arrive(
        &mut self,
        now: Instant,
        machine: &Machine,
        apps: &mut [App<'_>],
        index: usize,
        balance: &Balance,
    ) -> bool {
        if self.policy.is_none() || !apps[index].is_managed() {
            return true;
        }
        let seen = self.observe(machine, apps, balance);
        let spec = self.spec(apps, index);
        let Some(policy) = &mut self.policy else {
            return true;
        };
        let verdict = policy.arrive(now, spec, &seen);
        apps[index].verdict = Some(match verdict {
            Verdict::Admitted => "admitted",
            Verdict::BestEffort(_) => "best-effort",
            Verdict::Refused(_) => "refused",
        });
        apps[index].verdict_reason = words::of_verdict(&verdict, apps);
        self.act(now, apps);
        !matches!(verdict, Verdict::Refused(_))
    }

    pub(crate) fn depart(&mut self, now: Instant, apps: &mut [App<'_>], index: usize) {
        if let Some(policy) = &mut self.policy {
            policy.depart(now, AppId(index as u32));
            self.act(now, apps);
        }
        apps[index].limits = Limits::NONE;
    }

    pub(crate) fn step(
        &mut self,
        now: Instant,
        machine: &Machine,
        apps: &mut [App<'_>],
        balance: &Balance,
    ) {
        if self.policy.is_none() || balance.rate.is_empty() {
            return;
        }
        let seen = self.observe(machine, apps, balance);
        if let Some(policy) = &mut self.policy {
            policy.step(now, &seen);
        }
        self.act(now, apps);
    }

    fn act(&mut self, now: Instant, apps: &mut [App<'_>]) {
        let Some(policy) = &mut self.policy else {
            return;
        };
        while let Some(action) = policy.poll_action() {
            self.actions += 1;
            if let Some(changes) = &mut self.changes {
                changes.push((now, action));
            }
            if let Some(app) = apps.get_mut(action.app.0 as usize) {
                app.limits = action.limits;
                app.reason = Some(action.reason);
            }
        }
    }

    fn spec(&self, apps: &[App<'_>], index: usize) -> AppSpec {
        let app = &apps[index];
        let mut caps = [None; TIERS_MAX];
        caps[0] = app.spec.local_limit;
        AppSpec {
            id: AppId(index as u32),
            name: app.spec.name.clone(),
            objective: app.spec.objective,
            priority: app.spec.priority,
            weight: app.spec.weight,
            footprint: app.spec.footprint,
            profile: self.profiles[index],
            caps,
            far_tiers: Vec::new(),
        }
    }

    /// What a host can see now.
    fn observe(&mut self, machine: &Machine, apps: &[App<'_>], balance: &Balance) -> Observation {
        let tiers = machine.tiers.iter().enumerate().map(|(index, tier)| {
            let held: f64 = apps.iter().map(|app| app.pages.held(index)).sum();
            let usable = match index {
                0 => tier.capacity * (1.0 - machine.kernel.free),
                _ => tier.capacity,
            };
            let rate = balance.rate.get(index);
            TierView {
                capacity: Bytes::new(usable as u64),
                used: Bytes::new(held as u64),
                bandwidth: rate.map(|rate| reading((rate * LINE * 1e9) as u64)),
            }
        });
        let tiers = tiers.collect();
        let faults: f64 = apps.iter().map(|app| app.faults).sum();
        let mut views = Vec::new();
        for (index, app) in apps.iter().enumerate() {
            if !app.is_running() || !app.is_managed() {
                continue;
            }
            let mut held = [Bytes::ZERO; TIERS_MAX];
            for (tier, bytes) in held.iter_mut().enumerate() {
                *bytes = Bytes::new(app.pages.held(tier) as u64);
            }
            let off = 1.0 + machine.kernel.noise * self.normal();
            let has_run = app.rate > 0.0;
            views.push(AppView {
                id: AppId(index as u32),
                held,
                latency: has_run.then(|| reading(Duration::from_ns_f64(app.latency * off))),
                bandwidth: Some(reading((app.rate * LINE * 1e9) as u64)),
                cpu_used: Some(reading((app.cpu_used() * 1000.0).round() as u32)),
            });
        }
        Observation {
            tiers,
            hint_faults_per_s: Some(reading(faults)),
            apps: views,
        }
    }

    /// About normal, mean 0, deviation 1: twelve uniform numbers.
    fn normal(&mut self) -> f64 {
        let sum: f64 = (0..12)
            .map(|_| self.noise.next_u64() as f64 / u64::MAX as f64)
            .sum();
        sum - 6.0
    }
}

fn reading<T: Copy>(value: T) -> Reading<T> {
    Reading {
        value,
        age: Duration::ZERO,
        source: Source::Model,
    }
}

/// The policy that the scenario names, with the profile of `machine`.
fn policy_of(
    scenario: &MemScenario,
    machine: &Machine,
    thresholds: Thresholds,
) -> Option<Box<dyn MemoryPolicy>> {
    let (near, far) = (&machine.tiers[0], &machine.tiers[1]);
    let bandwidth = |rate: f64| (rate * LINE * 1e9) as u64;
    let thousandths = |ratio: f64| (ratio * 1000.0).round().clamp(1e3, 1e5) as u32;
    match scenario.policy {
        MemPolicyName::None
        | MemPolicyName::Tpp
        | MemPolicyName::Memtis
        | MemPolicyName::Colloid => None,
        MemPolicyName::Mercury | MemPolicyName::Weighted => {
            let usable = near.capacity * (1.0 - machine.kernel.free);
            let options = MercuryOptions {
                near_bandwidth: Some(bandwidth(near.most)),
                latency_ratio: thousandths(far.latency / near.latency),
                bandwidth_ratio: thousandths(near.most / far.most),
                sharing: match scenario.policy {
                    MemPolicyName::Weighted => Sharing::Weighted,
                    _ => Sharing::Strict,
                },
                ..MercuryOptions::new(thresholds, Bytes::new(usable as u64))
            };
            let mercury = Mercury::new(options).expect("the ratios are within their ranges");
            Some(Box::new(mercury))
        }
        MemPolicyName::Static => {
            let table = scenario.apps.iter().enumerate().map(|(index, app)| {
                let mut tiers = [None; TIERS_MAX];
                tiers[0] = app.local_limit;
                let cpu = app.cpu_limit;
                (AppId(index as u32), Limits { tiers, cpu })
            });
            Some(Box::new(Fixed::new(table.collect())))
        }
        MemPolicyName::Fcfs => Some(Box::new(Fcfs::new(Some(bandwidth(near.most))))),
    }
}
