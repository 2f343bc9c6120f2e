//! Coming and going of applications.
//!
//! Method: an application is first admitted on a copy of the policy; then the journal records it, then the machine is
//! changed, and only then the copy replaces the original. A failure before that is undone without an effect on other
//! applications. The process enters the cgroup last, under limits.

use super::{
    Controlled, Controller, Enforcement, Lift, Trouble, UNLIMITED, lift_tiers, machine, see,
    with_arriving,
};
use crate::application::pod::Place;
use crate::application::{Application, MEMORY_MAX, MEMORY_MIN, Slo};
use crate::cgroup::Cgroup;
use crate::journal::Entry;
use crate::protocol::{
    Admission, Answer, Failure, FailureCode, Lacks, Name, Planned, Refused, Submission,
};
use isolane_common_quantities::units::{Bytes, Instant};
use isolane_memory_policy::mercury::{Action, AppId, Limits, Reason, Shortfall, Verdict};
use std::collections::BTreeMap;

/// An application that the policy would take, and the policy as it would then be.
struct Trial {
    policy: Box<dyn super::ControlPolicy>,
    /// Whether the objectives of those who yield are expected to hold, where that is known.
    keeps: BTreeMap<AppId, Option<bool>>,
    lacks: Option<Shortfall>,
    actions: Vec<Action>,
}

impl Controller {
    /// Takes an application under control.
    pub(super) fn submit(
        &mut self,
        now: Instant,
        submission: Submission,
        caller: Option<u32>,
    ) -> Result<Answer, Failure> {
        self.check_picture(now)?;
        let Submission { application, place } = submission;
        if let Some(refused) = self.refuse(&application) {
            self.counters.refused += 1;
            return Ok(Answer::Refused(refused));
        }
        self.check_against_machine(&application)?;
        let process = match (&place, caller) {
            (Place::Caller, None) => {
                let message = "the kernel does not report which process sent the request: name a cgroup instead";
                return Err(Failure::new(FailureCode::Machine, message));
            }
            (Place::Caller, process) => process,
            _ => None,
        };
        let entry = self.entry(application, &place)?;
        let cgroup = Cgroup::new(&entry.cgroup).map_err(machine)?;
        let id = AppId(entry.id);
        // What runs already has pages; the sensors do not know it yet.
        see(&mut self.seen, self.parts.sensors.as_ref(), id, &cgroup);
        let trial = match self.try_out(now, &entry.application, id, entry.memory_bytes) {
            Ok(trial) => trial,
            Err(refused) => {
                self.unsee(id);
                self.counters.refused += 1;
                return Ok(Answer::Refused(refused));
            }
        };
        let yields = self.yields(id, &trial);
        if let Err(failure) = self.take_in(now, entry, &cgroup, trial) {
            self.unsee(id);
            return Err(failure);
        }
        if let Some(process) = process
            && let Err(error) = self.parts.groups.enter(&cgroup, process)
        {
            self.forget(now, id);
            return Err(machine(error));
        }
        let app = &self.apps[&id];
        Ok(Answer::Admitted(Admission {
            name: app.entry.application.name.clone(),
            id: id.0,
            cgroup: cgroup.path().to_owned(),
            lacks: app.lacks.map(lacks),
            limits: super::show::limits(&app.wanted, self.seen.tiers.len()),
            yields,
        }))
    }

    /// What would happen if an application were submitted.
    pub(super) fn plan(
        &mut self,
        now: Instant,
        application: Application,
    ) -> Result<Answer, Failure> {
        let refused = |refused| {
            Answer::Planned(Planned {
                kept: false,
                refused: Some(refused),
                lacks: None,
                limits: None,
                yields: Vec::new(),
            })
        };
        self.check_picture(now)?;
        if let Some(reason) = self.refuse(&application) {
            return Ok(refused(reason));
        }
        self.check_against_machine(&application)?;
        let id = AppId(self.journal.next_id);
        let memory = self.free_near().get();
        let trial = match self.try_out(now, &application, id, memory) {
            Ok(trial) => trial,
            Err(reason) => return Ok(refused(reason)),
        };
        let limits = trial.policy.limits(id).unwrap_or(Limits::NONE);
        Ok(Answer::Planned(Planned {
            kept: trial.lacks.is_none(),
            refused: None,
            lacks: trial.lacks.map(lacks),
            limits: Some(super::show::limits(&limits, self.seen.tiers.len())),
            yields: self.yields(id, &trial),
        }))
    }

