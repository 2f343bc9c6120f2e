//! After a crash: the machine is put in the order that the journal has.
//!
//! Method: each running application of the journal is measured, admitted in the order of arrival, and gets its limits
//! again in place of those of the earlier service. Entries whose group is empty or gone are removed. Applications that
//! the policy does not admit any more are released without limits. Cgroups of ours that no journal names (a user deleted
//! the journal) are removed if they are empty, and reported if they are not.

use super::{Controlled, Controller, Life, Lift, is_same, lift_tiers, see, with_arriving};
use crate::cgroup::Cgroup;
use crate::journal::{Entry, JournalError};
use isolane_common_quantities::units::{Bytes, Instant};
use isolane_memory_policy::mercury::{AppId, Limits, Observation, Verdict};

impl Controller {
    pub(super) fn reconcile(&mut self, now: Instant) -> Result<(), JournalError> {
        let entries = std::mem::take(&mut self.journal.entries);
        let mut living = Vec::new();
        for mut entry in entries {
            self.adopt_changed(&mut entry);
            if self.is_over(&mut entry) {
                continue;
            }
            self.journal.entries.push(entry.clone());
            if !entry.let_go {
                living.push(entry);
            }
        }
        let taken: Vec<(bool, bool)> = living.iter().map(|entry| self.take_up(entry)).collect();
        self.seen = self.parts.sensors.observe(now);
        let mut arriving: Vec<AppId> = Vec::new();
        for entry in &living {
            if let Ok(cgroup) = Cgroup::new(&entry.cgroup) {
                let id = AppId(entry.id);
                see(&mut self.seen, self.parts.sensors.as_ref(), id, &cgroup);
                arriving.push(id);
            }
        }
        for (entry, taken) in living.into_iter().zip(taken) {
            let picture = with_arriving(&self.seen, arriving.iter().copied());
            arriving.retain(|id| *id != AppId(entry.id));
            self.admit_again(now, entry, taken, &picture);
        }
        self.take_actions(now);
        self.enforce(now);
        self.remove_strays();
        self.parts.store.save(&self.journal)
    }

    /// A foreign value of `cpu.max` that was written while no service ran is reported and stays; limits are parts of
    /// it.
    fn adopt_changed(&mut self, entry: &mut Entry) {
        let groups = self.parts.groups.as_ref();
        let Ok(cgroup) = Cgroup::new(&entry.cgroup) else {
            return;
        };
        let Some(now) = groups.cpu(&cgroup) else {
            return;
        };
        let is_known = entry
            .cpu_before
            .as_deref()
            .is_none_or(|before| before == now)
            || entry.cpu_ours.contains(&now);
        if is_known || !is_same(groups, entry, &cgroup) {
            return;
        }
        self.about.problems.push(format!(
            "{}: another program changed cpu.max of {cgroup} to `{now}` while no service ran: it stays, and limits are parts of it",
            entry.application.name
        ));
        entry.cpu_before = Some(now);
    }

    /// Measured and kept again, as far as that succeeds; the rest is tried again with the limits.
    fn take_up(&mut self, entry: &Entry) -> (bool, bool) {
        // A cgroup that is malformed is over, and was sorted out.
        let Ok(cgroup) = Cgroup::new(&entry.cgroup) else {
            return (false, false);
        };
        let id = AppId(entry.id);
        let far_tiers = &entry.application.far_tiers;
        let sensed = self.parts.sensors.adopt(id, &cgroup);
        let kept = self.parts.backend.adopt(id, &cgroup, far_tiers);
        (sensed.is_ok(), kept.is_ok())
    }

    fn admit_again(
        &mut self,
        now: Instant,
        entry: Entry,
        (is_sensed, is_kept): (bool, bool),
        seen: &Observation,
    ) {
        let Ok(cgroup) = Cgroup::new(&entry.cgroup) else {
            return;
        };
        let id = AppId(entry.id);
        let spec = entry.application.spec(id, Bytes::new(entry.memory_bytes));
        let lacks = match self.parts.policy.arrive(now, spec, seen) {
            Verdict::Admitted => None,
            Verdict::BestEffort(lacks) => Some(lacks),
            Verdict::Refused(refusal) => {
                let name = &entry.application.name;
                let problem = format!("{name} was under control and is released: {refusal:?}");
                self.about.problems.push(problem);
                self.parts.sensors.release(id);
                // Lifts what the dead service wrote.
                let backend = self.parts.backend.as_mut();
                let lift = lift_tiers(backend, &cgroup, &entry, is_kept);
                self.let_go(id, lift != Lift::Done);
                return;
            }
        };
        if let Some(trouble) = &entry.trouble {
            let name = &entry.application.name;
            self.about
                .problems
                .push(format!("{name}, when the last service ended: {trouble}"));
        }
        let mut app = Controlled::new(entry, cgroup, lacks, now);
        (app.is_sensed, app.is_kept) = (is_sensed, is_kept);
        app.want(self.parts.policy.limits(id).unwrap_or(Limits::NONE));
        self.apps.insert(id, app);
    }

    fn remove_strays(&mut self) {
        for cgroup in self.parts.groups.all_own() {
            let is_known = self
                .journal
                .entries
                .iter()
                .any(|entry| entry.cgroup == cgroup.path());
            if is_known {
                continue;
            }
            match self.parts.groups.life(&cgroup) {
                Life::Empty => {
                    // Not removed: it is tried again at the next start.
                    let _ = self.parts.groups.unmake(&cgroup);
                }
                Life::Alive => self.about.problems.push(format!(
                    "{cgroup} holds processes and is in no journal: it is left alone; end them, then start the service again"
                )),
                Life::Gone => {}
            }
        }
    }
}
