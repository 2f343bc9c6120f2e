//! Tenants by name and by number. Numbers of departed tenants are reused.

use super::latency::LatencyWatch;
use crate::identity::Assigned;
use std::collections::BTreeMap;

/// A tenant with at least one session.
#[derive(Clone, Debug, Default)]
pub(super) struct Tenant {
    pub(super) name: String,
    pub(super) weight: u32,
    pub(super) sessions: u64,
    /// Bytes and operations that ended sessions sent.
    pub(super) passed: [u64; 2],
    /// The owner whose process named the tenant; `None` if no process named it.
    pub(super) named_by: Option<String>,
    /// Traffic of its latency queue pairs, by device.
    pub(super) latency: Vec<LatencyWatch>,
}

#[derive(Debug, Default)]
pub(super) struct Tenants {
    by_name: BTreeMap<String, u32>,
    all: Vec<Tenant>,
    free: Vec<u32>,
    /// Departed tenants that had lost the latency class: it stays lost if they return.
    lost: BTreeMap<String, Vec<LatencyWatch>>,
}

impl Tenants {
    /// Adds a session to its tenant. Returns the tenant's number and whether its weight changed.
    pub(super) fn join(&mut self, assigned: &Assigned) -> (u32, bool) {
        let wanted = match (assigned.tenant_weight, assigned.named) {
            (Some(weight), _) => weight,
            (None, true) => assigned.weight,
            (None, false) => 1,
        };
        let number = match self.by_name.get(&assigned.tenant) {
            Some(&number) => number,
            None => {
                let number = self.free.pop().unwrap_or_else(|| {
                    self.all.push(Tenant::default());
                    (self.all.len() - 1) as u32
                });
                self.all[number as usize] = Tenant {
                    name: assigned.tenant.clone(),
                    weight: wanted,
                    named_by: assigned.named.then(|| assigned.owner.clone()),
                    latency: self.lost.remove(&assigned.tenant).unwrap_or_default(),
                    ..Tenant::default()
                };
                self.by_name.insert(assigned.tenant.clone(), number);
                number
            }
        };
        let tenant = &mut self.all[number as usize];
        tenant.sessions += 1;
        let before = tenant.weight;
        tenant.weight = match assigned.tenant_weight {
            Some(weight) => weight,
            // If processes name different weights, the largest one counts while the tenant exists.
            None => before.max(wanted),
        };
        (number, tenant.weight != before)
    }

    /// Whether the named tenant would exceed `most` names of its owner.
    pub(super) fn has_too_many_names(&self, assigned: &Assigned, most: usize) -> bool {
        assigned.named
            && !self.by_name.contains_key(&assigned.tenant)
            && self.named_by(&assigned.owner) >= most
    }

    fn named_by(&self, owner: &str) -> usize {
        let named = self.iter().filter(|(_, tenant)| tenant.sessions > 0);
        let named = named.filter(|(_, tenant)| tenant.named_by.as_deref() == Some(owner));
        named.count()
    }

    /// Traffic of a tenant's latency queue pairs on a device.
    pub(super) fn latency(&mut self, number: u32, device: usize) -> &mut LatencyWatch {
        let watches = &mut self.all[number as usize].latency;
        if watches.len() <= device {
            watches.resize(device + 1, LatencyWatch::default());
        }
        &mut watches[device]
    }

    /// Removes a session and adds what it sent to its tenant.
    pub(super) fn leave(&mut self, now_ns: u64, number: u32, passed: [u64; 2]) {
        let tenant = &mut self.all[number as usize];
        tenant.sessions -= 1;
        for (sum, more) in tenant.passed.iter_mut().zip(passed) {
            *sum = sum.saturating_add(more);
        }
        if tenant.sessions == 0 {
            let is_lost = |watches: &[LatencyWatch]| watches.iter().any(|one| one.is_lost(now_ns));
            self.lost.retain(|_, watches| is_lost(watches));
            if is_lost(&tenant.latency) && self.lost.len() < LOST_MAX {
                self.lost
                    .insert(tenant.name.clone(), std::mem::take(&mut tenant.latency));
            }
            self.by_name.remove(&tenant.name);
            self.free.push(number);
        }
    }

    /// The same tenants with their counters but without sessions; the sessions join again.
    pub(super) fn emptied(&self) -> Self {
        let mut emptied = Self {
            lost: self.lost.clone(),
            ..Self::default()
        };
        for (_, tenant) in self.iter() {
            emptied
                .by_name
                .insert(tenant.name.clone(), emptied.all.len() as u32);
            emptied.all.push(Tenant {
                sessions: 0,
                weight: 1,
                ..tenant.clone()
            });
        }
        emptied
    }

    /// Removes tenants without sessions.
    pub(super) fn prune(&mut self) {
        let (all, free) = (&self.all, &mut self.free);
        self.by_name.retain(|_, &mut number| {
            let is_there = all[number as usize].sessions > 0;
            if !is_there {
                free.push(number);
            }
            is_there
        });
    }

    pub(super) fn get(&self, number: u32) -> &Tenant {
        &self.all[number as usize]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Tenant)> {
        let numbers = self.by_name.values();
        numbers.map(|&number| (number, &self.all[number as usize]))
    }
}

/// Largest number of entries. Each entry ends after ten seconds.
const LOST_MAX: usize = 4_096;
