//! The owners of slots: names, free slots, and counters of departed destinations. One thread at a time.
//!
//! Units: slots. Method: a cursor walks over the slots. At each arrival it checks a few and removes idle destinations,
//! so memory follows the destinations in use without a thread. When no slot is free it checks more of them, and if all
//! are busy the newcomer uses [`OVERFLOW`]. Limits: a shown name has at most [`NAME_MAX`] bytes; longer ones are cut
//! and end in their hash.

use super::cell::{Cell, Counts};
use super::shown::Shown;
use crate::hash::Hash;

/// The slot shared by destinations without a place.
pub(super) const OVERFLOW: u32 = 0;

/// Longest kept name, bytes: 100,000 of them must fit beside the cells.
pub const NAME_MAX: usize = 128;

/// Slots that the cursor checks when a slot is free, and when none is.
const LOOK: usize = 2;
const LOOK_HARD: usize = 64;

/// A destination with a call within this time is not removed for a newcomer, nanoseconds.
const RECENT_NS: u64 = 1_000_000_000;

/// The owner of a slot.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) hash: Hash,
    pub(super) name: Box<[u8]>,
}

/// Owners of all slots.
#[derive(Debug)]
pub(super) struct Roster {
    seats: Vec<Option<Seat>>,
    free: Vec<u32>,
    hand: usize,
    slots: usize,
    /// Counters of departed destinations, by class.
    pub(super) retired: Vec<Counts>,
    pub(super) evicted: u64,
    pub(super) shown: Shown,
}

impl Roster {
    pub(super) fn new(slots: usize, classes: usize, shown: usize) -> Self {
        Self {
            seats: Vec::new(),
            free: Vec::new(),
            hand: 0,
            slots,
            retired: vec![Counts::default(); classes],
            evicted: 0,
            shown: Shown::new(shown),
        }
    }

    /// Number of slots in use, without the shared one.
    pub(super) fn len(&self) -> usize {
        self.seats.len() - self.free.len()
    }

    /// All owners, by slot.
    pub(super) fn seats(&self) -> impl Iterator<Item = (u32, &Seat)> {
        let seats = self.seats.iter().enumerate();
        seats.filter_map(|(index, seat)| Some((slot(index), seat.as_ref()?)))
    }

    /// The name of the owner of `slot`.
    pub(super) fn name(&self, slot: u32) -> Option<&[u8]> {
        let seat = self.seats.get(index(slot))?.as_ref()?;
        Some(&seat.name)
    }

    /// Takes a free slot, if there is one.
    pub(super) fn take(&mut self) -> Option<u32> {
        self.free.pop().or_else(|| {
            let room = self.seats.len() < self.slots;
            room.then(|| {
                self.seats.push(None);
                slot(self.seats.len() - 1)
            })
        })
    }

    pub(super) fn sit(&mut self, slot: u32, hash: Hash, name: &[u8]) {
        let name = kept(name, hash);
        self.seats[index(slot)] = Some(Seat { hash, name });
        self.shown.came(slot, self.retired.len());
    }

    /// Removes the owner of `slot`; `cells` are the slot's.
    pub(super) fn leave(&mut self, slot: u32, cells: &[Cell]) -> Option<Hash> {
        let seat = self.seats[index(slot)].take()?;
        for (class, (sum, cell)) in self.retired.iter_mut().zip(cells).enumerate() {
            let counts = cell.counts();
            sum.add(&counts);
            self.shown.departed(slot, class, &counts);
        }
        self.shown.forget(slot);
        self.free.push(slot);
        self.evicted += 1;
        Some(seat.hash)
    }

    /// A slot whose destination can be removed: an idle one; else, when no slot is free, the one without a call for
    /// longest among those without learned state.
    pub(super) fn leaver<'a>(
        &mut self,
        now_ns: u64,
        idle_after_ns: u64,
        cells: impl Fn(u32) -> &'a [Cell],
    ) -> Option<u32> {
        let full = self.free.is_empty() && self.seats.len() >= self.slots;
        let look = if full { LOOK_HARD } else { LOOK };
        let mut oldest: Option<(u64, u32)> = None;
        for _ in 0..look.min(self.seats.len()) {
            self.hand = (self.hand + 1) % self.seats.len();
            if self.seats[self.hand].is_none() {
                continue;
            }
            let slot = slot(self.hand);
            let cells = cells(slot);
            let last = cells.iter().map(Cell::last_call_ns).max().unwrap_or(0);
            let quiet_ns = now_ns.saturating_sub(last);
            if quiet_ns > idle_after_ns {
                return Some(slot);
            }
            let one = isolane_rpc_policy::aequitas::Probability::ONE;
            let trusted = cells.iter().all(|cell| cell.probability() == one);
            let older = oldest.is_none_or(|(time, _)| last < time);
            if full && trusted && quiet_ns > RECENT_NS && older {
                oldest = Some((last, slot));
            }
        }
        oldest.map(|(_, slot)| slot)
    }
}

/// Slot 0 is shared; owned slots follow it.
fn slot(index: usize) -> u32 {
    index as u32 + 1
}

fn index(slot: u32) -> usize {
    slot as usize - 1
}

/// The name in its kept form.
fn kept(name: &[u8], hash: Hash) -> Box<[u8]> {
    if name.len() <= NAME_MAX {
        return name.into();
    }
    let end = format!("#{:016x}", hash.high);
    let mut kept = name[..NAME_MAX - end.len()].to_vec();
    kept.extend_from_slice(end.as_bytes());
    kept.into()
}
