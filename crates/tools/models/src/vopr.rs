//! One run of the quota server, its clients, network and disk by a seed.
//!
//! Method: events in the order of their times; ties by number. Each client does rounds as the product's client does: it
//! reports a demand and the lease that it holds, gives up after two seconds, and counts its term from the request with
//! its own clock, which is up to 9 % fast or slow. Faults: requests and answers are late or lost, the server is killed at
//! rest or in the middle of a write, the machine crashes, the disk is full, a client ends and another one begins, the
//! term changes at a restart, an operator changes terms. After each event the rates in use must fit the bound of every
//! pool. At the end faults stop, and each tenant must get its guarantee. Units: microseconds.

mod clients;
mod disk;

use crate::Broken;
use crate::agenda::Agenda;
use clients::Client;
use disk::Disk;
use isolane_common_quantities::rng::Stream;
use isolane_common_quantities::units::{Duration, Instant};
use isolane_rpc::quota::ledger::Ledger;
use isolane_rpc::quota::protocol::{Answer, PoolState, Request, Terms};
use isolane_rpc::quota::settings::{Settings, parse};
use std::collections::BTreeMap;

/// What is wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// Nothing.
    None,
    /// The store says that a promise is written before it is.
    StoredLater,
    /// A restarted server believes that a journal is complete which lost its end.
    BelievesJournal,
    /// A client counts its term from the answer.
    TermFromAnswer,
    /// A client names a lease that it never received.
    NamesAnother,
}

crate::counts! {
    /// Events.
    events,
    /// Kills of the server.
    kills,
    /// Crashes of its machine.
    crashes,
    /// Answers with leases that clients received.
    leases,
}

/// Time with faults, and without at the end.
const FAULTY_US: u64 = 60_000_000;
const CALM_US: u64 = 25_000_000;
/// Longest pause of a server after its end.
const DOWN_MAX_US: u64 = 4_000_000;
/// Mean time between ends of the server, and between changes of terms.
const KILL_EVERY_US: u64 = 4_000_000;
const CHANGE_EVERY_US: u64 = 5_000_000;
/// Terms of the server, ms: a restart can change them.
const TERMS_MS: [u64; 3] = [1_000, 2_000, 4_000];
/// Tenants, their clients and guarantees, bits per second, of a bound of 35.2 Gbit/s.
const TENANTS: [(&str, usize, u64); 3] = [
    ("search", 2, 10_000_000_000),
    ("ads", 2, 5_000_000_000),
    ("batch", 1, 0),
];
const GROUP: &str = "rack1";
const CLASSES: [&str; 2] = ["critical", "normal"];

enum Event {
    Round(usize),
    Serve(usize, Sent, Request),
    Deliver(usize, Sent, Answer),
    GiveUp(usize, u64),
    Kill,
    Start,
    Change,
}

/// A request on its connection, and when the client sent it by its own clock.
#[derive(Clone, Copy)]
struct Sent {
    connection: u64,
    asked_us: u64,
}

struct World {
    stream: Stream,
    defect: Defect,
    agenda: Agenda<Event>,
    term_ms: u64,
    disk: Disk,
    ledger: Option<Ledger>,
    /// When the machine started: its clock counts from there.
    booted_us: u64,
    clients: Vec<Client>,
    /// Guarantees that were acknowledged and that no crash can have taken, by class and tenant.
    changed: BTreeMap<(String, String), u64>,
    report: Report,
}

/// Runs one seed. The error is the first broken invariant.
pub fn run(seed: u64, defect: Defect) -> Result<Report, Broken> {
    let mut world = World::new(seed, defect);
    let checked = world.play();
    let place = world.agenda.place(world.report.events);
    checked.map_err(|what| Broken::of("quota server", seed, place, what))?;
    Ok(world.report)
}

fn settings(term_ms: u64) -> Settings {
    let classes: String = [(CLASSES[0], 8), (CLASSES[1], 4), ("scavenger", 1)]
        .map(|(name, weight)| format!("[[class]]\nname = \"{name}\"\nweight = {weight}\n"))
        .concat();
    let tenants = TENANTS.iter().flat_map(|(name, _, guarantee)| {
        CLASSES.map(|class| {
            let guarantee = match (class == CLASSES[0], guarantee) {
                (true, 1..) => format!("guarantee = \"{guarantee}b/s\"\n"),
                _ => String::new(),
            };
            format!(
                "[[tenant]]\nname = \"{name}\"\ngroup = \"{GROUP}\"\nclass = \"{class}\"\n{guarantee}"
            )
        })
    });
    let tenants: String = tenants.collect();
    let text = format!(
        "term = \"{term_ms}ms\"\nstore = \"/unused\"\n{classes}[[group]]\nname = \"{GROUP}\"\nline_rate = \"100Gb/s\"\n\
         load = 0.8\nburst = 1.4\n{tenants}"
    );
    parse("vopr", &text).expect("valid settings")
}

