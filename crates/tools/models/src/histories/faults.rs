//! The faults of a run, the operator, and the calm time at the end.

use super::clients::{Clients, now_ns};
use super::history::{Calm, Change, History, Outcome};
use super::links::{Link, Mode};
use super::processes::{Etcd, Server, Start};
use super::world::{CLASSES, CLIENTS, GROUP, TENANTS, pools, settings};
use super::{Defect, Place, Report};
use isolane_common_quantities::rng::Stream;
use isolane_rpc::quota::client::ask_once;
use isolane_rpc::quota::line::Address;
use isolane_rpc::quota::protocol::{Answer, PoolState, Request, Terms, Want};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Faults of a run.
const FAULTS: u64 = 20;
/// Places for servers.
const PLACES: usize = 2;
/// Terms of leases, ms; a run has one of them.
const TERMS_MS: [u64; 3] = [400, 800, 1_600];
/// Longest pause between two faults, and between two changes of terms, ms.
const PAUSE_MAX_MS: u64 = 350;
const CHANGE_MAX_MS: u64 = 500;
/// Largest lead of a server's clocks, seconds.
const AHEAD_MAX_S: u64 = 100_000_000;
/// Longest wait for the guarantees after the faults: terms are shorter than two seconds.
const CALM_PATIENCE: Duration = Duration::from_secs(60);
const CHECK_EVERY: Duration = Duration::from_millis(20);

/// One run.
struct Run<'a> {
    stream: Stream,
    /// Apart, because a server may need several tries to start.
    clocks: Stream,
    defect: Defect,
    etcd: &'a mut Etcd,
    place: &'a Place<'a>,
    folder: tempfile::TempDir,
    /// From each place to etcd.
    to_etcd: [Link; PLACES],
    servers: [Option<Server>; PLACES],
    /// To which place each client's link leads.
    routes: [usize; CLIENTS.len()],
    /// Addresses for the operator.
    addresses: &'a Mutex<[Option<SocketAddr>; PLACES]>,
    clients: &'a Clients,
    history: History,
    report: Report,
}

/// Plays one run; it is not checked yet.
pub(super) fn play(
    seed: u64,
    defect: Defect,
    etcd: &mut Etcd,
    place: &Place<'_>,
) -> io::Result<(History, Report)> {
    let clients = Clients::start(seed, defect)?;
    let addresses = Mutex::new([None; PLACES]);
    let (operator_over, clients_over) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let driver = scope.spawn(|| clients.drive(&clients_over));
        let operator = scope.spawn(|| operate(seed, &addresses, &operator_over));
        let played =
            Run::new(seed, defect, etcd, place, &clients, &addresses).and_then(|mut run| {
                run.disturb()?;
                operator_over.store(true, Ordering::Relaxed);
                run.heal()?;
                run.history.changes = operator.join().expect("it does not panic");
                run.become_calm()?;
                run.report.leases = run.history.held.len() as u64;
                let done = run.history.changes.iter();
                run.report.changes = done
                    .filter(|change| change.outcome == Outcome::Done)
                    .count() as u64;
                Ok((run.history, run.report))
            });
        operator_over.store(true, Ordering::Relaxed);
        clients_over.store(true, Ordering::Relaxed);
        driver.join().expect("it does not panic");
        played
    })
}

