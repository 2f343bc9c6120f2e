//! On-NIC caches and the slots in which their misses wait.
//!
//! A cache is set-associative with eight ways and random replacement within a set; keys are hashed to sets, so
//! access to W entries of a cache of C hits with probability near C / W, and a working set a little too large
//! degrades a little: strict least-recently-used order would turn every access of a round robin into a miss. The
//! victim's way comes from a counter-seeded generator of the cache itself, the same in every run. A miss is a PCIe
//! read that occupies one of a few slots for its latency: with free slots misses hide behind the pipeline, when
//! all are busy the next miss waits (rnic-model stage 5; husky 4.3.2).
//!
//! Both can be shared out among owners, as no NIC on sale does it. An owner has a quota of ways in every set by weight,
//! and borrows those that others leave free; an owner that inserts a key takes a way from an owner above its quota, at
//! worst its own. Slots are reserved by weight, rounded down; all owners share the remaining slots. An owner lends its
//! unused slots as long as one of them stays free.

/// Ways of one set.
const WAYS: usize = 8;
/// A way that holds nothing.
const VACANT: u64 = u64::MAX;
/// A slot without a reservation.
const EVERYBODY: u16 = u16::MAX;
/// Keys in front of the sets: the few that most lookups of a run find. More would take room of the processor's first cache.
const FRONT_BITS: u32 = 8;

/// The keys of one set, in one line of the processor's cache.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Set([u64; WAYS]);

impl Set {
    const EMPTY: Self = Self([VACANT; WAYS]);

    /// Whether it holds `key`. All ways are compared: where a hit is found is hard to predict.
    #[inline]
    fn holds(&self, key: u64) -> bool {
        self.0
            .iter()
            .fold(false, |found, &held| found | (held == key))
    }
}

