//! The event queue: a hierarchical timing wheel over 64-bit picoseconds.
//!
//! Problem: a simulator spends much of its time scheduling events and taking the earliest. A binary heap costs
//! O(log n) unpredictable branches and breaks ties arbitrarily; the order of equal times must be the order of
//! scheduling, or results would depend on the container.
//!
//! Method: times never run backwards, so an event can be filed by the most significant byte in which its time
//! differs from the time of the last event taken (`now`): eight levels of 256 slots, each slot a first-in
//! first-out list in one slab. Taking an event finds the lowest non-empty level and slot by bitmap; a slot above
//! level 0 with several events is refiled one or more levels down, in order. Two events of one time always
//! share a slot, so refiling keeps them in scheduling order without a sequence number. An event is refiled at
//! most seven times and in practice about twice; scheduling and taking allocate nothing once the slab has grown
//! to the largest number of pending events.
//!
//! Units: picoseconds. Limits: 2^32 - 1 pending events; scheduling into the past is our own mistake and panics.

use isolane_core::units::Instant;

/// Bits of time one level resolves.
const LEVEL_BITS: u32 = 8;
/// Slots per level.
const SLOTS: usize = 1 << LEVEL_BITS;
/// Levels that cover 64 bits.
const LEVELS: usize = (u64::BITS / LEVEL_BITS) as usize;
/// The end of a list.
const NIL: u32 = u32::MAX;

/// An event queue for events of type `E`.
///
/// ```
/// use isolane_core::units::Instant;
/// use isolane_sim::engine::EventQueue;
/// let mut queue = EventQueue::new();
/// queue.schedule(Instant::from_ps(20), "late");
/// queue.schedule(Instant::from_ps(10), "first of two");
/// queue.schedule(Instant::from_ps(10), "second of two");
/// assert_eq!(queue.pop(), Some((Instant::from_ps(10), "first of two")));
/// assert_eq!(queue.pop(), Some((Instant::from_ps(10), "second of two")));
/// assert_eq!(queue.now(), Instant::from_ps(10));
/// ```
#[derive(Clone, Debug)]
pub struct EventQueue<E> {
    now: u64,
    pending: usize,
    nodes: Vec<Node<E>>,
    free: u32,
    /// One bit per level that has an event.
    levels: u32,
    occupied: [[u64; SLOTS / 64]; LEVELS],
    slots: Box<[[Slot; SLOTS]; LEVELS]>,
}

#[derive(Clone, Copy, Debug)]
struct Node<E> {
    time: u64,
    next: u32,
    event: E,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    head: u32,
    tail: u32,
}

const EMPTY: Slot = Slot {
    head: NIL,
    tail: NIL,
};

impl<E: Copy> Default for EventQueue<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E: Copy> EventQueue<E> {
    /// An empty queue at time zero.
    pub fn new() -> Self {
        Self {
            now: 0,
            pending: 0,
            nodes: Vec::new(),
            free: NIL,
            levels: 0,
            occupied: [[0; SLOTS / 64]; LEVELS],
            slots: Box::new([[EMPTY; SLOTS]; LEVELS]),
        }
    }

    /// The time of the last event taken.
    #[inline]
    pub fn now(&self) -> Instant {
        Instant::from_ps(self.now)
    }

    /// How many events wait.
    #[inline]
    pub fn len(&self) -> usize {
        self.pending
    }