    /// Lets an application go; it keeps running.
    pub(super) fn remove(&mut self, now: Instant, name: Name) -> Result<Answer, Failure> {
        let found = self
            .apps
            .iter()
            .find(|(_, app)| app.entry.application.name == name.name);
        let Some((&id, _)) = found else {
            let names: Vec<&str> = self
                .apps
                .values()
                .map(|app| app.entry.application.name.as_str())
                .collect();
            let message = match names.is_empty() {
                true => format!("{}: no application is under control", name.name),
                false => format!(
                    "{}: no such application; there are {}",
                    name.name,
                    names.join(", ")
                ),
            };
            return Err(Failure::new(FailureCode::NotFound, message));
        };
        self.forget(now, id);
        Ok(Answer::Removed(name))
    }

    /// Ends control of an application: limits are lifted, and a cgroup of ours goes once it is empty.
    pub(super) fn forget(&mut self, now: Instant, id: AppId) {
        self.adopt_cpu();
        let Some(app) = self.apps.remove(&id) else {
            return;
        };
        self.parts.policy.depart(now, id);
        self.parts.sensors.release(id);
        let backend = self.parts.backend.as_mut();
        let lift = lift_tiers(backend, &app.cgroup, &app.entry, app.is_kept);
        self.counters.refused_writes += u64::from(lift == Lift::Refused);
        self.let_go(id, lift != Lift::Done);
        self.save();
        self.take_actions(now);
        self.enforce(now);
    }

    /// The journal, then the machine, then the policy.
    fn take_in(
        &mut self,
        now: Instant,
        entry: Entry,
        cgroup: &Cgroup,
        trial: Trial,
    ) -> Result<(), Failure> {
        let id = AppId(entry.id);
        self.journal.next_id = entry.id.saturating_add(1);
        self.journal.entries.push(entry.clone());
        if let Err(error) = self.parts.store.save(&self.journal) {
            self.journal.entries.pop();
            return Err(machine(error));
        }
        if let Err(error) = self.take_place(&entry, cgroup) {
            self.parts.sensors.release(id);
            // Unknown to the backend, or released: both are the wanted state.
            let _ = self.parts.backend.release(id);
            self.let_go(id, false);
            self.save();
            return Err(machine(error));
        }
        self.parts.policy = trial.policy;
        self.apps
            .insert(id, Controlled::new(entry, cgroup.clone(), trial.lacks, now));
        for action in trial.actions {
            self.take_action(now, action);
        }
        if let Some(limits) = self.parts.policy.limits(id) {
            let app = self.apps.get_mut(&id).expect("just put there");
            app.want(limits);
        }
        self.enforce(now);
        Ok(())
    }

    /// Marks an entry of the journal, and drops it where nothing is left of it.
    pub(super) fn let_go(&mut self, id: AppId, limited: bool) {
        let entries = &mut self.journal.entries;
        let Some(place) = entries.iter().position(|entry| entry.id == id.0) else {
            return;
        };
        let mut entry = entries.remove(place);
        (entry.let_go, entry.limited) = (true, limited);
        if !self.is_over(&mut entry) {
            self.journal.entries.insert(place, entry);
        }
    }

