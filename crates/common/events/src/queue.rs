//! The event queue: a ring of short slots for what comes soon, a ring of long ones and a heap for the rest, over 64-bit
//! picoseconds.
//!
//! Problem: a simulator spends much of its time scheduling events and taking the earliest. A binary heap costs
//! O(log n) unpredictable branches and breaks ties arbitrarily; the order of equal times must be the order of
//! scheduling, or results would depend on the container.
//!
//! Method: time is cut into slots of 512 ps. The next 3,584 to 4,096 of them (about 2 us, more than a hop of a network or
//! a step of a device takes) form a ring of lists in one slab, the newest event first, with a bitmap of those in use:
//! scheduling there puts an event in front without a branch, taking looks for the next set bit. Most slots hold one
//! event, which is taken as it is; several are listed in an array and sorted when their slot's time comes,
//! stably, so equal times keep their order. While the processor handles them, the nodes of the next list are prefetched.
//! Later events wait in a second ring, of lists of blocks of 512 slots, 4 ms long, with a bitmap as well; still later ones
//! in a heap, ordered by time and scheduling number. A block moves to the first ring, and heaped events to the second, as soon as those cover
//! it, which is before any other event can be filed there: so they keep their place among equals too. Nothing is
//! allocated once slab, array and heap have grown to the largest number of pending events.
//!
//! Speed: a list is the number of its newest node, so the rings stay small in a cache, and scheduling reads no other
//! event. Timers of a transport and paced senders, some milliseconds ahead and thousands at a time, never see the heap.
//! An event is written to memory once and read from there ([`EventQueue::taken`]): where it is copied in pieces that later
//! reads do not match, the processor waits for each of them.
//!
//! Units: picoseconds. Limits: 2^32 - 1 pending events; scheduling into the past is our own mistake and panics.

mod lists;

use crate::prefetch;
use isolane_common_quantities::units::Instant;
use lists::{Lists, NIL, Node};
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Bits of time within a slot.
const SLOT_BITS: u32 = 9;
/// Slots of the ring.
const SLOTS: usize = 1 << 12;
/// Words of the bitmap.
const WORDS: usize = SLOTS / 64;
const _: () = assert!(WORDS == 64, "one word has a bit for each of them");
/// Bits of time within a block of slots.
const BLOCK_BITS: u32 = SLOT_BITS + 9;
/// Blocks that the ring of slots covers, the one of now in part.
const NEAR_BLOCKS: u64 = (SLOTS as u64) >> (BLOCK_BITS - SLOT_BITS);
/// Blocks of the second ring.
const BLOCKS: usize = 1 << 14;
/// Up to this many events, insertion sorts faster than anything else.
const FEW: usize = 16;

/// An event queue for events of type `E`.
///
/// ```
/// use isolane_common_quantities::units::Instant;
/// use isolane_common_events::EventQueue;
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
    /// The last time that the first ring covers, at the end of a block.
    covered: u64,
    /// The slot (counted from time zero) whose events are in `current`, or the last that was.
    open: u64,
    /// The open slot's events in order, those before `cursor` taken.
    current: Vec<Place>,
    cursor: usize,
    /// The node of the event that was taken last; free again.
    last: u32,
    /// A node of the slot in use behind the open one, which is prefetched next; any node or none.
    scout: u32,
    near: Lists<E>,
    pending: usize,
    /// One bit per word of `words` that has a bit.
    summary: u64,
    words: Box<[u64; WORDS]>,
    /// The newest node of each slot's list in `near`.
    slots: Box<[u32; SLOTS]>,
    /// The newest node of each block's list in `later`.
    blocks: Box<[u32; BLOCKS]>,
    /// One bit per block in use.
    blocks_used: Box<[u64; BLOCKS / 64]>,
    /// Apart from `near`, whose few nodes are used over and over and so stay in a cache.
    later: Lists<E>,
    /// Events in `blocks`.
    in_blocks: usize,
    /// A time before which nothing waits in `blocks`.
    blocks_start: u64,
    far: BinaryHeap<Far<E>>,
    /// Events that ever went to `far`.
    far_count: u64,
}

/// Where an event of the open slot is: its time within the slot, and its node.
#[derive(Clone, Copy, Debug)]
struct Place(u64);

impl Place {
    fn new(time: u64, index: u32) -> Self {
        Self((time % (1 << SLOT_BITS)) << 32 | u64::from(index))
    }

    /// Picoseconds within the slot.
    #[inline]
    fn part(self) -> usize {
        (self.0 >> 32) as usize % (1 << SLOT_BITS)
    }

    #[inline]
    fn index(self) -> u32 {
        self.0 as u32
    }
}

