//! Guests: connections that have not sent `Hello`. Their number per account and their time are bounded.
//!
//! Method: an account without free places loses its oldest guest when it connects again. When all places are taken, the
//! account that holds most loses a guest. Silent guests therefore never block another account's process.

use crate::session::GUEST_NS;
use isolane_common_linux::account::{Account, NoPlace, PlaceLimits, Places};
use std::collections::{BTreeMap, VecDeque};

/// Largest number of guests.
pub(super) const GUESTS: PlaceLimits = PlaceLimits {
    total: 1_024,
    per_account: 256,
    reserve: 256,
    few: 8,
};

/// A link's place and how many links used it before.
type Place = (u32, u32);

/// The guests by time of arrival.
#[derive(Debug, Default)]
pub(super) struct Guests {
    accounts: BTreeMap<Place, Account>,
    places: Places,
    waiting: VecDeque<(u64, Place)>,
}

impl Guests {
    /// The guest that must be dropped to admit one of `account`; `None` if there is room.
    pub(super) fn in_the_way(&self, account: &Account) -> Option<Place> {
        let oldest_of = |of: &dyn Fn(&Account) -> bool| {
            let mut waiting = self.waiting.iter().map(|(_, place)| place);
            waiting
                .find(|place| self.accounts.get(place).is_some_and(of))
                .copied()
        };
        match self.places.check(&GUESTS, account) {
            Ok(()) => None,
            Err(NoPlace::Account { .. }) => {
                oldest_of(&|other| (other.user, &other.group) == (account.user, &account.group))
            }
            Err(NoPlace::Reserved { .. }) => {
                let greediest = self.places.greediest(self.accounts.values());
                oldest_of(&|other| Some(other) == greediest)
            }
        }
    }

    /// Adds a guest. Returns false if there is no room.
    pub(super) fn add(&mut self, now_ns: u64, place: Place, account: Account) -> bool {
        let taken = self.places.take(&GUESTS, &account).is_ok();
        if taken {
            self.accounts.insert(place, account);
            self.waiting.push_back((now_ns + GUEST_NS, place));
        }
        taken
    }

    /// Removes a guest that ended or became a session. Returns false if there was none.
    pub(super) fn remove(&mut self, place: Place) -> bool {
        let account = self.accounts.remove(&place);
        if let Some(account) = &account {
            self.places.give_back(account);
            // Search from both ends: guests that greet at once are the newest, late ones the oldest.
            self.waiting.retain(|(_, other)| *other != place);
        }
        account.is_some()
    }

    /// The next guest whose time has passed.
    pub(super) fn next_late(&self, now_ns: u64) -> Option<Place> {
        let (until, place) = *self.waiting.front()?;
        (until <= now_ns).then_some(place)
    }

    /// When the next guest's time passes.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.waiting.front().map(|(until, _)| *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(user: u32, group: &str) -> Account {
        Account {
            user,
            group: group.to_owned(),
            user_namespace: 1,
        }
    }

    #[test]
    fn guests_of_one_container_never_block_another() {
        let mut guests = Guests::default();
        let mut next = 0;
        let mut come = |guests: &mut Guests, account: &Account| {
            let gone = guests.in_the_way(account);
            if let Some(place) = gone {
                assert!(guests.remove(place));
            }
            next += 1;
            assert!(guests.add(0, (next, 0), account.clone()));
            gone
        };
        let (pod_a, pod_b) = (account(0, "/pod-a"), account(0, "/pod-b"));
        for _ in 0..GUESTS.per_account {
            assert_eq!(come(&mut guests, &pod_a), None);
        }
        assert_eq!(come(&mut guests, &pod_a), Some((1, 0)), "its own oldest");
        assert_eq!(come(&mut guests, &pod_b), None);
        for user in 0..4_000 {
            come(&mut guests, &account(user, "/c"));
        }
        assert!(guests.places.used() <= GUESTS.total);
        assert!(
            guests.places.of(&pod_a) < GUESTS.per_account,
            "the greediest"
        );
    }

    #[test]
    fn late_guests_are_named_until_they_are_removed() {
        let mut guests = Guests::default();
        assert!(guests.add(5, (1, 0), account(1, "/a")));
        assert_eq!(guests.next_late(GUEST_NS), None);
        assert_eq!(guests.next_late(GUEST_NS + 5), Some((1, 0)));
        assert!(guests.remove((1, 0)) && !guests.remove((1, 0)));
        assert_eq!((guests.next_ns(), guests.places.used()), (None, 0));
    }
}
