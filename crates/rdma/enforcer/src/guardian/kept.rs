//! The listeners that the guardian keeps: places, duplicates, and penalties.
//!
//! Problem: any local user may send listeners. Method:
//!
//! * An [`Account`] has at most [`LISTENERS`]`.per_account` places, and the last places go to accounts that hold few. A
//!   privileged sender, such as a container runtime, sends listeners of many tenants and is bound only by the total.
//! * A duplicate listener is rejected. Listeners are sorted in the kernel's order of open files, so a lookup takes a
//!   dozen comparisons.
//! * A listener whose calls another process takes is dropped (`Shelf::shed`), and its account may send no listener for
//!   [`PENALTY`]. Each such listener costs the receiver about a millisecond once.

use crate::guardian::table::SLOTS;
use crate::seccomp::notify::Listener;
use crate::seccomp::same;
use isolane_common_linux::account::{Account, NoPlace, PlaceLimits, Places};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Places for listeners: as many as the table has rows.
pub const LISTENERS: PlaceLimits = PlaceLimits {
    total: SLOTS,
    per_account: 512,
    reserve: SLOTS / 4,
    few: 16,
};
/// How long an account may send no listener after one of its listeners was dropped.
pub const PENALTY: Duration = Duration::from_secs(60);

/// A seccomp listener.
pub trait Trap {
    /// The order among open files; `Equal` for two descriptors of one; `None` where the kernel does not say.
    fn order(&self, other: &Self) -> Option<Ordering>;
    /// Whether this received call waits for its answer.
    fn is_waiting(&self, id: u64) -> bool;
    /// Lets a call go on. A caller that has ended is not an error.
    fn resume(&self, id: u64);
}

impl Trap for Listener {
    fn order(&self, other: &Self) -> Option<Ordering> {
        same::compare(self, other)
    }

    fn is_waiting(&self, id: u64) -> bool {
        Listener::is_waiting(self, id)
    }

    fn resume(&self, id: u64) {
        let _ = Listener::resume(self, id);
    }
}

/// A listener with its sender's message.
#[derive(Debug)]
pub(super) struct Kept<L> {
    pub(super) listener: L,
    /// The message for the enforcer, complete except for the slot.
    pub(super) message: Vec<u8>,
    pub(super) sent: bool,
    /// `None` for a privileged sender.
    pub(super) account: Option<Account>,
}

/// Why a listener is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotKept {
    /// The guardian already keeps this listener.
    Duplicate,
    /// A listener of this account was dropped less than [`PENALTY`] ago.
    Penalty,
    /// No place is left.
    Full(Option<NoPlace>),
}

/// The kept listeners by slot; see the module.
#[derive(Debug)]
pub(super) struct Shelf<L> {
    slots: Vec<Option<Kept<L>>>,
    /// Slots in the kernel's order of open files.
    order: Vec<usize>,
    places: Places,
    penalties: BTreeMap<Account, Instant>,
    /// Where the search for a free slot starts. A slot is not reused at once: the last enforcer may still write to its
    /// row.
    next: usize,
}

impl<L> Default for Shelf<L> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            order: Vec::new(),
            places: Places::default(),
            penalties: BTreeMap::new(),
            next: 0,
        }
    }
}

impl<L: Trap> Shelf<L> {
    /// Keeps a listener and returns its slot.
    pub(super) fn keep(&mut self, kept: Kept<L>, now: Instant) -> Result<usize, NotKept> {
        self.penalties.retain(|_, until| *until > now);
        let place = match self.find(&kept.listener) {
            Ok(_) => return Err(NotKept::Duplicate),
            Err(place) => place,
        };
        let free = (0..SLOTS)
            .map(|step| (self.next + step) % SLOTS)
            .find(|&slot| self.slots.get(slot).is_none_or(Option::is_none));
        let Some(slot) = free else {
            return Err(NotKept::Full(None));
        };
        if let Some(account) = &kept.account {
            if self.penalties.contains_key(account) {
                return Err(NotKept::Penalty);
            }
            let taken = self.places.take(&LISTENERS, account);
            taken.map_err(|error| NotKept::Full(Some(error)))?;
        }
        self.next = slot + 1;
        if self.slots.len() <= slot {
            self.slots.resize_with(slot + 1, || None);
        }
        self.slots[slot] = Some(kept);
        self.order.insert(place, slot);
        Ok(slot)
    }

    /// The listener's index in the order, or where it belongs. Without kcmp every listener belongs at the end.
    fn find(&self, listener: &L) -> Result<usize, usize> {
        let mut known = true;
        let found = self.order.binary_search_by(|&slot| {
            let other = self.slots[slot]
                .as_ref()
                .expect("only kept ones are ordered");
            let order = other.listener.order(listener);
            known &= order.is_some();
            order.unwrap_or(Ordering::Less)
        });
        match known {
            true => found,
            false => Err(self.order.len()),
        }
    }

    /// Removes a listener that has no callers left.
    pub(super) fn remove(&mut self, slot: usize) -> Option<Kept<L>> {
        let kept = self.slots.get_mut(slot)?.take()?;
        self.order.retain(|&other| other != slot);
        if let Some(account) = &kept.account {
            self.places.give_back(account);
        }
        Some(kept)
    }

    /// Removes a listener whose calls another process takes, and starts the penalty.
    pub(super) fn shed(&mut self, slot: usize, now: Instant) {
        if let Some(account) = self.remove(slot).and_then(|kept| kept.account) {
            self.penalties.insert(account, now + PENALTY);
        }
    }

    pub(super) fn get(&self, slot: usize) -> Option<&Kept<L>> {
        self.slots.get(slot)?.as_ref()
    }

    /// All listeners with their slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &Kept<L>)> {
        let each = self.slots.iter().enumerate();
        each.filter_map(|(slot, kept)| Some((slot, kept.as_ref()?)))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut Kept<L>)> {
        let each = self.slots.iter_mut().enumerate();
        each.filter_map(|(slot, kept)| Some((slot, kept.as_mut()?)))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Whether a listener was ever kept.
    pub(super) fn was_used(&self) -> bool {
        self.next > 0
    }
}
