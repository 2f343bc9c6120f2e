//! What the service runs on: this machine with the best that it has, or a made-up one.
//!
//! Method: thresholds set by hand come before measured ones; without either nothing counts as interference between
//! applications, and that is said. Units: as in the settings.

use super::ServiceError;
use super::fake::{FakeMachine, NEAR, NEAR_NS, NEAR_RATE};
use super::settings::Settings;
use crate::backend::undo::undo;
use crate::cgroup::Cgroup;
use crate::controller::groups::HostGroups;
use crate::controller::{About, ControlPolicy, Parts};
use crate::error::MemError;
use crate::host::MemoryHost;
use crate::indicator::background::BackgroundSensors;
use crate::indicator::chase::TierChase;
use crate::indicator::machine::{Chase, MachineSensors};
use crate::indicator::{Sensors, SourceInfo, pmu};
use crate::journal::{FileStore, Store, boot};
use crate::probe;
use crate::profile::Origin;
use crate::profile::machine::{HINT_FAULTS_UNKNOWN, MachineProfile};
use crate::tiers::Tiers;
use isolane_common_quantities::units::{Bytes, Duration, Instant};
use isolane_memory_policy::mercury::{
    AppId, Fcfs, Fixed, Mercury, MercuryOptions, Observation, Sharing, TIERS_MAX, Thresholds,
    TierView,
};
use std::path::Path;

/// Parts of the controller, and its parameters.
pub struct Machine {
    /// Everything outside the controller.
    pub parts: Parts,
    /// What is known of the machine.
    pub about: About,
}

/// File of the machine's profile, below the directory of profiles.
pub const MACHINE: &str = "machine.json";
/// Bandwidth that no near tier has: nothing is interference.
const ANY_BANDWIDTH: u64 = u64::MAX / 2;

/// By the settings. The journal's lock comes first: a second service changes nothing. Fails if this machine has no
/// tiers, no control groups, or no backend that works; another service runs.
pub fn open(settings: &Settings) -> Result<Machine, ServiceError> {
    match &settings.fake {
        Some(directory) => fake_machine(settings, directory),
        None => real(settings, MemoryHost::machine()),
    }
}

fn fake_machine(settings: &Settings, directory: &Path) -> Result<Machine, ServiceError> {
    let store = FileStore::open(&settings.run_dir, &boot())?;
    let machine = FakeMachine::new(directory)?;
    let (policy, mut about) = policy(settings, NEAR, None)?;
    // As of a profiled machine: no objective exceeds what the machine gives.
    about.best_latency = Some(Duration::from_ns(NEAR_NS));
    about.best_bandwidth = Some(NEAR_RATE);
    about
        .problems
        .push("fake backend: all values are made up by a model, and no page moves".to_owned());
    let parts = Parts {
        policy,
        backend: Box::new(machine.clone()),
        sensors: Box::new(machine.clone()),
        groups: Box::new(machine),
        store: Box::new(store),
    };
    Ok(Machine { parts, about })
}

fn real(settings: &Settings, host: MemoryHost) -> Result<Machine, ServiceError> {
    let tiers = Tiers::required(&host)?;
    let near = tiers.usage(&host, 0).0;
    let (profile, problem) = machine_profile(settings, &host);
    let (policy, mut about) = policy(settings, near, profile)?;
    about.problems.extend(problem);
    let mut store = FileStore::open(&settings.run_dir, &boot())?;
    let mut journal = store.load()?;
    about.problems.extend(undo(&host, &mut journal));
    store.save(&journal)?;
    let chosen = probe::choose(&host, settings.backend)?;
    for (kind, why) in &chosen.passed_over {
        about
            .problems
            .push(format!("backend {kind} is not used: {why}"));
    }
    let chase = probes(settings, &host).then(|| {
        let chase: Box<dyn Chase> = Box::new(TierChase::new(&tiers));
        chase
    });
    let sensors = MachineSensors::new(host.clone(), chase);
    let sensors = BackgroundSensors::start(host.clone(), sensors)?;
    let parts = Parts {
        policy,
        backend: chosen.backend,
        sensors: Box::new(KnownTiers {
            inner: sensors,
            host: host.clone(),
            tiers,
        }),
        groups: Box::new(HostGroups::new(host)),
        store: Box::new(store),
    };
    Ok(Machine { parts, about })
}

/// Whether tiers are probed: without counters of the processor a objective of latency would never be measured.
fn probes(settings: &Settings, host: &MemoryHost) -> bool {
    settings.probe && pmu::missing(host).is_some()
}