impl<'a> Run<'a> {
    fn new(
        seed: u64,
        defect: Defect,
        etcd: &'a mut Etcd,
        place: &'a Place<'a>,
        clients: &'a Clients,
        addresses: &'a Mutex<[Option<SocketAddr>; PLACES]>,
    ) -> io::Result<Self> {
        let mut stream = Stream::named(seed, "faults");
        let folder = tempfile::tempdir()?;
        let link = |number| Link::start(Stream::indexed(seed, "etcd-link", number));
        let to_etcd = [link(0)?, link(1)?];
        let term_ms = TERMS_MS[stream.below(TERMS_MS.len() as u64) as usize];
        for (number, link) in to_etcd.iter().enumerate() {
            link.lead_to(Some(etcd.address()));
            let text = settings(link.address(), &format!("/histories/{seed}"), term_ms);
            std::fs::write(folder.path().join(format!("settings-{number}")), text)?;
        }
        std::fs::write(folder.path().join("wall"), "+0")?;
        let history = History {
            pools: pools(),
            ..History::default()
        };
        Ok(Self {
            stream,
            clocks: Stream::named(seed, "clocks"),
            defect,
            etcd,
            place,
            folder,
            to_etcd,
            servers: [None, None],
            routes: [0; CLIENTS.len()],
            addresses,
            clients,
            history,
            report: Report::default(),
        })
    }

    fn below(&mut self, bound: usize) -> usize {
        self.stream.below(bound as u64) as usize
    }

    fn chance(&mut self, of: u64) -> bool {
        self.stream.chance(1, of)
    }

    fn pause(&mut self, most_ms: u64) {
        std::thread::sleep(Duration::from_millis(self.stream.below(most_ms)));
    }

    /// Half of the faults, then a server that loses its store while another one takes over, and the other half.
    fn disturb(&mut self) -> io::Result<()> {
        self.start_surely(0)?;
        self.faults(FAULTS / 2)?;
        for link in &self.to_etcd {
            link.set([Mode::Open; 2]);
        }
        self.etcd.run()?;
        self.start_surely(0)?;
        self.pause(PAUSE_MAX_MS);
        self.to_etcd[0].set([Mode::Hold; 2]);
        self.start_surely(1)?;
        self.faults(FAULTS / 2)
    }

    fn faults(&mut self, count: u64) -> io::Result<()> {
        for _ in 0..count {
            self.pause(PAUSE_MAX_MS);
            self.fault()?;
        }
        Ok(())
    }

    /// Starts a server at this place, again if need be. Fails if none starts for a long time.
    fn start_surely(&mut self, place: usize) -> io::Result<SocketAddr> {
        let begun = Instant::now();
        loop {
            self.start(place)?;
            if let Some(server) = &self.servers[place] {
                return Ok(server.address);
            }
            if begun.elapsed() > CALM_PATIENCE {
                return Err(io::Error::other("no server starts without a fault"));
            }
        }
    }

    fn fault(&mut self) -> io::Result<()> {
        let place = self.below(PLACES);
        match self.below(16) {
            0 => {
                self.report.kills += u64::from(self.servers[place].is_some());
                self.end(place);
            }
            1..=3 => self.start(place)?,
            4 => {
                if let Some(server) = &self.servers[place] {
                    server.process.stop();
                    self.report.stops += 1;
                }
            }
            5 => {
                if let Some(server) = &self.servers[place] {
                    server.process.go_on();
                }
            }
            6 | 7 => self.disturb_link(None, place),
            8 => self.to_etcd[place].set([Mode::Open; 2]),
            9 | 10 => {
                let client = self.below(CLIENTS.len());
                self.disturb_link(Some(client), place);
            }
            11 => {
                for client in 0..CLIENTS.len() {
                    self.clients.link(client).set([Mode::Open; 2]);
                }
            }
            12 => self.disturb_etcd()?,
            13 => self.route(),
            14 => {
                let client = self.below(CLIENTS.len());
                self.clients.replace(client)?;
            }
            _ => self.jump()?,
        }
        Ok(())
    }

    /// A fault of a client's link or of a place's link to etcd.
    fn disturb_link(&mut self, client: Option<usize>, place: usize) {
        let modes = match self.below(5) {
            0 => [Mode::Hold; 2],
            1 => [Mode::Open, Mode::Hold],
            2 => [Mode::Late, Mode::Open],
            3 => [Mode::Late; 2],
            _ => [Mode::Open; 2],
        };
        // A connection hangs and the next one does not, as after a lost route.
        let spares = self.chance(3);
        let link = match client {
            Some(client) => self.clients.link(client),
            None => &self.to_etcd[place],
        };
        link.set(modes);
        if modes == [Mode::Open; 2] {
            link.reset();
        } else if spares {
            link.spare_later();
        }
        self.report.partitions += 1;
    }

