//! A machine that can fail at every call, for tests of the controller and for runs by seed.
//!
//! Method: [`World`] holds what outlives the service: cgroups, their processes and limits, the journal. Every call of the
//! service into it passes [`World`]'s count, where the test can refuse it or kill the service on the spot (a panic that
//! [`survives`] catches), as `kill -9` would. Units: bytes, thousandths of processor time. Limits: pages move at once.

use super::groups::{Groups, Life};
use super::{About, ControlPolicy, Controller, Parts};
use crate::application::Floors;
use crate::application::pod::Place;
use crate::backend::fake::FakeBackend;
use crate::backend::{Backend, BackendKind, Progress};
use crate::cgroup::{Cgroup, own};
use crate::error::MemError;
use crate::indicator::{Sensors, SourceInfo};
use crate::journal::{Journal, JournalError, Store};
use isolane_common_quantities::units::{Bytes, Duration, Instant};
use isolane_memory_policy::mercury::{
    AppId, AppView, Observation, Reading, Source, TIERS_MAX, TierLimits, TierView,
};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, Once};

/// Near memory of the machine.
pub const NEAR: Bytes = Bytes::from_mib(1_000);
/// Far memory.
pub const FAR: Bytes = Bytes::from_mib(9_000);

/// Calls that can be refused. The service can be killed at these and at `load` and `observe`.
pub const CALLS: [&str; 10] = [
    "adopt", "apply", "release", "sense", "save", "make", "unmake", "enter", "cpu", "floors",
];

/// Memory of a cgroup with processes, where a test does not say.
const PAGES: Bytes = Bytes::from_mib(200);

/// One cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Numbers of its processes.
    pub processes: BTreeSet<u32>,
    /// Its `cpu.max`.
    pub cpu: String,
    /// Its `cpu.max` before the service.
    pub cpu_before: String,
    /// Its limits of tiers.
    pub limits: Option<TierLimits>,
    /// The kernel's number of it.
    pub inode: u64,
    /// Its pages, near as far as it may.
    pub pages: Bytes,
}

/// What outlives the service.
#[derive(Debug, Default)]
pub struct State {
    /// The cgroups by path.
    pub groups: BTreeMap<String, Group>,
    /// As it was last saved.
    pub journal: Option<Journal>,
    /// Calls of these kinds are refused, so often.
    pub refuse: BTreeMap<&'static str, u32>,
    /// The service is killed at this call from now.
    pub dies_in: Option<u32>,
    /// The inode of the newest cgroup.
    pub inodes: u64,
    /// How old the sensors' picture is, ms.
    pub sensors_old_ms: u64,
    /// Processes that left where the test had put them for another place than a cgroup of ours.
    pub moved: BTreeMap<u32, String>,
    /// `memory.min` and `memory.low` of each cgroup, by path.
    pub floors: BTreeMap<String, Floors>,
    /// How often the kernel went below a floor.
    pub breaches: BTreeMap<String, u64>,
    /// How often the service read all pressures.
    pub pressure_reads: u32,
    /// Latencies that sensors report, picoseconds by cgroup.
    pub latency: BTreeMap<String, u64>,
}

impl Group {
    fn held(&self) -> [Bytes; TIERS_MAX] {
        let near = self.limits.and_then(|limits| limits[0]);
        let near = near.map_or(self.pages, |near| near.min(self.pages));
        let mut held = [Bytes::ZERO; TIERS_MAX];
        (held[0], held[1]) = (near, self.pages.saturating_sub(near));
        held
    }
}

/// A machine whose cgroups, tiers and processes are in memory.
#[derive(Clone, Debug, Default)]
pub struct World(Arc<Mutex<State>>);

/// What a killed service panics with.
struct Killed;

/// Does something with a service that may be killed meanwhile. None: it was.
pub fn survives<T>(work: impl FnOnce() -> T) -> Option<T> {
    static SILENT: Once = Once::new();
    // Deaths that a test intends are not printed.
    SILENT.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !info.payload().is::<Killed>() {
                usual(info);
            }
        }));
    });
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => Some(done),
        Err(cause) if cause.is::<Killed>() => None,
        Err(cause) => std::panic::resume_unwind(cause),
    }
}

