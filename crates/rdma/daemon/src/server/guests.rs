//! Guests: connections that have not sent `Hello`. Their number per account and their time are bounded.
//!
//! Method: an account without free places loses its oldest guest when it connects again. When all places are taken, the
//! account that holds most loses a guest ([`Waiting`]). Silent guests therefore never block another account's process.
//! The counters are those of every listening service ([`Tally`]).

use crate::session::GUEST_NS;
use isolane_common_linux::account::{Account, PlaceLimits, Waiting};
use isolane_common_linux::tally::Tally;

/// Largest number of guests.
pub(super) const GUESTS: PlaceLimits = PlaceLimits {
    total: 1_024,
    per_account: 256,
    reserve: 256,
    few: 8,
};

/// When a guest came, its link's place, and how many links used this place before.
pub(super) type Guest = (u64, (u32, u32));

/// The guests by time of arrival.
#[derive(Debug)]
pub(super) struct Guests {
    waiting: Waiting<Guest>,
    pub(super) tally: Tally,
}

impl Guests {
    /// No guests, at most so many.
    pub(super) fn new(limits: PlaceLimits) -> Self {
        Self {
            waiting: Waiting::new(limits),
            tally: Tally::of("sessions"),
        }
    }

    /// The guest that must be dropped to admit one of `account`; `None` if there is room.
    pub(super) fn in_the_way(&self, account: &Account) -> Option<Guest> {
        self.waiting.in_the_way(account)
    }

    /// Adds a guest. Returns false if there is no room.
    pub(super) fn add(&mut self, guest: Guest, account: Account) -> bool {
        let is_added = self.waiting.add(guest, account);
        self.tally
            .count(|figures| figures.entering = self.waiting.len());
        is_added
    }

    /// Removes a guest that ended or became a session. Returns false if there was none.
    pub(super) fn remove(&mut self, guest: Guest) -> bool {
        let is_removed = self.waiting.remove(guest).is_some();
        self.tally
            .count(|figures| figures.entering = self.waiting.len());
        is_removed
    }

    /// The next guest whose time has passed.
    pub(super) fn next_late(&self, now_ns: u64) -> Option<Guest> {
        let guest = self.waiting.first()?;
        (self.next_ns()? <= now_ns).then_some(guest)
    }

    /// When the next guest's time passes.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.waiting
            .first()
            .map(|(since_ns, _)| since_ns + GUEST_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_guests_are_named_until_they_are_removed() {
        let mut guests = Guests::new(GUESTS);
        let guest = (5, (1, 0));
        assert!(guests.add(guest, Account::of_user(1)));
        assert_eq!(guests.next_late(GUEST_NS), None);
        assert_eq!(guests.next_late(GUEST_NS + 5), Some(guest));
        assert!(guests.remove(guest) && !guests.remove(guest));
        assert_eq!((guests.next_ns(), guests.waiting.len()), (None, 0));
    }
}