impl World {
    fn new(seed: u64, defect: Defect) -> Self {
        let disk = Disk::new(
            Stream::named(seed, "disk"),
            defect == Defect::StoredLater,
            defect == Defect::BelievesJournal,
        );
        let tenants = TENANTS
            .iter()
            .flat_map(|(name, count, _)| vec![*name; *count]);
        let mut stream = Stream::named(seed, "world");
        let clients = tenants.enumerate();
        let clients = clients
            .map(|(number, tenant)| Client::new(number, tenant, &mut stream))
            .collect();
        Self {
            stream,
            defect,
            agenda: Agenda::new(),
            term_ms: TERMS_MS[1],
            disk,
            ledger: None,
            booted_us: 0,
            clients,
            changed: BTreeMap::new(),
            report: Report::default(),
        }
    }

    fn play(&mut self) -> Result<(), String> {
        self.start()?;
        for client in 0..self.clients.len() {
            self.after(100_000, Event::Round(client));
        }
        self.after(KILL_EVERY_US, Event::Kill);
        self.after(CHANGE_EVERY_US, Event::Change);
        while let Some(event) = self.agenda.take_until(FAULTY_US + CALM_US) {
            self.disk.set_calm(self.is_calm());
            self.report.events += 1;
            self.happen(event)?;
            self.check_bounds()?;
        }
        self.check_guarantees()
    }

    fn is_calm(&self) -> bool {
        self.agenda.now_us > FAULTY_US
    }

    /// Schedules an event within `most` microseconds.
    fn after(&mut self, most_us: u64, event: Event) {
        let delay = self.stream.below(most_us) + 1;
        self.agenda.at(self.agenda.now_us + delay, event);
    }

    /// Delay of a message: mostly short, sometimes long.
    fn delay_us(&mut self) -> u64 {
        match !self.is_calm() && self.stream.chance(1, 12) {
            true => self.stream.below(4_000_000),
            false => self.stream.below(20_000),
        }
    }

    fn is_lost(&mut self) -> bool {
        !self.is_calm() && self.stream.chance(1, 15)
    }

    fn server_now(&self) -> Instant {
        let ns = (self.agenda.now_us - self.booted_us) * 1_000;
        Instant::ZERO + Duration::from_ns(ns)
    }

