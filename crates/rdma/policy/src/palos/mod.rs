//! Palos: chunks of data instead of packets, with weights per group and queue pair (Ma et al.).
//!
//! Problem: a NIC that serves queue pairs packet by packet gives large messages more than small ones, and a tenant with
//! many queue pairs more than a tenant with few. Method (palos IV): queue pairs with work wait in a schedule queue. The
//! first one sends a chunk of data, cut from a large message or combined from small ones by rewriting work requests,
//! and returns to the tail. The size of its chunk follows from its weight and its group's ([below](self#shares)).
//! Labelled queue pairs wait in a queue of strict priority, as long as their group does not abuse it
//! ([`LabelOptions`]).
//!
//! # Shares
//! A queue pair earns its chunk at each turn and may begin a piece of work while it has credit; what it
//! sends beyond is taken off its next turns. So a chunk that is no multiple of a message or a packet is exact in the long
//! run, and small messages are never cut. A queue pair that leaves the round loses credit, never debt. It leaves only
//! when its next turn comes and finds no work: its weight counts in the sums until then. Between two turns of
//! one queue pair no group therefore sends more than its part of a round, however its pairs come and go.
//!
//! # Driving it
//! 1. [`Palos::activate`] when a queue pair has work and may be idle (the doorbell).
//! 2. [`Palos::next_priority`], or else [`Palos::next_normal`], names whose turn it is. One turn of each kind may be open: a
//!    priority turn may come between two pieces of a normal one.
//! 3. [`Palos::slice`] until it gives nothing or there is nothing left; or [`Palos::allows`] and [`Palos::charge`]
//!    piece by piece.
//! 4. [`Palos::finish`] says what is left, and puts the queue pair back.
//!
//! Units: bytes; weights are plain integers. Credit is kept in 2^-20 bytes. Cost: a turn is constant time, without
//! allocation; a division when a weight or the set of active queue pairs has changed since the group's last turn.
//! Limits: it divides bytes of payload, nothing else the NIC has. Source: palos IV; where it is silent the choice is
//! named in docs/internals/palos.md.

mod cycles;
mod error;
mod label;
mod links;
mod tables;

pub use cycles::{Clock, Cycles};
pub use error::{Object, PalosError};
pub use label::LabelOptions;
pub use tables::{OBJECTS_MAX, TableWrites, WEIGHT_MAX};

use isolane_common_quantities::OptionError;
use isolane_common_quantities::units::{Bytes, Instant};
use label::Guard;
use links::Links;
use tables::{FRACTION_BITS, Tables};

/// A group: a tenant, or an application of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

/// A queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueuePairId(pub u32);

/// What a queue pair says of its traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Label {
    /// Nothing.
    #[default]
    None,
    /// Few short messages that each matter: requests strict priority.
    Latency,
}

/// Parameters of [`Palos`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PalosOptions {
    /// N of equation 2 for each queue pair in the round: the mean chunk. The paper's is one MTU.
    pub quantum: Bytes,
    /// When a latency label is honoured; never with `None`.
    pub label: Option<LabelOptions>,
}

impl PalosOptions {
    /// Smallest quantum: below it a turn is mostly overhead.
    pub const QUANTUM_MIN: Bytes = Bytes::new(64);
    /// Largest quantum: beyond it a turn lasts longer than a message should wait.
    pub const QUANTUM_MAX: Bytes = Bytes::new(1 << 20);

    /// Whether the options make sense. Fails for a quantum outside its range, and as [`LabelOptions::check`] does.
    pub fn check(&self) -> Result<(), OptionError> {
        if !(Self::QUANTUM_MIN..=Self::QUANTUM_MAX).contains(&self.quantum) {
            let remedy = format!("choose {} to {}", Self::QUANTUM_MIN, Self::QUANTUM_MAX);
            return Err(OptionError::new("quantum", self.quantum, remedy));
        }
        self.label.as_ref().map_or(Ok(()), LabelOptions::check)
    }
}

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Who.
    pub pair: QueuePairId,
    /// From the strict-priority queue: one message.
    pub priority: bool,
    /// Numbers that were taken off the schedule queue before it and could not send.
    pub skipped: u32,
}

/// The message a queue pair is sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its size.
    pub size: Bytes,
    /// What has been sent of it.
    pub sent: Bytes,
}

/// What a queue pair has left after its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Work that can go on; its next (or current) message has this size.
    Ready(Bytes),
    /// Work that waits for something else than a turn; [`Palos::activate`] when it can go on. Credit is kept, up to one
    /// chunk.
    Stalled,
    /// Nothing.
    Idle,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Serving {
    No,
    Normal,
    Priority,
}