    /// True when no event waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.pending == 0
    }

    /// Files `event` at `time`, after every event already filed at that time.
    ///
    /// # Panics
    /// When `time` is before [`EventQueue::now`], or when 2^32 - 1 events already wait.
    #[inline]
    pub fn schedule(&mut self, time: Instant, event: E) {
        let time = time.as_ps();
        assert!(
            time >= self.now,
            "event scheduled at {time} ps, before now = {} ps",
            self.now
        );
        let index = if self.free == NIL {
            let index = u32::try_from(self.nodes.len()).expect("fewer than 2^32 pending events");
            assert!(index != NIL, "more than 2^32 - 1 pending events");
            self.nodes.push(Node {
                time,
                next: NIL,
                event,
            });
            index
        } else {
            let index = self.free;
            let node = &mut self.nodes[index as usize];
            self.free = node.next;
            *node = Node {
                time,
                next: NIL,
                event,
            };
            index
        };
        self.pending += 1;
        self.link(index, time);
    }

    /// Takes the earliest event; of equal times the one scheduled first.
    #[inline]
    pub fn pop(&mut self) -> Option<(Instant, E)> {
        self.pop_until(Instant::MAX)
    }

    /// Takes the earliest event as [`EventQueue::pop`] does, unless it is later than `end`.
    #[inline]
    pub fn pop_until(&mut self, end: Instant) -> Option<(Instant, E)> {
        let end = end.as_ps();
        loop {
            if self.levels == 0 {
                return None;
            }
            let level = self.levels.trailing_zeros() as usize;
            let slot = self.first_slot(level);
            let Slot { head, tail } = self.slots[level][slot];
            let node = self.nodes[head as usize];
            if level == 0 || head == tail {
                // All events of a level-0 slot have one time; a lone event needs no refiling.
                if node.time > end {
                    return None;
                }
                if head == tail {
                    self.clear_slot(level, slot);
                } else {
                    self.slots[level][slot].head = node.next;
                }
                self.now = node.time;
                self.nodes[head as usize].next = self.free;
                self.free = head;
                self.pending -= 1;
                return Some((Instant::from_ps(node.time), node.event));
            }
            let shift = level as u32 * LEVEL_BITS;
            let start = node.time >> shift << shift;
            if start > end {
                return None;
            }
            self.refile(level, slot, head, start);
        }
    }

    /// The time of the earliest event, without taking it.
    pub fn peek_time(&self) -> Option<Instant> {
        if self.levels == 0 {
            return None;
        }
        let level = self.levels.trailing_zeros() as usize;
        let mut index = self.slots[level][self.first_slot(level)].head;
        let mut earliest = u64::MAX;
        while index != NIL {
            let node = &self.nodes[index as usize];
            earliest = earliest.min(node.time);
            index = node.next;
        }
        Some(Instant::from_ps(earliest))
    }

    /// Moves the clock to the start of the slot's span and files its events again, in order, below it.
    fn refile(&mut self, level: usize, slot: usize, head: u32, start: u64) {
        self.clear_slot(level, slot);
        self.now = self.now.max(start);
        let mut index = head;
        while index != NIL {
            let node = &mut self.nodes[index as usize];
            let (next, time) = (node.next, node.time);
            node.next = NIL;
            self.link(index, time);
            index = next;
        }
    }

    #[inline]
    fn link(&mut self, index: u32, time: u64) {
        let difference = time ^ self.now;
        let level = ((u64::BITS - 1).saturating_sub((difference | 1).leading_zeros()) / LEVEL_BITS)
            as usize;
        let slot = (time >> (level as u32 * LEVEL_BITS)) as usize & (SLOTS - 1);
        let entry = &mut self.slots[level][slot];
        if entry.head == NIL {
            entry.head = index;
            self.occupied[level][slot / 64] |= 1 << (slot % 64);
            self.levels |= 1 << level;
        } else {
            self.nodes[entry.tail as usize].next = index;
        }
        entry.tail = index;
    }

    #[inline]
    fn first_slot(&self, level: usize) -> usize {
        let words = &self.occupied[level];
        for (position, &word) in words.iter().enumerate() {
            if word != 0 {
                return position * 64 + word.trailing_zeros() as usize;
            }
        }
        unreachable!("a level marked occupied has an occupied slot")
    }

    #[inline]
    fn clear_slot(&mut self, level: usize, slot: usize) {
        self.slots[level][slot] = EMPTY;
        let words = &mut self.occupied[level];
        words[slot / 64] &= !(1 << (slot % 64));
        if words.iter().all(|&word| word == 0) {
            self.levels &= !(1 << level);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// The slow, obvious queue: ordered by time, then by scheduling number.
    #[derive(Default)]
    struct Model {
        events: BTreeMap<(u64, u64), u64>,
        scheduled: u64,
    }

    impl Model {
        fn schedule(&mut self, time: u64, event: u64) {
            self.events.insert((time, self.scheduled), event);
            self.scheduled += 1;
        }

        fn pop(&mut self) -> Option<(u64, u64)> {
            self.events
                .pop_first()
                .map(|((time, _), event)| (time, event))
        }
    }

    proptest! {
        #[test]
        fn agrees_with_an_ordered_map(steps in prop::collection::vec((0u8..3, 0u32..40, 0u64..1000), 1..400)) {
            let (mut queue, mut model) = (EventQueue::new(), Model::default());
            for (number, (kind, shift, delta)) in steps.into_iter().enumerate() {
                if kind > 0 {
                    if kind == 1 {
                        // An end before the earliest event takes nothing.
                        let before = model.events.keys().next().map_or(1 << shift, |key| key.0);
                        if let Some(end) = before.checked_sub(1 + delta) {
                            prop_assert!(queue.pop_until(Instant::from_ps(end)).is_none());
                        }
                    }
                    // Deltas from 0 to 2^49 ps exercise every level, small ones make ties.
                    let time = queue.now().as_ps() + ((delta << shift) >> 10);
                    queue.schedule(Instant::from_ps(time), number as u64);
                    model.schedule(time, number as u64);
                } else {
                    prop_assert_eq!(queue.peek_time().map(Instant::as_ps), model.events.keys().next().map(|key| key.0));
                    prop_assert_eq!(queue.pop().map(|(time, event)| (time.as_ps(), event)), model.pop());
                }
                prop_assert_eq!(queue.len(), model.events.len());
            }
            while let Some(expected) = model.pop() {
                prop_assert_eq!(queue.pop().map(|(time, event)| (time.as_ps(), event)), Some(expected));
            }
            prop_assert!(queue.is_empty() && queue.pop().is_none());
        }
    }

    #[test]
    fn equal_times_keep_scheduling_order_across_refiling() {
        let mut queue = EventQueue::new();
        let target = Instant::from_ps(0x0102_0304);
        queue.schedule(target, 1);
        queue.schedule(Instant::from_ps(0x0102_0000), 0);
        queue.schedule(target, 2);
        assert_eq!(queue.pop().map(|(_, event)| event), Some(0));
        queue.schedule(target, 3);
        let rest: Vec<i32> = std::iter::from_fn(|| queue.pop().map(|(_, event)| event)).collect();
        assert_eq!(rest, [1, 2, 3]);
    }

    #[test]
    #[should_panic(expected = "before now")]
    fn the_past_is_refused() {
        let mut queue = EventQueue::new();
        queue.schedule(Instant::from_ps(10), ());
        queue.pop();
        queue.schedule(Instant::from_ps(9), ());
    }
}
