//! Connections that have not said `Hello` yet: few of each user, and none for long.

use crate::session::GUEST_NS;
use std::collections::{BTreeMap, VecDeque};

/// Who is there, by time of arrival.
#[derive(Debug, Default)]
pub(super) struct Guests {
    by_user: BTreeMap<u32, usize>,
    waiting: VecDeque<(u64, (u32, u32))>,
}

impl Guests {
    /// Whether one more of `user` may come.
    pub(super) fn has_room(&self, user: u32) -> bool {
        self.by_user
            .get(&user)
            .is_none_or(|&count| count < PER_USER_MAX)
    }

    /// A guest came: its place and the place's epoch.
    pub(super) fn add(&mut self, now_ns: u64, place: (u32, u32), user: u32) {
        *self.by_user.entry(user).or_default() += 1;
        self.waiting.push_back((now_ns + GUEST_NS, place));
    }

    /// A guest of `user` went, or became a session.
    pub(super) fn remove(&mut self, user: u32) {
        if let Some(count) = self.by_user.get_mut(&user) {
            *count -= 1;
            if *count == 0 {
                self.by_user.remove(&user);
            }
        }
    }

    /// The next place whose time is over; it may be a session, or somebody else's, by now.
    pub(super) fn pop_late(&mut self, now_ns: u64) -> Option<(u32, u32)> {
        let (until, place) = *self.waiting.front()?;
        if until > now_ns {
            return None;
        }
        self.waiting.pop_front();
        Some(place)
    }

    /// When the next guest's time is over.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.waiting.front().map(|(until, _)| *until)
    }
}

/// Greetings of one user under way at the same time.
const PER_USER_MAX: usize = 256;
