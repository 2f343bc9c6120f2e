//! Leases of the quota server: after any loss, delay or kill, clients together use no more than the bound.
//!
//! The server is the real policy ([`Pool`]) with the rules of its adapters: a promise is stored before it is sent, and a
//! restart restores what is stored. Clients count their term from their request. Time: a term is two ticks, and clients
//! use 90 % of it. Limits: two clients of one tenant, three requests, one kill, three ticks; only the first client's demand changes.

use crate::{counterexample, holds};
use isolane_common_quantities::units::{BitRate, Duration, Instant};
use isolane_rpc_policy::queueing::Arrivals;
use isolane_rpc_policy::queueing::fluid::Port;
use isolane_rpc_policy::quota::{Bound, CLIENT_PART, Holding, Pool, Terms};
use stateright::{Model, Property};
use std::hash::{Hash, Hasher};

const TERM: Duration = Duration::from_ms(1_000);
const TICK_MS: u64 = 500;
const TICKS: u64 = 3;
const REQUESTS: u8 = 3;
const KILLS: u8 = 1;
const NAMES: [&str; 2] = ["a", "b"];

/// What is wrong with the implementation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Defect {
    None,
    /// A client counts its term from the answer.
    TermFromAnswer,
    /// The server sends a promise before it stores it.
    SentBeforeStored,
    /// A client names a lease that it does not use.
    NamesAnother,
    /// The server stores the last lease of a client instead of the largest one that it may use.
    StoresTheLast,
}

