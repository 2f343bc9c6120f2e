//! One run of daemons that exchange reports over links that break, by a seed.
//!
//! Method: what goes to whom, and the sum, are the product's ([`isolaned::peers::exchange`]), and so are the bytes of a report.
//! This module is the loop around them, the links and the network. A link delivers in order and confirms each report. Faults:
//! messages and confirmations are late, links break with all that is on its way, and each end learns of that later; daemons are
//! killed, and the next one has another number. Every daemon keeps a link to every other one, so each pair has two. Units:
//! microseconds. Limits: the handshake over TCP, its threads and reference messages are not in.

use crate::Broken;
use crate::agenda::Agenda;
use isolane_common_quantities::rng::Stream;
use isolane_common_quantities::units::BitRate;
use isolane_rdma_policy::RemoteState;
use isolane_rdma_session::message::PortAddress;
use isolaned::order::{Grant, PeerId, Reads};
use isolaned::peers::exchange::{Exchange, REPORTS_MAX, Said, Way};
use isolaned::peers::report::{decode, encode, for_peer, total};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// What is wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// Nothing.
    None,
    /// The loop does not report some confirmations.
    LosesConfirmations,
    /// The loop does not report the end of some links.
    KeepsLinks,
}

crate::counts! {
    /// Events.
    events,
    /// Links that were connected.
    links,
    /// Links that broke.
    breaks,
    /// Kills of daemons.
    kills,
    /// Reports that arrived.
    reports,
}

const DAEMONS: usize = 4;
/// Time with faults, and without at the end.
const FAULTY_US: u64 = 20_000_000;
const CALM_US: u64 = 8_000_000;
/// Longest delay of a message, until an end learns that its link broke, and until a keeper connects again.
const DELAY_MAX_US: u64 = 200_000;
const NOTICE_MAX_US: u64 = 500_000;
const RETRY_MAX_US: u64 = 1_000_000;
/// Mean times between changes of a daemon's state, breaks of links, and kills.
const CHANGE_EVERY_US: u64 = 50_000;
const BREAK_EVERY_US: u64 = 600_000;
const KILL_EVERY_US: u64 = 3_000_000;

/// One end of a link.
type End = (usize, u64);

enum Event {
    /// The keeper of the first daemon connects to the second.
    Connect(usize, usize),
    Deliver(u64, End, Vec<u8>),
    Confirm(u64, End),
    /// An end learns that its link has ended.
    Notice(u64, End),
    Change(usize),
    Break,
    Kill,
    Start(usize),
}

/// The link of a daemon: what it sends waits here for the loop.
struct Wire {
    theirs: PeerId,
    out: Rc<RefCell<Vec<RemoteState>>>,
    is_broken: Rc<RefCell<bool>>,
}

impl Way for Wire {
    fn peer(&self) -> Option<(PeerId, Vec<PortAddress>)> {
        Some((self.theirs.clone(), Vec::new()))
    }

    fn carries_reports(&self) -> bool {
        true
    }

    fn send(&mut self, report: &RemoteState) -> Result<(), String> {
        if *self.is_broken.borrow() {
            return Err("a message failed".to_owned());
        }
        self.out.borrow_mut().push(*report);
        Ok(())
    }
}

/// A link with both ends, each with what it sends and what is not confirmed.
struct Link {
    keeper: (usize, usize),
    ends: [(End, Rc<RefCell<Vec<RemoteState>>>); 2],
    is_broken: Rc<RefCell<bool>>,
    /// When the last message arrives, for each direction: links keep the order.
    last_us: [u64; 2],
    under_way: [usize; 2],
}

struct Daemon {
    id: PeerId,
    exchange: Exchange<Wire>,
    state: RemoteState,
    reads: [u64; 2],
    /// The last sum and grants that it passed on.
    heard: (RemoteState, Vec<Grant>),
    /// Ends of links that it has.
    links: BTreeSet<u64>,
}

struct World {
    stream: Stream,
    defect: Defect,
    agenda: Agenda<Event>,
    daemons: Vec<Option<Daemon>>,
    links: BTreeMap<u64, Link>,
    started: u8,
    report: Report,
}

/// Runs one seed. The error is the first broken invariant.
pub fn run(seed: u64, defect: Defect) -> Result<Report, Broken> {
    let mut world = World {
        stream: Stream::named(seed, "peers"),
        defect,
        agenda: Agenda::new(),
        daemons: (0..DAEMONS).map(|_| None).collect(),
        links: BTreeMap::new(),
        started: 0,
        report: Report::default(),
    };
    let played = world.play();
    let place = world.agenda.place(world.report.events);
    played.map_err(|what| Broken::of("peers", seed, place, what))?;
    Ok(world.report)
}