impl World {
    /// Its state, to look at and to change.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no holder of the lock panics")
    }

    /// One call of the service: the service may be killed here, or the call may fail.
    fn call(&self, kind: &'static str) -> Result<(), MemError> {
        assert!(CALLS.contains(&kind) || matches!(kind, "load" | "observe"));
        let mut state = self.lock();
        if let Some(left) = &mut state.dies_in {
            *left = left.saturating_sub(1);
            if *left == 0 {
                state.dies_in = None;
                drop(state);
                std::panic::panic_any(Killed);
            }
        }
        match state.refuse.get_mut(kind) {
            Some(left) if *left > 0 => {
                *left -= 1;
                Err(MemError::NotPermitted {
                    action: kind.to_owned(),
                })
            }
            _ => Ok(()),
        }
    }

    /// Makes a cgroup, or another one in the place of an earlier one.
    pub fn add(&self, path: &str, processes: &[u32], cpu: &str) {
        let mut state = self.lock();
        state.inodes += 1;
        let group = Group {
            processes: processes.iter().copied().collect(),
            cpu: cpu.to_owned(),
            cpu_before: cpu.to_owned(),
            limits: None,
            inode: state.inodes,
            pages: if processes.is_empty() {
                Bytes::ZERO
            } else {
                PAGES
            },
        };
        state.groups.insert(path.to_owned(), group);
    }

    /// A copy of a cgroup.
    pub fn group(&self, path: &str) -> Option<Group> {
        self.lock().groups.get(path).cloned()
    }

    /// A service over this machine. Fails if the journal cannot be written.
    pub fn start(
        &self,
        now: Instant,
        policy: Box<dyn ControlPolicy>,
    ) -> Result<Controller, JournalError> {
        Controller::start(now, self.parts(policy), About::default())
    }

    /// What a service needs of this machine.
    pub fn parts(&self, policy: Box<dyn ControlPolicy>) -> Parts {
        Parts {
            policy,
            backend: Box::new(WorldBackend {
                world: self.clone(),
                inner: FakeBackend::new(),
                paths: BTreeMap::new(),
            }),
            sensors: Box::new(WorldSensors {
                world: self.clone(),
                adopted: BTreeMap::new(),
                seen: BTreeSet::new(),
            }),
            groups: Box::new(WorldGroups(self.clone())),
            store: Box::new(WorldStore(self.clone())),
        }
    }
}

struct WorldBackend {
    world: World,
    inner: FakeBackend,
    paths: BTreeMap<AppId, String>,
}

impl WorldBackend {
    /// The fake one learns which cgroups are gone.
    fn tell(&self) {
        let state = self.world.lock();
        let gone = self
            .paths
            .values()
            .filter(|path| !state.groups.contains_key(*path));
        self.inner
            .world()
            .lock()
            .expect("no holder of the lock panics")
            .gone = gone.cloned().collect();
    }

    fn limit(&self, app: AppId, limits: Option<TierLimits>) {
        let mut state = self.world.lock();
        if let Some(group) = self
            .paths
            .get(&app)
            .and_then(|path| state.groups.get_mut(path))
        {
            group.limits = limits;
        }
    }
}

impl Backend for WorldBackend {
    fn kind(&self) -> BackendKind {
        BackendKind::Fake
    }

    fn adopt(&mut self, app: AppId, cgroup: &Cgroup, far_tiers: &[u8]) -> Result<(), MemError> {
        self.world.call("adopt")?;
        self.paths.insert(app, cgroup.path().to_owned());
        self.tell();
        self.inner.adopt(app, cgroup, far_tiers)
    }

    fn apply(&mut self, app: AppId, limits: &TierLimits) -> Result<(), MemError> {
        self.world.call("apply")?;
        self.inner.apply(app, limits)?;
        self.limit(app, Some(*limits));
        Ok(())
    }

    fn poll(&mut self, now: Instant) -> Vec<Progress> {
        self.tell();
        self.inner.poll(now)
    }

    fn release(&mut self, app: AppId) -> Result<(), MemError> {
        // A release that is refused cannot be tried again: the trait only has to report it.
        let _ = self.world.call("release");
        self.inner.release(app)?;
        self.limit(app, None);
        Ok(())
    }
}

/// As sensors on a thread: who has just come is not seen at once.
struct WorldSensors {
    world: World,
    adopted: BTreeMap<AppId, String>,
    seen: BTreeSet<AppId>,
}

impl Sensors for WorldSensors {
    fn adopt(&mut self, app: AppId, cgroup: &Cgroup) -> Result<(), MemError> {
        self.world.call("sense")?;
        self.adopted.insert(app, cgroup.path().to_owned());
        Ok(())
    }

    fn release(&mut self, app: AppId) {
        self.adopted.remove(&app);
        self.seen.remove(&app);
    }

    fn observe(&mut self, _now: Instant) -> Observation {
        let _ = self.world.call("observe");
        let state = self.world.lock();
        let view = |(id, path): (&AppId, &String)| AppView {
            id: *id,
            held: state
                .groups
                .get(path)
                .map_or([Bytes::ZERO; TIERS_MAX], Group::held),
            latency: state.latency.get(path).map(|ps| Reading {
                value: Duration::from_ps(*ps),
                age: Duration::ZERO,
                source: Source::Probe,
            }),
            bandwidth: None,
            cpu_used: None,
        };
        let used = |tier: usize| {
            let all = state.groups.values().map(|group| group.held()[tier].get());
            Bytes::new(all.sum())
        };
        let tier = |capacity: Bytes, tier| TierView {
            capacity,
            used: used(tier).min(capacity),
            ..TierView::default()
        };
        let seen = self.adopted.iter().filter(|(id, _)| self.seen.contains(id));
        let observation = Observation {
            tiers: vec![tier(NEAR, 0), tier(FAR, 1)],
            hint_faults_per_s: None,
            apps: seen.map(view).collect(),
        };
        self.seen.extend(self.adopted.keys());
        observation
    }

    fn held(&self, cgroup: &Cgroup) -> Option<[Bytes; TIERS_MAX]> {
        self.world.group(cgroup.path()).map(|group| group.held())
    }