#[derive(Clone, Copy, Debug)]
struct Pair {
    /// Bytes it may send now, in 2^-20 bytes; negative for what it sent in advance.
    credit: i64,
    /// Size of the current message; in a priority turn, the rest of it.
    head: u64,
    label: Label,
    serving: Serving,
    /// Is in the schedule queue, with or without work.
    queued: bool,
    /// Has work for a normal turn.
    ready: bool,
    /// Is in its group's strict-priority queue.
    waits_first: bool,
}

/// The scheduler of one NIC port; see the [module](self) for what to call when.
///
/// ```
/// use isolane_rdma_policy::palos::{Label, Message, Palos, PalosOptions, Rest};
/// use isolane_common_quantities::units::{Bytes, Instant};
/// let now = Instant::ZERO;
/// let mut palos = Palos::new(PalosOptions { quantum: Bytes::new(1_500), label: None })?;
/// let tenant = palos.create_group(1)?;
/// let large = palos.create_queue_pair(tenant, 1, Label::None)?;
/// let small = palos.create_queue_pair(tenant, 1, Label::None)?;
/// palos.activate(now, large, Bytes::from_mib(2));
/// palos.activate(now, small, Bytes::new(64));
///
/// // The large message is cut ...
/// let turn = palos.next(now).expect("two queue pairs have work");
/// assert_eq!(turn.pair, large);
/// let message = Message { size: Bytes::from_mib(2), sent: Bytes::ZERO };
/// assert_eq!(palos.slice(now, large, message, Bytes::new(1_500)), Bytes::new(1_500));
/// palos.finish(now, large, Rest::Ready(Bytes::from_mib(2)));
///
/// // ... and small ones are combined: 23 are less than 1,500 bytes, the 24th meets the chunk.
/// let turn = palos.next(now).expect("one queue pair has waited");
/// let message = Message { size: Bytes::new(64), sent: Bytes::ZERO };
/// let sent = (0..).take_while(|_| palos.slice(now, turn.pair, message, Bytes::new(1_500)) > Bytes::ZERO);
/// assert_eq!(sent.count(), 24);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Palos {
    tables: Tables,
    pairs: Vec<Pair>,
    /// The schedule queue.
    normal: Links,
    /// One strict-priority queue per group, and the groups that have something in theirs, in turns.
    first: Links,
    first_groups: Links,
    guard: Option<Guard>,
    normal_open: bool,
    priority_open: bool,
}

impl Palos {
    /// No groups, no queue pairs. Fails as [`PalosOptions::check`] does.
    pub fn new(options: PalosOptions) -> Result<Self, OptionError> {
        options.check()?;
        Ok(Self {
            tables: Tables::new(options.quantum.get()),
            pairs: Vec::new(),
            normal: Links::new(1),
            first: Links::new(0),
            first_groups: Links::new(1),
            guard: options.label.map(Guard::new),
            normal_open: false,
            priority_open: false,
        })
    }

    /// A new group without members. Fails for a weight outside 1 to [`WEIGHT_MAX`], and when there are [`OBJECTS_MAX`]
    /// groups.
    pub fn create_group(&mut self, weight: u32) -> Result<GroupId, PalosError> {
        let group = self.tables.add_group(weight)?;
        self.first.add_queue();
        self.first_groups.add_item();
        if let Some(guard) = &mut self.guard {
            guard.add_group();
        }
        Ok(GroupId(group))
    }

    /// A new queue pair in `group`. Fails for a weight outside 1 to [`WEIGHT_MAX`], for a group that does not exist,
    /// and when there are [`OBJECTS_MAX`] queue pairs.
    pub fn create_queue_pair(
        &mut self,
        group: GroupId,
        weight: u32,
        label: Label,
    ) -> Result<QueuePairId, PalosError> {
        let pair = self.tables.add_pair(group.0, weight)?;
        self.normal.add_item();
        self.first.add_item();
        self.pairs.push(Pair {
            credit: 0,
            head: 0,
            label: Label::None,
            serving: Serving::No,
            queued: false,
            ready: false,
            waits_first: false,
        });
        self.set_label(pair, label);
        Ok(QueuePairId(pair))
    }

    /// Changes weight and label of a queue pair (the paper's change to `ibv_modify_qp`). A label holds from
    /// the next message on. Fails for a weight outside 1 to [`WEIGHT_MAX`], and for a queue pair that does not exist.
    pub fn modify_queue_pair(
        &mut self,
        pair: QueuePairId,
        weight: u32,
        label: Label,
    ) -> Result<(), PalosError> {
        self.tables.set_pair(pair.0, weight)?;
        self.set_label(pair.0, label);
        Ok(())
    }

