//! Limits of whoever enforces guarantees on this host, carried over into leases.
//!
//! Problem: the enforcer knows tenants by its own rules and processes by the kernel's books; it can slow a NIC, but not
//! a process. A process that cooperates can be held to the same limit exactly, and without a packet. Method: the
//! enforcer says what each of its tenants may send and which process is whose. Each device and direction holds a limit
//! for each of these tenants ([`isolane_rdma_policy::leases::Leases::limit`]), whatever tenant the daemon's own rules
//! make of the process. A limit binds on a device without a policy too.
//! Units: payload in bytes per second. Limits: a latency-class process has no lease that it looks at, so no limit binds
//! it here; each device and direction has the whole limit.

use super::Governor;
use super::device::Stream;
use isolane_rdma_policy::leases::{EVERYTHING, MemberId};
use isolane_rdma_session::message::{LIMITS_MAX, NO_LIMIT, NOBODY};
use std::collections::BTreeMap;

/// What the enforcer said.
#[derive(Debug, Default)]
pub(super) struct Limits {
    /// Payload per second of its tenants, by number.
    rates: BTreeMap<u32, u64>,
    /// Whose each process is, by process id.
    tenant_of: BTreeMap<u32, u32>,
}

impl Limits {
    /// The tenant of a process and its limit.
    fn of(&self, process: u32) -> Option<(u32, u64)> {
        let tenant = *self.tenant_of.get(&process)?;
        Some((tenant, self.rate(tenant)))
    }

    /// The number and rate of every limit that stands.
    pub(super) fn standing(&self) -> impl Iterator<Item = (u32, u64)> {
        self.rates.iter().map(|(&number, &rate)| (number, rate))
    }

    fn rate(&self, tenant: u32) -> u64 {
        self.rates.get(&tenant).copied().unwrap_or(EVERYTHING)
    }
}

impl Stream {
    /// Holds a member to the limit of the enforcer's tenant with that number, or to none.
    fn hold(&mut self, member: MemberId, limit: Option<(u32, u64)>) {
        let leases = &mut self.leases;
        let id = limit.map(|(tenant, rate)| {
            let open = || leases.open_limit(rate);
            let id = *self.limits.entry(tenant).or_insert_with(open);
            // An earlier enforcer may have had another tenant of this number.
            leases.set_limit_rate(id, rate);
            id
        });
        self.leases.limit(member, id);
    }

    fn set_limit(&mut self, tenant: u32, rate: u64) {
        if let Some(&id) = self.limits.get(&tenant) {
            self.leases.set_limit_rate(id, rate);
        }
    }
}

impl Governor {
    /// What all processes of the enforcer's tenant with that number may send by a device, and READ by it; [`NO_LIMIT`]
    /// lifts its limit.
    ///
    /// # Panics
    /// When `tenant` is not below [`LIMITS_MAX`].
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

    /// Whose a process is for the enforcer, by its tenant's number; [`NOBODY`] where it is no tenant's. Processes beyond
    /// 65,536 are not noted; whether this one was.
    pub fn limit_process(&mut self, process: u32, tenant: u32) -> bool {
        let table = &mut self.limits.tenant_of;
        let before = match tenant {
            NOBODY => table.remove(&process),
            _ if table.len() >= PROCESSES_MAX && !table.contains_key(&process) => return false,
            tenant => table.insert(process, tenant),
        };
        if before.unwrap_or(NOBODY) != tenant {
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

    /// The enforcer is gone and keeps no limits, or another one begins.
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
            // It has no process id here.
            0 => None,
            process => self.limits.of(process),
        }
    }

    /// The limit that stands for a process, by number.
    pub(super) fn limit_over(&self, process: u32) -> Option<u32> {
        let (number, rate) = self.limit_of(process)?;
        (rate != EVERYTHING).then_some(number)
    }

    /// Holds all meters of a session to the limit, or to none.
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

    /// Holds a session's newest meter to its process's limit.
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

/// Processes of the enforcer's table: more than a host has that use RDMA.
const PROCESSES_MAX: usize = 1 << 16;