/// A cache of keys.
#[derive(Clone, Debug)]
pub struct Cache {
    sets: Vec<Set>,
    /// Keys that their sets hold, each at its own place: what is found here needs no search of eight ways.
    front: Box<[u64; 1 << FRONT_BITS]>,
    /// Ways used per set: capacities below eight, or not a multiple of eight, stay exact on average.
    ways_of_last: usize,
    /// State of the replacement choice.
    choice: u64,
    /// The key that the latest insertion replaced.
    replaced: u64,
    /// Whose key each way holds; empty where no owner has a quota.
    owners: Vec<[u16; WAYS]>,
    /// Ways per set that each owner may keep.
    quotas: Vec<usize>,
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
            sets: vec![Set::EMPTY; sets],
            front: Box::new([VACANT; 1 << FRONT_BITS]),
            ways_of_last: if remainder == 0 { WAYS } else { remainder },
            choice: 0x2545_f491_4f6c_dd1d,
            replaced: VACANT,
            owners: Vec::new(),
            quotas: Vec::new(),
            hits: 0,
            misses: 0,
        }
    }

    /// A cache of `entries` keys with a quota for each owner, by `weights`.
    pub fn with_quotas(entries: usize, weights: &[u32]) -> Self {
        let mut cache = Self::new(entries);
        let all: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
        let quota = |&weight: &u32| (WAYS as u64 * u64::from(weight) / all.max(1)).max(1) as usize;
        cache.quotas = weights.iter().map(quota).collect();
        cache.owners = vec![[0; WAYS]; cache.sets.len()];
        cache
    }

    /// Looks `key` up and inserts it for `owner`; true for a hit.
    #[inline]
    pub fn touch(&mut self, key: u64, owner: u16) -> bool {
        let hit = self.insert(key, owner);
        if hit {
            self.hits += 1;
        } else {
            self.misses += 1;
        }
        hit
    }

    /// Inserts `key` for `owner` without counting a lookup (prefetch); true when it was there.
    #[inline]
    pub fn insert(&mut self, key: u64, owner: u16) -> bool {
        let hash = spread(key);
        if self.front[front_place(hash)] == key {
            return true;
        }
        self.insert_into_set(hash, key, owner)
    }

    #[inline(never)]
    fn insert_into_set(&mut self, spread: u64, key: u64, owner: u16) -> bool {
        let hash = (spread ^ (spread >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let index = ((u128::from(hash) * self.sets.len() as u128) >> 64) as usize;
        // What the last set has no ways for is vacant.
        let hit = self.sets[index].holds(key);
        if !hit {
            self.replace(index, key, owner);
        }
        self.front[front_place(spread)] = key;
        hit
    }

    /// Puts `key` into a vacant way of a set, or into one that is chosen.
    #[inline(never)]
    fn replace(&mut self, index: usize, key: u64, owner: u16) {
        let ways = if index + 1 == self.sets.len() {
            self.ways_of_last
        } else {
            WAYS
        };
        let set = &mut self.sets[index].0[..ways];
        let vacant = set.iter().position(|&held| held == VACANT);
        let way = vacant.unwrap_or_else(|| {
            // xorshift64
            self.choice ^= self.choice << 13;
            self.choice ^= self.choice >> 7;
            self.choice ^= self.choice << 17;
            let way = ((u128::from(self.choice) * ways as u128) >> 64) as usize;
            match self.owners.get(index) {
                None => way,
                Some(owners) => fair_way(&owners[..ways], &self.quotas, owner, way),
            }
        });
        self.replaced = std::mem::replace(&mut set[way], key);
        let place = &mut self.front[front_place(spread(self.replaced))];
        if *place == self.replaced {
            *place = VACANT;
        }
        if let Some(owners) = self.owners.get_mut(index) {
            owners[way] = owner;
        }
    }

    /// The key that the latest insertion replaced; none where there was room.
    pub fn evicted(&self) -> Option<u64> {
        (self.replaced != VACANT).then_some(self.replaced)
    }

    /// Forgets the keys of `owner`, or every key where no owner has a quota.
    pub fn invalidate(&mut self, owner: u16) {
        if self.owners.is_empty() {
            return self.invalidate_all();
        }
        self.front.fill(VACANT);
        for (set, owners) in self.sets.iter_mut().zip(&self.owners) {
            for (key, held) in set.0.iter_mut().zip(owners) {
                if *held == owner {
                    *key = VACANT;
                }
            }
        }
    }

    /// Forgets every key.
    pub fn invalidate_all(&mut self) {
        self.sets.fill(Set::EMPTY);
        self.front.fill(VACANT);
    }
}

/// The first half of a key's hash.
#[inline]
const fn spread(key: u64) -> u64 {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// A key's place in front of the sets: the best bits of the first half of its hash.
#[inline]
const fn front_place(spread: u64) -> usize {
    (spread >> (u64::BITS - FRONT_BITS)) as usize
}

/// The way to give to `owner` in a full set: from `start` on, the first whose owner keeps more than its quota, or
/// the first of its own.
fn fair_way(owners: &[u16], quotas: &[usize], owner: u16, start: usize) -> usize {
    let held = |of: u16| owners.iter().filter(|&&holder| holder == of).count();
    let quota = |of: u16| quotas.get(usize::from(of)).copied().unwrap_or(1);
    let ways = (0..owners.len()).map(|step| (start + step) % owners.len());
    let mine_is_full = held(owner) >= quota(owner);
    let gives = |way: &usize| match owners[*way] {
        holder if holder == owner => mine_is_full,
        holder => held(holder) > quota(holder),
    };
    let mut candidates = ways.clone();
    candidates.find(gives).unwrap_or(start)
}

/// Slots in which misses wait for their PCIe read.
#[derive(Clone, Debug)]
pub struct MissSlots {
    /// When each slot is free again, ps.
    free_at: Vec<u64>,
    /// Whom each slot is reserved for, or [`EVERYBODY`]; empty where nothing is reserved.
    reserved: Vec<u16>,
    latency: u64,
    /// Summed time for which every slot was taken when a miss came, ps.
    pub waited: u64,
    /// Summed slot occupancy, ps.
    pub busy: u64,
}

/// The state of a miss.
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
            reserved: Vec::new(),
            latency,
            waited: 0,
            busy: 0,
        }
    }

    /// As [`MissSlots::new`], with slots reserved for each owner by `weights`.
    pub fn with_reserves(slots: usize, latency: u64, weights: &[u32]) -> Self {
        let mut shared = Self::new(slots, latency);
        let slots = shared.free_at.len() as u64;
        let all: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
        for (owner, &weight) in weights.iter().enumerate() {
            let part = slots * u64::from(weight) / all.max(1);
            shared.reserved.extend(vec![owner as u16; part as usize]);
        }
        shared.reserved.resize(slots as usize, EVERYBODY);
        if !shared.reserved.contains(&EVERYBODY) && weights.len() as u64 > slots {
            shared.reserved.fill(EVERYBODY);
        }
        shared
    }

    /// The slot that is free first.
    #[inline]
    fn soonest(&self) -> usize {
        let soonest = self.free_at.iter().copied().fold(u64::MAX, u64::min);
        let place = self.free_at.iter().position(|&free| free == soonest);
        place.unwrap_or(0)
    }

    /// The slot that is free first among those that `owner` may use.
    fn soonest_for(&self, now: u64, owner: u16) -> Option<usize> {
        let mut best = None;
        let mut soonest = u64::MAX;
        for (index, (&free, &reserved)) in self.free_at.iter().zip(&self.reserved).enumerate() {
            let mine = reserved == EVERYBODY || reserved == owner;
            if free < soonest && (mine || (free <= now && self.lends(now, reserved))) {
                (best, soonest) = (Some(index), free);
            }
        }
        best
    }

    /// A miss of `owner` that happens at `now`: takes the slot that is free first among those it may use.
    #[inline]
    pub fn take(&mut self, now: u64, owner: u16) -> Miss {
        // An owner without a reserve, where all are reserved, takes its chance with the first that is free.
        let best = match self.reserved.is_empty() {
            true => self.soonest(),
            false => self
                .soonest_for(now, owner)
                .unwrap_or_else(|| self.soonest()),
        };
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

    /// Keeps `miss` in its slot for `longer`.
    #[inline]
    pub fn extend(&mut self, miss: &mut Miss, longer: u64) {
        miss.done += longer;
        self.free_at[miss.slot] = miss.done;
        self.busy += longer;
    }

    /// Whether `owner` has two free slots, so that it can lend one.
    fn lends(&self, now: u64, owner: u16) -> bool {
        let slots = self.free_at.iter().zip(&self.reserved);
        let free = slots.filter(|(free, reserved)| **free <= now && **reserved == owner);
        free.take(2).count() == 2
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
    use isolane_common_quantities::rng::Stream;

    #[test]
    fn random_access_hits_in_proportion_to_what_fits() {
        for (entries, working_set) in [(1272u64, 1536u64), (256, 512), (100, 1000)] {
            let mut cache = Cache::new(entries as usize);
            let mut rng = Stream::named(1, "cache");
            for _ in 0..20 * working_set {
                cache.touch(rng.below(working_set), 0);
            }
            (cache.hits, cache.misses) = (0, 0);
            for _ in 0..100_000 {
                cache.touch(rng.below(working_set), 0);
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
                assert!(cache.touch(key, 0) || round == 0);
            }
        }
    }

    /// The keys in front of the sets are a shortcut and change nothing: a cache without them gives the same answers.
    #[test]
    fn the_front_only_knows_keys_that_their_sets_hold() {
        for quotas in [false, true] {
            let mut cache = match quotas {
                true => Cache::with_quotas(500, &[1, 2]),
                false => Cache::new(500),
            };
            let mut plain = cache.clone();
            let mut rng = Stream::named(7, "front");
            for step in 0..200_000_u64 {
                // Some keys again and again, others from a working set that does not fit.
                let key = match rng.below(3) {
                    0 => rng.below(40),
                    _ => rng.below(900),
                };
                let owner = (key % 2) as u16;
                plain.front.fill(VACANT);
                assert_eq!(cache.touch(key, owner), plain.touch(key, owner), "{step}");
                assert_eq!(cache.evicted(), plain.evicted(), "{step}");
                if step % 20_011 == 0 {
                    cache.invalidate(owner);
                    plain.invalidate(owner);
                }
            }
            assert!(cache.hits > 50_000 && cache.misses > 10_000);
        }
    }

    #[test]
    fn a_flushed_cache_misses() {
        let mut cache = Cache::new(64);
        cache.touch(1, 0);
        assert!(cache.touch(1, 0));
        cache.invalidate_all();
        assert!(!cache.touch(1, 0));
    }

    #[test]
    fn the_third_miss_of_two_slots_waits_for_the_first() {
        let mut slots = MissSlots::new(2, 100);
        assert_eq!(slots.take(0, 0).done, 100);
        assert_eq!(slots.take(10, 0).done, 110);
        let third = slots.take(20, 0);
        assert_eq!((third.started, third.done), (100, 200));
        assert_eq!(slots.waited, 80);
    }

    #[test]
    fn an_owner_within_its_quota_keeps_its_keys_at_any_load_of_another() {
        let mut cache = Cache::with_quotas(64, &[1, 1]);
        for key in 0..16 {
            cache.touch(key, 0);
        }
        let mine: Vec<u64> = (0..16).filter(|&key| cache.clone().touch(key, 0)).collect();
        for key in 1_000..50_000 {
            cache.touch(key, 1);
        }
        // Sets that got more of its keys than its quota have lent the rest out again.
        let kept = mine
            .iter()
            .filter(|&&key| cache.clone().touch(key, 0))
            .count();
        assert!(kept >= 15, "{kept} of {}", mine.len());
    }

    #[test]
    fn an_owner_alone_uses_the_whole_cache() {
        let (mut shared, mut plain) = (Cache::with_quotas(64, &[1, 1]), Cache::new(64));
        let mut rng = Stream::named(3, "cache");
        for _ in 0..10_000 {
            let key = rng.below(100);
            shared.touch(key, 0);
            plain.touch(key, 0);
        }
        let apart = shared.hits.abs_diff(plain.hits);
        assert!(
            apart < plain.hits / 20,
            "{} against {}",
            shared.hits,
            plain.hits
        );
    }

    #[test]
    fn forgetting_one_owner_leaves_the_other() {
        let mut cache = Cache::with_quotas(64, &[1, 1]);
        cache.touch(1, 0);
        cache.touch(2, 1);
        cache.invalidate(0);
        assert!(!cache.touch(1, 0) && cache.touch(2, 1));
    }

    #[test]
    fn an_owner_lends_slots_as_long_as_one_of_its_own_stays_free() {
        // Two for each and one shared.
        let mut slots = MissSlots::with_reserves(5, 100, &[1, 1]);
        let started: Vec<u64> = (0..5).map(|_| slots.take(0, 1).started).collect();
        assert_eq!(started, [0, 0, 0, 0, 100]);
        assert_eq!(slots.take(10, 0).started, 10);
        // The other one is back when its miss is done, and is not lent again while the first is in use.
        assert_eq!(slots.take(20, 0).started, 100);
    }
}
