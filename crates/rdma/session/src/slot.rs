//! How a queue pair takes and leaves its slot, and how the daemon reads a slot meanwhile.
//!
//! Problem: a slot is used again by the next queue pair, whose counters begin at zero. A reader that takes the number of
//! one queue pair and the counters of another one sees traffic that no program sent. Method: the shim marks the slot free
//! before it changes any other word, writes the number after them, and the mark last. The reader reads mark and number
//! before the other words and again after them; if either changed, the slot counts as free. Limits: a queue pair that leaves and returns with the same number
//! during one reading is not noticed; its counters fell, and the reader compares them with the last reading.

use crate::region::{SLOT_FREE, SLOT_HAS_READ, SLOT_SHARED, SLOT_USED, Service, Slot};
use crate::words::{Atomics, Word};
use std::sync::atomic::Ordering;

/// The words of a slot that belong to one queue pair. The other process may have set them to any value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotReading {
    /// Whether queue pairs without their own slot share it.
    pub is_shared: bool,
    /// See [`Slot::queue_pair`].
    pub queue_pair: u32,
    /// See [`Slot::meters`].
    pub meters: u32,
    /// Whether the queue pair has posted a READ.
    pub has_read: bool,
    /// See [`Slot::posted_messages`].
    pub posted_messages: u64,
    /// See [`Slot::posted_bytes`].
    pub posted_bytes: u64,
    /// See [`Slot::completed_messages`].
    pub completed_messages: u64,
    /// See [`Slot::completed_bytes`].
    pub completed_bytes: u64,
    /// See [`Slot::chunks`].
    pub chunks: u64,
    /// See [`Slot::waited_ns`].
    pub waited_ns: u64,
}

/// What a queue pair writes when it takes a slot.
#[derive(Clone, Copy, Debug, Default)]
pub struct Occupant {
    /// Its number.
    pub queue_pair: u32,
    /// See [`Slot::meters`].
    pub meters: u32,
    /// The class of its connection, if it is known.
    pub service: Option<Service>,
    /// Whether it has posted a READ.
    pub has_read: bool,
    /// Whether other queue pairs share the slot; the counters then continue.
    pub is_shared: bool,
}

impl<A: Atomics> Slot<A> {
    /// Shim: the queue pair takes the slot, which is free or shared.
    pub fn occupy(&self, occupant: &Occupant) {
        // The counters below may not be seen before the mark of [`Self::leave`].
        A::fence(Ordering::Release);
        if !occupant.is_shared {
            for counter in [
                &self.posted_messages,
                &self.posted_bytes,
                &self.completed_messages,
                &self.completed_bytes,
                &self.chunks,
                &self.waited_ns,
            ] {
                counter.store(0, Ordering::Relaxed);
            }
        }
        self.meters.store(occupant.meters, Ordering::Relaxed);
        self.describe(occupant.service, occupant.has_read);
        // Whoever reads the new number reads the words above.
        self.queue_pair
            .store(occupant.queue_pair, Ordering::Release);
        let state = match occupant.is_shared {
            true => SLOT_SHARED,
            false => SLOT_USED,
        };
        self.state.store(state, Ordering::Release);
    }

    /// Shim: what is known of the queue pair in the slot.
    pub fn describe(&self, service: Option<Service>, has_read: bool) {
        self.service
            .store(Service::slot_word(service, has_read), Ordering::Relaxed);
    }

    /// Shim: the queue pair's work is counted at these meters from now on; see [`Slot::meters`].
    pub fn direct(&self, meters: u32) {
        self.meters.store(meters, Ordering::Relaxed);
    }

    /// Shim: the queue pair leaves its own slot.
    pub fn leave(&self) {
        self.state.store(SLOT_FREE, Ordering::Release);
    }

    /// Daemon: the words of the queue pair in the slot; `None` if it is free, or changed during the reading.
    pub fn read(&self) -> Option<SlotReading> {
        let state = self.state.load(Ordering::Acquire);
        if state == SLOT_FREE {
            return None;
        }
        let reading = SlotReading {
            is_shared: state != SLOT_USED,
            queue_pair: self.queue_pair.load(Ordering::Acquire),
            meters: self.meters.load(Ordering::Relaxed),
            has_read: self.service.load(Ordering::Relaxed) & SLOT_HAS_READ != 0,
            posted_messages: self.posted_messages.load(Ordering::Relaxed),
            posted_bytes: self.posted_bytes.load(Ordering::Relaxed),
            completed_messages: self.completed_messages.load(Ordering::Relaxed),
            completed_bytes: self.completed_bytes.load(Ordering::Relaxed),
            chunks: self.chunks.load(Ordering::Relaxed),
            waited_ns: self.waited_ns.load(Ordering::Relaxed),
        };
        // The words above are read before the mark and the number below.
        A::fence(Ordering::Acquire);
        let is_same = self.state.load(Ordering::Acquire) == state
            && self.queue_pair.load(Ordering::Relaxed) == reading.queue_pair;
        is_same.then_some(reading)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::{Lease, Meter};
    use std::sync::atomic::AtomicBool;

    /// `writes` in one thread, `reads` in another until the writer has ended: Miri and the thread sanitizer see each access.
    fn beside(writes: impl FnOnce() + Send, mut reads: impl FnMut()) {
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                writes();
                ended.store(true, Ordering::Release);
            });
            while !ended.load(Ordering::Acquire) {
                reads();
                std::thread::yield_now();
            }
        });
        reads();
    }

    /// Rounds of a writer: Miri takes a millisecond for each.
    const ROUNDS: u64 = if cfg!(miri) { 200 } else { 100_000 };

    #[test]
    fn a_reading_beside_a_writer_is_of_one_queue_pair() {
        let slot = Slot::<crate::words::Processor>::default();
        let write = || {
            for number in 1..=ROUNDS {
                slot.occupy(&Occupant {
                    queue_pair: number as u32,
                    meters: number as u32,
                    ..Occupant::default()
                });
                slot.posted_messages.store(3 * number, Ordering::Relaxed);
                slot.leave();
            }
        };
        beside(write, || {
            if let Some(reading) = slot.read() {
                let number = u64::from(reading.queue_pair);
                assert_eq!(reading.meters, reading.queue_pair);
                assert!([0, 3 * number].contains(&reading.posted_messages));
            }
        });
        assert_eq!(slot.read(), None);
    }

    #[test]
    fn who_sees_the_end_of_a_lease_sees_its_terms_or_later_ones() {
        let meter = Meter::<crate::words::Processor>::default();
        let write = || {
            for end in 1..=ROUNDS {
                meter.grant(&Lease {
                    rate_bytes_per_s: 10 * end,
                    burst_bytes: 20 * end,
                    valid_until_ns: end,
                    ..Lease::default()
                });
            }
        };
        beside(write, || {
            let lease = meter.lease();
            assert!(lease.rate_bytes_per_s >= 10 * lease.valid_until_ns);
            assert!(lease.burst_bytes >= 20 * lease.valid_until_ns);
        });
        assert_eq!(meter.lease().valid_until_ns, ROUNDS);
    }
}
