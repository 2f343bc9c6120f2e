//! The control loop: sensors are read, a policy decides, backends and cgroups do it, every 200 ms.
//!
//! Problem: applications arrive, fork, end and vanish, the kernel rejects writes, and the service may be killed at any
//! moment. Meanwhile limits must be those of the policy, applications must continue to run, and our cgroups must be
//! removed. Method: everything outside is behind a trait ([`Parts`]), and time is an argument, so tests put any fault
//! at any point. A cgroup is written into the journal before it is made. A limit that the kernel rejects is reported,
//! and written again each [`RETRY`]. An application is admitted on a copy of the policy, which replaces the original
//! once the machine is changed. No process is ever stopped, killed or waited for. Units: picoseconds of the caller's
//! clock, bytes, thousandths. Limits: [`APPLICATIONS_MAX`](crate::journal::APPLICATIONS_MAX) applications. Source: mercury 5.4.2 and 5.5.4 (period, order
//! of the parts); surviving a crash is ours.
//!
//! * [`groups`] - cgroups as needed here; `arrive` - coming and going; `refuse` - why not; `reconcile` - after a crash;
//! * `enforce` - limits onto the machine; `show` - the status; `fake` - a machine that fails at every call.

mod arrive;
mod enforce;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
pub mod groups;
mod reconcile;
mod refuse;
mod show;

use crate::application::Floors;
use crate::backend::Backend;
use crate::cgroup::Cgroup;
use crate::error::MemError;
use crate::indicator::Sensors;
use crate::journal::{Entry, Journal, JournalError, Store};
use crate::protocol::{Answer, Failure, FailureCode, Metrics, Request};
use groups::{Groups, Life};
use isolane_common_quantities::units::{Bytes, Duration, Instant};
use isolane_memory_policy::mercury::{
    AppId, AppView, Limits, MemoryPolicy, Objective, Observation, STALE, Shortfall, Thresholds,
};
use std::collections::BTreeMap;
use std::fmt;

/// A limit that the kernel refused is tried again after this.
pub const RETRY: Duration = Duration::from_secs(1);
/// `cpu.max` and limits are compared with what they should be this often.
pub const COMPARE: Duration = Duration::from_secs(5);

/// A policy whose copy can answer what-if questions.
pub trait ControlPolicy: MemoryPolicy + Send {
    /// A copy.
    fn fork(&self) -> Box<dyn ControlPolicy>;
}

impl<P: MemoryPolicy + Clone + Send + 'static> ControlPolicy for P {
    fn fork(&self) -> Box<dyn ControlPolicy> {
        Box::new(self.clone())
    }
}

/// Everything outside the controller.
pub struct Parts {
    /// Decides.
    pub policy: Box<dyn ControlPolicy>,
    /// Moves pages.
    pub backend: Box<dyn Backend>,
    /// Measure.
    pub sensors: Box<dyn Sensors>,
    /// Cgroups.
    pub groups: Box<dyn Groups>,
    /// Keeps the journal.
    pub store: Box<dyn Store>,
}

/// The controller's parameters of the machine.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// The policy's name.
    pub policy: String,
    /// Thresholds, and whether they were measured here.
    pub thresholds: Option<(Thresholds, bool)>,
    /// The best latency that was measured here.
    pub best_latency: Option<Duration>,
    /// The best bandwidth that was measured here, bytes per second.
    pub best_bandwidth: Option<u64>,
    /// What was wrong at the start, for people.
    pub problems: Vec<String>,
}

/// The control loop's state.
pub struct Controller {
    parts: Parts,
    about: About,
    journal: Journal,
    apps: BTreeMap<AppId, Controlled>,
    seen: Observation,
    started: Instant,
    compared: Instant,
    /// When everything was last looked at.
    looked: Instant,
    /// Released applications whose limits could not be lifted: when to try again, and the error.
    lifting: BTreeMap<u32, (Instant, String)>,
    /// Whether the journal says what is known here.
    is_saved: bool,
    counters: Counters,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    steps: u64,
    step_max_us: u64,
    late_steps: u64,
    changes: u64,
    refused: u64,
    refused_writes: u64,
    adoptions_refused: u64,
    releases_refused: u64,
    released: u64,
    stuck: u64,
}

