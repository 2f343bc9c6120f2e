//! The invariants of a run, on the leases in the shared memory and on the daemon's snapshot.

use super::event_loop::Daemon;
use super::processes::{Pace, Process};
use super::*;
use isolaned::snapshot::Snapshot;
use std::collections::{BTreeMap, BTreeSet};

impl World {
    pub(super) fn check(&mut self) -> Result<(), String> {
        let mut leased = [0; DEVICES.len()];
        for process in &mut self.processes {
            let Some(daemon) = &self.daemon else { continue };
            let is_stopped = self.now_ns < daemon.stopped_until_ns;
            let silent_ns = self.now_ns - daemon.called_ns;
            let pace = process.pace(self.now_ns, self.defect == Defect::IgnoresEnd);
            match pace {
                Pace::Active(rate) if process.key.is_some() => {
                    self.report.leases += 1;
                    leased[process.device] += rate;
                    if silent_ns > ENDS_WITHIN_NS {
                        return Err(format!(
                            "process {} is paced at {rate} bytes/s by a daemon that is silent for {} ms",
                            process.number,
                            silent_ns / MS
                        ));
                    }
                    process.unheld_since_ns = self.now_ns;
                }
                _ if process.key.is_some() && process.is_hungry && !is_stopped => {}
                _ => process.unheld_since_ns = self.now_ns,
            }
            let is_held_idle = matches!(pace, Pace::Idle(_)) && process.is_hungry && is_stopped;
            if !is_held_idle {
                process.idle_since_ns = self.now_ns;
            }
            let held_ns = self.now_ns - process.idle_since_ns;
            if held_ns > ENDS_WITHIN_NS {
                return Err(format!(
                    "process {} has sent for {} ms at the rate of an idle process, and its daemon has stopped",
                    process.number,
                    held_ns / MS
                ));
            }
            let unheld_ns = self.now_ns - process.unheld_since_ns;
            if unheld_ns > HELD_WITHIN_NS {
                return Err(format!(
                    "process {} has sent for {} ms without a lease of the daemon, which runs",
                    process.number,
                    unheld_ns / MS
                ));
            }
        }
        for (at, leased) in leased.into_iter().enumerate() {
            let rate = self.config.devices[at]
                .rate
                .expect("the configuration has one");
            // Each lease is at least one byte per second.
            let most = rate.as_bps() / 8 + PROCESSES_MAX as u64;
            // Before its call a daemon has not divided what changed in this step.
            let has_divided = self
                .daemon
                .as_ref()
                .is_some_and(|daemon| daemon.ran_ns == self.now_ns);
            if has_divided && leased > most {
                return Err(format!("device {at}: leases of {leased} of {most} bytes/s"));
            }
        }
        self.check_limits()?;
        self.check_sessions()
    }

    /// Active leases of an enforcer's tenant fit its limit on each device.
    fn check_limits(&mut self) -> Result<(), String> {
        let divided = |daemon: &&Daemon| daemon.ran_ns == self.now_ns;
        let Some(daemon) = self.daemon.as_ref().filter(divided) else {
            return Ok(());
        };
        let mut leased = BTreeMap::<(usize, u32), u64>::new();
        for process in self
            .processes
            .iter()
            .filter(|process| process.key.is_some())
        {
            let tenant = daemon.tenant_of.get(&process.number);
            if let (Some(&tenant), Pace::Active(rate)) = (tenant, process.pace(self.now_ns, false))
            {
                self.report.limited += 1;
                *leased.entry((process.device, tenant)).or_default() += rate;
            }
        }
        for ((device, tenant), leased) in leased {
            let limit = daemon.rates.get(&tenant).copied().unwrap_or(u64::MAX);
            // Each lease is at least one byte per second.
            if leased > limit.saturating_add(PROCESSES_MAX as u64) {
                return Err(format!(
                    "device {device}: leases of {leased} bytes/s of the enforcer's tenant {tenant}, which may have {limit}"
                ));
            }
        }
        Ok(())
    }

    /// The daemon has the limits of the enforcer that runs, and none when none runs.
    fn check_told(&self, snapshot: &Snapshot) -> Result<(), String> {
        let limits: BTreeMap<u32, u64> = snapshot
            .limits
            .iter()
            .map(|limit| (limit.number, limit.bytes_per_s))
            .collect();
        let limited: u64 = snapshot.limits.iter().map(|limit| limit.sessions).sum();
        let by_ns = self.now_ns.saturating_sub(TOLD_WITHIN_NS);
        match &self.enforcer {
            None if self.enforced_ns < by_ns && !limits.is_empty() => {
                Err(format!("limits {limits:?} of an enforcer that has ended"))
            }
            Some(enforcer) if enforcer.heeded_ns.is_some_and(|heeded| heeded < by_ns) => {
                let is_told =
                    |process: &&Process| process.key.is_some() && enforcer.has_told(process, by_ns);
                let told = self.processes.iter().filter(is_told).count() as u64;
                match limits == enforcer.wanted.rates && limited >= told {
                    true => Ok(()),
                    false => Err(format!(
                        "limits {limits:?} over {limited} sessions; the enforcer wants {:?} over {told}",
                        enforcer.wanted.rates
                    )),
                }
            }
            _ => Ok(()),
        }
    }

    /// The daemon has the sessions of living processes, and of those whose end it has not noticed.
    fn check_sessions(&mut self) -> Result<(), String> {
        let every = self.report.steps.is_multiple_of(64);
        // The snapshot reads the meters and can renew leases, as a request to a daemon that runs does.
        let asked = |daemon: &&mut Daemon| every && self.now_ns >= daemon.stopped_until_ns;
        let Some(daemon) = self.daemon.as_mut().filter(asked) else {
            return Ok(());
        };
        daemon.called_ns = self.now_ns;
        let snapshot = daemon.governor.snapshot(self.now_ns);
        // A daemon that was stopped until now has not read what came meanwhile.
        let is_awake = daemon.ran_ns >= daemon.stopped_until_ns;
        let sessions = snapshot.sessions.iter().map(|session| session.session);
        let sessions: BTreeSet<u64> = sessions.collect();
        match sessions == daemon.sessions {
            true if is_awake => self.check_told(&snapshot),
            true => Ok(()),
            false => Err(format!(
                "the daemon has the sessions {sessions:?}, processes have {:?}",
                daemon.sessions
            )),
        }
    }

    /// Each device is used, and tenants share it by weight.
    pub(super) fn check_shares(&self, before: &[u64]) -> Result<(), String> {
        let weights: u32 = TENANTS.iter().map(|(_, weight)| weight).sum();
        let hungry = self.processes.iter().zip(before);
        for (process, before) in hungry.filter(|(process, _)| process.is_hungry) {
            let rate = DEVICES[process.device].1 * 125_000 * MEASURED_NS / (1_000 * MS);
            let (name, weight) = TENANTS[process.tenant];
            let due = rate * u64::from(weight) / u64::from(weights);
            let sent = process.sent - before;
            if sent * 100 < due * DUE_PERCENT {
                return Err(format!(
                    "tenant {name} sent {sent} bytes in the calm time on device {}, {due} are due",
                    process.device
                ));
            }
        }
        Ok(())
    }
}
