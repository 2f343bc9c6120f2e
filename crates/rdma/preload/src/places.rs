//! The places of queue pairs: the number in each work request's identifier names one.

use crate::queue_pair::QueuePair;
use crate::table::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};

/// How many queue pairs a process may have paced at once.
const PLACES: usize = 1 << 16;

/// See the module. A place is reused, never freed.
#[derive(Debug)]
pub struct Places {
    /// Marks our work-request identifiers.
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
    /// Free places of a process whose identifiers bear `tag`.
    pub fn new(tag: u64) -> Self {
        Self {
            tag,
            places: std::iter::repeat_with(AtomicPtr::default)
                .take(PLACES)
                .collect(),
            free: Mutex::default(),
        }
    }

    /// The queue pair of a place.
    #[inline]
    pub fn get(&self, place: u16) -> Option<&'static QueuePair> {
        // SAFETY: null, or a leaked queue pair.
        unsafe {
            self.places[usize::from(place)]
                .load(Ordering::Acquire)
                .as_ref()
        }
    }

    /// A place for a queue pair; `None` if all are taken.
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

    /// The place may be used again.
    pub fn give_back(&self, queue_pair: &QueuePair) {
        lock(&self.free).places.push(queue_pair.place);
    }

    /// Every place that was ever taken.
    pub fn all(&self) -> impl Iterator<Item = &'static QueuePair> + '_ {
        let high = lock(&self.free).high;
        (0..high).filter_map(|place| self.get(place as u16))
    }
}
