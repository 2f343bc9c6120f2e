//! Events of a run by seed, in order of their times. Of events with equal times, the one that was scheduled first comes first.
//! Units: microseconds.

use std::collections::BTreeMap;

/// The time of a run, and the events to come.
pub(crate) struct Agenda<E> {
    /// Time of the last event.
    pub(crate) now_us: u64,
    events: BTreeMap<(u64, u64), E>,
    /// Number of events scheduled so far.
    pub(crate) scheduled: u64,
}

impl<E> Agenda<E> {
    pub(crate) fn new() -> Self {
        Self {
            now_us: 0,
            events: BTreeMap::new(),
            scheduled: 0,
        }
    }

    /// The place in a run whose number of events is `events`.
    pub(crate) fn place(&self, events: u64) -> String {
        format!("event {events}, {} ms", self.now_us / 1_000)
    }

    pub(crate) fn at(&mut self, at_us: u64, event: E) {
        self.events.insert((at_us, self.scheduled), event);
        self.scheduled += 1;
    }

    /// Takes the next event and goes to its time; none where it is later than `end_us`.
    pub(crate) fn take_until(&mut self, end_us: u64) -> Option<E> {
        let ((at_us, _), event) = self.events.pop_first()?;
        if at_us > end_us {
            return None;
        }
        self.now_us = at_us;
        Some(event)
    }
}