/// One application under control.
#[derive(Debug)]
struct Controlled {
    entry: Entry,
    cgroup: Cgroup,
    lacks: Option<Shortfall>,
    wanted: Limits,
    /// Whether the sensors have it; false after a refusal.
    is_sensed: bool,
    /// Whether the backend has it.
    is_kept: bool,
    /// Whether the machine has `wanted`.
    tiers_done: bool,
    cpu_done: bool,
    floors_done: bool,
    /// How often the kernel had gone below the floor when the floor was set.
    breaches: Option<u64>,
    /// `cpu.max` as we left it.
    cpu_text: Option<String>,
    retry_at: Instant,
    /// When limits changed last, and why; named when it happened, as who it was for may leave.
    last_change: (Instant, String),
    enforcement: Enforcement,
    /// What each of the four is in trouble with.
    trouble: Trouble,
    met: u64,
    judged: u64,
}

#[derive(Debug, Default)]
struct Trouble {
    tiers: Option<String>,
    cpu: Option<String>,
    moving: Option<String>,
    floors: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Enforcement {
    None,
    Moving,
    Reached,
    Stuck,
}

impl Controller {
    /// Takes up what the journal says, and puts the machine in order. Fails if the journal cannot be read or written:
    /// without it nothing is done.
    pub fn start(now: Instant, mut parts: Parts, about: About) -> Result<Self, JournalError> {
        let journal = parts.store.load()?;
        let mut controller = Self {
            parts,
            about,
            journal,
            apps: BTreeMap::new(),
            seen: Observation::default(),
            started: now,
            compared: now,
            looked: now,
            lifting: BTreeMap::new(),
            is_saved: true,
            counters: Counters::default(),
        };
        // Before it writes anything: the next service takes back what this backend wrote.
        let kind = controller.parts.backend.kind();
        if controller.journal.backend.replace(kind) != Some(kind) {
            controller.parts.store.save(&controller.journal)?;
        }
        controller.reconcile(now)?;
        Ok(controller)
    }

    /// One period: look, decide, do.
    pub fn step(&mut self, now: Instant) {
        self.sweep(now);
        self.look(now);
        self.judge();
        // Pages and memory in use have no age of their own: on an old picture the policy would divide what is gone.
        if self.parts.sensors.age() <= STALE {
            self.parts.policy.step(now, &self.seen);
        }
        self.take_actions(now);
        if now.saturating_since(self.compared) >= COMPARE {
            self.compared = now;
            self.compare();
        }
        self.enforce(now);
        self.hear_backend(now);
        self.note_trouble();
        self.counters.steps += 1;
    }

    /// Reads all sensors. An application that the sensors do not see yet counts with the memory that it holds.
    fn look(&mut self, now: Instant) {
        self.looked = now;
        self.seen = self.parts.sensors.observe(now);
        for (id, app) in &self.apps {
            see(
                &mut self.seen,
                self.parts.sensors.as_ref(),
                *id,
                &app.cgroup,
            );
        }
    }

    /// Says how long the last step took, and whether it came more than a period late.
    pub fn timed(&mut self, took_us: u64, is_late: bool) {
        self.counters.step_max_us = self.counters.step_max_us.max(took_us);
        self.counters.late_steps += u64::from(is_late);
    }

    /// Answers a request of process `caller`, as the kernel knows it.
    pub fn answer(&mut self, now: Instant, request: Request, caller: Option<u32>) -> Answer {
        let answered = match request {
            Request::Status => Ok(Answer::Status(Box::new(self.status(now)))),
            Request::Metrics => Ok(Answer::Metrics(Metrics {
                text: crate::service::metrics::families(&self.status(now)),
            })),
            Request::Submit(submission) => self.submit(now, submission, caller),
            Request::Remove(name) => self.remove(now, name),
            Request::Plan(plan) => self.plan(now, plan.application),
        };
        answered.unwrap_or_else(Answer::Failed)
    }

