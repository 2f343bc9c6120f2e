//! The application's send queue as it would be without the shim: its outstanding work requests.
//!
//! Problem: below the shim a message is several work requests, and the queue is longer than requested. The application
//! must see one completion per message, and "queue full" at its own depth. Method: each message has a sequence number
//! and an entry here. The provider sees an identifier with queue pair and sequence number, and its completion is
//! translated back. Sends of a queue pair complete in order, so a completion also ends everything before it.
//!
//! Three marks move along the numbers: `tail` (the application has taken the completion of everything before), `done`
//! (the provider has completed everything before), `head` (the next message). `tail <= done <= head`, modulo 2^32. They
//! differ while a completion is in our store until the application polls. Only forgotten messages
//! ([`Ring::forget_oldest`]) may be behind `tail` and not behind `done`; if they fail, the application gets the error.
//! Limits: 65,536 queue pairs and 2^31 outstanding messages per queue pair.

use isolane_rdma_verbs_sys::{IBV_WC_LOC_QP_OP_ERR, IBV_WC_WR_FLUSH_ERR, ibv_wc_status};

/// A message of the application.
#[derive(Clone, Copy, Debug, Default)]
pub struct Entry {
    /// The application's identifier.
    pub wr_id: u64,
    /// Payload, bytes.
    pub total: u64,
    /// Payload of its last work request; equal to `total` if it was not split.
    pub last_chunk: u64,
    /// Payload of this and all earlier messages, bytes.
    pub bytes_after: u64,
    /// Whether it requests a completion.
    pub signalled: bool,
    /// Whether the provider rejected it after the application's post had returned.
    pub refused: bool,
}

impl Entry {
    /// The status that the application should see where the provider reports `status`.
    pub(crate) fn status(&self, status: ibv_wc_status) -> ibv_wc_status {
        match self.refused && status != IBV_WC_WR_FLUSH_ERR {
            true => IBV_WC_LOC_QP_OP_ERR,
            false => status,
        }
    }
}

/// The outstanding messages.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    entries: Vec<Entry>,
    depth: u32,
    tail: u32,
    done: u32,
    head: u32,
    /// Completions that wait for the application's poll.
    stored: u32,
    /// One past the newest message that requests a completion.
    signalled: Option<u32>,
    bytes: u64,
    /// Payload of the messages before `tail` with known completions.
    finished_bytes: u64,
}

/// A completion that the application should see.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Entry of its message.
    pub entry: Entry,
    /// Argument for [`Ring::deliver`].
    pub position: u32,
}

/// Messages that the application has finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Finished {
    /// Number of messages.
    pub messages: u64,
    /// Their payload, bytes.
    pub bytes: u64,
}

impl Ring {
    /// Makes room for `depth` messages. Sequence numbers continue, so completions of an earlier queue pair in this
    /// place are not mistaken for new ones.
    pub(crate) fn reset(&mut self, depth: u32) {
        self.depth = depth;
        // Twice the depth: as many forgotten messages may still fail.
        self.entries = vec![Entry::default(); 2 * depth.next_power_of_two() as usize];
        self.clear();
    }

    /// Forgets all messages, as when the queue pair is reset.
    pub(crate) fn clear(&mut self) {
        self.tail = self.head;
        self.done = self.head;
        self.stored = 0;
        self.signalled = None;
        self.finished_bytes = self.bytes;
    }

    /// Frees the memory.
    pub(crate) fn release(&mut self) {
        self.clear();
        self.entries = Vec::new();
        self.depth = 0;
    }

    /// Number of the application's outstanding messages.
    #[inline]
    pub(crate) fn outstanding(&self) -> u32 {
        self.head.wrapping_sub(self.tail)
    }

