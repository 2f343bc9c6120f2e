//! What the policy wants, onto the machine; what the machine says of it.
//!
//! Method: each application has its limits and a mark whether the machine has them. A failed write is shown in the
//! status and repeated after [`RETRY`]; meanwhile all other applications get their limits. The controller periodically
//! compares `cpu.max` with its target, because other programs may write the file: without a limit of ours their value
//! stays, else ours is written.

use super::groups::Groups;
use super::{Controlled, Controller, Enforcement, Parts, RETRY, UNLIMITED, is_same, lift_cpu};
use crate::backend::{Backend, Progress};
use crate::error::MemError;
use isolane_common_quantities::units::Instant;
use isolane_memory_policy::mercury::{Action, AppId, CPU_ONE, Limits};

impl Controller {
    /// Takes what the policy has decided.
    pub(super) fn take_actions(&mut self, now: Instant) {
        while let Some(action) = self.parts.policy.poll_action() {
            self.take_action(now, action);
        }
    }

    pub(super) fn take_action(&mut self, now: Instant, action: Action) {
        // One that has just gone needs no limits.
        let Some(app) = self.apps.get_mut(&action.app) else {
            return;
        };
        if app.wanted != action.limits {
            self.counters.changes += 1;
        }
        app.want(action.limits);
        let reason = action.reason.text(|id| self.name(id));
        if let Some(app) = self.apps.get_mut(&action.app) {
            app.last_change = (now, reason);
        }
    }

    /// Writes limits that the machine does not have yet.
    pub(super) fn enforce(&mut self, now: Instant) {
        if self.apps.values().any(|app| !app.cpu_done) {
            self.adopt_cpu();
        }
        let is_noted = self.note_cpu(now);
        let Parts {
            backend,
            sensors,
            groups,
            ..
        } = &mut self.parts;
        for (id, app) in &mut self.apps {
            if app.is_in_force() || now < app.retry_at {
                continue;
            }
            // The group has another owner now: the next sweep forgets it, and nothing is written meanwhile.
            if !is_same(groups.as_ref(), &app.entry, &app.cgroup) {
                continue;
            }
            if !app.is_sensed {
                app.is_sensed = sensors.adopt(*id, &app.cgroup).is_ok();
            }
            if !app.tiers_done {
                app.tell_backend(*id, backend.as_mut());
            }
            if !app.cpu_done {
                app.tell_cpu(*id, groups.as_mut(), is_noted);
            }
            if !app.floors_done {
                app.tell_floors(groups.as_mut());
            }
            if !app.is_in_force() {
                self.counters.refused_writes += 1;
                app.retry_at = now.saturating_add(RETRY);
            }
        }
    }

    /// Checks whether another program has changed our value.
    pub(super) fn compare(&mut self) {
        self.adopt_cpu();
        self.pay_debts();
        for (id, app) in self.apps.iter_mut().filter(|(_, app)| app.cpu_done) {
            let groups = self.parts.groups.as_ref();
            app.cpu_done = groups.cpu(&app.cgroup) == app.cpu_text
                && groups.has_bandwidth(*id, app.wanted.cpu);
        }
        for app in self.apps.values_mut().filter(|app| app.floors_done) {
            app.compare_floors(self.parts.groups.as_ref());
        }
    }

    /// Where no limit of ours is in force, a foreign value of `cpu.max` stays. Our limits are parts of this value, and
    /// it is the value that we restore.
    pub(super) fn adopt_cpu(&mut self) {
        let groups = self.parts.groups.as_ref();
        let mut is_changed = false;
        for app in self.apps.values_mut() {
            let left = app.cpu_text.as_ref();
            let is_free = left.is_some_and(|left| {
                Some(left) == app.entry.cpu_before.as_ref() || !app.entry.cpu_ours.contains(left)
            });
            if !is_free || !is_same(groups, &app.entry, &app.cgroup) {
                continue;
            }
            let Some(text) = groups
                .cpu(&app.cgroup)
                .filter(|text| Some(text) != app.entry.cpu_before.as_ref())
            else {
                continue;
            };
            app.entry.cpu_before = Some(text.clone());
            app.cpu_text = Some(text);
            let entries = &mut self.journal.entries;
            if let Some(entry) = entries.iter_mut().find(|entry| entry.id == app.entry.id) {
                entry.cpu_before.clone_from(&app.entry.cpu_before);
            }
            is_changed = true;
        }
        if is_changed {
            self.save();
        }
    }