struct Quota(Defect);

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Wire {
    Request {
        client: usize,
        demand: u64,
        holds: Option<u64>,
        asked: u64,
    },
    Answer {
        client: usize,
        serial: u64,
        rate: u64,
        asked: u64,
    },
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Client {
    rate: u64,
    /// Milliseconds; the rate may be used before this.
    until_ms: u64,
    holds: Option<u64>,
    waits: bool,
}

/// A promise on disk: client, number, rate.
type Stored = (usize, u64, u64);

#[derive(Clone, Debug)]
struct State {
    now: u64,
    pool: Option<Pool>,
    stored: Vec<Stored>,
    /// Sent, and not on disk yet; only with a defect.
    unstored: Vec<Stored>,
    clients: [Client; 2],
    wire: Vec<Wire>,
    requests: u8,
    kills: u8,
}

impl State {
    fn parts(&self) -> impl Hash + PartialEq + use<> {
        let server = format!("{:?}", self.pool);
        let disk = (self.stored.clone(), self.unstored.clone());
        let rest = (self.now, self.requests, self.kills);
        (server, disk, self.clients.clone(), self.wire.clone(), rest)
    }
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Hash for State {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Action {
    Ask(usize, u64),
    Serve(usize),
    Deliver(usize),
    Lose(usize),
    Store,
    Kill,
    Start,
    Tick,
}

fn at(tick: u64) -> Instant {
    Instant::ZERO + Duration::from_ms(tick * TICK_MS)
}

fn pool() -> Pool {
    let arrivals = Arrivals::new(0.8, 1.4).expect("a load with bursts");
    let port = Port::new(&[8.0, 4.0, 1.0], arrivals).expect("weights");
    let bound = Bound::new(&port, BitRate::from_bps(8_000), 0);
    let mut pool = Pool::new(bound, TERM);
    let terms = Terms {
        weight: 1,
        guarantee: 0,
    };
    pool.set("t", terms).expect("no guarantee");
    pool
}

impl Model for Quota {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            now: 0,
            pool: Some(pool()),
            stored: Vec::new(),
            unstored: Vec::new(),
            clients: Default::default(),
            wire: Vec::new(),
            requests: 0,
            kills: 0,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (client, it) in state.clients.iter().enumerate() {
            if !it.waits && state.requests < REQUESTS {
                actions.push(Action::Ask(client, 1_000_000));
                if client == 0 {
                    actions.push(Action::Ask(client, 0));
                }
            }
        }
        for (place, wire) in state.wire.iter().enumerate() {
            match wire {
                Wire::Request { .. } if state.pool.is_some() => actions.push(Action::Serve(place)),
                Wire::Request { .. } => {}
                Wire::Answer { .. } => actions.push(Action::Deliver(place)),
            }
            actions.push(Action::Lose(place));
        }
        if !state.unstored.is_empty() {
            actions.push(Action::Store);
        }
        match state.pool {
            Some(_) if state.kills < KILLS => actions.push(Action::Kill),
            Some(_) => {}
            None => actions.push(Action::Start),
        }
        if state.now < TICKS {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Ask(client, demand) => state.ask(client, demand, self.0),
            Action::Serve(place) => state.serve(place, self.0),
            Action::Deliver(place) => state.deliver(place, self.0),
            Action::Lose(place) => {
                let (Wire::Request { client, .. } | Wire::Answer { client, .. }) =
                    state.wire.remove(place);
                state.clients[client].waits = false;
            }
            Action::Store => state.stored.append(&mut state.unstored),
            Action::Kill => {
                state.pool = None;
                state.unstored.clear();
                state.kills += 1;
            }
            Action::Start => state.start(),
            Action::Tick => state.now += 1,
        }
        state.wire.sort();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("the bound holds", |_, state: &State| {
                let now_ms = state.now * TICK_MS;
                let used = state.clients.iter().filter(|it| now_ms < it.until_ms);
                used.map(|it| it.rate).sum::<u64>() <= pool().bound().bytes_per_s()
            }),
            Property::sometimes("both send", |_, state: &State| {
                state.clients.iter().all(|client| client.rate > 0)
            }),
        ]
    }
}

impl State {
    fn ask(&mut self, client: usize, demand: u64, defect: Defect) {
        let it = &mut self.clients[client];
        it.waits = true;
        let holds = match defect {
            // The next lease, which is on its way at best.
            Defect::NamesAnother => it.holds.map(|serial| serial + 1),
            _ => it.holds,
        };
        self.wire.push(Wire::Request {
            client,
            demand,
            holds,
            asked: self.now,
        });
        self.requests += 1;
    }

    fn serve(&mut self, place: usize, defect: Defect) {
        let (
            Some(pool),
            Wire::Request {
                client,
                demand,
                holds,
                asked,
            },
        ) = (&mut self.pool, self.wire.remove(place))
        else {
            unreachable!("a request at a server")
        };
        let lease = pool.renew(at(self.now), "t", NAMES[client], demand, holds);
        let lease = lease.expect("a known tenant");
        let usable = match defect {
            Defect::StoresTheLast => lease.rate,
            _ => pool.promised_to("t", NAMES[client]),
        };
        let stored = (client, lease.serial, usable);
        match defect {
            Defect::SentBeforeStored => self.unstored.push(stored),
            _ => self.stored.push(stored),
        }
        self.wire.push(Wire::Answer {
            client,
            serial: lease.serial,
            rate: lease.rate,
            asked,
        });
    }

    fn deliver(&mut self, place: usize, defect: Defect) {
        let Wire::Answer {
            client,
            serial,
            rate,
            asked,
        } = self.wire.remove(place)
        else {
            unreachable!("an answer at a client")
        };
        let from = match defect {
            Defect::TermFromAnswer => self.now,
            _ => asked,
        };
        let part_ms = TERM.as_ps() / 1_000_000_000 * CLIENT_PART / 100;
        self.clients[client] = Client {
            rate,
            until_ms: from * TICK_MS + part_ms,
            holds: Some(serial),
            waits: false,
        };
    }

    /// The book keeps the last promise of each client.
    fn start(&mut self) {
        let mut pool = pool();
        for (client, name) in NAMES.iter().enumerate() {
            let last = self.stored.iter().rfind(|(of, _, _)| *of == client);
            if let Some(&(_, serial, rate)) = last {
                pool.restore(
                    at(self.now),
                    Holding {
                        tenant: "t",
                        client: name,
                        serial,
                        rate,
                        term: TERM,
                    },
                );
            }
        }
        self.pool = Some(pool);
    }
}

#[test]
fn clients_together_use_no_more_than_the_bound() {
    assert!(holds(Quota(Defect::None)) > 1_000);
}

#[test]
fn a_term_from_the_answer_late_or_small_records_and_a_wrong_name_are_found() {
    for defect in [
        Defect::TermFromAnswer,
        Defect::SentBeforeStored,
        Defect::NamesAnother,
        Defect::StoresTheLast,
    ] {
        let actions = counterexample(Quota(defect), "the bound holds");
        assert!(actions.iter().any(|action| action.starts_with("Deliver")));
    }
}