    /// etcd is stopped for a time, or killed and started again.
    fn disturb_etcd(&mut self) -> io::Result<()> {
        if self.chance(3) {
            self.etcd.kill();
            self.report.kills += 1;
            self.pause(PAUSE_MAX_MS);
            return self.etcd.run();
        }
        if let Some(process) = self.etcd.process() {
            process.stop();
            self.report.stops += 1;
            std::thread::sleep(Duration::from_millis(self.stream.below(1_500)));
            process.go_on();
        }
        Ok(())
    }

    /// Clients find other servers.
    fn route(&mut self) {
        for client in 0..CLIENTS.len() {
            self.routes[client] = self.below(PLACES);
            let server = &self.servers[self.routes[client]];
            let link = self.clients.link(client);
            link.lead_to(server.as_ref().map(|server| server.address));
            link.reset();
        }
    }

    fn jump(&mut self) -> io::Result<()> {
        if self.place.clocks.jumps {
            let seconds = self.stream.below(200_000_000) as i64 - 100_000_000;
            // A new file: a process that reads at this moment gets the old content or the new one.
            let new = self.folder.path().join("next");
            std::fs::write(&new, format!("{seconds:+}"))?;
            std::fs::rename(new, self.folder.path().join("wall"))?;
            self.report.jumps += 1;
        }
        Ok(())
    }

    /// Kills the server of this place, and starts another one there. It may find no etcd and end.
    fn start(&mut self, place: usize) -> io::Result<()> {
        self.report.kills += u64::from(self.servers[place].is_some());
        self.end(place);
        let wall = self.folder.path().join("wall");
        let ahead_s = self.clocks.below(AHEAD_MAX_S);
        let start = Start {
            program: self.place.program,
            settings: self.folder.path().join(format!("settings-{place}")),
            defect: self.defect,
            ahead_s: self.place.clocks.offsets.then_some(ahead_s),
            wall: self.place.clocks.jumps.then_some(&wall),
        };
        let number = self.report.starts + 1;
        let Some(server) = Server::start(&start, number)? else {
            return Ok(());
        };
        self.report.starts += 1;
        self.history.starts.push((number, now_ns()));
        self.lead(place, Some(server.address));
        self.servers[place] = Some(server);
        self.probe(1 - place);
        Ok(())
    }

    fn end(&mut self, place: usize) {
        self.lead(place, None);
        self.servers[place] = None;
    }

    /// Clients of this place, and the operator, find its server at this address.
    fn lead(&self, place: usize, address: Option<SocketAddr>) {
        let mut addresses = self
            .addresses
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        addresses[place] = address;
        for client in (0..CLIENTS.len()).filter(|client| self.routes[*client] == place) {
            self.clients.link(client).lead_to(address);
        }
    }

    /// Requests a lease from a server that another one has replaced.
    fn probe(&mut self, place: usize) {
        let Some(server) = &self.servers[place] else {
            return;
        };
        let want = Want {
            group: GROUP.to_owned(),
            class: CLASSES[0].0.to_owned(),
            demand_bytes_per_s: 1,
            holds: None,
        };
        let request = Request::Renew {
            tenant: TENANTS[0].0.to_owned(),
            client: format!("probe-{}", self.report.starts),
            wants: vec![want],
        };
        let asked_ns = now_ns();
        // A stopped server does not answer in time.
        if let Ok(Answer::Leases(_)) = ask_once(&Address::Tcp(server.address), None, &request) {
            self.history.grants.push((server.number, asked_ns));
        }
    }