    /// Makes the cgroup if it is ours, and has it measured and kept.
    pub(super) fn take_place(
        &mut self,
        entry: &Entry,
        cgroup: &Cgroup,
    ) -> Result<(), crate::error::MemError> {
        let id = AppId(entry.id);
        if entry.own {
            self.parts.groups.make(&entry.application.name)?;
        }
        self.parts.sensors.adopt(id, cgroup)?;
        self.parts
            .backend
            .adopt(id, cgroup, &entry.application.far_tiers)
    }

    /// What the journal will say of it.
    fn entry(&self, application: Application, place: &Place) -> Result<Entry, Failure> {
        let is_own = *place == Place::Caller;
        let groups = self.parts.groups.as_ref();
        let bad = |error: crate::error::MemError| {
            let code = match error {
                crate::error::MemError::BadCgroup { .. } | crate::error::MemError::Gone(_) => {
                    FailureCode::BadInput
                }
                _ => FailureCode::Machine,
            };
            Failure::new(code, error.to_string())
        };
        let cgroup = match is_own {
            true => groups.own(&application.name).map_err(bad)?,
            false => groups.find(place).map_err(bad)?,
        };
        self.check_alone(&cgroup, is_own)?;
        if !is_own && !application.floors.is_none() {
            let message = format!(
                "memory_low and memory_min need a cgroup that the service makes (isolane mem run): {cgroup} is not; write its \
                 memory.low and that of each of its ancestors yourself"
            );
            return Err(Failure::new(FailureCode::BadInput, message));
        }
        let memory = match is_own {
            true => None,
            false => groups.memory(&cgroup),
        };
        let memory = memory.unwrap_or_else(|| self.free_near());
        Ok(Entry {
            id: self.journal.next_id,
            application,
            cgroup: cgroup.path().to_owned(),
            inode: if is_own { None } else { groups.inode(&cgroup) },
            own: is_own,
            cpu_before: if is_own {
                Some(UNLIMITED.to_owned())
            } else {
                groups.cpu(&cgroup)
            },
            cpu_ours: Vec::new(),
            mems_before: match is_own {
                true => Some(String::new()),
                false => groups.mems(&cgroup),
            },
            memory_bytes: memory.get().clamp(MEMORY_MIN, MEMORY_MAX),
            trouble: None,
            limited: false,
            let_go: false,
        })
    }

    /// One cgroup must not hold another's pages: they would count twice.
    fn check_alone(&self, cgroup: &Cgroup, is_own: bool) -> Result<(), Failure> {
        for entry in &self.journal.entries {
            let Ok(other) = Cgroup::new(&entry.cgroup) else {
                continue;
            };
            if !cgroup.is_within(&other) && !other.is_within(cgroup) {
                continue;
            }
            let name = &entry.application.name;
            if entry.let_go && self.parts.backend.is_releasing(AppId(entry.id)) {
                let message =
                    format!("limits of an earlier {name} in {other} are being lifted: try again");
                return Err(Failure::new(FailureCode::Busy, message));
            }
            let message = match entry.let_go {
                true => format!(
                    "processes of an earlier {name} still live in {other}: end them, or choose another name"
                ),
                false => format!(
                    "{cgroup} and {other} of {name} overlap, so their pages would count twice: choose one"
                ),
            };
            return Err(Failure::new(FailureCode::BadInput, message));
        }
        let groups = self.parts.groups.as_ref();
        if is_own && groups.life(cgroup) == super::Life::Alive {
            let message = format!(
                "{cgroup} is there already, with processes that are not under control: choose another name"
            );
            return Err(Failure::new(FailureCode::BadInput, message));
        }
        let is_ours = groups
            .all_own()
            .iter()
            .any(|own| cgroup.is_within(own) || own.is_within(cgroup));
        if !is_own && is_ours {
            let message =
                format!("{cgroup} is where the service itself makes cgroups: choose one of yours");
            return Err(Failure::new(FailureCode::BadInput, message));
        }
        Ok(())
    }

