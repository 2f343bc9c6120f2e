//! On-NIC caches and the slots in which their misses wait.
//!
//! A cache is set-associative with eight ways and random replacement within a set; keys are hashed to sets, so
//! access to W entries of a cache of C hits with probability near C / W, and a working set a little too large
//! degrades a little: strict least-recently-used order would turn every access of a round robin into a miss. The
//! victim's way comes from a counter-seeded generator of the cache itself, the same in every run. A miss is a PCIe
//! read that occupies one of a few slots for its latency: with free slots misses hide behind the pipeline, when
//! all are busy the next miss waits (rnic-model stage 5; husky 4.3.2).

/// Ways of one set.
const WAYS: usize = 8;
/// A way that holds nothing.
const VACANT: u64 = u64::MAX;

/// A cache of keys.
#[derive(Clone, Debug)]
pub struct Cache {
    sets: Vec<[u64; WAYS]>,
    /// Ways used per set: capacities below eight, or not a multiple of eight, stay exact on average.
    ways_of_last: usize,
    /// State of the replacement choice.
    choice: u64,
    /// What the latest key brought in replaced.
    replaced: u64,
    /// Lookups that found their key.
    pub hits: u64,
    /// Lookups that did not.
    pub misses: u64,
}

impl Cache {
    /// A cache of `entries` keys (at least one).
    pub fn new(entries: usize) -> Self {
        let entries = entries.max(1);
        let sets = entries.div_ceil(WAYS);
        let remainder = entries % WAYS;
        Self {
            sets: vec![[VACANT; WAYS]; sets],
            ways_of_last: if remainder == 0 { WAYS } else { remainder },
            choice: 0x2545_f491_4f6c_dd1d,
            replaced: VACANT,
            hits: 0,
            misses: 0,
        }
    }

    /// Looks `key` up and brings it in; true for a hit.
    #[inline]
    pub fn touch(&mut self, key: u64) -> bool {
        let hit = self.insert(key);
        if hit {
            self.hits += 1;
        } else {
            self.misses += 1;
        }
        hit
    }

    /// Brings `key` in without counting a lookup (prefetch); true when it was there.
    #[inline]
    pub fn insert(&mut self, key: u64) -> bool {
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let hash = (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let index = ((u128::from(hash) * self.sets.len() as u128) >> 64) as usize;
        let ways = if index + 1 == self.sets.len() {
            self.ways_of_last
        } else {
            WAYS
        };
        let set = &mut self.sets[index][..ways];
        if set.contains(&key) {
            return true;
        }
        let vacant = set.iter().position(|&held| held == VACANT);
        let way = vacant.unwrap_or_else(|| {
            // xorshift64
            self.choice ^= self.choice << 13;
            self.choice ^= self.choice >> 7;
            self.choice ^= self.choice << 17;
            ((u128::from(self.choice) * ways as u128) >> 64) as usize
        });
        self.replaced = std::mem::replace(&mut set[way], key);
        false
    }

    /// The key that the latest one brought in replaced; none where there was room.
    pub fn evicted(&self) -> Option<u64> {
        (self.replaced != VACANT).then_some(self.replaced)
    }

    /// Forgets every key.
    pub fn invalidate_all(&mut self) {
        self.sets.fill([VACANT; WAYS]);
    }
}

/// Slots in which misses wait for their PCIe read.
#[derive(Clone, Debug)]
pub struct MissSlots {
    /// When each slot is free again, ps.
    free_at: Vec<u64>,
    latency: u64,
    /// Summed time for which every slot was taken when a miss came, ps.
    pub waited: u64,
    /// Summed slot occupancy, ps.
    pub busy: u64,
}

/// Where a miss stands.
#[derive(Clone, Copy, Debug)]
pub struct Miss {
    /// When it got its slot, ps.
    pub started: u64,
    /// When its data is there, ps.
    pub done: u64,
    /// Which slot.
    pub slot: usize,
}

impl MissSlots {
    /// `slots` misses at once, each `latency` ps long.
    pub fn new(slots: usize, latency: u64) -> Self {
        Self {
            free_at: vec![0; slots.max(1)],
            latency,
            waited: 0,
            busy: 0,
        }
    }

    /// A miss that happens at `now`: takes the slot that is free first.
    #[inline]
    pub fn take(&mut self, now: u64) -> Miss {
        let mut best = 0;
        for (index, &free) in self.free_at.iter().enumerate() {
            if free < self.free_at[best] {
                best = index;
            }
        }
        let started = now.max(self.free_at[best]);
        let done = started + self.latency;
        self.free_at[best] = done;
        self.waited += started - now;
        self.busy += self.latency;
        Miss {
            started,
            done,
            slot: best,
        }
    }

    /// No slot is free before `until`.
    pub fn block_until(&mut self, until: u64) {
        for free in &mut self.free_at {
            *free = (*free).max(until);
        }
    }

    /// How many slots there are.
    pub fn len(&self) -> usize {
        self.free_at.len()
    }

    /// Never true: there is at least one slot.
    pub fn is_empty(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_core::rng::Stream;

    #[test]
    fn random_access_hits_in_proportion_to_what_fits() {
        for (entries, working_set) in [(1272u64, 1536u64), (256, 512), (100, 1000)] {
            let mut cache = Cache::new(entries as usize);
            let mut rng = Stream::named(1, "cache");
            for _ in 0..20 * working_set {
                cache.touch(rng.below(working_set));
            }
            (cache.hits, cache.misses) = (0, 0);
            for _ in 0..100_000 {
                cache.touch(rng.below(working_set));
            }
            let ratio = cache.hits as f64 / 100_000.0;
            let ideal = entries as f64 / working_set as f64;
            assert!(
                (ratio - ideal).abs() < 0.08,
                "{entries} of {working_set}: hit ratio {ratio}, ideal {ideal}"
            );
        }
    }

    #[test]
    fn a_working_set_well_below_capacity_always_hits() {
        let mut cache = Cache::new(1024);
        for round in 0..4 {
            for key in 0..256 {
                assert!(cache.touch(key) || round == 0);
            }
        }
    }

    #[test]
    fn a_flushed_cache_misses() {
        let mut cache = Cache::new(64);
        cache.touch(1);
        assert!(cache.touch(1));
        cache.invalidate_all();
        assert!(!cache.touch(1));
    }

    #[test]
    fn the_third_miss_of_two_slots_waits_for_the_first() {
        let mut slots = MissSlots::new(2, 100);
        assert_eq!(slots.take(0).done, 100);
        assert_eq!(slots.take(10).done, 110);
        let third = slots.take(20);
        assert_eq!((third.started, third.done), (100, 200));
        assert_eq!(slots.waited, 80);
    }
}
