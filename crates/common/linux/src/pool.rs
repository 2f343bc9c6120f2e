//! Places for connections: unauthenticated connections (*strangers*) apart from *sessions*.
//!
//! Problem: if all connections count alike, silent connections can block a service. Method: a connection starts as a
//! stranger and becomes a session when it is authenticated; only then it takes a session's place. When the strangers'
//! places are all taken, a newcomer replaces the oldest stranger of the address that has most of them. A client that
//! authenticates at once is therefore never blocked, however many silent connections wait. Units: connections. Limits:
//! the service itself ends a connection that takes too long; a dropped stranger sees its connection closed.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Largest numbers of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolLimits {
    /// Largest number of unauthenticated connections.
    pub strangers: usize,
    /// Largest number of authenticated connections.
    pub sessions: usize,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolFigures {
    /// Unauthenticated connections at this moment.
    pub strangers: usize,
    /// Sessions at this moment.
    pub sessions: usize,
    /// Connections since the start.
    pub entered_total: u64,
    /// Strangers dropped for a newcomer.
    pub shed_total: u64,
    /// Authenticated connections that were rejected because all sessions were taken.
    pub refused_total: u64,
}

/// All sessions are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{sessions} sessions are under way, which is the most; try again later")]
pub struct PoolFull {
    /// Number of sessions.
    pub sessions: usize,
}

/// The place that a newcomer takes among `held`; each entry is its peer and a value that orders places, the least
/// first. It is the first place of the peer that holds most; of several such peers, of the one whose first place comes
/// first.
pub fn place_to_free<P: Ord, T: Ord + Copy>(held: impl Iterator<Item = (P, T)>) -> Option<T> {
    let mut by_peer: BTreeMap<P, (usize, T)> = BTreeMap::new();
    for (peer, place) in held {
        let (count, first) = by_peer.entry(peer).or_insert((0, place));
        *count += 1;
        *first = place.min(*first);
    }
    let most = by_peer.into_values();
    let most = most.max_by_key(|&(count, first)| (count, Reverse(first)));
    most.map(|(_, first)| first)
}

/// Closes a connection from another thread; called at most once.
type HangUp = Box<dyn FnOnce() + Send>;

struct Stranger {
    peer: Option<IpAddr>,
    hang_up: HangUp,
}

#[derive(Default)]
struct State {
    next: u64,
    /// By number, so in the order of arrival.
    strangers: BTreeMap<u64, Stranger>,
    figures: PoolFigures,
}

/// The places; see the module.
#[derive(Clone)]
pub struct Pool {
    limits: PoolLimits,
    state: Arc<Mutex<State>>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool")
            .field("limits", &self.limits)
            .field("figures", &self.figures())
            .finish()
    }
}

impl Pool {
    /// Makes an empty pool. Panics if a limit is zero.
    pub fn new(limits: PoolLimits) -> Self {
        assert!(limits.strangers > 0 && limits.sessions > 0, "{limits:?}");
        Self {
            limits,
            state: Arc::default(),
        }
    }

    /// Adds a connection from `peer` (`None`: a Unix socket). `hang_up` must close it, even while a thread waits for
    /// it.
    pub fn enter(&self, peer: Option<IpAddr>, hang_up: impl FnOnce() + Send + 'static) -> Entry {
        let mut state = self.lock();
        let shed = match state.strangers.len() >= self.limits.strangers {
            true => state.shed(),
            false => None,
        };
        let number = state.next;
        state.next += 1;
        state.figures.entered_total += 1;
        let hang_up = Box::new(hang_up);
        state.strangers.insert(number, Stranger { peer, hang_up });
        drop(state);
        if let Some(stranger) = shed {
            (stranger.hang_up)();
        }
        Entry {
            pool: self.clone(),
            number,
            is_session: false,
        }
    }