    /// What one round gives `group` while all queue pairs there are have work, rounded down: equation 2 summed over
    /// its members. Fails for a group that does not exist or has no queue pairs.
    pub fn planned_round(&self, group: GroupId) -> Result<Bytes, PalosError> {
        let share = self.tables.planned_round(group.0)?;
        Ok(Bytes::new(share >> FRACTION_BITS))
    }

    /// Table entries written so far.
    pub fn table_writes(&self) -> TableWrites {
        self.tables.writes()
    }

    /// How often a group has lost its label for a window.
    pub fn demotions(&self) -> u64 {
        self.guard.as_ref().map_or(0, Guard::demotions)
    }

    /// The queue pair has work; its first message has the size `head`. Without effect while it waits or has its turn.
    pub fn activate(&mut self, now: Instant, pair: QueuePairId, head: Bytes) {
        let entry = &self.pairs[pair.0 as usize];
        let waits = entry.ready || entry.waits_first || entry.serving != Serving::No;
        if waits {
            return;
        }
        self.place(now, pair.0, head.get());
    }

    /// What the queue pair's next turn is worth, rounded down; the mean chunk while it is not in the round.
    pub fn chunk(&mut self, pair: QueuePairId) -> Bytes {
        if self.pairs[pair.0 as usize].queued {
            Bytes::new(self.tables.chunk(pair.0) >> FRACTION_BITS)
        } else {
            Bytes::new(self.tables.quantum())
        }
    }

    /// Whether a queue pair waits for a priority turn.
    pub fn has_priority_work(&self) -> bool {
        !self.first_groups.is_empty(0)
    }

    /// The next turn, with priority if there is one.
    #[inline]
    pub fn next(&mut self, now: Instant) -> Option<Turn> {
        self.next_priority(now).or_else(|| self.next_normal())
    }

    /// The next turn of the strict-priority queue: one message. Groups take turns, so a label of one group
    /// waits for one message of each other at most. Panics while the last priority turn is open.
    pub fn next_priority(&mut self, now: Instant) -> Option<Turn> {
        assert!(
            !self.priority_open,
            "a priority turn is open: finish it first"
        );
        let mut skipped = 0;
        while let Some(group) = self.first_groups.pop(0) {
            let pair = self
                .first
                .pop(group)
                .expect("a group in turn has a queue pair waiting");
            if !self.first.is_empty(group) {
                self.first_groups.push(0, group);
            }
            self.pairs[pair as usize].waits_first = false;
            let head = self.pairs[pair as usize].head;
            if !self.honours(now, pair, head) {
                skipped += 1;
                self.join_round(pair);
                continue;
            }
            self.pairs[pair as usize].serving = Serving::Priority;
            self.priority_open = true;
            return Some(Turn {
                pair: QueuePairId(pair),
                priority: true,
                skipped,
            });
        }
        None
    }

    /// The next turn of the schedule queue. Panics while the last normal turn is open.
    #[inline]
    pub fn next_normal(&mut self) -> Option<Turn> {
        assert!(!self.normal_open, "a normal turn is open: finish it first");
        let mut skipped = 0;
        while let Some(pair) = self.normal.pop(0) {
            let entry = &mut self.pairs[pair as usize];
            if !entry.ready {
                entry.queued = false;
                self.tables.leave(pair);
                skipped += 1;
                continue;
            }
            entry.credit = entry
                .credit
                .saturating_add_unsigned(self.tables.chunk(pair));
            if entry.credit <= 0 {
                self.normal.push(0, pair);
                skipped += 1;
                continue;
            }
            entry.serving = Serving::Normal;
            self.normal_open = true;
            return Some(Turn {
                pair: QueuePairId(pair),
                priority: false,
                skipped,
            });
        }
        None
    }

    /// Whether the queue pair, whose turn it is, may begin another piece.
    #[inline]
    pub fn allows(&self, pair: QueuePairId) -> bool {
        let entry = &self.pairs[pair.0 as usize];
        match entry.serving {
            Serving::No => false,
            Serving::Normal => entry.credit > 0,
            Serving::Priority => entry.head != DONE,
        }
    }