    fn happen(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Round(client) => self.round(client),
            Event::Serve(client, sent, request) => self.serve(client, sent, request),
            Event::Deliver(client, sent, answer) => self.deliver(client, sent, &answer),
            Event::GiveUp(client, connection) => {
                if self.clients[client].gives_up(connection) {
                    self.after(400_000, Event::Round(client));
                }
            }
            Event::Kill if self.is_calm() => {}
            Event::Kill => {
                if self.ledger.is_some() {
                    self.kill();
                }
                self.after(2 * KILL_EVERY_US, Event::Kill);
            }
            Event::Start => self.start()?,
            Event::Change if self.is_calm() => {}
            Event::Change => {
                self.change();
                self.after(2 * CHANGE_EVERY_US, Event::Change);
            }
        }
        Ok(())
    }

    fn start(&mut self) -> Result<(), String> {
        self.disk.set_term(self.term_ms);
        let settings = settings(self.term_ms);
        let opened = Ledger::open(&settings, Box::new(self.disk.clone()), self.server_now());
        let ledger = opened.map_err(|error| format!("the server does not start: {error}"))?;
        self.ledger = Some(ledger);
        Ok(())
    }

    /// The server ends, sometimes with its machine, and another one starts.
    fn kill(&mut self) {
        self.ledger = None;
        self.report.kills += 1;
        if self.stream.chance(1, 3) {
            self.disk.crash();
            self.changed.clear();
            self.booted_us = self.agenda.now_us;
            self.report.crashes += 1;
        }
        if self.stream.chance(1, 3) {
            self.term_ms = TERMS_MS[self.stream.below(3) as usize];
        }
        self.after(DOWN_MAX_US, Event::Start);
    }

    fn round(&mut self, client: usize) {
        let replaced = !self.is_calm() && self.stream.chance(1, 40);
        let is_calm = self.is_calm();
        let it = &mut self.clients[client];
        if replaced {
            let release = it.replace();
            let sent = it.sent(self.agenda.now_us);
            let delay = self.delay_us();
            self.agenda.at(
                self.agenda.now_us + delay,
                Event::Serve(client, sent, release),
            );
        }
        let it = &mut self.clients[client];
        let request = it.request(is_calm, self.defect, &mut self.stream);
        let sent = it.sent(self.agenda.now_us);
        let delay = self.delay_us();
        if !self.is_lost() {
            self.agenda.at(
                self.agenda.now_us + delay,
                Event::Serve(client, sent, request),
            );
        }
        let patience = self.agenda.now_us + clients::PATIENCE_US;
        self.agenda
            .at(patience, Event::GiveUp(client, sent.connection));
    }

    fn serve(&mut self, client: usize, sent: Sent, request: Request) {
        let Some(ledger) = &self.ledger else { return };
        let answer = ledger.answer(self.server_now(), request);
        self.clients[client].granted(&answer);
        let was_killed = self.disk.killed();
        if was_killed {
            self.kill();
        }
        if !was_killed || self.defect == Defect::StoredLater {
            let delay = self.delay_us();
            if !self.is_lost() {
                self.agenda.at(
                    self.agenda.now_us + delay,
                    Event::Deliver(client, sent, answer),
                );
            }
        }
    }

    fn deliver(&mut self, client: usize, sent: Sent, answer: &Answer) {
        let from_answer = self.defect == Defect::TermFromAnswer;
        let received = self.clients[client].receive(sent, answer, self.agenda.now_us, from_answer);
        self.report.leases += u64::from(received.has_leases);
        if let Some(pause_us) = received.next_round_us {
            self.after(pause_us, Event::Round(client));
        }
    }

    /// An operator changes a guarantee.
    fn change(&mut self) {
        let Some(ledger) = &self.ledger else { return };
        let (tenant, _, _) = TENANTS[self.stream.below(3) as usize];
        let class = CLASSES[self.stream.below(2) as usize];
        let terms = Terms {
            tenant: tenant.to_owned(),
            group: GROUP.to_owned(),
            class: class.to_owned(),
            weight: 1 + self.stream.below(3) as u32,
            // Two of the largest fit, three do not.
            guarantee_bytes_per_s: self.stream.below(5) * 500_000_000,
        };
        let guarantee = terms.guarantee_bytes_per_s;
        let answer = ledger.answer(self.server_now(), Request::Set(terms));
        let key = (class.to_owned(), tenant.to_owned());
        match self.disk.killed() {
            true => {
                // The change may be on the disk or not.
                self.changed.remove(&key);
                self.kill();
            }
            false if answer == Answer::Done => {
                self.changed.insert(key, guarantee);
            }
            false => {}
        }
    }

    /// The rates that clients may use at this moment fit every pool's bound.
    fn check_bounds(&self) -> Result<(), String> {
        for (place, class) in CLASSES.iter().enumerate() {
            let used = self
                .clients
                .iter()
                .map(|client| client.usable(place, self.agenda.now_us));
            let used: u64 = used.sum();
            let settings = settings_bound(class);
            if used > settings {
                return Err(format!(
                    "class {class}: clients use {used} of {settings} bytes/s"
                ));
            }
        }
        Ok(())
    }

    /// After the calm time each tenant has its guarantee, and acknowledged changes are there.
    fn check_guarantees(&self) -> Result<(), String> {
        let ledger = self.ledger.as_ref();
        let ledger = ledger.ok_or("no server after the calm time")?;
        let Answer::Pools(pools) = ledger.answer(self.server_now(), Request::Show) else {
            return Err("the server does not show its pools".to_owned());
        };
        for (place, class) in CLASSES.iter().enumerate() {
            let pool = pools.iter().find(|pool| pool.class == *class);
            self.check_pool(place, pool.ok_or("a pool is missing")?)?;
        }
        Ok(())
    }

    fn check_pool(&self, place: usize, pool: &PoolState) -> Result<(), String> {
        for state in &pool.tenants {
            let key = (pool.class.clone(), state.tenant.clone());
            let guarantee = state.guarantee_bytes_per_s;
            if self
                .changed
                .get(&key)
                .is_some_and(|known| *known != guarantee)
            {
                return Err(format!(
                    "{key:?}: an acknowledged guarantee of {} is {guarantee} now",
                    self.changed[&key]
                ));
            }
            let own = self
                .clients
                .iter()
                .filter(|client| client.tenant == state.tenant);
            let rate: u64 = own
                .map(|client| client.usable(place, self.agenda.now_us))
                .sum();
            // Divisions round down, once for each client.
            if rate + 8 < guarantee {
                return Err(format!("{key:?} has {rate} of its guarantee {guarantee}"));
            }
        }
        Ok(())
    }
}

/// The bound of a class, bytes per second.
fn settings_bound(class: &str) -> u64 {
    use std::sync::OnceLock;
    static BOUNDS: OnceLock<BTreeMap<String, u64>> = OnceLock::new();
    let bounds = BOUNDS.get_or_init(|| {
        let pools = settings(TERMS_MS[0]).pools.into_iter();
        pools
            .map(|(_, class, bound)| (class, bound.bytes_per_s()))
            .collect()
    });
    bounds[class]
}
