//! Maps a destination's hash to its slot: reads without a lock, changes by one thread at a time.
//!
//! Method: open addressing with linear probing over twice as many entries as slots. An entry is two words: the slot and
//! 40 bits of the hash, and the hash's other 64 bits. A removal moves later entries of the run back, so no tombstones
//! are needed. A reader during a change may miss an entry that is being moved and then takes the lock. It cannot find a
//! wrong entry, because both words must match. Limits: at most [`SLOTS_MAX`] slots.

use crate::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};

/// Largest number of slots: 20 bits of a ticket.
pub(super) const SLOTS_MAX: usize = 1 << 20;

const SLOT_BITS: u32 = 24;
const EMPTY: u64 = 0;

#[derive(Debug, Default)]
struct Entry {
    /// Slot plus one in the lower 24 bits, the upper 40 bits of the hash; 0 if empty.
    slot: AtomicU64,
    low: AtomicU64,
}

/// The entries.
#[derive(Debug)]
pub(super) struct Index {
    entries: Box<[Entry]>,
}

impl Index {
    /// Makes an index for at most `slots` destinations.
    pub(super) fn new(slots: usize) -> Self {
        let len = (2 * slots).next_power_of_two().max(16);
        Self {
            entries: (0..len).map(|_| Entry::default()).collect(),
        }
    }

    fn mask(&self) -> usize {
        self.entries.len() - 1
    }

    fn home(&self, hash: Hash) -> usize {
        hash.low as usize & self.mask()
    }

    /// The slot of `hash`.
    #[inline]
    pub(super) fn find(&self, hash: Hash) -> Option<u32> {
        self.position(hash)
            .map(|(_, word)| (word & ((1 << SLOT_BITS) - 1)) as u32 - 1)
    }

    #[inline]
    fn position(&self, hash: Hash) -> Option<(usize, u64)> {
        let mask = self.mask();
        let mut at = self.home(hash);
        // Entries may move during the search; one full round ends it.
        for _ in 0..self.entries.len() {
            let entry = &self.entries[at & mask];
            let word = entry.slot.load(Ordering::Acquire);
            if word == EMPTY {
                return None;
            }
            let same = word >> SLOT_BITS == hash.high >> SLOT_BITS;
            if same && entry.low.load(Ordering::Acquire) == hash.low {
                return Some((at, word));
            }
            at = (at + 1) & mask;
        }
        None
    }

    /// Adds an absent destination. One thread at a time.
    pub(super) fn insert(&self, hash: Hash, slot: u32) {
        let mut at = self.home(hash);
        while self.entries[at].slot.load(Ordering::Relaxed) != EMPTY {
            at = (at + 1) & self.mask();
        }
        let word = (hash.high >> SLOT_BITS) << SLOT_BITS | u64::from(slot + 1);
        self.put(at, word, hash.low);
    }

    fn put(&self, at: usize, word: u64, low: u64) {
        self.entries[at].low.store(low, Ordering::Release);
        self.entries[at].slot.store(word, Ordering::Release);
    }

    /// Removes a destination if present. One thread at a time.
    pub(super) fn remove(&self, hash: Hash) {
        let Some((mut hole, _)) = self.position(hash) else {
            return;
        };
        let mut at = hole;
        loop {
            at = (at + 1) & self.mask();
            let word = self.entries[at].slot.load(Ordering::Relaxed);
            if word == EMPTY {
                break;
            }
            let low = self.entries[at].low.load(Ordering::Relaxed);
            let home = low as usize & self.mask();
            // It may move back to the hole unless its home is after the hole.
            let from_home = at.wrapping_sub(home) & self.mask();
            let from_hole = at.wrapping_sub(hole) & self.mask();
            if from_home >= from_hole {
                // No reader may see one destination's slot with another's hash.
                self.entries[hole].slot.store(u64::MAX, Ordering::Release);
                self.put(hole, word, low);
                hole = at;
            }
        }
        self.entries[hole].slot.store(EMPTY, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Compares with a map; few home positions make runs long and wrap around.
        #[test]
        fn finds_what_was_inserted_and_not_removed(
            steps in prop::collection::vec((any::<bool>(), 0u64..24), 1..200),
        ) {
            let index = Index::new(24);
            let mut map = BTreeMap::new();
            let hash = |name: u64| Hash { high: name << 40, low: 0xfff0 + name / 3 };
            for (insert, name) in steps {
                if insert && !map.contains_key(&name) {
                    map.insert(name, name as u32);
                    index.insert(hash(name), name as u32);
                } else if !insert {
                    map.remove(&name);
                    index.remove(hash(name));
                }
                for name in 0..24 {
                    prop_assert_eq!(index.find(hash(name)), map.get(&name).copied());
                }
            }
        }
    }
}
