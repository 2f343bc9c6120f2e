//! The queue of waiting calls, earliest first, in bounded memory.
//!
//! Method: a binary heap by time, then by order of arrival. Each entry is a thread that the kernel holds, so the
//! tenants' waiting threads bound the heap. With [`Waiting::of`] the caller can leave further calls of a tenant in the
//! kernel.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A call that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// Time of its turn, ns.
    pub due: u64,
    /// Order of arrival.
    sequence: u64,
    /// Place of its listener.
    pub listener: u32,
    /// Place of its tenant.
    pub tenant: u32,
    /// The kernel's id of the call.
    pub id: u64,
    /// Whether the call waits for its class; it waits for the whole next.
    pub for_class: bool,
}

/// The queue.
#[derive(Debug, Default)]
pub struct Waiting {
    heap: BinaryHeap<Reverse<Entry>>,
    of_tenant: Vec<usize>,
    sequence: u64,
}

impl Waiting {
    /// Adds a call.
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

    /// Removes and returns the next call whose turn has come.
    pub fn pop_due(&mut self, now: u64) -> Option<Entry> {
        if self.heap.peek()?.0.due > now {
            return None;
        }
        let Reverse(entry) = self.heap.pop()?;
        self.of_tenant[entry.tenant as usize] -= 1;
        Some(entry)
    }

    /// Time of the next turn, ns.
    pub fn next_due(&self) -> Option<u64> {
        self.heap.peek().map(|entry| entry.0.due)
    }

    /// Number of waiting calls of a tenant.
    pub fn of(&self, tenant: u32) -> usize {
        self.of_tenant.get(tenant as usize).copied().unwrap_or(0)
    }

    /// Removes and returns all calls that `keep` rejects.
    pub fn retain(&mut self, mut keep: impl FnMut(&Entry) -> bool) {
        let of_tenant = &mut self.of_tenant;
        self.heap.retain(|Reverse(entry)| {
            let stays = keep(entry);
            of_tenant[entry.tenant as usize] -= usize::from(!stays);
            stays
        });
    }

    /// Number of waiting calls.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether no call waits.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compares with a sorted list.
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
