//! A session's part in the division: groups, weights, meters and latency flows.

use super::device::READS;
use super::seat::{MeterState, Place, Seat};
use super::sources::Source;
use super::tally::{ALL, READERS};
use super::{Governor, SessionKey};
use isolane_rdma_policy::granularity::Granularity;
use isolane_rdma_session::message::{Class, WEIGHT_MAX};
use std::sync::atomic::Ordering;

impl Governor {
    pub(super) fn group(&self, tenant: u32, index: u32) -> u32 {
        match self.config.granularity {
            Granularity::Tenant => tenant,
            _ => index,
        }
    }

    /// Weight of the seat's group, and of the seat in the group.
    pub(super) fn weights(&self, seat: &Seat) -> (u32, u32) {
        let own = seat.assigned.weight.clamp(1, WEIGHT_MAX);
        match self.config.granularity {
            Granularity::Tenant => (
                self.tenants.get(seat.tenant).weight.clamp(1, WEIGHT_MAX),
                own,
            ),
            _ => {
                let tenant = seat.assigned.tenant_weight.unwrap_or(1);
                (tenant.saturating_mul(own).clamp(1, WEIGHT_MAX), 1)
            }
        }
    }

    pub(super) fn reweigh(&mut self, tenant: u32) {
        if self.config.granularity == Granularity::Tenant {
            let weight = self.tenants.get(tenant).weight.clamp(1, WEIGHT_MAX);
            for device in &mut self.devices {
                device.set_weight(tenant, weight);
            }
        }
    }

    pub(super) fn add_meter(
        &mut self,
        now_ns: u64,
        index: u32,
        at: usize,
        direction: usize,
        source: Source,
    ) {
        let seat = self.seats[index as usize]
            .1
            .as_ref()
            .expect("a session that is there");
        let (group_weight, weight) = self.weights(seat);
        let meter = seat.meters.len();
        let place = Place {
            seat: index,
            meter: meter as u16,
        };
        let group = seat.group;
        let seen = seat.region.meters[meter].counters();
        let device = &mut self.devices[at];
        let stream = &mut device.streams[direction];
        let member = stream.join(group, group_weight, weight, place);
        if direction == READS {
            device.sources.join(stream, member, source);
        }
        let state = MeterState::new(at, direction, source, member, seen, now_ns);
        let (_, seat) = &mut self.seats[index as usize];
        seat.as_mut().expect("as above").meters.push(state);
        self.hold_newest(index);
        self.grant(at, place, now_ns);
    }

    /// Counts one more latency flow of a session.
    pub(super) fn add_latency(&mut self, index: u32, at: usize) {
        self.count_flow(index, at, ALL);
    }

    /// Counts one more latency flow of a session that READs.
    pub(super) fn add_reader(&mut self, index: u32, at: usize, source: Source) {
        self.count_flow(index, at, READERS);
        let (_, seat) = &mut self.seats[index as usize];
        let seat = seat.as_mut().expect("a session that is there");
        let count = seat.readers.entry((at, source)).or_default();
        *count += 1;
        if *count > 1 {
            return;
        }
        let group = seat.group;
        let seat = self.seats[index as usize].1.as_ref().expect("as above");
        let (weight, _) = self.weights(seat);
        let device = &mut self.devices[at];
        device.dirty |= device.sources.add_reader(source, group, weight);
    }

    /// Counts one less.
    pub(super) fn remove_reader(&mut self, index: u32, at: usize, source: Source) {
        self.count_flow_less(index, at, READERS);
        let (_, seat) = &mut self.seats[index as usize];
        let seat = seat.as_mut().expect("a session that is there");
        let count = seat.readers.get_mut(&(at, source)).expect("it was added");
        *count -= 1;
        if *count == 0 {
            seat.readers.remove(&(at, source));
            let device = &mut self.devices[at];
            device.dirty |= device.sources.remove_reader(source, seat.group);
        }
    }

    fn count_flow(&mut self, index: u32, at: usize, which: usize) {
        let seat = self.seats[index as usize]
            .1
            .as_mut()
            .expect("a session that is there");
        seat.latency[at][which] += 1;
        if seat.latency[at][which] > 1 {
            return;
        }
        let group = seat.group;
        let seat = self.seats[index as usize].1.as_ref().expect("as above");
        let (weight, _) = self.weights(seat);
        self.devices[at].add_latency(which, group, weight);
    }

    /// Counts one latency flow of a session less.
    pub(super) fn remove_latency(&mut self, index: u32, at: usize) {
        self.count_flow_less(index, at, ALL);
    }

    fn count_flow_less(&mut self, index: u32, at: usize, which: usize) {
        let seat = self.seats[index as usize]
            .1
            .as_mut()
            .expect("a session that is there");
        seat.latency[at][which] -= 1;
        if seat.latency[at][which] == 0 {
            self.devices[at].remove_latency(which, seat.group);
        }
    }

    /// Removes a session from all divisions.
    pub(super) fn drop_shares(&mut self, seat: &Seat) {
        for meter in &seat.meters {
            let device = &mut self.devices[meter.device];
            device.dirty |= device.streams[meter.direction].leave(seat.group, meter.member);
        }
        for (device, flows) in self.devices.iter_mut().zip(&seat.latency) {
            for which in [ALL, READERS] {
                if flows[which] > 0 {
                    device.remove_latency(which, seat.group);
                }
            }
        }
        for &(at, source) in seat.readers.keys() {
            let device = &mut self.devices[at];
            device.dirty |= device.sources.remove_reader(source, seat.group);
        }
    }

    /// Adds a seat to rebuilt divisions.
    pub(super) fn seat_anew(&mut self, now_ns: u64, index: u32) {
        let Some(mut seat) = self.seats[index as usize].1.take() else {
            return;
        };
        seat.assigned = self.assign(&seat.who);
        let class = seat.assigned.class as u32;
        let header = &seat.region.header;
        if header.class.swap(class, Ordering::AcqRel) != class {
            header.changes.fetch_add(1, Ordering::Release);
            self.looks.push_back(SessionKey {
                index,
                epoch: self.seats[index as usize].0,
            });
        }
        let (tenant, reweighed) = self.tenants.join(&seat.assigned);
        seat.tenant = tenant;
        seat.group = self.group(tenant, index);
        seat.latency = vec![[0; 2]; self.devices.len()];
        seat.readers.clear();
        for slot in &seat.region.slots[..seat.slots.len()] {
            slot.class.store(Class::Auto as u32, Ordering::Release);
        }
        seat.slots.clear();
        let is_latency = seat.assigned.class == Class::Latency;
        if seat.is_auto() {
            self.scan.watch(index);
        }
        let meters = std::mem::take(&mut seat.meters);
        self.seats[index as usize].1 = Some(seat);
        if reweighed {
            self.reweigh(tenant);
        }
        for meter in meters {
            self.add_meter(now_ns, index, meter.device, meter.direction, meter.source);
            let (_, seat) = &mut self.seats[index as usize];
            let new = seat.as_mut().and_then(|seat| seat.meters.last_mut());
            new.expect("just added").passed = meter.passed;
            if is_latency && meter.direction == 0 {
                self.add_latency(index, meter.device);
                self.add_reader(index, meter.device, None);
            }
        }
        self.look_at(now_ns, index);
    }
}
