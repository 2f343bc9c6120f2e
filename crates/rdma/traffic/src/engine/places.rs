//! The memory of messages in an end's regions.
//!
//! Each message of queue pair `q` with sequence number `n` has a slot, large enough for the longest message. Slots are
//! distributed over the regions in turn, so a workload with many regions uses all of them. Each queue pair has its own
//! slots if there are enough; otherwise queue pairs share slots. Shared slots are never checked: checking allocates
//! enough, see [`Places::checked_region_bytes`]. The elements of a message are in successive regions, each at the
//! slot's offset plus the length of the earlier elements, so a list of elements uses several regions too.

/// Slots begin on cache lines.
const LINE: u64 = 64;

/// The slots of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    regions: u64,
    stride: u64,
    per_region: u64,
    queue_pairs: u64,
    per_queue_pair: u64,
}

/// Position of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Index of the region.
    pub(crate) region: usize,
    /// Offset in it, bytes.
    pub(crate) offset: u64,
}

impl Places {
    /// Slots for messages of at most `largest` bytes in `regions` regions of `region_bytes` each.
    pub(crate) fn new(regions: u64, region_bytes: u64, largest: u64, queue_pairs: u64) -> Self {
        let stride = stride(largest);
        let per_region = (region_bytes / stride).max(1);
        let slots = regions * per_region;
        Self {
            regions,
            stride,
            per_region,
            queue_pairs,
            per_queue_pair: slots / queue_pairs,
        }
    }

    /// The region length at which each queue pair has `slots` slots of its own.
    pub(crate) fn checked_region_bytes(
        regions: u64,
        largest: u64,
        queue_pairs: u64,
        slots: u64,
    ) -> u64 {
        (queue_pairs * slots).div_ceil(regions) * stride(largest)
    }

    /// Number of slots that each queue pair has for itself; 0 if queue pairs share slots.
    pub(crate) fn per_queue_pair(&self) -> u64 {
        self.per_queue_pair
    }

    /// The place of message `sequence` of queue pair `queue_pair`.
    pub(crate) fn of(&self, queue_pair: u64, sequence: u64) -> Place {
        let slots = self.regions * self.per_region;
        let slot = match self.per_queue_pair {
            0 => (queue_pair + sequence) % slots,
            own => (sequence % own) * self.queue_pairs + queue_pair,
        };
        Place {
            region: (slot % self.regions) as usize,
            offset: (slot / self.regions) * self.stride,
        }
    }

    /// The region of element `index` of a message at `place`.
    pub(crate) fn element_region(&self, place: Place, index: usize) -> usize {
        (place.region + index) % self.regions as usize
    }
}

fn stride(largest: u64) -> u64 {
    largest.max(1).next_multiple_of(LINE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn one_small_region_is_one_shared_slot() {
        let places = Places::new(1, 100, 100, 4);
        assert_eq!(
            places.of(3, 9),
            Place {
                region: 0,
                offset: 0
            }
        );
    }

    proptest! {
        #[test]
        fn checked_slots_of_a_window_never_overlap(
            regions in 1_u64..9, largest in 1_u64..5_000, queue_pairs in 1_u64..9, slots in 1_u64..9, first in 0_u64..99,
        ) {
            let bytes = Places::checked_region_bytes(regions, largest, queue_pairs, slots);
            let places = Places::new(regions, bytes, largest, queue_pairs);
            let mut seen = BTreeSet::new();
            for queue_pair in 0..queue_pairs {
                for sequence in first..first + slots {
                    let place = places.of(queue_pair, sequence);
                    prop_assert!((place.region as u64) < regions);
                    prop_assert!(place.offset + largest <= bytes);
                    prop_assert!(seen.insert((place.region, place.offset)), "{place:?} twice");
                }
            }
        }

        #[test]
        fn every_slot_is_inside(
            regions in 1_u64..9, room in 0_u64..99_999, largest in 1_u64..5_000, queue_pairs in 1_u64..99, sequence: u32,
        ) {
            let places = Places::new(regions, largest + room, largest, queue_pairs);
            let place = places.of(queue_pairs - 1, sequence.into());
            prop_assert!(place.offset + largest <= largest + room);
        }
    }
}