/// An event beyond the rings; the earliest is the greatest.
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
            covered: (NEAR_BLOCKS << BLOCK_BITS) - 1,
            open: 0,
            current: Vec::new(),
            cursor: 0,
            last: NIL,
            scout: NIL,
            near: Lists::default(),
            pending: 0,
            summary: 0,
            words: Box::new([0; WORDS]),
            slots: Box::new([NIL; SLOTS]),
            blocks: Box::new([NIL; BLOCKS]),
            blocks_used: Box::new([0; BLOCKS / 64]),
            later: Lists::default(),
            in_blocks: 0,
            blocks_start: u64::MAX,
            far: BinaryHeap::new(),
            far_count: 0,
        }
    }

    /// Time of the last taken event.
    #[inline]
    pub fn now(&self) -> Instant {
        Instant::from_ps(self.now)
    }

    /// Number of waiting events.
    #[inline]
    pub fn len(&self) -> usize {
        self.pending
    }

    /// True when no event waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.pending == 0
    }

    /// Files `event` at `time`, after every event already filed at that time. Panics if `time` is before
    /// [`EventQueue::now`], or when 2^32 - 1 events already wait.
    #[inline(always)]
    pub fn schedule(&mut self, time: Instant, event: E) {
        let time = time.as_ps();
        if time < self.now {
            self.refuse(time);
        }
        self.pending += 1;
        let opened = self.cursor < self.current.len() && time >> SLOT_BITS <= self.open;
        if time > self.covered || opened || self.near.free == NIL {
            let index = self.near.keep(time, event);
            return self.file_apart(index);
        }
        let place = (time >> SLOT_BITS) as usize % SLOTS;
        self.near.push(&mut self.slots[place], time, event);
        self.mark(place);
    }

    /// An event of the past is our own mistake.
    #[cold]
    #[inline(never)]
    fn refuse(&self, time: u64) -> ! {
        let now = self.now;
        panic!("event scheduled at {time} ps, before now = {now} ps");
    }

    /// Files a node that does not go to a slot of the ring, or that is new in the slab.
    #[cold]
    #[inline(never)]
    fn file_apart(&mut self, index: u32) {
        let Node { time, event, .. } = self.near.nodes[index as usize];
        if time > self.covered {
            self.near.release(index, index);
            self.schedule_far(time, event);
        } else if self.cursor < self.current.len() && time >> SLOT_BITS <= self.open {
            self.file_early(time, index);
        } else {
            self.file(time, index);
        }
    }

    /// Takes the earliest event; of equal times the one scheduled first.
    #[inline]
    pub fn pop(&mut self) -> Option<(Instant, E)> {
        self.pop_until(Instant::MAX)
    }

    /// Takes the earliest event as [`EventQueue::pop`] does, unless it is later than `end`.
    #[inline]
    pub fn pop_until(&mut self, end: Instant) -> Option<(Instant, E)> {
        let now = self.take_until(end)?;
        Some((now, self.taken()))
    }

    /// As [`EventQueue::pop_until`], for loops: the time of the event, which [`EventQueue::taken`] then has.
    #[inline(always)]
    pub fn take_until(&mut self, end: Instant) -> Option<Instant> {
        let (time, index) = self.remove_first(end.as_ps())?;
        self.now = time;
        self.pending -= 1;
        if time > self.covered - ((NEAR_BLOCKS - 1) << BLOCK_BITS) {
            self.cover(time);
        }
        // The next event that is scheduled takes the node, so this comes after all that moves events.
        self.near.release(index, index);
        self.last = index;
        Some(Instant::from_ps(time))
    }

    /// The event that was taken last. Only until the next one is scheduled. Panics if none was taken yet.
    #[inline(always)]
    pub fn taken(&self) -> E {
        self.near.nodes[self.last as usize].event
    }

    /// Takes the earliest event out of its list, unless it is later than `end`: its time and its node.
    #[inline(always)]
    fn remove_first(&mut self, end: u64) -> Option<(u64, u32)> {
        if self.cursor == self.current.len() {
            let place = match self.first_place() {
                Some(place) => place,
                None => self.cover_far(end)?,
            };
            let newest = self.slots[place];
            let Node { time, next, .. } = self.near.nodes[newest as usize];
            if next == NIL {
                if time > end {
                    return None;
                }
                self.clear(place);
                return Some((time, newest));
            }
            if time >> SLOT_BITS > end >> SLOT_BITS {
                return None;
            }
            self.open_slot(place, newest);
        }
        let index = self.current[self.cursor].index();
        let time = self.near.nodes[index as usize].time;
        if time > end {
            return None;
        }
        self.cursor += 1;
        self.advance_scout();
        Some((time, index))
    }

    /// Prefetches one more node of the list that is opened next, since a walk through a list waits for each node.
    #[inline(always)]
    fn advance_scout(&mut self) {
        if let Some(node) = self.near.nodes.get(self.scout as usize) {
            prefetch::fetch(node);
            self.scout = node.next;
        }
    }

    /// A waiting event of the open slot with `ahead` others before it, not necessarily taken in this order: callers can
    /// prefetch its memory.
    #[inline]
    pub fn upcoming(&self, ahead: usize) -> Option<&E> {
        let place = self.current.get(self.cursor + ahead)?;
        Some(&self.near.nodes[place.index() as usize].event)
    }

    /// Like [`EventQueue::upcoming`] with none before, but also searches the next slot in use, which takes longer.
    #[inline]
    pub fn upcoming_slot(&self) -> Option<&E> {
        self.upcoming(0).or_else(|| {
            let newest = self.slots[self.first_place()?];
            Some(&self.near.nodes[newest as usize].event)
        })
    }

    /// The time of the earliest event, without taking it.
    pub fn peek_time(&self) -> Option<Instant> {
        if let Some(place) = self.current.get(self.cursor) {
            let node = &self.near.nodes[place.index() as usize];
            return Some(Instant::from_ps(node.time));
        }
        let earliest = match self.first_place() {
            Some(place) => self.near.earliest(self.slots[place]),
            None => self.earliest_far()?,
        };
        Some(Instant::from_ps(earliest))
    }

    /// In front of its slot's list.
    #[inline(always)]
    fn file(&mut self, time: u64, index: u32) {
        let place = (time >> SLOT_BITS) as usize % SLOTS;
        self.near.put_in_front(&mut self.slots[place], index);
        self.mark(place);
    }

    /// The slot is in use.
    #[inline(always)]
    fn mark(&mut self, place: usize) {
        self.words[place / 64] |= 1 << (place % 64);
        self.summary |= 1 << (place / 64);
    }

    /// In front of its slot's list, from another part of the queue.
    fn refile(&mut self, time: u64, event: E) {
        let index = self.near.keep(time, event);
        self.file(time, index);
    }

    fn schedule_far(&mut self, time: u64, event: E) {
        if time <= self.reached() {
            let block = (time >> BLOCK_BITS) as usize % BLOCKS;
            let index = self.later.keep(time, event);
            self.later.put_in_front(&mut self.blocks[block], index);
            self.blocks_used[block / 64] |= 1 << (block % 64);
            self.in_blocks += 1;
            self.blocks_start = self.blocks_start.min(time);
            return;
        }
        self.far_count += 1;
        self.far.push(Far {
            time,
            number: self.far_count,
            event,
        });
    }

    /// Into the open slot, or before it (when [`EventQueue::pop_until`] has opened one and taken nothing).
    fn file_early(&mut self, time: u64, index: u32) {
        if time >> SLOT_BITS == self.open {
            let own = Place::new(time, index);
            let left = &self.current[self.cursor..];
            let earlier = left.partition_point(|other| other.part() <= own.part());
            self.current.insert(self.cursor + earlier, own);
            return;
        }
        for place in self.cursor..self.current.len() {
            let index = self.current[place].index();
            self.file(self.near.nodes[index as usize].time, index);
        }
        self.cursor = self.current.len();
        self.file(time, index);
    }

    /// Lists a slot's events in `current` in their order.
    #[inline(never)]
    fn open_slot(&mut self, place: usize, newest: u32) {
        self.clear(place);
        self.current.clear();
        self.cursor = 0;
        self.open = self.near.nodes[newest as usize].time >> SLOT_BITS;
        let behind = self.first_place_from(self.open + 1);
        self.scout = behind.map_or(NIL, |place| self.slots[place]);
        let nodes = &self.near.nodes;
        let mut index = newest;
        while index != NIL {
            let node = &nodes[index as usize];
            self.current.push(Place::new(node.time, index));
            index = node.next;
        }
        self.current.reverse();
        match self.current.len() > FEW {
            true => self.current.sort_by_key(|place| place.part()),
            false => self.sort_few(),
        }
    }

    /// Insertion, which keeps the order of equal times.
    fn sort_few(&mut self) {
        for sorted in 1..self.current.len() {
            let own = self.current[sorted];
            let mut place = sorted;
            while place > 0 && self.current[place - 1].part() > own.part() {
                self.current[place] = self.current[place - 1];
                place -= 1;
            }
            self.current[place] = own;
        }
    }

    /// The first ring is empty: lets it cover the earliest event of the others, unless that is later than `end`. Its
    /// place; nothing is before it, so nothing can be filed there before it is taken.
    #[cold]
    fn cover_far(&mut self, end: u64) -> Option<usize> {
        let earliest = self.earliest_far()?;
        if earliest > end {
            return None;
        }
        self.cover(earliest);
        self.first_place_from(earliest >> SLOT_BITS)
    }

    /// Moves the rings on to the block of `time`, before which nothing waits.
    #[inline]
    fn cover(&mut self, time: u64) {
        let first = self.first_block();
        let end = (time >> BLOCK_BITS) + NEAR_BLOCKS;
        // The last blocks end with time itself.
        self.covered = match end < 1 << (u64::BITS - BLOCK_BITS) {
            true => (end << BLOCK_BITS) - 1,
            false => u64::MAX,
        };
        let reached = self.reached();
        if self.blocks_start <= self.covered
            || self.far.peek().is_some_and(|far| far.time <= reached)
        {
            self.move_covered(first, end);
        }
    }

    /// Moves what the rings cover now and did not before: the blocks from `first` to before `end`, and what the heap has.
    #[cold]
    fn move_covered(&mut self, first: u64, end: u64) {
        while let Some(block) = self.next_block(first, end) {
            let block = block as usize % BLOCKS;
            self.blocks_used[block / 64] &= !(1 << (block % 64));
            let newest = std::mem::replace(&mut self.blocks[block], NIL);
            self.move_block(newest);
        }
        let block = self.next_block(end, u64::MAX);
        self.blocks_start = block.map_or(u64::MAX, |block| block << BLOCK_BITS);
        while let Some(&Far { time, event, .. }) = self.far.peek() {
            if time > self.reached() {
                return;
            }
            self.far.pop();
            match time <= self.covered {
                true => self.refile(time, event),
                false => self.schedule_far(time, event),
            }
        }
    }

    /// The first block beyond the first ring.
    fn first_block(&self) -> u64 {
        (self.covered >> BLOCK_BITS) + 1
    }

    /// The last time that the second ring covers.
    fn reached(&self) -> u64 {
        self.covered.saturating_add((BLOCKS as u64) << BLOCK_BITS)
    }

    /// The first block in use from block `from` (counted from time zero, as is `end`) to before `end`.
    fn next_block(&self, from: u64, end: u64) -> Option<u64> {
        if self.in_blocks == 0 {
            return None;
        }
        let end = end.min(from + BLOCKS as u64);
        let mut block = from;
        while block < end {
            let place = block as usize % BLOCKS;
            let here = self.blocks_used[place / 64] >> (place % 64);
            if here != 0 {
                block += u64::from(here.trailing_zeros());
                return (block < end).then_some(block);
            }
            block += 64 - place as u64 % 64;
        }
        None
    }

    /// Moves a list of the second ring to the first, the oldest event first.
    fn move_block(&mut self, newest: u32) {
        let oldest = self.later.reverse(newest);
        let mut index = oldest;
        while index != NIL {
            let Node { time, next, event } = self.later.nodes[index as usize];
            self.in_blocks -= 1;
            self.refile(time, event);
            index = next;
        }
        self.later.release(oldest, newest);
    }

    /// The earliest time beyond the first ring.
    fn earliest_far(&self) -> Option<u64> {
        if self.in_blocks == 0 {
            return self.far.peek().map(|far| far.time);
        }
        let block = self.next_block(self.first_block(), u64::MAX);
        let block = block.expect("some block holds what `in_blocks` counts");
        Some(self.later.earliest(self.blocks[block as usize % BLOCKS]))
    }

    /// The first place in use, from now's on and around.
    #[inline]
    fn first_place(&self) -> Option<usize> {
        self.first_place_from(self.now >> SLOT_BITS)
    }

    #[inline]
    fn first_place_from(&self, slot: u64) -> Option<usize> {
        let place = slot as usize % SLOTS;
        let word = place / 64;
        let here = self.words[word] & (u64::MAX << (place % 64));
        if here != 0 {
            return Some(word * 64 + here.trailing_zeros() as usize);
        }
        let word = self.next_word(word + 1)?;
        Some(word * 64 + self.words[word].trailing_zeros() as usize)
    }

    /// The first word in use, from `from` on and around.
    #[inline]
    fn next_word(&self, from: usize) -> Option<usize> {
        if self.summary == 0 {
            return None;
        }
        let turned = self.summary.rotate_right((from % WORDS) as u32);
        Some((from + turned.trailing_zeros() as usize) % WORDS)
    }

    #[inline]
    fn clear(&mut self, place: usize) {
        self.slots[place] = NIL;
        let word = &mut self.words[place / 64];
        *word &= !(1 << (place % 64));
        if *word == 0 {
            self.summary &= !(1 << (place / 64));
        }
    }
}

#[cfg(test)]
mod tests;
