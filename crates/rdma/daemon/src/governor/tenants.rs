//! Tenants by name and by number. Numbers of those that are gone are used again.

use super::latency::LatencyWatch;
use crate::identity::Assigned;
use std::collections::BTreeMap;

/// A tenant of which a session is there.
#[derive(Clone, Debug, Default)]
pub(super) struct Tenant {
    pub(super) name: String,
    pub(super) weight: u32,
    pub(super) sessions: u64,
    /// What sessions that are gone gave to the devices: bytes and operations.
    pub(super) passed: [u64; 2],
    /// The owner whose processes named it; `None`: its name is not by a process's word.
    pub(super) named_by: Option<String>,
    /// What its latency queue pairs post, by device.
    pub(super) latency: Vec<LatencyWatch>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Tenants {
    by_name: BTreeMap<String, u32>,
    all: Vec<Tenant>,
    free: Vec<u32>,
    /// Of tenants that left after they had lost the latency class: it stays lost when they come back.
    lost: BTreeMap<String, Vec<LatencyWatch>>,
}

impl Tenants {
    /// A session joins its tenant: the tenant's number, and whether its weight changed by that.
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
            // Of several words of its own the largest counts, as long as the tenant is there.
            None => before.max(wanted),
        };
        (number, tenant.weight != before)
    }

    /// Whether one more tenant that the process names would be more than `most` that its owner's processes named.
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

    /// What the latency queue pairs of a tenant post on a device.
    pub(super) fn latency(&mut self, number: u32, device: usize) -> &mut LatencyWatch {
        let watches = &mut self.all[number as usize].latency;
        if watches.len() <= device {
            watches.resize(device + 1, LatencyWatch::default());
        }
        &mut watches[device]
    }

    /// A session is gone that passed so much.
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

    /// Nobody, with the counters of those that were there: they come again.
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

    /// Forgets those of whom no session came again.
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

    /// By name.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Tenant)> {
        let numbers = self.by_name.values();
        numbers.map(|&number| (number, &self.all[number as usize]))
    }
}

/// Each entry ends after ten seconds; more than so many tenants do not come and go in that time.
const LOST_MAX: usize = 4_096;
