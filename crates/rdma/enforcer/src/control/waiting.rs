//! Calls that wait for their turn, earliest first, in bounded memory.
//!
//! Method: a binary heap by time, and by order of arrival among equals. Each call is a thread that the kernel holds, so
//! the heap is as large as the tenants have waiting threads; a caller that asks [`Waiting::of`] can leave further calls
//! of a tenant with the kernel.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A call that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// When its turn comes, nanoseconds.
    pub due: u64,
    /// Order of arrival.
    sequence: u64,
    /// Place of its listener.
    pub listener: u32,
    /// Place of its tenant.
    pub tenant: u32,
    /// The kernel's name for it.
    pub id: u64,
    /// Whether it waits for its class, and asks the whole next.
    pub for_class: bool,
}

/// What is waiting.
#[derive(Debug, Default)]
pub struct Waiting {
    heap: BinaryHeap<Reverse<Entry>>,
    of_tenant: Vec<usize>,
    sequence: u64,
}

impl Waiting {
    /// Puts a call in.
    pub fn push(&mut self, due: u64, listener: u32, tenant: u32, id: u64, for_class: bool) {
        self.sequence += 1;
        let place = tenant as usize;
        if self.of_tenant.len() <= place {
            self.of_tenant.resize(place + 1, 0);
        }
        self.of_tenant[place] += 1;
        self.heap.push(Reverse(Entry {
            due,
            sequence: self.sequence,
            listener,
            tenant,
            id,
            for_class,
        }));
    }

    /// Takes out the next call whose turn has come.
    pub fn pop_due(&mut self, now: u64) -> Option<Entry> {
        if self.heap.peek()?.0.due > now {
            return None;
        }
        let Reverse(entry) = self.heap.pop()?;
        self.of_tenant[entry.tenant as usize] -= 1;
        Some(entry)
    }

    /// When the next turn comes.
    pub fn next_due(&self) -> Option<u64> {
        self.heap.peek().map(|entry| entry.0.due)
    }

    /// How many calls of a tenant wait.
    pub fn of(&self, tenant: u32) -> usize {
        self.of_tenant.get(tenant as usize).copied().unwrap_or(0)
    }

    /// Takes out everything that `keep` refuses.
    pub fn retain(&mut self, mut keep: impl FnMut(&Entry) -> bool) {
        let of_tenant = &mut self.of_tenant;
        self.heap.retain(|Reverse(entry)| {
            let stays = keep(entry);
            of_tenant[entry.tenant as usize] -= usize::from(!stays);
            stays
        });
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a sorted list.
        #[test]
        fn calls_come_out_by_time_then_arrival(dues in prop::collection::vec(0_u64..10, 0..50), now in 0_u64..12) {
            let mut waiting = Waiting::default();
            for (id, &due) in dues.iter().enumerate() {
                waiting.push(due, 0, (id % 3) as u32, id as u64, false);
            }
            let mut expected: Vec<(u64, u64)> =
                dues.iter().enumerate().map(|(id, &due)| (due, id as u64)).filter(|(due, _)| *due <= now).collect();
            expected.sort();
            let mut found = Vec::new();
            while let Some(entry) = waiting.pop_due(now) {
                found.push((entry.due, entry.id));
            }
            prop_assert_eq!(found, expected);
            let left: usize = (0..3).map(|tenant| waiting.of(tenant)).sum();
            prop_assert_eq!(left, waiting.len());
        }
    }

    #[test]
    fn a_sweep_keeps_the_counts() {
        let mut waiting = Waiting::default();
        for id in 0..10 {
            waiting.push(id, 0, 1, id, false);
        }
        waiting.retain(|entry| entry.id % 2 == 0);
        assert_eq!((waiting.len(), waiting.of(1), waiting.of(0)), (5, 5, 0));
    }
}
