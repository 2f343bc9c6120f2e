//! A made-up machine of two tiers, to try the service where there is no such machine: real processes, invented memory.
//!
//! Problem: most machines have one tier, and a user who tries Mercury should not need a virtual machine. Method:
//! control groups are directories with the kernel's file names below a directory of the user's; a process that enters
//! is real, its resident memory counts, and pages "move" at once. Latency and bandwidth are computed from the tiers
//! that the pages would be in: [`NEAR_NS`] and [`FAR_NS`], [`NEAR_RATE`] and [`FAR_RATE`] at full processor time,
//! alone. Every number of it says `model` as its source. No limit reaches the processes: they run as if nothing were
//! there. Limits: no contention, and processes that fork away from their parent are not followed. Nothing here is a
//! result.

use crate::application::pod::Place;
use crate::backend::{Backend, BackendKind, Progress};
use crate::cgroup::{Cgroup, own};
use crate::controller::groups::{Groups, Life};
use crate::error::MemError;
use crate::indicator::{Sensors, SourceInfo};
use isolane_common_linux::HostError;
use isolane_common_quantities::units::{Bytes, Duration, Instant};
use isolane_memory_policy::mercury::{
    AppId, AppView, CPU_ONE, Observation, Reading, Source, TIERS_MAX, TierLimits, TierView,
};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

/// Latency of near memory.
pub const NEAR_NS: u64 = 100;
/// Latency of far memory.
pub const FAR_NS: u64 = 250;
/// Bandwidth of an application whose pages are all near, bytes per second.
pub const NEAR_RATE: u64 = 40_000_000_000;
/// Bandwidth of one whose pages are all far.
pub const FAR_RATE: u64 = 10_000_000_000;
/// Memory of the near tier.
pub const NEAR: Bytes = Bytes::from_mib(256);
/// Memory of the far tier.
pub const FAR: Bytes = Bytes::from_mib(4_096);
/// Bytes of a page, as `statm` counts them.
const PAGE: u64 = 4_096;
/// Memory of an application whose processes say nothing of theirs.
const UNKNOWN: u64 = 1 << 20;

#[derive(Debug, Default)]
struct App {
    cgroup: Option<Cgroup>,
    limits: Option<TierLimits>,
    is_reported: bool,
}

#[derive(Debug)]
struct State {
    directory: PathBuf,
    apps: BTreeMap<AppId, App>,
}

/// One made-up machine: backend, sensors and control groups in one.
#[derive(Clone, Debug)]
pub struct FakeMachine {
    state: Arc<Mutex<State>>,
}

