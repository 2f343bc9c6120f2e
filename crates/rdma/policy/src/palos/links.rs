//! First-in-first-out queues of numbers, each number in one queue at most, without allocation.
//!
//! Method: a link per number and two ends per queue, as a NIC would keep them next to its contexts.

/// No number.
const NONE: u32 = u32::MAX;

#[derive(Clone, Debug)]
pub(super) struct Links {
    next: Vec<u32>,
    /// First and last of each queue.
    ends: Vec<(u32, u32)>,
}

impl Links {
    pub(super) fn new(queues: usize) -> Self {
        Self {
            next: Vec::new(),
            ends: vec![(NONE, NONE); queues],
        }
    }

    pub(super) fn add_item(&mut self) {
        self.next.push(NONE);
    }

    pub(super) fn add_queue(&mut self) {
        self.ends.push((NONE, NONE));
    }

    #[inline]
    pub(super) fn is_empty(&self, queue: u32) -> bool {
        self.ends[queue as usize].0 == NONE
    }

    #[inline]
    pub(super) fn push(&mut self, queue: u32, item: u32) {
        self.next[item as usize] = NONE;
        let ends = &mut self.ends[queue as usize];
        if ends.0 == NONE {
            ends.0 = item;
        } else {
            self.next[ends.1 as usize] = item;
        }
        ends.1 = item;
    }

    #[inline]
    pub(super) fn pop(&mut self, queue: u32) -> Option<u32> {
        let ends = &mut self.ends[queue as usize];
        let item = ends.0;
        if item == NONE {
            return None;
        }
        ends.0 = self.next[item as usize];
        Some(item)
    }
}
