//! What the policy wants, onto the machine; what the machine says of it.
//!
//! Method: each application knows what it may use and whether the machine was told. A refusal is kept for people to
//! see and tried again after [`RETRY`]; meanwhile everybody else gets theirs. Now and then `cpu.max` is compared
//! with what it should be, as others may write it: where we limit nothing theirs stands, else ours.

use super::groups::Groups;
use super::{Controlled, Controller, Enforcement, Parts, RETRY, UNLIMITED, is_same, lift_cpu};
use crate::backend::{Backend, Progress};
use isolane_core::policy::mercury::{Action, AppId, CPU_ONE, Limits};
use isolane_core::units::Instant;

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
        app.last_change = Some((now, action.reason));
    }

    /// Tells the machine what it was not told yet.
    pub(super) fn enforce(&mut self, now: Instant) {
        if self.apps.values().any(|app| !app.cpu_done) {
            self.adopt_cpu();
        }
        let Parts {
            backend,
            sensors,
            groups,
            ..
        } = &mut self.parts;
        for (id, app) in &mut self.apps {
            if app.is_told() || now < app.retry_at {
                continue;
            }
            // Somebody else's by now: the next sweep forgets it, and nothing is written meanwhile.
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
                app.tell_cpu(groups.as_mut());
            }
            if !app.is_told() {
                self.counters.refused_writes += 1;
                app.retry_at = now.saturating_add(RETRY);
            }
        }
    }

    /// Looks whether somebody else has changed what we wrote.
    pub(super) fn compare(&mut self) {
        self.adopt_cpu();
        for app in self.apps.values_mut().filter(|app| app.cpu_done) {
            app.cpu_done = self.parts.groups.cpu(&app.cgroup) == app.cpu_text;
        }
    }

    /// Where no limit of ours is in force, what somebody else has written to `cpu.max` is theirs: it stays, our
    /// limits are parts of it, and it is what is put back.
    pub(super) fn adopt_cpu(&mut self) {
        let groups = self.parts.groups.as_ref();
        let mut is_changed = false;
        for app in self.apps.values_mut() {
            let is_free = app.cpu_text.is_some() && app.cpu_text == app.entry.cpu_before;
            if !is_free || !is_same(groups, &app.entry, &app.cgroup) {
                continue;
            }
            let Some(text) = groups
                .cpu(&app.cgroup)
                .filter(|text| Some(text) != app.cpu_text.as_ref())
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

    /// What became of the limits.
    pub(super) fn hear_backend(&mut self, now: Instant) {
        for progress in self.parts.backend.poll(now) {
            let id: AppId = progress.app();
            if matches!(progress, Progress::Gone { .. }) {
                self.forget(now, id);
                continue;
            }
            let Some(app) = self.apps.get_mut(&id) else {
                continue;
            };
            (app.enforcement, app.trouble.moving) = match progress {
                Progress::Moving { .. } => (Enforcement::Moving, None),
                Progress::Reached { .. } if app.wanted.tiers == Limits::NONE.tiers => {
                    (Enforcement::None, None)
                }
                Progress::Reached { .. } => (Enforcement::Reached, None),
                Progress::Stuck { why, .. } => (Enforcement::Stuck, Some(why.to_string())),
                Progress::Gone { .. } => unreachable!("handled above"),
            };
        }
    }
}

impl Controlled {
    fn is_told(&self) -> bool {
        self.is_sensed && self.tiers_done && self.cpu_done
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
        self.enforcement = match self.wanted.tiers.iter().any(Option::is_some) {
            true => Enforcement::Moving,
            false => Enforcement::None,
        };
        self.trouble.tiers = done.err().map(|error| error.to_string());
    }

    fn tell_cpu(&mut self, groups: &mut dyn Groups) {
        let done = match self.wanted.cpu {
            CPU_ONE.. => lift_cpu(groups, &self.cgroup, &self.entry),
            cpu => {
                let before = self.entry.cpu_before.as_deref().unwrap_or(UNLIMITED);
                groups.set_cpu(&self.cgroup, cpu, before)
            }
        };
        self.cpu_done = done.is_ok();
        self.cpu_text = groups.cpu(&self.cgroup);
        self.trouble.cpu = done.err().map(|error| error.to_string());
    }
}
