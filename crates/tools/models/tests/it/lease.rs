//! The lease in a session's memory: single words that the daemon writes and the preload library reads, without a lock.
//!
//! A reader that sees half of an update sees the rate of one lease and the end of another. Properties: both words were
//! written by the daemon; a library whose daemon is dead paces nothing once the lease and the grace have ended; a library
//! whose daemon lives and renews is paced. Limits: two renewals, one death; a lease lasts two ticks, the grace one.

use crate::{counterexample, holds};
use stateright::{Model, Property};

const TICKS: u8 = 8;
const TERM: u8 = 2;
const GRACE: u8 = 1;
const RENEWALS: u8 = 2;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Defect {
    None,
    /// The library keeps the end that it read first.
    KeepsTheEnd,
    /// The library does not look at the end.
    IgnoresTheEnd,
}

struct Lease(Defect);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    now: u8,
    /// The two words in memory.
    rate: u8,
    until: u8,
    /// Leases that the daemon decided: rate and end.
    decided: Vec<(u8, u8)>,
    /// The end that the daemon has still to write.
    half: Option<u8>,
    alive: bool,
    /// The words that the library read last, and the rate of a half-finished reading.
    seen: (u8, u8),
    reading: Option<u8>,
    /// The time of the last reading, and whether nothing was written since it began.
    seen_at: u8,
    is_whole: bool,
}

impl State {
    fn is_paced(&self, defect: Defect) -> bool {
        match defect {
            Defect::IgnoresTheEnd => self.seen.0 > 0,
            _ => self.seen.0 > 0 && self.now <= self.seen.1 + GRACE,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Action {
    WriteRate,
    WriteEnd,
    Kill,
    ReadRate,
    ReadEnd,
    Tick,
}

impl Model for Lease {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            now: 0,
            rate: 1,
            until: TERM,
            decided: vec![(1, TERM)],
            half: None,
            alive: true,
            seen: (1, TERM),
            reading: None,
            seen_at: 0,
            is_whole: true,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.alive {
            actions.push(Action::Kill);
            match state.half {
                Some(_) => actions.push(Action::WriteEnd),
                None if state.decided.len() <= RENEWALS.into() => actions.push(Action::WriteRate),
                None => {}
            }
        }
        match state.reading {
            Some(_) => actions.push(Action::ReadEnd),
            None => actions.push(Action::ReadRate),
        }
        if state.now < TICKS {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::WriteRate => {
                let lease = (state.decided.len() as u8 + 1, state.now + TERM);
                state.decided.push(lease);
                (state.rate, state.half) = (lease.0, Some(lease.1));
                state.is_whole = false;
            }
            Action::WriteEnd => {
                state.until = state.half.take()?;
                state.is_whole = false;
            }
            Action::Kill => state.alive = false,
            Action::ReadRate => {
                (state.reading, state.is_whole) = (Some(state.rate), state.half.is_none());
            }
            Action::ReadEnd => {
                let until = match self.0 {
                    Defect::KeepsTheEnd => state.seen.1,
                    _ => state.until,
                };
                state.seen = (state.reading.take()?, until);
                state.seen_at = state.now;
            }
            Action::Tick => state.now += 1,
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("each word is the daemon's", |_, state: &State| {
                let rates = state.decided.iter().any(|(rate, _)| *rate == state.seen.0);
                rates
                    && state
                        .decided
                        .iter()
                        .any(|(_, until)| *until == state.seen.1)
            }),
            Property::always(
                "a dead daemon paces nothing",
                |model: &Self, state: &State| {
                    let last = state.decided.iter().map(|(_, until)| *until).max();
                    let is_over = !state.alive && state.now > last.unwrap_or(0) + GRACE;
                    !is_over || !state.is_paced(model.0)
                },
            ),
            Property::always("a renewed lease paces", |model: &Self, state: &State| {
                let is_fresh = state.seen_at == state.now && state.reading.is_none();
                let is_valid = state.is_whole && state.now <= state.until;
                !(is_fresh && is_valid) || state.is_paced(model.0)
            }),
            Property::sometimes("half of an update is read", |_, state: &State| {
                !state.decided.contains(&state.seen)
            }),
        ]
    }
}

#[test]
fn a_lease_paces_while_it_is_renewed_and_ends_with_its_daemon() {
    assert!(holds(Lease(Defect::None)) > 1_000);
}

#[test]
fn an_end_that_is_ignored_or_kept_is_found() {
    counterexample(Lease(Defect::IgnoresTheEnd), "a dead daemon paces nothing");
    let actions = counterexample(Lease(Defect::KeepsTheEnd), "a renewed lease paces");
    assert!(actions.contains(&"WriteEnd".to_owned()));
}
