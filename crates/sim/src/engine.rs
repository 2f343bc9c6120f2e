//! The event queue: a ring of short slots for what comes soon, a heap for the rest, over 64-bit picoseconds.
//!
//! Problem: a simulator spends much of its time scheduling events and taking the earliest. A binary heap costs
//! O(log n) unpredictable branches and breaks ties arbitrarily; the order of equal times must be the order of
//! scheduling, or results would depend on the container.
//!
//! Method: time is cut into slots of 512 ps. The next 8,192 of them (4.2 us, more than a hop of a network or a step of
//! a device takes) form a ring of first-in first-out lists in one slab, with a bitmap of those in use: scheduling there
//! appends, taking looks for the next set bit. Most slots hold one event, which is taken as it is; several are moved
//! to an array and sorted when their slot's time comes, stably, so equal times keep their order. Later events wait in
//! a heap, ordered by time and scheduling number, and move to the ring as soon as it covers their time, which is before
//! any other event can be filed there: so they keep their place among equals too. Nothing is allocated once slab,
//! array and heap have grown to the largest number of pending events.
//!
//! Units: picoseconds. Limits: 2^32 - 1 pending events; scheduling into the past is our own mistake and panics.

use isolane_core::units::Instant;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Bits of time within a slot.
const SLOT_BITS: u32 = 9;
/// Slots of the ring.
const SLOTS: usize = 1 << 13;
/// Words of the bitmap.
const WORDS: usize = SLOTS / 64;
/// Up to this many events, insertion sorts faster than anything else.
const FEW: usize = 16;
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
    /// The slot (counted from time zero) whose events are in `current`, or the last that was.
    open: u64,
    /// Events of the open slot in order, those before `cursor` taken.
    current: Vec<Node<E>>,
    cursor: usize,
    nodes: Vec<Node<E>>,
    free: u32,
    /// The slot of the earliest event of `far`.
    far_from: u64,
    far: BinaryHeap<Far<E>>,
    /// Events that ever went to `far`.
    far_count: u64,
    pending: usize,
    /// One bit per word of `words` that has a bit.
    summary: [u64; WORDS / 64],
    words: Box<[u64; WORDS]>,
    slots: Box<[Slot; SLOTS]>,
}

#[derive(Clone, Copy, Debug)]
struct Node<E> {
    time: u64,
    /// In the slab the next of the list, in `current` the place in the list.
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

/// An event beyond the ring; the earliest is the greatest.
#[derive(Clone, Copy, Debug)]
struct Far<E> {
    time: u64,
    number: u64,
    event: E,
}

impl<E> Ord for Far<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.time, other.number).cmp(&(self.time, self.number))
    }
}

