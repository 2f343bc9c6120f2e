//! The mapping store: from a physical address to its owner and use.
//!
//! Two levels (harmonic 5.4.3). Level one is a direct-mapped table: one hash of the page number picks the slot. Where
//! several pages meet, that slot heads a linked list whose other entries are in level two, a pool of slots that a
//! second hash picks from; a taken slot sends the search for a free one to the next. Deleting a head moves its
//! successor up. All memory is there from the start: inserting, deleting and searching allocate nothing.
//!
//! Pages have two sizes. A search looks up the small page and the huge page of its address at once, as a memory with
//! two ports can; it is over when one of them is found.
//!
//! Limits: a full pool rejects entries that collide; the caller must count them.

use super::entry::{END, Frame, Mapping, Slot, VACANT};

/// Slots of the two levels, powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreSize {
    /// Level one.
    pub heads: usize,
    /// Level two.
    pub pool: usize,
}

impl StoreSize {
    /// 65,536 and 65,536: 2 MiB in all, which the block memory reported for the prototype (554 blocks of 36 Kb,
    /// harmonic 5.6.5) has room for, with counters and queues beside it.
    pub const PROTOTYPE: Self = Self {
        heads: 1 << 16,
        pool: 1 << 16,
    };
}

/// The outcome of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The object there; `None` where nothing is known.
    pub mapping: Option<Mapping>,
    /// Slots of level two that were read.
    pub hops: u32,
}

/// Why an entry is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// The two levels.
#[derive(Clone, Debug)]
pub struct MappingStore {
    heads: Vec<Slot>,
    pool: Vec<Slot>,
    entries: usize,
    pooled: usize,
    huge: usize,
}

impl MappingStore {
    /// An empty store.
    pub fn new(size: StoreSize) -> Self {
        assert!(
            size.heads.is_power_of_two() && size.pool.is_power_of_two(),
            "levels have powers of two slots: {size:?}"
        );
        Self {
            heads: vec![Slot::EMPTY; size.heads],
            pool: vec![Slot::EMPTY; size.pool],
            entries: 0,
            pooled: 0,
            huge: 0,
        }
    }

    /// Pages known.
    pub const fn len(&self) -> usize {
        self.entries
    }

    /// Whether no page is known.
    pub const fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Entries that had to go to level two.
    pub const fn pooled(&self) -> usize {
        self.pooled
    }

    /// Memory of both levels, bytes.
    pub const fn footprint_bytes(&self) -> u64 {
        ((self.heads.len() + self.pool.len()) * size_of::<Slot>()) as u64
    }

    /// Stores what a page holds, in place of what it held before. Fails if the page collides and level two is full.
    pub fn insert(&mut self, frame: Frame, mapping: Mapping) -> Result<(), Full> {
        let head = self.head_of(frame);
        if self.heads[head].frame == VACANT {
            self.heads[head] = Slot {
                frame,
                next: END,
                mapping,
            };
            self.count_in(frame);
            return Ok(());
        }
        if let Some(slot) = self.slot_mut(head, frame) {
            slot.mapping = mapping;
            return Ok(());
        }
        let place = self.free_slot(frame).ok_or(Full)?;
        self.pool[place] = Slot {
            frame,
            next: self.heads[head].next,
            mapping,
        };
        self.heads[head].next = place as u32;
        self.pooled += 1;
        self.count_in(frame);
        Ok(())
    }

    /// Forgets a page; what it held.
    pub fn delete(&mut self, frame: Frame) -> Option<Mapping> {
        let head = self.head_of(frame);
        let first = self.heads[head];
        if first.frame == frame {
            self.heads[head] = match first.next {
                END => Slot::EMPTY,
                next => self.take_from_pool(next),
            };
            self.count_out(frame);
            return Some(first.mapping);
        }
        let mut before = END;
        let mut at = first.next;
        while at != END {
            if self.pool[at as usize].frame == frame {
                let slot = self.take_from_pool(at);
                if before == END {
                    self.heads[head].next = slot.next;
                } else {
                    self.pool[before as usize].next = slot.next;
                }
                self.count_out(frame);
                return Some(slot.mapping);
            }
            (before, at) = (at, self.pool[at as usize].next);
        }
        None
    }

