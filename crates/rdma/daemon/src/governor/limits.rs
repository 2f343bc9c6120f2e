//! Applies the enforcer's limits to leases.
//!
//! Problem: the enforcer finds tenants by its own rules and processes from the kernel's inventory. It can slow an RNIC
//! but not a process; a cooperating process can be held to the same limit exactly and without packets. Method: the
//! enforcer sends the rate of each tenant and the tenant of each process. Each device and direction has a limit for
//! each of these tenants ([`isolane_rdma_policy::leases::Leases::limit`]), for any tenant that the daemon's own rules
//! assign. A limit also applies on a device without a policy. Units: payload in bytes per second. Limits: a process of
//! the latency class ignores leases, so no limit applies to it; each device and direction has the whole limit.

use super::Governor;
use super::stream::Stream;
use isolane_rdma_policy::leases::{EVERYTHING, LimitKind, MemberId};
use isolane_rdma_session::message::{LIMITS_MAX, NO_LIMIT, NO_TENANT};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(super) struct Limits {
    /// Payload bytes per second by the tenant's number.
    rates: BTreeMap<u32, u64>,
    /// Tenant number by process id.
    tenant_of: BTreeMap<u32, u32>,
}

impl Limits {
    /// Number and limit of a process's tenant.
    fn of(&self, process: u32) -> Option<(u32, u64)> {
        let tenant = *self.tenant_of.get(&process)?;
        Some((tenant, self.rate(tenant)))
    }

    /// Number and rate of every limit.
    pub(super) fn standing(&self) -> impl Iterator<Item = (u32, u64)> {
        self.rates.iter().map(|(&number, &rate)| (number, rate))
    }

    fn rate(&self, tenant: u32) -> u64 {
        self.rates.get(&tenant).copied().unwrap_or(EVERYTHING)
    }
}

impl Stream {
    /// Applies the limit of the enforcer's tenant with that number to a member, or none.
    fn hold(&mut self, member: MemberId, limit: Option<(u32, u64)>) {
        let leases = &mut self.leases;
        let id = limit.map(|(tenant, rate)| {
            let open = || leases.open_limit(rate);
            let id = *self.limits.entry(tenant).or_insert_with(open);
            // An earlier enforcer may have had another tenant with this number.
            leases.set_limit_rate(id, rate);
            id
        });
        self.leases.limit(member, LimitKind::Tenant, id);
    }

    fn set_limit(&mut self, tenant: u32, rate: u64) {
        if let Some(&id) = self.limits.get(&tenant) {
            self.leases.set_limit_rate(id, rate);
        }
    }
}

impl Governor {
    /// Sets the payload rate at which all processes of the enforcer's tenant with that number may send by each device,
    /// and READ by each. [`NO_LIMIT`] removes the limit. Panics if `tenant` is not below [`LIMITS_MAX`].
    pub fn limit_tenant(&mut self, tenant: u32, bytes_per_s: u64) {
        assert!(tenant < LIMITS_MAX, "decoding has checked it");
        let before = match bytes_per_s {
            NO_LIMIT => self.limits.rates.remove(&tenant),
            rate => self.limits.rates.insert(tenant, rate),
        };
        if before.unwrap_or(NO_LIMIT) == bytes_per_s {
            return;
        }
        for device in &mut self.devices {
            for stream in &mut device.streams {
                stream.set_limit(tenant, bytes_per_s);
            }
            device.dirty = true;
            device.refresh_idle = true;
        }
    }

    /// Sets the enforcer's tenant of a process by number; [`NO_TENANT`] removes it. Returns false when the table of 65,536
    /// processes is full.
    pub fn limit_process(&mut self, process: u32, tenant: u32) -> bool {
        let table = &mut self.limits.tenant_of;
        let before = match tenant {
            NO_TENANT => table.remove(&process),
            _ if table.len() >= PROCESSES_MAX && !table.contains_key(&process) => return false,
            tenant => table.insert(process, tenant),
        };
        if before.unwrap_or(NO_TENANT) != tenant {
            let limit = self.limits.of(process);
            let of_it = |index: &u32| {
                let seat = self.seats[*index as usize].1.as_ref();
                seat.is_some_and(|seat| seat.who.pid == process)
            };
            let seats: Vec<u32> = (0..self.seats.len() as u32).filter(of_it).collect();
            for index in seats {
                self.hold(index, limit);
            }
        }
        true
    }

    /// Removes all limits: the enforcer has ended, or another one begins.
    pub fn lift_limits(&mut self) {
        let Limits { rates, tenant_of } = std::mem::take(&mut self.limits);
        if rates.is_empty() && tenant_of.is_empty() {
            return;
        }
        for index in 0..self.seats.len() as u32 {
            self.hold(index, None);
        }
    }

    /// The limit of a new session's process.
    pub(super) fn limit_of(&self, process: u32) -> Option<(u32, u64)> {
        match process {
            // The process has no id in this PID namespace.
            0 => None,
            process => self.limits.of(process),
        }
    }

    /// Number of the limit that applies to a process.
    pub(super) fn limit_over(&self, process: u32) -> Option<u32> {
        let (number, rate) = self.limit_of(process)?;
        (rate != EVERYTHING).then_some(number)
    }

    /// Applies the limit to all meters of a session, or removes it.
    fn hold(&mut self, index: u32, limit: Option<(u32, u64)>) {
        let Some(seat) = &self.seats[index as usize].1 else {
            return;
        };
        for meter in &seat.meters {
            let device = &mut self.devices[meter.device];
            device.streams[meter.direction].hold(meter.member, limit);
            device.dirty = true;
            device.refresh_idle = true;
        }
    }

    /// Applies the process's limit to a session's newest meter.
    pub(super) fn hold_newest(&mut self, index: u32) {
        let Some(seat) = &self.seats[index as usize].1 else {
            return;
        };
        let limit = self.limit_of(seat.who.pid);
        if let (Some(meter), Some(_)) = (seat.meters.last(), limit) {
            self.devices[meter.device].streams[meter.direction].hold(meter.member, limit);
        }
    }
}

/// Largest number of processes in the table: more than use RDMA on one host.
const PROCESSES_MAX: usize = 1 << 16;
