//! The adapter between a NIC's bus and the monitor on it ([`crate::monitor`]).
//!
//! Two parts of the host report to the monitor. The bus reports each transfer: the address of its object, its length
//! and its direction. The kernel driver reports the objects and their addresses: when a tenant starts, and when a
//! control loop creates or destroys an object; each entry is a posted write on the same bus.
//!
//! A transfer is one call for all of its packets. Reads are packets of at most `READ_REQUEST_MAX`, seen where their
//! data passes; writes are packets of the bus's largest payload; a doorbell is one.
//!
//! Limits: mapping entries are sent one per contiguous piece of at most 2 MiB. Contexts and translation tables of
//! objects that control loops make are left out: nothing in the model touches them.

use super::access::{Access, Object, Owner};
use super::addresses::{Addresses, PinnedObject};
use super::sizes::READ_REQUEST_MAX;
use super::world::World;
use crate::monitor::{
    Analyser, HUGE_PAGE, MappingUpdate, Monitor, MonitorOptions, Operation, StoreSize, TlpHeaders,
    cost,
};
use isolane_rdma_policy::harmonic::statistics::{BusDirection, TenantStatistics};
use std::collections::BTreeMap;

/// The least `Max_Payload_Size` of PCIe, bytes. A monitor keeps up with packets of this size, whatever size its RNIC
/// and host agree on: it must not depend on their choice.
const LEAST_FULL_PAYLOAD: u64 = 128;

impl<const RECORDS: bool> World<RECORDS> {
    /// Puts a monitor on each NIC's bus. All queue pairs and loops must be there.
    pub(crate) fn attach_monitors(&mut self) {
        self.layout = Addresses::lay_out(
            &self.device,
            &self.plans,
            &self.processes,
            &self.pairs,
            &self.loops,
        );
        let packet = LEAST_FULL_PAYLOAD + self.device.tlp;
        let options = MonitorOptions {
            store: StoreSize::PROTOTYPE,
            engines: Analyser::engines_for(self.device.pcie_rate, packet),
            tenants: self.running.len(),
        };
        for (monitor, _) in self
            .monitors
            .iter_mut()
            .zip(&self.in_use)
            .filter(|at| *at.1)
        {
            *monitor = Some(Box::new(Monitor::new(options)));
        }
        for (nic, monitor) in self.nics.iter_mut().zip(&self.monitors) {
            nic.watched = monitor.is_some();
        }
        // The daemons' own pairs belong to no tenant that starts later.
        let daemons = self.running.len() as u16 - 1;
        self.announce(0, daemons);
    }

    /// Reads a tenant's counters over the bus; none where nothing watches it.
    #[allow(dead_code, reason = "the adapter of a policy that polls calls it")]
    pub(crate) fn poll_monitor(
        &mut self,
        now: u64,
        host: usize,
        tenant: u16,
    ) -> Option<TenantStatistics> {
        let statistics = self.monitors[host].as_ref()?.poll(tenant);
        let cost = cost::poll_cost();
        let access = Access::monitor(Owner::Host);
        self.pcie(BusDirection::ToNic, host, now, cost.to_monitor, || access);
        self.pcie(BusDirection::ToHost, host, now, cost.to_host, || access);
        Some(statistics)
    }

    /// A transfer passes the monitor at `at`.
    #[cold]
    #[inline(never)]
    pub(crate) fn seen(&mut self, host: usize, at: u64, direction: BusDirection, access: Access) {
        if access.bytes == 0 {
            return;
        }
        let Some(address) = self.layout.of(access, &self.pairs) else {
            return;
        };
        let each = match (access.object, direction) {
            (Object::Doorbell, _) => access.bytes,
            (_, BusDirection::ToNic) => READ_REQUEST_MAX,
            (_, BusDirection::ToHost) => self.device.tlp_payload,
        };
        let headers = TlpHeaders {
            address,
            bytes: access.bytes,
            each,
            direction,
        };
        #[cfg(test)]
        self.note_truth(host, access);
        if let Some(monitor) = &mut self.monitors[host] {
            monitor.observe(at, headers);
        }
    }

    /// The driver reports a tenant's pinned memory to the monitors.
    pub(crate) fn announce(&mut self, now: u64, tenant: u16) {
        for host in 0..self.monitors.len() {
            let Some(monitor) = &mut self.monitors[host] else {
                continue;
            };
            let mut sent = 0;
            for object in self.layout.objects_of(tenant, host) {
                sent += send(monitor, Operation::Insert, object);
            }
            self.charge_updates(now, host, sent, Owner::Host);
        }
    }

    /// The driver reports to the monitor the objects that a control loop has made before it starts.
    pub(crate) fn announce_loop(&mut self, now: u64, index: u32) {
        let host = usize::from(self.loops[index as usize].host);
        let Some(monitor) = &mut self.monitors[host] else {
            return;
        };
        let mut sent = 0;
        for number in 0..self.loops[index as usize].alive {
            let object = self.layout.loop_object(&self.loops, index, number);
            sent += send(monitor, Operation::Insert, &object);
        }
        self.charge_updates(now, host, sent, Owner::Loop(index));
    }

    /// The driver reports to the monitor the object that a control verb has just made or is about to destroy.
    pub(crate) fn announce_control(&mut self, now: u64, index: u32) {
        let command = &self.loops[index as usize];
        let host = usize::from(command.host);
        let Some(monitor) = &mut self.monitors[host] else {
            return;
        };
        let (operation, number) = if command.creating {
            (Operation::Insert, command.alive)
        } else {
            (Operation::Delete, command.alive - 1)
        };
        let object = self.layout.loop_object(&self.loops, index, number);
        let sent = send(monitor, operation, &object);
        self.charge_updates(now, host, sent, Owner::Loop(index));
    }

    fn charge_updates(&mut self, now: u64, host: usize, sent: u64, owner: Owner) {
        let bytes = cost::update_cost(sent).to_monitor;
        self.pcie(BusDirection::ToNic, host, now, bytes, || {
            Access::monitor(owner)
        });
    }

    /// What the monitor says of itself, for reports.
    pub(crate) fn monitor_state(&self, host: usize, name: &str, state: &mut BTreeMap<String, f64>) {
        let Some(monitor) = &self.monitors[host] else {
            return;
        };
        let (searches, cycles) = monitor.searches();
        let values = [
            ("pages", monitor.store().len() as f64),
            ("pages_refused", monitor.rejected() as f64),
            ("updates", monitor.updates() as f64),
            ("searches", searches as f64),
            ("search_cycles_mean", cycles as f64 / searches.max(1) as f64),
            ("missed_packets", monitor.overflowed().transactions as f64),
            ("unmapped_packets", monitor.unmapped().transactions as f64),
            ("memory_bytes", monitor.footprint_bytes() as f64),
        ];
        for (key, value) in values {
            state.insert(format!("host_{name}.monitor_{key}"), value);
        }
    }
}

/// Sends the entries of an object, piece by piece: how many.
fn send(monitor: &mut Monitor, operation: Operation, object: &PinnedObject) -> u64 {
    let end = object.span.start + object.span.bytes;
    let mut address = object.span.start;
    let mut sent = 0;
    while address < end {
        let bytes = object.each.min(HUGE_PAGE).min(end - address);
        let update = MappingUpdate {
            operation,
            tenant: u32::from(object.tenant),
            kind: object.kind,
            bytes: bytes as u32,
            address,
        };
        monitor
            .update(&update.encode())
            .expect("objects are on whole pages");
        address += bytes;
        sent += 1;
    }
    sent
}

#[cfg(test)]
mod tests;