    fn age(&self) -> Duration {
        Duration::from_ms(self.world.lock().sensors_old_ms)
    }

    fn pressures(&self) -> BTreeMap<AppId, crate::indicator::pressure::Pressure> {
        self.world.lock().pressure_reads += 1;
        BTreeMap::new()
    }

    fn sources(&self) -> Vec<SourceInfo> {
        Vec::new()
    }
}

struct WorldStore(World);

impl Store for WorldStore {
    fn load(&mut self) -> Result<Journal, JournalError> {
        let _ = self.0.call("load");
        Ok(self
            .0
            .lock()
            .journal
            .clone()
            .unwrap_or_else(|| Journal::empty("now")))
    }

    fn save(&mut self, journal: &Journal) -> Result<(), JournalError> {
        self.0.call("save").map_err(|error| JournalError::File {
            path: "journal".into(),
            detail: error.to_string(),
        })?;
        // What is saved can be read back: the file's form is part of the contract.
        let text = serde_json::to_string(journal).expect("a journal is plain data");
        assert_eq!(Journal::parse(&text).as_ref(), Ok(journal));
        self.0.lock().journal = Some(journal.clone());
        Ok(())
    }
}

struct WorldGroups(World);

impl Groups for WorldGroups {
    fn own(&self, name: &str) -> Result<Cgroup, MemError> {
        Cgroup::new(&format!("{}/{name}", own::PARENT))
    }

    fn make(&mut self, name: &str) -> Result<Cgroup, MemError> {
        self.0.call("make")?;
        let cgroup = self.own(name)?;
        if self.0.group(cgroup.path()).is_none() {
            self.0.add(cgroup.path(), &[], "max 100000");
        }
        Ok(cgroup)
    }

    fn all_own(&self) -> Vec<Cgroup> {
        let state = self.0.lock();
        let all = state
            .groups
            .keys()
            .filter_map(|path| Cgroup::new(path).ok());
        all.filter(own::is_ours).collect()
    }

    fn unmake(&mut self, cgroup: &Cgroup) -> Result<bool, MemError> {
        self.0.call("unmake")?;
        assert!(own::is_ours(cgroup), "only ours are removed, not {cgroup}");
        let mut state = self.0.lock();
        match state.groups.get(cgroup.path()) {
            Some(group) if !group.processes.is_empty() => Ok(false),
            _ => {
                state.groups.remove(cgroup.path());
                Ok(true)
            }
        }
    }

    fn find(&self, place: &Place) -> Result<Cgroup, MemError> {
        let Place::Cgroup(path) = place else {
            return Err(MemError::Gone(place.text()));
        };
        match self.0.group(path) {
            Some(_) => Cgroup::new(path),
            None => Err(MemError::Gone(path.clone())),
        }
    }

    fn inode(&self, cgroup: &Cgroup) -> Option<u64> {
        self.0.group(cgroup.path()).map(|group| group.inode)
    }

    fn life(&self, cgroup: &Cgroup) -> Life {
        match self.0.group(cgroup.path()) {
            None => Life::Gone,
            Some(group) if group.processes.is_empty() => Life::Empty,
            Some(_) => Life::Alive,
        }
    }

    fn enter(&mut self, cgroup: &Cgroup, process: u32) -> Result<(), MemError> {
        self.0.call("enter")?;
        let mut state = self.0.lock();
        let group = state.groups.get_mut(cgroup.path());
        let group = group.ok_or_else(|| MemError::Gone(cgroup.to_string()))?;
        group.processes.insert(process);
        group.pages = group.pages.max(PAGES);
        state.moved.insert(process, cgroup.path().to_owned());
        Ok(())
    }

    fn memory(&self, _cgroup: &Cgroup) -> Option<Bytes> {
        None
    }

    fn cpu(&self, cgroup: &Cgroup) -> Option<String> {
        self.0.group(cgroup.path()).map(|group| group.cpu)
    }

    fn set_floors(&mut self, cgroup: &Cgroup, floors: Floors) -> Result<(), MemError> {
        self.0.call("floors")?;
        let mut state = self.0.lock();
        state.floors.insert(cgroup.path().to_owned(), floors);
        Ok(())
    }

    fn has_floors(&self, cgroup: &Cgroup, floors: Floors) -> bool {
        self.0.lock().floors.get(cgroup.path()) == Some(&floors)
    }

    fn floor_breaches(&self, cgroup: &Cgroup) -> Option<u64> {
        self.0.lock().breaches.get(cgroup.path()).copied()
    }

    fn cpu_text(&self, _cgroup: &Cgroup, per_mille: u32, before: &str) -> String {
        crate::cgroup::cpu_max_below(before, per_mille, 1)
    }

    fn write_cpu(&mut self, cgroup: &Cgroup, before: &str) -> Result<(), MemError> {
        self.0.call("cpu")?;
        let mut state = self.0.lock();
        let group = state.groups.get_mut(cgroup.path());
        let group = group.ok_or_else(|| MemError::Gone(cgroup.to_string()))?;
        group.cpu = before.to_owned();
        Ok(())
    }
}
