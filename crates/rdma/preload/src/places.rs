//! The places of queue pairs. Each work request's identifier contains the number of a place.

use crate::queue_pair::QueuePair;
use crate::table::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Largest number of paced queue pairs in a process.
pub(crate) const PLACES: usize = 1 << 16;

/// The places; they are reused and never freed.
#[derive(Debug)]
pub struct Places {
    /// Tag in our work-request identifiers.
    pub tag: u64,
    places: Vec<AtomicPtr<QueuePair>>,
    free: Mutex<Free>,
}

#[derive(Debug, Default)]
struct Free {
    places: Vec<u16>,
    /// Places from here on were never taken.
    high: usize,
}

impl Places {
    /// Free places of a process whose identifiers contain `tag`.
    pub fn new(tag: u64) -> Self {
        Self {
            tag,
            places: std::iter::repeat_with(AtomicPtr::default)
                .take(PLACES)
                .collect(),
            free: Mutex::default(),
        }
    }

    /// The queue pair at a place.
    #[inline]
    pub fn get(&self, place: u16) -> Option<&'static QueuePair> {
        // SAFETY: null, or a leaked queue pair.
        unsafe {
            self.places[usize::from(place)]
                .load(Ordering::Acquire)
                .as_ref()
        }
    }

    /// Takes a place for a queue pair; `None` if all are taken.
    pub fn take(&self) -> Option<&'static QueuePair> {
        let mut free = lock(&self.free);
        if let Some(place) = free.places.pop() {
            return self.get(place);
        }
        let place = u16::try_from(free.high).ok()?;
        free.high += 1;
        let queue_pair = Box::leak(Box::new(QueuePair::new(place)));
        self.places[usize::from(place)].store(queue_pair, Ordering::Release);
        Some(queue_pair)
    }

    /// Makes the place available again.
    pub fn give_back(&self, queue_pair: &QueuePair) {
        lock(&self.free).places.push(queue_pair.place);
    }

    /// All places that were ever taken.
    pub fn all(&self) -> impl Iterator<Item = &'static QueuePair> + '_ {
        let high = lock(&self.free).high;
        (0..high).filter_map(|place| self.get(place as u16))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_places_can_be_taken_and_no_more() {
        let places = Places::new(1);
        let taken: Vec<_> = std::iter::from_fn(|| places.take()).collect();
        assert_eq!(taken.len(), PLACES);
        assert!(places.take().is_none());
        places.give_back(taken[7]);
        assert_eq!(places.take().map(|one| one.place), Some(7));
    }
}