/// What `isolane mem measure-machine` left, if it was made here, and what is wrong with it.
fn machine_profile(
    settings: &Settings,
    host: &MemoryHost,
) -> (Option<MachineProfile>, Option<String>) {
    let path = settings.profile_dir.join(MACHINE);
    let Ok(text) = std::fs::read_to_string(&path) else {
        return (None, None);
    };
    let wrong = |why: String| (None, Some(format!("{} is not used: {why}", path.display())));
    match serde_json::from_str::<MachineProfile>(&text) {
        Err(error) => wrong(format!(
            "it is no profile of a machine ({error}); make it again"
        )),
        Ok(profile) => match profile.origin.differs(&Origin::of(host)) {
            Some(why) => wrong(why),
            None => (Some(profile), None),
        },
    }
}

/// Sensors whose tiers are known from the first moment, before their thread has looked.
struct KnownTiers {
    inner: BackgroundSensors,
    host: MemoryHost,
    tiers: Tiers,
}

impl Sensors for KnownTiers {
    fn adopt(&mut self, app: AppId, cgroup: &Cgroup) -> Result<(), MemError> {
        self.inner.adopt(app, cgroup)
    }

    fn release(&mut self, app: AppId) {
        self.inner.release(app);
    }

    fn observe(&mut self, now: Instant) -> Observation {
        let mut seen = self.inner.observe(now);
        if seen.tiers.is_empty() {
            let view = |tier| {
                let (capacity, free) = self.tiers.usage(&self.host, tier);
                TierView {
                    capacity,
                    used: capacity.saturating_sub(free),
                    bandwidth: None,
                }
            };
            seen.tiers = (0..self.tiers.len()).map(view).collect();
        }
        seen
    }

    fn held(&self, cgroup: &Cgroup) -> Option<[Bytes; TIERS_MAX]> {
        self.inner.held(cgroup)
    }

    fn age(&self) -> Duration {
        self.inner.age()
    }

    fn pressures(&self) -> std::collections::BTreeMap<AppId, crate::indicator::pressure::Pressure> {
        self.inner.pressures()
    }

    fn sources(&self) -> Vec<SourceInfo> {
        self.inner.sources()
    }
}

/// The policy of the settings for a machine whose near tier has so much memory, and what is known of the machine.
fn policy(
    settings: &Settings,
    near: Bytes,
    profile: Option<MachineProfile>,
) -> Result<(Box<dyn ControlPolicy>, About), ServiceError> {
    let unknown = Thresholds {
        local_bandwidth: ANY_BANDWIDTH,
        hint_faults_per_s: HINT_FAULTS_UNKNOWN,
    };
    let mut options = match &profile {
        Some(profile) => profile.options(near),
        None => MercuryOptions::new(unknown, near),
    };
    let thresholds = &mut options.thresholds;
    thresholds.local_bandwidth = settings
        .local_bandwidth
        .unwrap_or(thresholds.local_bandwidth);
    thresholds.hint_faults_per_s = settings
        .hint_faults_per_s
        .unwrap_or(thresholds.hint_faults_per_s);
    let thresholds = *thresholds;
    let is_known = profile.is_some()
        || (settings.local_bandwidth.is_some() && settings.hint_faults_per_s.is_some());
    let mercury = |options| {
        Mercury::new(options)
            .map_err(|error| ServiceError::Settings(format!("policy mercury: {error}")))
    };
    let policy: Box<dyn ControlPolicy> = match settings.policy.as_str() {
        "static" => Box::new(Fixed::default()),
        "fcfs" => Box::new(Fcfs::new(
            options.near_bandwidth.or(settings.local_bandwidth),
        )),
        "weighted" => {
            options.sharing = Sharing::Weighted;
            Box::new(mercury(options)?)
        }
        _ => Box::new(mercury(options)?),
    };
    let is_mercury = matches!(settings.policy.as_str(), "mercury" | "weighted");
    let mut problems = match is_mercury && !is_known {
        true => vec!["the load above which applications slow each other is not known, so no limit depends on it; isolane mem measure-machine measures it".to_owned()],
        false => Vec::new(),
    };
    if is_mercury && is_known && thresholds.hint_faults_per_s >= HINT_FAULTS_UNKNOWN {
        problems.push("how many hint faults are healthy is not known, so far traffic leads to nothing: echo 2 > /proc/sys/kernel/numa_balancing, then isolane mem measure-machine again, or set hint_faults_per_s".to_owned());
    }
    let about = About {
        policy: settings.policy.clone(),
        thresholds: is_known.then_some((thresholds, profile.is_some())),
        best_latency: profile
            .as_ref()
            .map(|profile| Duration::from_ns_f64(profile.near_latency_ns)),
        best_bandwidth: profile
            .as_ref()
            .map(|profile| profile.near_bandwidth_bytes_per_s as u64),
        problems,
    };
    Ok((policy, about))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Tree;

    #[test]
    fn a_machine_without_counters_is_probed_unless_an_option_forbids_it() {
        let host = Tree::two_tiers().host();
        assert!(probes(&Settings::default(), &host));
        let off = Settings {
            probe: false,
            ..Settings::default()
        };
        assert!(!probes(&off, &host));
    }
}