    /// Whether the application's queue is full.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.outstanding() >= self.depth
    }

    /// Makes room for `count` messages, if `may_forget` by forgetting unsignalled ones. Returns false, without a
    /// change, if there is no room.
    pub(crate) fn make_room(&mut self, count: usize, may_forget: bool) -> bool {
        let free = self.depth.saturating_sub(self.outstanding()) as usize;
        let Some(missing) = count.checked_sub(free).filter(|missing| *missing > 0) else {
            return true;
        };
        count <= self.depth as usize && may_forget && (0..missing).all(|_| self.forget_oldest())
    }

    /// Adds a message and returns its sequence number. The queue must not be full.
    #[inline]
    pub(crate) fn push(&mut self, wr_id: u64, total: u64, signalled: bool) -> u32 {
        let sequence = self.head;
        self.bytes = self.bytes.wrapping_add(total);
        let bytes_after = self.bytes;
        *self.entry(sequence) = Entry {
            wr_id,
            total,
            last_chunk: total,
            bytes_after,
            signalled,
            refused: false,
        };
        self.head = sequence.wrapping_add(1);
        if signalled {
            self.signalled = Some(self.head);
        }
        sequence
    }

    /// Removes the newest `count` messages, which the provider rejected.
    pub(crate) fn take_back(&mut self, count: u32) {
        for _ in 0..count {
            self.head = self.head.wrapping_sub(1);
            self.bytes = self.bytes.wrapping_sub(self.entry(self.head).total);
        }
        if self.signalled.is_some_and(|at| !self.is_ahead_of_tail(at)) {
            let mask = self.entries.len() - 1;
            let newest = (0..self.outstanding())
                .map(|back| self.head.wrapping_sub(back))
                .find(|at| self.entries[at.wrapping_sub(1) as usize & mask].signalled);
            self.signalled = newest;
        }
    }

    /// The entry of an outstanding message.
    #[inline]
    pub(crate) fn entry(&mut self, sequence: u32) -> &mut Entry {
        let mask = self.entries.len() - 1;
        &mut self.entries[sequence as usize & mask]
    }

    /// Whether the application has not yet seen the end of the message.
    #[inline]
    pub(crate) fn is_open(&self, sequence: u32) -> bool {
        sequence.wrapping_sub(self.done) < self.head.wrapping_sub(self.done)
    }

    /// Whether all earlier messages have completed.
    pub(crate) fn is_next(&self, sequence: u32) -> bool {
        let mask = self.entries.len() - 1;
        let count = sequence.wrapping_sub(self.done);
        (0..count).all(|step| {
            let at = self.done.wrapping_add(step) as usize & mask;
            !self.entries[at].signalled
        })
    }

    /// Handles a completion of the provider: of a chunk that only the shim signalled (`private`), or of a message's
    /// last work request. Returns what the application should see; `None` for completions of ours and for those after
    /// an error of the same message.
    #[inline]
    pub(crate) fn complete(&mut self, sequence: u32, private: bool, success: bool) -> Option<Seen> {
        if !self.is_open(sequence) {
            return None;
        }
        if private && success {
            self.done = sequence;
            if self.stored == 0 && self.is_ahead_of_tail(sequence) {
                self.tail = sequence;
            }
            return None;
        }
        self.done = sequence.wrapping_add(1);
        self.stored += 1;
        Some(Seen {
            entry: *self.entry(sequence),
            position: self.done,
        })
    }

    /// Records that the application took a completion; returns what it finished.
    #[inline]
    pub(crate) fn deliver(&mut self, seen: &Seen) -> Finished {
        let before = self.tail;
        self.stored = self.stored.saturating_sub(1);
        if !self.is_ahead_of_tail(seen.position) {
            return Finished::default();
        }
        self.tail = seen.position;
        let bytes = seen.entry.bytes_after.wrapping_sub(self.finished_bytes);
        self.finished_bytes = seen.entry.bytes_after;
        Finished {
            messages: u64::from(self.tail.wrapping_sub(before)),
            bytes,
        }
    }

    /// Makes room by forgetting the oldest message, which then takes no place. Without signalled messages only the
    /// provider knows when its queue is full. Returns false if a completion will come.
    pub(crate) fn forget_oldest(&mut self) -> bool {
        if self.stored > 0 || self.signalled.is_some_and(|at| self.is_ahead_of_tail(at)) {
            return false;
        }
        self.tail = self.tail.wrapping_add(1);
        let kept = self.entries.len() as u32 / 2;
        let behind = self.tail.wrapping_sub(self.done);
        if behind > kept && behind < u32::MAX / 2 {
            self.done = self.tail.wrapping_sub(kept);
        }
        true
    }

    /// Whether `position` is in `tail + 1 ..= head`.
    #[inline]
    fn is_ahead_of_tail(&self, position: u32) -> bool {
        position.wrapping_sub(self.tail).wrapping_sub(1) < self.outstanding()
    }
}

/// Identifies a completion of ours: a tag of the process, the queue pair's place, the message's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    /// Whether the completion is of a chunk that the application did not signal.
    pub private: bool,
    /// Place of the queue pair.
    pub place: u16,
    /// Sequence number of the message.
    pub sequence: u32,
}

const TAG_SHIFT: u32 = 49;
const PRIVATE: u64 = 1 << 48;

/// Makes a tag from any number: the upper 15 bits, different from the two values that pointers have.
pub(crate) fn tag(number: u64) -> u64 {
    let number = number % 0x7ffd + 1;
    number << TAG_SHIFT
}

impl Name {
    /// Encodes the name as a work-request identifier.
    #[inline]
    pub fn encode(self, tag: u64) -> u64 {
        let private = if self.private { PRIVATE } else { 0 };
        tag | private | (u64::from(self.place) << 32) | u64::from(self.sequence)
    }