impl FakeMachine {
    /// One whose control groups are directories below `directory`; those of an earlier one are there still. Fails if
    /// the directory cannot be made.
    pub fn new(directory: &Path) -> Result<Self, MemError> {
        fs::create_dir_all(directory).map_err(|source| MemError::Kernel {
            action: format!(
                "make the directory {} of the made-up machine",
                directory.display()
            ),
            source,
        })?;
        let state = State {
            directory: directory.to_owned(),
            apps: BTreeMap::new(),
        };
        Ok(Self {
            state: Arc::new(Mutex::new(state)),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of the lock panics")
    }

    fn directory(&self, cgroup: &Cgroup) -> PathBuf {
        self.lock().directory(cgroup)
    }
}

impl State {
    fn directory(&self, cgroup: &Cgroup) -> PathBuf {
        self.directory
            .join("cgroup")
            .join(cgroup.path().trim_start_matches('/'))
    }

    /// The living processes of a control group, with their children.
    fn processes(&self, cgroup: &Cgroup) -> Vec<u32> {
        let text =
            fs::read_to_string(self.directory(cgroup).join("cgroup.procs")).unwrap_or_default();
        let mut found = Vec::new();
        for line in text.lines() {
            let mut words = line.split(' ');
            let (Some(process), Some(started)) = (words.next(), words.next()) else {
                continue;
            };
            // Numbers of processes are used again; the start time distinguishes a process from a later one.
            if let Ok(process) = process.parse()
                && start(process).as_deref() == Some(started)
            {
                found.push(process);
            }
        }
        let mut next = 0;
        while let Some(process) = found.get(next).copied() {
            next += 1;
            let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
            let children = children.unwrap_or_default();
            found.extend(
                children
                    .split_whitespace()
                    .filter_map(|child| child.parse::<u32>().ok()),
            );
        }
        found
    }

    /// What an application holds: resident memory, near as far as its limit lets it.
    fn held(&self, app: &App) -> [Bytes; TIERS_MAX] {
        let Some(cgroup) = &app.cgroup else {
            return [Bytes::ZERO; TIERS_MAX];
        };
        let resident: u64 = self.processes(cgroup).into_iter().map(resident).sum();
        let all = Bytes::new(resident.max(UNKNOWN));
        let limit = app.limits.and_then(|limits| limits[0]).unwrap_or(NEAR);
        let near = all.min(limit).min(NEAR);
        [near, all.saturating_sub(near), Bytes::ZERO, Bytes::ZERO]
    }
}

/// When a process started, in the kernel's ticks; none where it has ended.
fn start(process: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let words: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    match *words.first()? {
        "Z" | "X" => None,
        _ => words.get(19).map(|started| (*started).to_owned()),
    }
}

/// Resident memory of a process, bytes.
fn resident(process: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/statm")).unwrap_or_default();
    let pages = text
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * PAGE
}

impl Backend for FakeMachine {
    fn kind(&self) -> BackendKind {
        BackendKind::Fake
    }

    fn adopt(&mut self, app: AppId, cgroup: &Cgroup, _far_tiers: &[u8]) -> Result<(), MemError> {
        let mut state = self.lock();
        let app = state.apps.entry(app).or_default();
        app.cgroup = Some(cgroup.clone());
        app.limits = None;
        Ok(())
    }

    fn apply(&mut self, app: AppId, limits: &TierLimits) -> Result<(), MemError> {
        let mut state = self.lock();
        let app = state.apps.get_mut(&app).ok_or(MemError::Unknown(app.0))?;
        app.limits = Some(*limits);
        app.is_reported = false;
        Ok(())
    }

    fn poll(&mut self, _now: Instant) -> Vec<Progress> {
        let mut state = self.lock();
        let waiting: Vec<AppId> = state
            .apps
            .iter()
            .filter(|(_, app)| app.limits.is_some() && !app.is_reported)
            .map(|(id, _)| *id)
            .collect();
        let mut said = Vec::new();
        for app in waiting {
            let held = state.held(&state.apps[&app]);
            if let Some(app) = state.apps.get_mut(&app) {
                app.is_reported = true;
            }
            said.push(Progress::Reached { app, held });
        }
        said
    }

    fn release(&mut self, app: AppId) -> Result<(), MemError> {
        self.lock()
            .apps
            .remove(&app)
            .map(|_| ())
            .ok_or(MemError::Unknown(app.0))
    }
}

impl Sensors for FakeMachine {
    fn adopt(&mut self, _app: AppId, _cgroup: &Cgroup) -> Result<(), MemError> {
        Ok(())
    }

    fn release(&mut self, _app: AppId) {}

    fn observe(&mut self, _now: Instant) -> Observation {
        let state = self.lock();
        let mut used = [Bytes::ZERO; TIERS_MAX];
        let mut traffic = [0, 0];
        let mut apps = Vec::new();
        for (id, app) in &state.apps {
            let held = state.held(app);
            let all = held[0].get() + held[1].get();
            let parts =
                |near: u64, far: u64| (near * held[0].get() + far * held[1].get()) / all.max(1);
            let cpu = app
                .cgroup
                .as_ref()
                .map_or(u64::from(CPU_ONE), |cgroup| cpu(&state.directory(cgroup)));
            let rate = parts(NEAR_RATE / 1_000, FAR_RATE / 1_000) * cpu;
            traffic[0] += rate * held[0].get() / all.max(1);
            traffic[1] += rate * held[1].get() / all.max(1);
            for (used, held) in used.iter_mut().zip(held) {
                *used += held;
            }
            apps.push(AppView {
                id: *id,
                held,
                latency: Some(reading(Duration::from_ps(parts(
                    NEAR_NS * 1_000,
                    FAR_NS * 1_000,
                )))),
                bandwidth: Some(reading(rate)),
                cpu_used: None,
            });
        }
        let tier = |capacity, tier: usize| TierView {
            capacity,
            used: used[tier],
            bandwidth: Some(reading(traffic[tier])),
        };
        Observation {
            tiers: vec![tier(NEAR, 0), tier(FAR, 1)],
            hint_faults_per_s: Some(reading(traffic[1] as f64 / PAGE as f64)),
            apps,
        }
    }

    fn pressures(&self) -> std::collections::BTreeMap<AppId, crate::indicator::pressure::Pressure> {
        std::collections::BTreeMap::new()
    }

    fn sources(&self) -> Vec<SourceInfo> {
        vec![SourceInfo {
            name: "model",
            measures: "nothing: what a made-up machine would show",
            works: true,
            seen: "all values are made up by a model".to_owned(),
            remedy: None,
        }]
    }
}

fn reading<T>(value: T) -> Reading<T> {
    Reading {
        value,
        age: Duration::ZERO,
        source: Source::Model,
    }
}

/// The limit of `cpu.max` as thousandths of one core; no limit is all.
fn cpu(directory: &Path) -> u64 {
    let text = fs::read_to_string(directory.join("cpu.max")).unwrap_or_default();
    let mut words = text.split_whitespace().map(|word| word.parse::<u64>().ok());
    match (words.next().flatten(), words.next().flatten()) {
        (Some(quota), Some(period)) if period > 0 => {
            (quota * 1_000 / period).min(u64::from(CPU_ONE))
        }
        _ => u64::from(CPU_ONE),
    }
}

impl Groups for FakeMachine {
    fn own(&self, name: &str) -> Result<Cgroup, MemError> {
        Cgroup::new(&format!("{}/{name}", own::PARENT))
    }

    fn make(&mut self, name: &str) -> Result<Cgroup, MemError> {
        let cgroup = Groups::own(self, name)?;
        let directory = self.directory(&cgroup);
        let made = fs::create_dir_all(&directory)
            .and_then(|()| fs::write(directory.join("cpu.max"), "max 100000"));
        made.map_err(|source| MemError::Kernel {
            action: format!("make {cgroup} of the made-up machine"),
            source,
        })?;
        Ok(cgroup)
    }

    fn all_own(&self) -> Vec<Cgroup> {
        let parent = self
            .lock()
            .directory
            .join("cgroup")
            .join(own::PARENT.trim_start_matches('/'));
        let names = fs::read_dir(parent).into_iter().flatten().flatten();
        let mut all: Vec<Cgroup> = names
            .filter_map(|entry| Groups::own(self, &entry.file_name().to_string_lossy()).ok())
            .collect();
        all.sort();
        all
    }

    fn unmake(&mut self, cgroup: &Cgroup) -> Result<bool, MemError> {
        if !own::is_ours(cgroup) {
            return Err(MemError::NotOurs {
                object: format!("the control group `{cgroup}`"),
                owner: "somebody else".to_owned(),
                remedy: "remove it by hand".to_owned(),
            });
        }
        if self.life(cgroup) == Life::Alive {
            return Ok(false);
        }
        match fs::remove_dir_all(self.directory(cgroup)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(MemError::Kernel {
                action: format!("remove {cgroup} of the made-up machine"),
                source: error,
            }),
            _ => Ok(true),
        }
    }

    fn find(&self, place: &Place) -> Result<Cgroup, MemError> {
        let cgroup = match place {
            Place::Cgroup(path) => Cgroup::new(path)?,
            other => {
                return Err(MemError::BadCgroup {
                    path: other.text(),
                    why: "a made-up machine has no containers: make a directory and name it as a cgroup".to_owned(),
                });
            }
        };
        match self.directory(&cgroup).is_dir() {
            true => Ok(cgroup),
            false => Err(MemError::Gone(cgroup.to_string())),
        }
    }

    fn inode(&self, cgroup: &Cgroup) -> Option<u64> {
        use std::os::unix::fs::MetadataExt;
        Some(fs::metadata(self.directory(cgroup)).ok()?.ino())
    }

    fn life(&self, cgroup: &Cgroup) -> Life {
        let state = self.lock();
        match state.directory(cgroup).is_dir() {
            false => Life::Gone,
            true if state.processes(cgroup).is_empty() => Life::Empty,
            true => Life::Alive,
        }
    }

    fn enter(&mut self, cgroup: &Cgroup, process: u32) -> Result<(), MemError> {
        let gone = || MemError::Gone(format!("process {process}"));
        let line = format!("{process} {}\n", start(process).ok_or_else(gone)?);
        let file = self.directory(cgroup).join("cgroup.procs");
        let text = fs::read_to_string(&file).unwrap_or_default() + &line;
        fs::write(&file, text).map_err(|_| MemError::Gone(cgroup.to_string()))
    }

    fn memory(&self, _cgroup: &Cgroup) -> Option<Bytes> {
        None
    }

    fn cpu(&self, cgroup: &Cgroup) -> Option<String> {
        let text = fs::read_to_string(self.directory(cgroup).join("cpu.max")).ok()?;
        Some(text.trim().to_owned())
    }

    fn cpu_text(&self, _cgroup: &Cgroup, per_mille: u32, before: &str) -> String {
        crate::cgroup::cpu_max_below(before, per_mille, 1)
    }

    fn write_cpu(&mut self, cgroup: &Cgroup, before: &str) -> Result<(), MemError> {
        let path = self.directory(cgroup).join("cpu.max");
        fs::write(&path, before).map_err(|source| {
            MemError::Host(HostError::Write {
                path,
                value: before.to_owned(),
                source,
            })
        })
    }
}