impl World {
    fn play(&mut self) -> Result<(), String> {
        for daemon in 0..DAEMONS {
            self.after(1_000, Event::Start(daemon));
            self.after(CHANGE_EVERY_US, Event::Change(daemon));
            for other in (0..DAEMONS).filter(|other| *other != daemon) {
                self.after(RETRY_MAX_US, Event::Connect(daemon, other));
            }
        }
        self.after(BREAK_EVERY_US, Event::Break);
        self.after(KILL_EVERY_US, Event::Kill);
        while let Some(event) = self.agenda.take_until(FAULTY_US + CALM_US) {
            self.report.events += 1;
            self.happen(event);
            self.transmit();
            self.check()?;
        }
        self.check_calm()
    }

    fn is_calm(&self) -> bool {
        self.agenda.now_us > FAULTY_US
    }

    fn after(&mut self, most_us: u64, event: Event) {
        let at_us = self.agenda.now_us + 1 + self.stream.below(most_us);
        self.agenda.at(at_us, event);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Start(daemon) => self.start(daemon),
            Event::Connect(from, to) => self.connect(from, to),
            Event::Deliver(link, end, bytes) => self.deliver(link, end, &bytes),
            Event::Confirm(link, end) => self.confirm(link, end),
            Event::Notice(link, end) => self.notice(link, end),
            Event::Change(_) | Event::Break | Event::Kill if self.is_calm() => {}
            Event::Change(daemon) => {
                self.change(daemon);
                self.after(2 * CHANGE_EVERY_US, Event::Change(daemon));
            }
            Event::Break => {
                let links: Vec<u64> = self.links.keys().copied().collect();
                if !links.is_empty() {
                    let at = self.stream.below(links.len() as u64) as usize;
                    self.break_link(links[at]);
                }
                self.after(2 * BREAK_EVERY_US, Event::Break);
            }
            Event::Kill => {
                let daemon = self.stream.below(DAEMONS as u64) as usize;
                self.kill(daemon);
                self.after(2 * KILL_EVERY_US, Event::Kill);
            }
        }
    }

    fn start(&mut self, daemon: usize) {
        self.started += 1;
        self.daemons[daemon] = Some(Daemon {
            id: PeerId {
                daemon: [self.started; 16],
                device: format!("rxe{daemon}"),
            },
            exchange: Exchange::default(),
            state: RemoteState::default(),
            reads: [0; 2],
            heard: (RemoteState::default(), Vec::new()),
            links: BTreeSet::new(),
        });
        self.change(daemon);
    }

    fn connect(&mut self, from: usize, to: usize) {
        let ids = [from, to].map(|end| self.daemons[end].as_ref().map(|daemon| daemon.id.clone()));
        let [Some(ours), Some(theirs)] = ids else {
            self.after(RETRY_MAX_US, Event::Connect(from, to));
            return;
        };
        let number = self.agenda.scheduled;
        let is_broken = Rc::new(RefCell::new(false));
        let ends = [(from, theirs), (to, ours)].map(|(end, theirs)| {
            let out = Rc::default();
            let wire = Wire {
                theirs,
                out: Rc::clone(&out),
                is_broken: Rc::clone(&is_broken),
            };
            let daemon = self.daemons[end].as_mut().expect("both run");
            daemon.exchange.add(number, wire);
            daemon.links.insert(number);
            ((end, u64::from(daemon.id.daemon[0])), out)
        });
        let link = Link {
            keeper: (from, to),
            ends,
            is_broken,
            last_us: [self.agenda.now_us; 2],
            under_way: [0; 2],
        };
        self.links.insert(number, link);
        self.report.links += 1;
    }

    /// The daemon at this end of the link, if it is the one that the link was made for.
    fn daemon(&mut self, (place, number): End) -> Option<&mut Daemon> {
        let daemon = self.daemons[place].as_mut()?;
        (u64::from(daemon.id.daemon[0]) == number).then_some(daemon)
    }

    /// Gives what was sent to the network.
    fn transmit(&mut self) {
        for number in self.links.keys().copied().collect::<Vec<_>>() {
            for side in 0..2 {
                let link = &self.links[&number];
                let (_, out) = &link.ends[side];
                let (from, to) = (link.ends[side].0, link.ends[1 - side].0);
                let mut at_us = link.last_us[side];
                for report in out.take() {
                    at_us = at_us.max(self.agenda.now_us) + 1 + self.stream.below(DELAY_MAX_US);
                    self.agenda
                        .at(at_us, Event::Deliver(number, to, encode(&report).to_vec()));
                    let confirmed_us = at_us + 1 + self.stream.below(DELAY_MAX_US);
                    self.agenda.at(confirmed_us, Event::Confirm(number, from));
                    let link = self.links.get_mut(&number).expect("it is there");
                    link.under_way[side] += 1;
                    link.last_us[side] = at_us;
                }
            }
        }
        for daemon in self.daemons.iter_mut().flatten() {
            while let Some(said) = daemon.exchange.said() {
                if let Said::Heard(total, grants) = said {
                    daemon.heard = (total, grants);
                }
            }
        }
    }

    fn deliver(&mut self, link: u64, end: End, bytes: &[u8]) {
        if !self.links.contains_key(&link) {
            return;
        }
        self.report.reports += 1;
        let report = decode(bytes).expect("what the product encodes");
        if let Some(daemon) = self.daemon(end) {
            daemon.exchange.came(link, report);
        }
    }

    fn confirm(&mut self, number: u64, end: End) {
        let Some(link) = self.links.get_mut(&number) else {
            return;
        };
        let side = usize::from(link.ends[0].0 != end);
        link.under_way[side] -= 1;
        if self.defect == Defect::LosesConfirmations && self.stream.chance(1, 20) {
            return;
        }
        if let Some(daemon) = self.daemon(end) {
            daemon.exchange.arrived(number);
        }
    }

    /// A link breaks: nothing arrives any more, and each end learns that later. Its keeper connects again.
    fn break_link(&mut self, number: u64) {
        let Some(link) = self.links.remove(&number) else {
            return;
        };
        *link.is_broken.borrow_mut() = true;
        for (end, _) in &link.ends {
            self.after(NOTICE_MAX_US, Event::Notice(number, *end));
        }
        let (from, to) = link.keeper;
        self.after(RETRY_MAX_US, Event::Connect(from, to));
        self.report.breaks += 1;
    }

    fn notice(&mut self, number: u64, end: End) {
        let is_kept = self.defect == Defect::KeepsLinks && self.stream.chance(1, 3);
        if let Some(daemon) = self.daemon(end) {
            daemon.links.remove(&number);
            if !is_kept {
                daemon.exchange.remove(number);
            }
        }
    }

    fn kill(&mut self, daemon: usize) {
        if self.daemons[daemon].take().is_none() {
            return;
        }
        self.report.kills += 1;
        let own = |link: &Link| link.ends.iter().any(|((place, _), _)| *place == daemon);
        let links = self.links.iter().filter(|(_, link)| own(link));
        for link in links.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.break_link(link);
        }
        self.after(RETRY_MAX_US, Event::Start(daemon));
    }

    fn change(&mut self, daemon: usize) {
        let weights = [(); 6].map(|()| self.stream.below(5));
        let rate = BitRate::from_gbps(self.stream.below(100));
        let reads = [(); 2].map(|()| self.stream.below(5));
        if let Some(daemon) = &mut self.daemons[daemon] {
            daemon.state = RemoteState::of(weights, rate);
            daemon.reads = reads;
            daemon.exchange.tell(daemon.state);
            daemon.exchange.tell_reads(Reads {
                unknown: reads,
                ..Reads::default()
            });
        }
    }

    /// A link has few reports in flight, and a daemon counts only peers to which the daemon has a link.
    fn check(&self) -> Result<(), String> {
        let crowded = |link: &&Link| link.under_way.iter().any(|count| *count > REPORTS_MAX);
        if let Some(link) = self.links.values().find(crowded) {
            return Err(format!("{:?} reports are in flight", link.under_way));
        }
        for daemon in self.daemons.iter().flatten() {
            let known: BTreeSet<&PeerId> = daemon
                .exchange
                .ways()
                .filter(|(number, _)| daemon.links.contains(number))
                .map(|(_, wire)| &wire.theirs)
                .collect();
            let ghost = daemon
                .heard
                .1
                .iter()
                .find(|grant| !known.contains(&grant.peer));
            if let Some(ghost) = ghost {
                return Err(format!(
                    "{} hears {:?}, to which it has no link",
                    daemon.id.device, ghost.peer
                ));
            }
        }
        Ok(())
    }

    /// After the calm time each daemon has the last state of every other one, once, and its part of what that one grants.
    fn check_calm(&self) -> Result<(), String> {
        let all: Vec<&Daemon> = self.daemons.iter().flatten().collect();
        if all.len() < DAEMONS {
            return Err("a daemon did not start again".to_owned());
        }
        for to in &all {
            let others = all.iter().filter(|from| from.id != to.id);
            let reports: BTreeMap<&PeerId, RemoteState> = others
                .map(|from| {
                    let readers = all.iter().filter(|one| one.id != from.id);
                    let all_reads = readers.map(|one| one.reads[0]).sum();
                    let report = for_peer(&from.state, from.reads, to.reads[0], all_reads);
                    (&from.id, report)
                })
                .collect();
            let (heard, grants) = &to.heard;
            if *heard != total(reports.values()) {
                return Err(format!(
                    "{} hears {heard:?} in place of {:?}",
                    to.id.device,
                    total(reports.values())
                ));
            }
            let has_all = grants.len() == reports.len()
                && grants.iter().all(|grant| {
                    reports.get(&grant.peer).map(|one| one.read_rate) == Some(grant.rate)
                });
            if !has_all {
                return Err(format!("{} has the grants {grants:?}", to.id.device));
            }
        }
        Ok(())
    }
}