    /// The object at an address.
    #[inline]
    pub fn search(&self, address: u64) -> Found {
        let small = self.find(Frame::small(address));
        if small.mapping.is_some() || self.huge == 0 {
            return small;
        }
        let huge = self.find(Frame::huge(address));
        if huge.mapping.is_some() {
            return huge;
        }
        Found {
            mapping: None,
            hops: small.hops.max(huge.hops),
        }
    }

    #[inline]
    fn find(&self, frame: Frame) -> Found {
        let mut slot = &self.heads[self.head_of(frame)];
        let mut hops = 0;
        loop {
            if slot.frame == frame {
                return Found {
                    mapping: Some(slot.mapping),
                    hops,
                };
            }
            if slot.next == END {
                return Found {
                    mapping: None,
                    hops,
                };
            }
            slot = &self.pool[slot.next as usize];
            hops += 1;
        }
    }

    fn slot_mut(&mut self, head: usize, frame: Frame) -> Option<&mut Slot> {
        if self.heads[head].frame == frame {
            return Some(&mut self.heads[head]);
        }
        let mut at = self.heads[head].next;
        while at != END {
            if self.pool[at as usize].frame == frame {
                return Some(&mut self.pool[at as usize]);
            }
            at = self.pool[at as usize].next;
        }
        None
    }

    /// A free slot of level two, from where the second hash points on.
    fn free_slot(&self, frame: Frame) -> Option<usize> {
        if self.pooled == self.pool.len() {
            return None;
        }
        let mask = self.pool.len() - 1;
        let first = second_hash(frame) as usize & mask;
        (0..self.pool.len())
            .map(|step| (first + step) & mask)
            .find(|&place| self.pool[place].frame == VACANT)
    }

    fn take_from_pool(&mut self, place: u32) -> Slot {
        self.pooled -= 1;
        std::mem::replace(&mut self.pool[place as usize], Slot::EMPTY)
    }

    fn count_in(&mut self, frame: Frame) {
        self.entries += 1;
        self.huge += usize::from(frame.is_huge());
    }

    fn count_out(&mut self, frame: Frame) {
        self.entries -= 1;
        self.huge -= usize::from(frame.is_huge());
    }

    #[inline]
    fn head_of(&self, frame: Frame) -> usize {
        first_hash(frame) as usize & (self.heads.len() - 1)
    }
}

/// Mixes all bits of a page number into the low ones (multiply and fold; hardware would use a checksum).
#[inline]
fn first_hash(frame: Frame) -> u64 {
    let mixed = frame.number().wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32
}

/// Another one, so that pages that meet in level one go apart in level two.
#[inline]
fn second_hash(frame: Frame) -> u64 {
    let mixed = frame.number().wrapping_mul(0xff51_afd7_ed55_8ccd);
    (mixed ^ mixed >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53) >> 32
}

#[cfg(test)]
mod tests {
    use super::super::entry::{HUGE_PAGE, PAGE};
    use super::*;
    use isolane_rdma_policy::harmonic::statistics::ObjectKind;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn mapping(tenant: u16) -> Mapping {
        let kind = ObjectKind::ALL[usize::from(tenant) % ObjectKind::ALL.len()];
        Mapping { tenant, kind }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u64, bool, u16),
        Delete(u64, bool),
        Search(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        // Few pages, so that deletes and searches meet inserts; huge ones overlap nothing that is small.
        let page = 0..200u64;
        let step = prop_oneof![
            (page.clone(), any::<bool>(), any::<u16>()).prop_map(|(a, b, c)| Step::Insert(a, b, c)),
            (page.clone(), any::<bool>()).prop_map(|(a, b)| Step::Delete(a, b)),
            (0..400u64).prop_map(Step::Search),
        ];
        proptest::collection::vec(step, 0..600)
    }