impl<E> PartialOrd for Far<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Far<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<E> Eq for Far<E> {}

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
            open: 0,
            current: Vec::new(),
            cursor: 0,
            nodes: Vec::new(),
            free: NIL,
            far_from: u64::MAX,
            far: BinaryHeap::new(),
            far_count: 0,
            pending: 0,
            summary: [0; WORDS / 64],
            words: Box::new([0; WORDS]),
            slots: Box::new([EMPTY; SLOTS]),
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
        self.pending += 1;
        let slot = time >> SLOT_BITS;
        if !self.covers(slot) {
            return self.schedule_far(time, event);
        }
        if slot <= self.open && self.cursor < self.current.len() {
            return self.schedule_early(time, event);
        }
        self.append(time, event);
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
        if self.cursor == self.current.len() {
            let Some(place) = self.first_place() else {
                return self.take_far(end);
            };
            let Slot { head, tail } = self.slots[place];
            let Node { time, event, .. } = self.nodes[head as usize];
            if head == tail {
                if time > end {
                    return None;
                }
                self.clear(place);
                self.nodes[head as usize].next = self.free;
                self.free = head;
                return Some(self.taken(time, event));
            }
            if time >> SLOT_BITS > end >> SLOT_BITS {
                return None;
            }
            self.open_slot(place, head, tail);
        }
        let Node { time, event, .. } = self.current[self.cursor];
        if time > end {
            return None;
        }
        self.cursor += 1;
        Some(self.taken(time, event))
    }

    /// An event that will be taken soon, if one is at hand: for callers that fetch from memory what it will need while
    /// they are busy with another. It may not be the next.
    #[inline]
    pub fn upcoming(&self) -> Option<&E> {
        self.current.get(self.cursor).map(|node| &node.event)
    }

    /// The time of the earliest event, without taking it.
    pub fn peek_time(&self) -> Option<Instant> {
        if let Some(node) = self.current.get(self.cursor) {
            return Some(Instant::from_ps(node.time));
        }
        let Some(place) = self.first_place() else {
            return self.far.peek().map(|far| Instant::from_ps(far.time));
        };
        let mut index = self.slots[place].head;
        let mut earliest = u64::MAX;
        while index != NIL {
            let node = &self.nodes[index as usize];
            earliest = earliest.min(node.time);
            index = node.next;
        }
        Some(Instant::from_ps(earliest))
    }

    /// Whether the ring has a place for `slot`, which is not before now's.
    #[inline]
    fn covers(&self, slot: u64) -> bool {
        slot - (self.now >> SLOT_BITS) < SLOTS as u64
    }

    #[inline]
    fn taken(&mut self, time: u64, event: E) -> (Instant, E) {
        self.now = time;
        self.pending -= 1;
        if self.covers(self.far_from) {
            self.fetch_far();
        }
        (Instant::from_ps(time), event)
    }

    /// At the end of its slot's list.
    #[inline]
    fn append(&mut self, time: u64, event: E) {
        let node = Node {
            time,
            next: NIL,
            event,
        };
        let index = if self.free == NIL {
            self.grow(node)
        } else {
            let index = self.free;
            let free = &mut self.nodes[index as usize];
            self.free = free.next;
            *free = node;
            index
        };
        let place = (time >> SLOT_BITS) as usize % SLOTS;
        let entry = &mut self.slots[place];
        if entry.head == NIL {
            entry.head = index;
            self.words[place / 64] |= 1 << (place % 64);
            self.summary[place / 4096] |= 1 << (place / 64 % 64);
        } else {
            self.nodes[entry.tail as usize].next = index;
        }
        entry.tail = index;
    }

    #[cold]
    fn grow(&mut self, node: Node<E>) -> u32 {
        let index = u32::try_from(self.nodes.len()).expect("fewer than 2^32 pending events");
        assert!(index != NIL, "more than 2^32 - 1 pending events");
        self.nodes.push(node);
        index
    }

    #[cold]
    fn schedule_far(&mut self, time: u64, event: E) {
        self.far_from = self.far_from.min(time >> SLOT_BITS);
        self.far_count += 1;
        self.far.push(Far {
            time,
            number: self.far_count,
            event,
        });
    }

    /// Into the open slot, or before it (when [`EventQueue::pop_until`] has opened one and taken nothing).
    #[cold]
    fn schedule_early(&mut self, time: u64, event: E) {
        if time >> SLOT_BITS < self.open {
            for place in self.cursor..self.current.len() {
                let Node { time, event, .. } = self.current[place];
                self.append(time, event);
            }
            self.cursor = self.current.len();
            return self.append(time, event);
        }
        let left = &self.current[self.cursor..];
        let place = self.cursor + left.partition_point(|node| node.time <= time);
        let next = NIL;
        self.current.insert(place, Node { time, next, event });
    }

    /// Moves a slot's events to `current` in their order.
    fn open_slot(&mut self, place: usize, head: u32, tail: u32) {
        self.clear(place);
        self.current.clear();
        self.cursor = 0;
        let mut index = head;
        while index != NIL {
            let mut node = self.nodes[index as usize];
            index = std::mem::replace(&mut node.next, self.current.len() as u32);
            self.current.push(node);
        }
        // The whole list is free now.
        self.nodes[tail as usize].next = self.free;
        self.free = head;
        self.open = self.current[0].time >> SLOT_BITS;
        if self.current.len() > FEW {
            self.current
                .sort_unstable_by_key(|node| (node.time, node.next));
            return;
        }
        for sorted in 1..self.current.len() {
            let node = self.current[sorted];
            let mut place = sorted;
            while place > 0 && self.current[place - 1].time > node.time {
                self.current[place] = self.current[place - 1];
                place -= 1;
            }
            self.current[place] = node;
        }
    }

    /// The ring is empty.
    #[cold]
    fn take_far(&mut self, end: u64) -> Option<(Instant, E)> {
        if self.far.peek()?.time > end {
            return None;
        }
        let Far { time, event, .. } = self.far.pop()?;
        self.now = time;
        self.fetch_far();
        Some(self.taken(time, event))
    }

    /// Moves to the ring what it covers now.
    #[cold]
    fn fetch_far(&mut self) {
        self.far_from = u64::MAX;
        while let Some(&Far { time, event, .. }) = self.far.peek() {
            if !self.covers(time >> SLOT_BITS) {
                self.far_from = time >> SLOT_BITS;
                return;
            }
            self.far.pop();
            self.append(time, event);
        }
    }

    /// The first place in use, from now's on and around.
    #[inline]
    fn first_place(&self) -> Option<usize> {
        let now = (self.now >> SLOT_BITS) as usize % SLOTS;
        let word = now / 64;
        let here = self.words[word] & (u64::MAX << (now % 64));
        if here != 0 {
            return Some(word * 64 + here.trailing_zeros() as usize);
        }
        let word = self.next_word(word + 1)?;
        Some(word * 64 + self.words[word].trailing_zeros() as usize)
    }

    /// The first word in use, from `from` on and around.
    #[inline]
    fn next_word(&self, from: usize) -> Option<usize> {
        let mut group = from / 64 % self.summary.len();
        let mut bits = self.summary[group] & (u64::MAX << (from % 64));
        for _ in 0..=self.summary.len() {
            if bits != 0 {
                return Some(group * 64 + bits.trailing_zeros() as usize);
            }
            group = (group + 1) % self.summary.len();
            bits = self.summary[group];
        }
        None
    }

    #[inline]
    fn clear(&mut self, place: usize) {
        self.slots[place] = EMPTY;
        let word = &mut self.words[place / 64];
        *word &= !(1 << (place % 64));
        if *word == 0 {
            self.summary[place / 4096] &= !(1 << (place / 64 % 64));
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
                    // Deltas from 0 to 2^49 ps reach every part, small ones make ties.
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
    fn equal_times_keep_scheduling_order_across_moves() {
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