    /// Runs the request on a copy of the policy.
    fn try_out(
        &self,
        now: Instant,
        application: &Application,
        id: AppId,
        memory: u64,
    ) -> Result<Trial, Refused> {
        let mut policy = self.parts.policy.fork();
        let spec = application.spec(id, Bytes::new(memory));
        let picture = with_arriving(&self.seen, std::iter::once(id));
        let yields = policy.yields(&spec, &picture);
        let keeps = yields
            .into_iter()
            .map(|given| (given.app, given.keeps_objective))
            .collect();
        let verdict = policy.arrive(now, spec, &picture);
        let lacks = match verdict {
            Verdict::Admitted => None,
            Verdict::BestEffort(lacks) => Some(lacks),
            Verdict::Refused(refusal) => return Err(self.refused(application, refusal)),
        };
        let actions = std::iter::from_fn(|| policy.poll_action()).collect();
        Ok(Trial {
            policy,
            keeps,
            lacks,
            actions,
        })
    }

    /// Numbers of who was not taken are used again.
    fn unsee(&mut self, id: AppId) {
        self.seen.apps.retain(|view| view.id != id);
    }

    /// Who gives something up for `id`.
    fn yields(&self, id: AppId, trial: &Trial) -> Vec<crate::protocol::Yield> {
        let tiers = self.seen.tiers.len();
        let mut changes: Vec<crate::protocol::Yield> = Vec::new();
        for (other, app) in self.apps.iter().filter(|(other, _)| **other != id) {
            let last = trial
                .actions
                .iter()
                .rev()
                .find(|action| action.app == *other);
            let Some(action) = last.filter(|action| action.limits != app.wanted) else {
                continue;
            };
            changes.push(crate::protocol::Yield {
                name: app.entry.application.name.clone(),
                before: super::show::limits(&app.wanted, tiers),
                after: super::show::limits(&action.limits, tiers),
                reason: self.reason_for(action.reason, id),
                slo_kept: match app.entry.application.slo {
                    // It has no objective, so none breaks.
                    Slo::BestEffort => Some(true),
                    _ => trial.keeps.get(other).copied().flatten(),
                },
            });
        }
        changes
    }

    /// Unused near memory.
    fn free_near(&self) -> Bytes {
        let near = self.seen.tiers.first();
        near.map_or(Bytes::ZERO, |tier| tier.capacity.saturating_sub(tier.used))
    }

    fn reason_for(&self, reason: Reason, arriving: AppId) -> String {
        reason.text(|id| match id == arriving {
            true => "the new one".to_owned(),
            false => self.name(id),
        })
    }

    pub(super) fn name(&self, id: AppId) -> String {
        let app = self.apps.get(&id);
        app.map_or_else(|| id.to_string(), |app| app.entry.application.name.clone())
    }
}

impl Controlled {
    pub(super) fn new(
        entry: Entry,
        cgroup: Cgroup,
        lacks: Option<Shortfall>,
        now: Instant,
    ) -> Self {
        Self {
            lacks,
            wanted: Limits::NONE,
            is_sensed: true,
            is_kept: true,
            tiers_done: false,
            cpu_done: false,
            // A cgroup of ours may be one that was left behind, with its floors.
            floors_done: entry.application.floors.is_none() && !entry.own,
            breaches: None,
            cpu_text: None,
            retry_at: Instant::ZERO,
            last_change: (now, Reason::Admitted.text(|id| id.to_string())),
            enforcement: Enforcement::None,
            trouble: Trouble::default(),
            met: 0,
            judged: 0,
            entry,
            cgroup,
        }
    }

    /// What it may use from now on.
    pub(super) fn want(&mut self, limits: Limits) {
        self.tiers_done &= self.wanted.tiers == limits.tiers;
        self.cpu_done &= self.wanted.cpu == limits.cpu;
        self.wanted = limits;
    }
}

fn lacks(shortfall: Shortfall) -> Lacks {
    Lacks {
        local_bytes: shortfall.local.get(),
        bandwidth_bytes_per_s: shortfall.bandwidth,
    }
}