    /// Decodes a work-request identifier that has the tag.
    #[inline]
    pub fn decode(wr_id: u64, tag: u64) -> Option<Self> {
        (wr_id >> TAG_SHIFT == tag >> TAG_SHIFT).then_some(Self {
            private: wr_id & PRIVATE != 0,
            place: (wr_id >> 32) as u16,
            sequence: wr_id as u32,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn ring(depth: u32, first: u32) -> Ring {
        let mut ring = Ring {
            head: first,
            ..Ring::default()
        };
        ring.reset(depth);
        ring
    }

    #[test]
    fn an_error_in_a_chunk_ends_its_message_once() {
        let mut ring = ring(4, u32::MAX);
        let first = ring.push(70, 10, false);
        let second = ring.push(71, 10, true);
        assert!(ring.complete(first, true, true).is_none());
        let seen = ring.complete(first, true, false).expect("the failed chunk");
        assert_eq!(seen.entry.wr_id, 70);
        assert!(ring.complete(first, true, false).is_none());
        assert!(ring.complete(first, false, false).is_none());
        assert_eq!(ring.deliver(&seen).messages, 1);
        let seen = ring.complete(second, false, false).expect("flushed");
        assert_eq!(seen.entry.wr_id, 71);
        ring.deliver(&seen);
        assert_eq!(ring.outstanding(), 0);
    }

    #[test]
    fn a_queue_without_signals_never_fills_by_our_count() {
        let mut ring = ring(3, 5);
        for step in 0..20 {
            if ring.is_full() {
                assert!(ring.forget_oldest());
            }
            ring.push(step, 1, false);
        }
        ring.forget_oldest();
        ring.push(99, 1, true);
        assert!(ring.is_full() && !ring.forget_oldest());
    }

    /// A queue whose only signalled message was rejected gets no completion, so its places must be reused.
    #[test]
    fn a_rejected_signal_does_not_hold_the_places_of_others() {
        for earlier in [false, true] {
            let mut ring = ring(3, u32::MAX);
            ring.push(1, 1, earlier);
            ring.push(2, 1, false);
            ring.push(3, 1, true);
            ring.take_back(1);
            ring.push(4, 1, false);
            assert!(ring.is_full());
            assert_eq!(ring.forget_oldest(), !earlier, "earlier: {earlier}");
        }
    }

    /// An application without signalled messages still gets errors, also of messages whose places were reused.
    #[test]
    fn a_forgotten_message_that_fails_is_reported_once() {
        for first in [0, u32::MAX - 2] {
            let mut ring = ring(2, first);
            let numbers: Vec<u32> = (0..5)
                .map(|step| {
                    assert!(ring.make_room(1, true));
                    ring.push(step, 1, false)
                })
                .collect();
            assert!(!ring.make_room(1, false), "nothing may be forgotten");
            assert!(ring.complete(numbers[0], false, false).is_none(), "too old");
            for (step, number) in numbers.iter().enumerate().skip(1) {
                assert!(ring.complete(*number, true, true).is_none());
                let seen = ring.complete(*number, false, false).expect("it is open");
                assert_eq!(seen.entry.wr_id, step as u64);
                assert!(ring.complete(*number, false, false).is_none(), "once");
                let finished = ring.deliver(&seen).messages;
                assert_eq!(
                    finished,
                    u64::from(step > 2),
                    "forgotten ones were finished"
                );
            }
            assert_eq!(ring.outstanding(), 0);
        }
    }

    #[test]
    fn names_come_back() {
        for number in [0, 1, 0x7ffc, 0x7ffd, u64::MAX] {
            let name = Name {
                private: number % 2 == 0,
                place: 65_535,
                sequence: 0x8000_0001,
            };
            let tag = tag(number);
            assert_eq!(Name::decode(name.encode(tag), tag), Some(name));
            assert_eq!(Name::decode(0x7fff_dead_beef, tag), None);
            assert_eq!(Name::decode(u64::MAX, tag), None);
        }
    }

    proptest! {
        /// Compares with a plain queue of (identifier, signalled): posts, rejections, completions in order, stored
        /// completions.
        #[test]
        fn it_acts_like_a_queue(
            depth in 1u32..9,
            first in prop_oneof![Just(0u32), Just(u32::MAX - 3), any::<u32>()],
            steps in proptest::collection::vec((0u8..4, any::<bool>()), 0..200),
        ) {
            let mut ring = ring(depth, first);
            let mut model: VecDeque<(u64, u32, bool)> = VecDeque::new();
            let mut stored: VecDeque<(Seen, usize)> = VecDeque::new();
            let (mut next, mut completed) = (0u64, 0usize);
            for (what, flag) in steps {
                prop_assert_eq!(ring.outstanding() as usize, model.len());
                match what {
                    0 | 1 if model.len() < depth as usize => {
                        prop_assert!(!ring.is_full());
                        model.push_back((next, ring.push(next, 1, flag), flag));
                        next += 1;
                    }
                    2 => {
                        // The provider completes up to the next signalled message.
                        let at = (completed..model.len()).find(|at| model[*at].2);
                        if let Some(at) = at {
                            let (wr_id, sequence, _) = model[at];
                            let seen = ring.complete(sequence, false, true).expect("open");
                            prop_assert_eq!(seen.entry.wr_id, wr_id);
                            stored.push_back((seen, at + 1));
                            completed = at + 1;
                        }
                    }
                    3 => {
                        if let Some((seen, count)) = stored.pop_front() {
                            let finished = ring.deliver(&seen);
                            prop_assert_eq!(finished.messages as usize, count);
                            model.drain(..count);
                            completed -= count;
                            stored.iter_mut().for_each(|(_, at)| *at -= count);
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}