    /// Records the next value of `cpu.max`, so a successor can distinguish it from foreign values. False: that failed,
    /// and limits of ours must not be written.
    fn note_cpu(&mut self, now: Instant) -> bool {
        let groups = self.parts.groups.as_ref();
        let mut is_changed = false;
        for (id, app) in &mut self.apps {
            let cpu = groups.cpu_part(*id, app.wanted.cpu);
            let is_due = !app.cpu_done && now >= app.retry_at && cpu < CPU_ONE;
            if !is_due || !is_same(groups, &app.entry, &app.cgroup) {
                continue;
            }
            let before = app.entry.cpu_before.as_deref().unwrap_or(UNLIMITED);
            let text = groups.cpu_text(&app.cgroup, cpu, before);
            if app.entry.cpu_ours.last() == Some(&text) {
                continue;
            }
            // What is in force stays known until the new one is; others were never written, or are overwritten.
            let in_force = groups.cpu(&app.cgroup);
            let ours = &mut app.entry.cpu_ours;
            ours.retain(|ours| Some(ours) == in_force.as_ref());
            ours.push(text);
            let entries = &mut self.journal.entries;
            if let Some(entry) = entries.iter_mut().find(|entry| entry.id == app.entry.id) {
                entry.cpu_ours.clone_from(&app.entry.cpu_ours);
            }
            is_changed = true;
        }
        if is_changed || !self.is_saved {
            self.save();
        }
        self.is_saved
    }

    /// Tries again what an earlier backend's limits could not be lifted of. Who is under control of the same backend now
    /// has limits of today there.
    fn pay_debts(&mut self) {
        if self.journal.owed.is_empty() {
            return;
        }
        let kind = self.parts.backend.kind();
        let groups = self.parts.groups.as_mut();
        let apps = &self.apps;
        let before = self.journal.owed.len();
        self.journal.owed.retain(|owed| {
            let is_ours = apps.values().any(|app| app.entry.cgroup == owed.cgroup);
            (owed.backend == kind && is_ours) || groups.lift(owed).is_err()
        });
        if self.journal.owed.len() < before {
            self.save();
        }
    }

    /// What became of the limits, of comings and of goings.
    pub(super) fn hear_backend(&mut self, now: Instant) {
        for progress in self.parts.backend.poll(now) {
            let id: AppId = progress.app();
            let (enforcement, trouble) = match progress {
                Progress::Gone { .. } => {
                    self.forget(now, id);
                    continue;
                }
                Progress::Released { .. } => {
                    self.lifted(id);
                    continue;
                }
                Progress::ReleaseFailed { why, .. } => {
                    self.not_lifted(now, id, &why);
                    continue;
                }
                Progress::AdoptFailed { why, .. } if !self.apps.contains_key(&id) => {
                    self.not_lifted(now, id, &why);
                    continue;
                }
                Progress::AdoptFailed { why, .. } => {
                    self.counters.adoptions_refused += 1;
                    if let Some(app) = self.apps.get_mut(&id) {
                        (app.is_kept, app.tiers_done) = (false, false);
                        app.retry_at = now.saturating_add(RETRY);
                    }
                    (Enforcement::Stuck, Some(why.to_string()))
                }
                Progress::Stuck { why, .. } => (Enforcement::Stuck, Some(why.to_string())),
                Progress::Moving { .. } => (Enforcement::Moving, None),
                Progress::Reached { .. } => (Enforcement::Reached, None),
            };
            let Some(app) = self.apps.get_mut(&id) else {
                continue;
            };
            let is_new = enforcement == Enforcement::Stuck && app.enforcement != Enforcement::Stuck;
            self.counters.stuck += u64::from(is_new);
            let is_free = app.wanted.tiers == Limits::NONE.tiers;
            app.enforcement = match enforcement {
                Enforcement::Reached if is_free => Enforcement::None,
                other => other,
            };
            app.trouble.moving = trouble;
        }
    }

    /// Checks that a released application has none of our limits.
    fn lifted(&mut self, id: AppId) {
        self.counters.released += 1;
        self.lifting.remove(&id.0);
        let entries = &mut self.journal.entries;
        if let Some(entry) = entries
            .iter_mut()
            .find(|entry| entry.id == id.0 && entry.let_go)
        {
            entry.limited = false;
        }
    }