    /// The queue pair, whose turn it is, sends `bytes` of `message`.
    #[inline]
    pub fn charge(&mut self, now: Instant, pair: QueuePairId, message: Message, bytes: Bytes) {
        let entry = &mut self.pairs[pair.0 as usize];
        let priority = entry.serving == Serving::Priority;
        if priority {
            if message.sent + bytes >= message.size {
                entry.head = DONE;
            }
        } else {
            entry.credit -= (bytes.get() << FRACTION_BITS) as i64;
        }
        if entry.label == Label::Latency && message.sent == Bytes::ZERO {
            self.count_label(now, pair.0, message.size.get(), priority);
        }
    }

    /// How much of `message` goes out now, as one rewritten work request; zero when the turn is over. A slice is a
    /// multiple of `unit`, the path MTU, so that it makes full packets; only a message's end is shorter. Panics if
    /// `unit` is zero.
    #[inline]
    pub fn slice(
        &mut self,
        now: Instant,
        pair: QueuePairId,
        message: Message,
        unit: Bytes,
    ) -> Bytes {
        if !self.allows(pair) {
            return Bytes::ZERO;
        }
        let left = message.size.get() - message.sent.get();
        let entry = &self.pairs[pair.0 as usize];
        let bytes = if left <= unit.get() || entry.serving == Serving::Priority {
            left
        } else {
            let credit = (entry.credit as u64).div_ceil(1 << FRACTION_BITS);
            let mut slice = unit.get();
            if credit > slice {
                slice = credit.next_multiple_of(slice);
            }
            left.min(slice)
        };
        self.charge(now, pair, message, Bytes::new(bytes));
        Bytes::new(bytes)
    }

    /// Ends the queue pair's turn. Panics if it is not its turn.
    #[inline]
    pub fn finish(&mut self, now: Instant, pair: QueuePairId, rest: Rest) {
        let entry = &mut self.pairs[pair.0 as usize];
        match std::mem::replace(&mut entry.serving, Serving::No) {
            Serving::No => panic!("queue pair {} finishes a turn it does not have", pair.0),
            Serving::Priority => self.priority_open = false,
            Serving::Normal => {
                self.normal_open = false;
                entry.ready = false;
                match rest {
                    Rest::Ready(_) => {}
                    Rest::Stalled => {
                        let chunk = self.tables.chunk(pair.0);
                        entry.credit = entry.credit.min(i64::try_from(chunk).unwrap_or(i64::MAX));
                    }
                    Rest::Idle => entry.credit = entry.credit.min(0),
                }
                // To the tail in any case: without work its weight counts until it is found so.
                self.normal.push(0, pair.0);
            }
        }
        if let Rest::Ready(head) = rest {
            self.place(now, pair.0, head.get());
        }
    }

    /// Puts a queue pair with work where it belongs.
    #[inline]
    fn place(&mut self, now: Instant, pair: u32, head: u64) {
        self.pairs[pair as usize].head = head;
        if self.honours(now, pair, head) {
            self.pairs[pair as usize].waits_first = true;
            let group = self.tables.group_of(pair);
            if self.first.is_empty(group) {
                self.first_groups.push(0, group);
            }
            self.first.push(group, pair);
        } else {
            self.join_round(pair);
        }
    }

    #[inline]
    fn join_round(&mut self, pair: u32) {
        let entry = &mut self.pairs[pair as usize];
        entry.ready = true;
        if !entry.queued {
            entry.queued = true;
            self.normal.push(0, pair);
            self.tables.join(pair);
        }
    }

    #[inline]
    fn honours(&mut self, now: Instant, pair: u32, head: u64) -> bool {
        if self.pairs[pair as usize].label == Label::None {
            return false;
        }
        let group = self.tables.group_of(pair);
        let guard = self.guard.as_mut();
        guard.is_some_and(|guard| guard.honours(now, group, head, &self.tables))
    }

    /// A short message of a labelled queue pair starts; those beyond the limit are not under the label.
    fn count_label(&mut self, now: Instant, pair: u32, size: u64, priority: bool) {
        let group = self.tables.group_of(pair);
        if let Some(guard) = self.guard.as_mut().filter(|guard| guard.fits(size)) {
            guard.count(now, group, (size, priority), &self.tables);
        }
    }

    fn set_label(&mut self, pair: u32, label: Label) {
        let group = self.tables.group_of(pair);
        let old = std::mem::replace(&mut self.pairs[pair as usize].label, label);
        if let Some(guard) = self.guard.as_mut().filter(|_| old != label) {
            guard.label(group, label == Label::Latency, &self.tables);
        }
    }
}

/// The message of a priority turn is out; no message has this size.
const DONE: u64 = u64::MAX;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
