//! A queue pair's entry in the session's memory: its class by the daemon, and its counters.

use crate::meter::raise;
use crate::queue::Shape;
use crate::queue_pair::Inner;
use crate::session::Shared;
use isolane_rdma_session::message::Class;
use isolane_rdma_session::region::{SLOTS, Slot};
use isolane_rdma_session::slot::Occupant;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

impl Inner {
    #[inline]
    pub(crate) fn slot(&self) -> Option<(&Slot, bool)> {
        let (shared, index) = self.slot.as_ref()?;
        let slot = shared.region.slots.get(*index)?;
        Some((slot, *index + 1 < SLOTS))
    }

    /// Whether the daemon treats this queue pair as latency: from its slot or, if the slot has no class, from the
    /// process.
    #[inline]
    pub(crate) fn is_latency(&self) -> bool {
        let Some((shared, index)) = self.slot.as_ref() else {
            return false;
        };
        let region = &shared.region;
        let own = region.slots[*index].class.load(Ordering::Relaxed);
        own == Class::Latency as u32
            || (own == Class::Auto as u32
                && region.header.class.load(Ordering::Relaxed) == Class::Latency as u32)
    }

    #[inline]
    pub(crate) fn count_posted(&mut self, shape: Shape) {
        if shape.direction == 1 && !self.has_read {
            self.has_read = true;
            if let Some((slot, true)) = self.slot() {
                slot.describe(self.service, true);
            }
        }
        if let Some((slot, alone)) = self.slot() {
            bump(&slot.posted_messages, 1, alone);
            bump(&slot.posted_bytes, shape.total, alone);
        }
    }

    pub(crate) fn count_finished(&mut self, messages: u64, bytes: u64) {
        if let Some((slot, alone)) = self.slot() {
            bump(&slot.completed_messages, messages, alone);
            bump(&slot.completed_bytes, bytes, alone);
        }
    }

    pub(crate) fn take_slot(&mut self, slot: Option<(Arc<Shared>, usize)>) {
        self.slot = slot;
        let (number, meters) = match self.plan.as_ref() {
            Some(plan) => (self.number, plan.meters_word()),
            None => return,
        };
        if let Some((slot, alone)) = self.slot() {
            slot.occupy(&Occupant {
                queue_pair: number,
                meters,
                service: self.service,
                has_read: self.has_read,
                is_shared: !alone,
            });
            if let (false, Some(base)) = (alone, self.base) {
                base.say_no_slot();
            }
        }
    }

    pub(crate) fn give_slot_back(&mut self) {
        if let Some((slot, true)) = self.slot() {
            slot.leave();
        }
        if let Some((shared, index)) = self.slot.take() {
            shared.give_slot_back(index);
        }
    }
}

/// Raises a slot's counter. Only this process writes it, unless queue pairs share it.
#[inline]
pub(crate) fn bump(counter: &AtomicU64, by: u64, alone: bool) {
    match alone {
        true => raise(counter, by),
        false => {
            counter.fetch_add(by, Ordering::Relaxed);
        }
    }
}