    /// Ends all faults.
    fn heal(&mut self) -> io::Result<()> {
        for server in self.servers.iter().flatten() {
            server.process.go_on();
        }
        for link in &self.to_etcd {
            link.set([Mode::Open; 2]);
        }
        for client in 0..CLIENTS.len() {
            self.clients.link(client).set([Mode::Open; 2]);
        }
        self.etcd.run()
    }

    /// Starts a server for all clients, waits for the guarantees, and records what clients and store have.
    fn become_calm(&mut self) -> io::Result<()> {
        self.routes = [0; CLIENTS.len()];
        self.end(1);
        let server = Address::Tcp(self.start_surely(0)?);
        for client in 0..CLIENTS.len() {
            self.clients.link(client).reset();
        }
        let begun = Instant::now();
        let found = loop {
            match ask_once(&server, None, &Request::Show) {
                Ok(Answer::Pools(found)) => break found,
                other if begun.elapsed() > CALM_PATIENCE => {
                    let other = format!("the server shows no state: {other:?}");
                    return Err(io::Error::other(other));
                }
                _ => {}
            }
        };
        self.history.terms = found.iter().flat_map(terms_of).collect();
        let begun = Instant::now();
        loop {
            let calm = self.history.terms.iter().map(|terms| self.calm(terms));
            self.history.calm = calm.collect();
            let is_over = begun.elapsed() > CALM_PATIENCE;
            if is_over || self.history.calm.iter().all(Calm::is_kept) {
                break;
            }
            std::thread::sleep(CHECK_EVERY);
        }
        self.history.held = self.clients.held();
        Ok(())
    }

    fn calm(&self, terms: &Terms) -> Calm {
        let pool = CLASSES.iter().position(|(class, _)| *class == terms.class);
        let pool = pool.expect("a class of the settings");
        let (held, clients) = self.clients.holds(&terms.tenant, pool);
        Calm {
            terms: terms.clone(),
            clients,
            held,
        }
    }
}

fn terms_of(pool: &PoolState) -> impl Iterator<Item = Terms> {
    pool.tenants.iter().map(|tenant| Terms {
        tenant: tenant.tenant.clone(),
        group: pool.group.clone(),
        class: pool.class.clone(),
        weight: tenant.weight,
        guarantee_bytes_per_s: tenant.guarantee_bytes_per_s,
    })
}

/// Changes terms one after the other until it is `over`.
fn operate(
    seed: u64,
    addresses: &Mutex<[Option<SocketAddr>; PLACES]>,
    over: &AtomicBool,
) -> Vec<Change> {
    let mut stream = Stream::named(seed, "operator");
    let mut changes = Vec::new();
    let bounds = pools();
    while !over.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(stream.below(CHANGE_MAX_MS)));
        let place = stream.below(PLACES as u64) as usize;
        let address = addresses.lock().unwrap_or_else(PoisonError::into_inner)[place];
        let Some(address) = address else { continue };
        let (class, bound) = &bounds[stream.below(bounds.len() as u64) as usize];
        let tenant = TENANTS[stream.below(TENANTS.len() as u64) as usize].0;
        let terms = Terms {
            tenant: tenant.to_owned(),
            group: GROUP.to_owned(),
            class: class.clone(),
            weight: 1 + stream.below(3) as u32,
            // Two such guarantees fit mostly, three sometimes. No two changes have the same one.
            guarantee_bytes_per_s: stream.below(bound / 2_000) * 1_000 + changes.len() as u64,
        };
        let request = Request::Set(terms.clone());
        let outcome = match ask_once(&Address::Tcp(address), None, &request) {
            Ok(Answer::Done) => Outcome::Done,
            Ok(Answer::Error(reason)) if reason.contains("exceed what can be guaranteed") => {
                Outcome::Rejected
            }
            Ok(_) => Outcome::Failed,
            Err(_) => Outcome::Unknown,
        };
        changes.push(Change { terms, outcome });
    }
    changes
}