    /// Lifts all limits; applications run on, and the next service takes them up again.
    pub fn close(&mut self) {
        self.adopt_cpu();
        for (id, app) in &self.apps {
            // The next service finds a failure of this step in the journal and reports it.
            let _ = self.parts.backend.release(*id);
            let _ = lift_cpu(self.parts.groups.as_mut(), &app.cgroup, &app.entry);
            let _ = lift_floors(self.parts.groups.as_mut(), &app.cgroup, &app.entry);
            self.parts.sensors.release(*id);
        }
        self.apps.clear();
        let entries = std::mem::take(&mut self.journal.entries);
        for mut entry in entries {
            if !self.is_over(&mut entry) {
                self.journal.entries.push(entry);
            }
        }
        let _ = self.parts.store.save(&self.journal);
    }

    /// Applications under control.
    pub fn len(&self) -> usize {
        self.apps.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.apps.is_empty()
    }

    /// Forgets applications that have ended, and removes unneeded cgroups.
    fn sweep(&mut self, now: Instant) {
        let ended: Vec<AppId> = self
            .apps
            .iter()
            .filter(|(_, app)| match self.parts.groups.life(&app.cgroup) {
                Life::Gone => true,
                Life::Empty if app.entry.own => true,
                _ => !is_same(self.parts.groups.as_ref(), &app.entry, &app.cgroup),
            })
            .map(|(id, _)| *id)
            .collect();
        for id in ended {
            self.forget(now, id);
        }
        let before = self.journal.entries.len();
        let entries = std::mem::take(&mut self.journal.entries);
        for mut entry in entries {
            let is_waiting = self
                .lifting
                .get(&entry.id)
                .is_some_and(|(until, _)| now < *until);
            if !entry.let_go || is_waiting || !self.is_over(&mut entry) {
                self.journal.entries.push(entry);
            }
        }
        let entries = &self.journal.entries;
        self.lifting
            .retain(|id, _| entries.iter().any(|entry| entry.id == *id));
        if self.journal.entries.len() < before {
            self.save();
        }
    }

    /// Whether nothing of an entry is left on the machine, after doing what can be done for that.
    fn is_over(&mut self, entry: &mut Entry) -> bool {
        let Ok(cgroup) = Cgroup::new(&entry.cgroup) else {
            return true;
        };
        let groups = self.parts.groups.as_mut();
        match groups.life(&cgroup) {
            Life::Gone => {
                // Another program removed the cgroup: its part of the parent's floor remains. After a failure the next
                // cgroup that goes corrects the parent.
                if entry.own {
                    let _ = groups.unmake(&cgroup);
                }
                true
            }
            Life::Empty if entry.own => groups.unmake(&cgroup).unwrap_or(false),
            _ if !is_same(groups, entry, &cgroup) => true,
            _ if entry.let_go => {
                let is_free = lift_cpu(groups, &cgroup, entry).is_ok()
                    & lift_floors(groups, &cgroup, entry).is_ok();
                let backend = self.parts.backend.as_mut();
                if entry.limited && !backend.is_releasing(AppId(entry.id)) {
                    entry.limited = lift_tiers(backend, &cgroup, entry, false) != Lift::Done;
                }
                is_free && !entry.limited && !entry.own
            }
            _ => false,
        }
    }

    /// Writes the journal; a failure is tried again with the next change.
    fn save(&mut self) {
        self.is_saved = self.parts.store.save(&self.journal).is_ok();
        self.counters.refused_writes += u64::from(!self.is_saved);
    }

