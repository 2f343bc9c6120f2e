//! The class of the reference flow: that of the latency flows for which it stands.
//!
//! Problem: a network carries each class (service level, DSCP) in queues of its own, so a reference message in another
//! class than the latency flows measures the wrong queue. Method: the shim reports the class of each connection. The
//! class that most latency flows of a device have is the reference flow's; without any report it is zero. Limits: one
//! class per device; acknowledgements have the class of the peer's daemon; datagrams report none.

use super::Governor;
use super::tally::ALL;
use crate::order::Order;
use isolane_rdma_session::message::Class;
use isolane_rdma_session::region::Service;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// Time between two looks, ns: connections of latency flows change rarely.
const LOOK_NS: u64 = 100_000_000;

impl Governor {
    /// Orders the class of each device's reference messages where it changed.
    pub(super) fn look_at_services(&mut self, now_ns: u64) {
        if now_ns < self.services_due_ns {
            return;
        }
        self.services_due_ns = now_ns + LOOK_NS;
        for at in 0..self.devices.len() {
            if self.devices[at].latency_weight() == 0 {
                continue;
            }
            let service = self.service_of(at).unwrap_or_default();
            if std::mem::replace(&mut self.devices[at].service, service) != service {
                self.orders.push_back((at, Order::Serve(service)));
            }
        }
    }

    /// The class of most latency flows of a device; the lowest of several.
    fn service_of(&self, at: usize) -> Option<Service> {
        let mut counts: BTreeMap<Service, u64> = BTreeMap::new();
        let mut count = |word: u32| {
            if let Some(service) = Service::from_word(word) {
                *counts.entry(service).or_default() += 1;
            }
        };
        let seats = self.seats.iter().filter_map(|(_, seat)| seat.as_ref());
        for seat in seats.filter(|seat| seat.latency[at][ALL] > 0) {
            if seat.assigned.class == Class::Latency {
                count(seat.region.header.service.load(Ordering::Relaxed));
            }
            for (slot, state) in seat.region.slots.iter().zip(&seat.slots) {
                if state.latency_on == Some(at) {
                    count(slot.service.load(Ordering::Relaxed));
                }
            }
        }
        let most = counts.into_iter().rev().max_by_key(|(_, count)| *count);
        most.map(|(service, _)| service)
    }
}