    /// Counters.
    pub fn figures(&self) -> PoolFigures {
        let state = self.lock();
        PoolFigures {
            strangers: state.strangers.len(),
            ..state.figures
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Drops the oldest unauthenticated connection of the address that has most of them.
    fn shed(&mut self) -> Option<Stranger> {
        let held = self.strangers.iter();
        let number = place_to_free(held.map(|(&number, stranger)| (stranger.peer, number)))?;
        self.figures.shed_total += 1;
        self.strangers.remove(&number)
    }
}

/// The place of one connection; returned on drop.
#[derive(Debug)]
pub struct Entry {
    pool: Pool,
    number: u64,
    is_session: bool,
}

impl Entry {
    /// Makes the connection a session. Repeating the call has no effect. Fails if all sessions are taken.
    pub fn authenticated(&mut self) -> Result<(), PoolFull> {
        if self.is_session {
            return Ok(());
        }
        let mut state = self.pool.lock();
        let sessions = state.figures.sessions;
        if sessions >= self.pool.limits.sessions {
            state.figures.refused_total += 1;
            return Err(PoolFull { sessions });
        }
        state.strangers.remove(&self.number);
        state.figures.sessions += 1;
        self.is_session = true;
        Ok(())
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        match self.is_session {
            true => state.figures.sessions -= 1,
            // A dropped stranger is no longer in the list.
            false => drop(state.strangers.remove(&self.number)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, channel};

    struct Bench {
        pool: Pool,
        hung_up: Receiver<u32>,
        sender: std::sync::mpsc::Sender<u32>,
    }

    impl Bench {
        fn new(strangers: usize, sessions: usize) -> Self {
            let (sender, hung_up) = channel();
            Self {
                pool: Pool::new(PoolLimits {
                    strangers,
                    sessions,
                }),
                hung_up,
                sender,
            }
        }

        /// A connection that is called `name`, from the address 10.0.0.`peer`.
        fn enter(&self, peer: u8, name: u32) -> Entry {
            let sender = self.sender.clone();
            let peer = IpAddr::from([10, 0, 0, peer]);
            self.pool.enter(Some(peer), move || {
                let _ = sender.send(name);
            })
        }

        fn shed(&self) -> Vec<u32> {
            self.hung_up.try_iter().collect()
        }
    }

    #[test]
    fn silent_strangers_exclude_no_client() {
        let bench = Bench::new(4, 2);
        let silent: Vec<Entry> = (0..100).map(|name| bench.enter(1, name)).collect();
        let mut honest = bench.enter(1, 1_000);
        assert_eq!(honest.authenticated(), Ok(()));
        assert_eq!(bench.shed(), (0..97).collect::<Vec<_>>());
        drop(silent);
        let figures = bench.pool.figures();
        assert_eq!((figures.strangers, figures.sessions), (0, 1));
        assert_eq!((figures.entered_total, figures.shed_total), (101, 97));
    }

    #[test]
    fn the_peer_with_most_places_frees_the_first_of_them() {
        let free = |held: &[(char, u32)]| place_to_free(held.iter().copied());
        assert_eq!(free(&[]), None);
        assert_eq!(free(&[('a', 1), ('b', 3), ('b', 2)]), Some(2));
        assert_eq!(free(&[('b', 2), ('a', 1)]), Some(1));
    }

    #[test]
    fn the_address_with_most_strangers_loses_one() {
        let bench = Bench::new(4, 2);
        let slow = bench.enter(1, 0);
        let flood: Vec<Entry> = (1..50).map(|name| bench.enter(2, name)).collect();
        assert!(!bench.shed().contains(&0));
        drop((slow, flood));
        assert_eq!(bench.pool.figures().strangers, 0);
    }

    #[test]
    fn sessions_have_places_of_their_own_and_give_them_back() {
        let bench = Bench::new(2, 2);
        let mut sessions: Vec<Entry> = (0..3).map(|name| bench.enter(1, name)).collect();
        assert_eq!(bench.shed(), [0], "no client had authenticated");
        assert_eq!(sessions[1].authenticated(), Ok(()));
        assert_eq!(sessions[1].authenticated(), Ok(()));
        assert_eq!(sessions[2].authenticated(), Ok(()));
        let mut third = bench.enter(1, 3);
        assert_eq!(third.authenticated(), Err(PoolFull { sessions: 2 }));
        sessions.remove(1);
        assert_eq!(third.authenticated(), Ok(()));
        assert_eq!(bench.pool.figures().refused_total, 1);
        assert!(bench.shed().is_empty());
    }
}