    /// Counts kept objectives, where readings show it.
    fn judge(&mut self) {
        for (id, app) in &mut self.apps {
            if let Some(met) = is_met(&self.seen, *id, app.entry.application.slo.objective()) {
                app.judged += 1;
                app.met += u64::from(met);
            }
        }
    }
}

/// Puts into the picture what an application holds, where the sensors have not seen it yet.
fn see(seen: &mut Observation, sensors: &dyn Sensors, id: AppId, cgroup: &Cgroup) {
    let Err(place) = seen.apps.binary_search_by_key(&id, |view| view.id) else {
        return;
    };
    if let Some(held) = sensors.held(cgroup) {
        let view = AppView {
            id,
            held,
            latency: None,
            bandwidth: None,
            cpu_used: None,
        };
        seen.apps.insert(place, view);
    }
}

/// The picture for the policy while these arrive: their near pages are theirs, not foreign, and each is about to
/// claim its own.
fn with_arriving(seen: &Observation, arriving: impl Iterator<Item = AppId>) -> Observation {
    let mut picture = seen.clone();
    let held = arriving.fold(Bytes::ZERO, |sum, id| {
        let view = seen.apps.iter().find(|view| view.id == id);
        Bytes::new(
            sum.get()
                .saturating_add(view.map_or(0, |view| view.held[0].get())),
        )
    });
    if let Some(near) = picture.tiers.first_mut() {
        near.used = near.used.saturating_sub(held);
    }
    picture
}

/// Whether an objective is met; none where that is not known.
fn is_met(seen: &Observation, id: AppId, objective: Objective) -> Option<bool> {
    let view = seen.apps.iter().find(|view| view.id == id)?;
    match objective {
        Objective::Latency(most) => Some(view.latency?.fresh()? <= most),
        Objective::Bandwidth(least) => Some(view.bandwidth?.fresh()? >= least),
        Objective::BestEffort => None,
    }
}

/// Whether the cgroup at an entry's path is still the one that it means.
fn is_same(groups: &dyn Groups, entry: &Entry, cgroup: &Cgroup) -> bool {
    entry.inode.is_none() || entry.inode == groups.inode(cgroup)
}

/// How far limits are lifted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lift {
    /// None is left.
    Done,
    /// The backend works on it, and will report the result.
    UnderWay,
    Refused,
}

/// Takes our limits off the tiers; the backend may not have the application.
fn lift_tiers(backend: &mut dyn Backend, cgroup: &Cgroup, entry: &Entry, is_kept: bool) -> Lift {
    let id = AppId(entry.id);
    let far_tiers = &entry.application.far_tiers;
    let lifted = match is_kept {
        true => backend.release(id),
        // The successor lifts the limits of a killed service.
        false => backend
            .adopt(id, cgroup, far_tiers)
            .and_then(|()| backend.release(id)),
    };
    match lifted {
        Ok(()) if backend.is_releasing(id) => Lift::UnderWay,
        Ok(()) => Lift::Done,
        Err(error) if error.is_gone() => Lift::Done,
        Err(MemError::Unknown(_)) if is_kept => Lift::Done,
        Err(_) => Lift::Refused,
    }
}

/// Takes our limit off the processor time; a foreign value there stays.
fn lift_cpu(groups: &mut dyn Groups, cgroup: &Cgroup, entry: &Entry) -> Result<(), MemError> {
    let before = entry.cpu_before.as_deref().unwrap_or(UNLIMITED);
    match groups.cpu(cgroup) {
        // Without a controller there was no limit either.
        None => Ok(()),
        Some(now) if now == before => Ok(()),
        Some(now) if !entry.cpu_ours.contains(&now) => Ok(()),
        Some(_) => groups.write_cpu(cgroup, before),
    }
}

/// Takes our floors off; only cgroups of ours have them.
fn lift_floors(groups: &mut dyn Groups, cgroup: &Cgroup, entry: &Entry) -> Result<(), MemError> {
    match entry.application.floors.is_none() {
        true => Ok(()),
        false => groups.set_floors(cgroup, Floors::default()),
    }
}

/// `cpu.max` of a new cgroup.
const UNLIMITED: &str = "max 100000";

fn machine(error: impl fmt::Display) -> Failure {
    Failure::new(FailureCode::Machine, error.to_string())
}

#[cfg(test)]
mod tests;