    fn frame_of(page: u64, huge: bool) -> (u64, Frame) {
        if huge {
            let address = (1 << 40) + page * HUGE_PAGE;
            (address, Frame::huge(address))
        } else {
            (page * PAGE, Frame::small(page * PAGE))
        }
    }

    /// The obvious model: a sorted map from first address to length and mapping.
    fn model_search(model: &BTreeMap<u64, (u64, Mapping)>, address: u64) -> Option<Mapping> {
        let (start, (bytes, mapping)) = model.range(..=address).next_back()?;
        (address < start + bytes).then_some(*mapping)
    }

    proptest! {
        /// Level one is as small as two slots, so that nearly everything collides; level two may be full.
        #[test]
        fn the_store_agrees_with_a_sorted_map(
            steps in steps(),
            heads in 1u32..8,
            pool in 0u32..9,
        ) {
            let mut store = MappingStore::new(StoreSize { heads: 1 << heads, pool: 1 << pool });
            let mut model: BTreeMap<u64, (u64, Mapping)> = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Insert(page, huge, tenant) => {
                        let (address, frame) = frame_of(page, huge);
                        let stored = store.insert(frame, mapping(tenant));
                        if stored.is_ok() {
                            let bytes = if huge { HUGE_PAGE } else { PAGE };
                            model.insert(address, (bytes, mapping(tenant)));
                        } else {
                            prop_assert_eq!(store.pooled(), 1 << pool);
                            prop_assert!(!model.contains_key(&address));
                        }
                    }
                    Step::Delete(page, huge) => {
                        let (address, frame) = frame_of(page, huge);
                        let gone = model.remove(&address).map(|(_, mapping)| mapping);
                        prop_assert_eq!(store.delete(frame), gone);
                    }
                    Step::Search(page) => {
                        let address = if page < 200 {
                            page * PAGE + 4095
                        } else {
                            (1 << 40) + (page - 200) * HUGE_PAGE + 12_345
                        };
                        prop_assert_eq!(store.search(address).mapping, model_search(&model, address));
                    }
                }
                prop_assert_eq!(store.len(), model.len());
                prop_assert!(store.pooled() <= store.len());
            }
            for (&address, &(_, mapping)) in &model {
                prop_assert_eq!(store.search(address).mapping, Some(mapping));
            }
            for (&address, &(bytes, _)) in &model {
                let frame = if bytes == PAGE { Frame::small(address) } else { Frame::huge(address) };
                prop_assert!(store.delete(frame).is_some());
            }
            prop_assert!(store.is_empty() && store.pooled() == 0);
        }
    }

    #[test]
    fn a_full_pool_refuses_collisions_and_keeps_what_it_has() {
        let mut store = MappingStore::new(StoreSize { heads: 1, pool: 2 });
        let frames: Vec<Frame> = (0..4).map(|page| Frame::small(page * PAGE)).collect();
        for (number, &frame) in frames[..3].iter().enumerate() {
            store.insert(frame, mapping(number as u16)).unwrap();
        }
        assert_eq!(store.insert(frames[3], mapping(3)), Err(Full));
        assert_eq!(store.search(3 * PAGE).mapping, None);
        assert_eq!(store.delete(frames[0]), Some(mapping(0)));
        store.insert(frames[3], mapping(3)).unwrap();
        assert_eq!(store.search(3 * PAGE).mapping, Some(mapping(3)));
        assert_eq!(store.search(PAGE).mapping, Some(mapping(1)));
    }

    #[test]
    fn a_half_full_store_rarely_collides() {
        let mut store = MappingStore::new(StoreSize::PROTOTYPE);
        for page in 0..1 << 15 {
            store
                .insert(Frame::small((4 << 30) + page * PAGE), mapping(1))
                .unwrap();
        }
        // Of n pages in m slots, n - m (1 - e^(-n/m)) meet another one: 6,981 of 32,768.
        let expected = 32_768.0 - 65_536.0 * (1.0 - (-0.5f64).exp());
        let pooled = store.pooled() as f64;
        assert!((pooled - expected).abs() < 0.1 * expected, "{pooled}");
    }
}