    /// Something is left, and is tried again by the sweep.
    fn not_lifted(&mut self, now: Instant, id: AppId, why: &MemError) {
        // That it was not taken follows a refusal which says more.
        if matches!(why, MemError::Unknown(_)) && self.lifting.contains_key(&id.0) {
            return;
        }
        self.counters.releases_refused += 1;
        let until = now.saturating_add(RETRY);
        self.lifting.insert(id.0, (until, why.to_string()));
    }

    /// Keeps in the journal what the machine refuses now: written when it begins and when it ends.
    pub(super) fn note_trouble(&mut self) {
        let mut is_changed = false;
        for app in self.apps.values_mut() {
            let now = app.trouble.first();
            if now == app.entry.trouble.as_ref() {
                continue;
            }
            is_changed |= now.is_some() != app.entry.trouble.is_some();
            app.entry.trouble = now.cloned();
            let entries = &mut self.journal.entries;
            if let Some(entry) = entries.iter_mut().find(|entry| entry.id == app.entry.id) {
                entry.trouble.clone_from(&app.entry.trouble);
            }
        }
        if is_changed {
            self.save();
        }
    }
}

impl super::Trouble {
    /// The most important problem, for the first line of the status.
    pub(super) fn first(&self) -> Option<&String> {
        self.tiers
            .as_ref()
            .or(self.moving.as_ref())
            .or(self.cpu.as_ref())
            .or(self.floors.as_ref())
    }
}

impl Controlled {
    fn is_in_force(&self) -> bool {
        self.is_sensed && self.tiers_done && self.cpu_done && self.floors_done
    }

    fn tell_backend(&mut self, id: AppId, backend: &mut dyn Backend) {
        let far_tiers = &self.entry.application.far_tiers;
        let adopted = match self.is_kept {
            true => Ok(()),
            false => backend.adopt(id, &self.cgroup, far_tiers),
        };
        self.is_kept = adopted.is_ok();
        let done = adopted.and_then(|()| backend.apply(id, &self.wanted.tiers));
        self.tiers_done = done.is_ok();
        self.enforcement = match self.trouble.moving {
            // What was refused a moment ago is in trouble until pages are seen to move.
            Some(_) => Enforcement::Stuck,
            None => self.expected(),
        };
        self.trouble.tiers = done.err().map(|error| error.to_string());
    }

    fn expected(&self) -> Enforcement {
        match self.wanted.tiers.iter().any(Option::is_some) {
            true => Enforcement::Moving,
            false => Enforcement::None,
        }
    }

    fn tell_floors(&mut self, groups: &mut dyn Groups) {
        let done = groups.set_floors(&self.cgroup, self.entry.application.floors);
        self.floors_done = done.is_ok();
        self.breaches = self.breaches.or(groups.floor_breaches(&self.cgroup));
        self.trouble.floors = done.err().map(|error| error.to_string());
    }

    /// Checks that the floors are still in force, and that they have an effect.
    fn compare_floors(&mut self, groups: &dyn Groups) {
        let floors = self.entry.application.floors;
        if floors.is_none() {
            return;
        }
        self.floors_done = groups.has_floors(&self.cgroup, floors);
        let breaches = groups.floor_breaches(&self.cgroup);
        let more = match (self.breaches, breaches) {
            (Some(before), Some(now)) => now.saturating_sub(before),
            _ => 0,
        };
        self.trouble.floors = (more > 0).then(|| {
            format!(
                "the kernel took memory below memory_low {more} times, so this floor is not kept: give memory_min"
            )
        });
    }

    fn tell_cpu(&mut self, id: AppId, groups: &mut dyn Groups, is_noted: bool) {
        let cpu = groups.cpu_part(id, self.wanted.cpu);
        let done = match (cpu, self.entry.cpu_ours.last()) {
            (CPU_ONE.., _) => lift_cpu(groups, &self.cgroup, &self.entry),
            (_, Some(text)) if is_noted => groups.write_cpu(&self.cgroup, text),
            _ => Err(MemError::NotPermitted {
                action: "write to the journal what cpu.max is about to become".to_owned(),
            }),
        };
        let done = done.and_then(|()| groups.set_bandwidth(id, self.wanted.cpu));
        self.cpu_done = done.is_ok();
        self.cpu_text = groups.cpu(&self.cgroup);
        self.trouble.cpu = done.err().map(|error| error.to_string());
    }
}
