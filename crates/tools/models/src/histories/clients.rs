//! The clients of a run, with the product's client code: they make calls, and their leases are read.
//!
//! Method: each client is an [`Admission`] with a link of its own to a server; its thread renews the leases. One thread
//! of the run makes calls for all of them, which gives them a demand, and reads their tables every [`READ_EVERY`]. A
//! lease that two readings show unchanged was in use in between. Limits: clients share the clock of the run.

use super::Defect;
use super::history::Held;
use super::links::Link;
use super::world::{CLASSES, CLIENTS, GROUP};
use isolane_common_quantities::rng::Stream;
use isolane_rpc::admission::Admission;
use isolane_rpc::table::{Ask, Grant};
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Time between two readings of the tables.
const READ_EVERY: Duration = Duration::from_millis(2);
/// Readings between two calls of a client.
const CALL_EVERY: u32 = 5;
/// Payload of a call, bytes: with 100 calls per second the demand is above every bound.
const CALL_BYTES: u64 = 4_000_000;
/// Time by which a client with a defect extends its leases, ns.
const EXTENSION_NS: u64 = 3_000_000_000;
const POOLS: usize = CLASSES.len() - 1;

/// Now, by the clock of the clients' tables.
pub(super) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// What a table was last read to have.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    grant: Grant,
    from_ns: u64,
    to_ns: u64,
}

#[derive(Debug)]
struct Client {
    number: usize,
    tenant: &'static str,
    admission: Arc<Admission>,
    readings: [Reading; POOLS],
    /// It makes no calls any more and gives its leases up.
    stopped: bool,
}

/// All clients of a run.
#[derive(Debug)]
pub(super) struct Clients {
    inner: Mutex<Inner>,
    links: Vec<Link>,
    defect: Defect,
}

#[derive(Debug, Default)]
struct Inner {
    clients: Vec<Client>,
    started: usize,
    held: Vec<Held>,
}

impl Clients {
    /// Starts a client for each of [`CLIENTS`]. No link leads to a server yet.
    pub(super) fn start(seed: u64, defect: Defect) -> io::Result<Self> {
        let links = (0..CLIENTS.len() as u64)
            .map(|number| Link::start(Stream::indexed(seed, "client-link", number)));
        let clients = Self {
            inner: Mutex::default(),
            links: links.collect::<io::Result<_>>()?,
            defect,
        };
        for place in 0..CLIENTS.len() {
            clients.begin(place)?;
        }
        Ok(clients)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The link of the client at this place.
    pub(super) fn link(&self, place: usize) -> &Link {
        &self.links[place]
    }

    fn begin(&self, place: usize) -> io::Result<()> {
        let tenant = CLIENTS[place];
        let admission = Arc::new(admission(self.links[place].address(), tenant)?);
        admission.start(|_| {})?;
        let mut inner = self.lock();
        let number = inner.started;
        inner.started += 1;
        inner.clients.push(Client {
            number,
            tenant,
            admission,
            readings: Default::default(),
            stopped: false,
        });
        Ok(())
    }

    /// The client at this place stops, and another one begins. The server may not hear of it.
    pub(super) fn replace(&self, place: usize) -> io::Result<()> {
        let tenant = CLIENTS[place];
        let mut inner = self.lock();
        let mut living = inner.clients.iter_mut().filter(|client| !client.stopped);
        if let Some(client) = living.find(|client| client.tenant == tenant) {
            client.stopped = true;
            client.admission.stop();
        }
        drop(inner);
        self.begin(place)
    }

    /// Makes calls and reads leases until it is `over`; then stops the clients.
    pub(super) fn drive(&self, over: &AtomicBool) {
        let mut turn = 0;
        while !over.load(Ordering::Relaxed) {
            turn += 1;
            self.lock().turn(turn % CALL_EVERY == 0, self.defect);
            std::thread::sleep(READ_EVERY);
        }
        for client in &self.lock().clients {
            client.admission.stop();
        }
    }

    /// The rate that the clients of a tenant hold in a pool at this moment, and how many they are.
    pub(super) fn holds(&self, tenant: &str, pool: usize) -> (u64, u64) {
        let inner = self.lock();
        let now_ns = now_ns();
        let of = |client: &&Client| client.tenant == tenant && !client.stopped;
        let mine = inner.clients.iter().filter(of);
        let grants = mine.map(|client| client.admission.table().granted(0, pool as u8));
        let rates = grants.map(|grant| match now_ns < grant.until_ns {
            true => grant.rate_bytes_per_s,
            false => 0,
        });
        rates.fold((0, 0), |(sum, count), rate| (sum + rate, count + 1))
    }

    /// Every use of a lease so far.
    pub(super) fn held(&self) -> Vec<Held> {
        let mut inner = self.lock();
        inner.turn(false, self.defect);
        let open = inner.clients.iter().flat_map(Client::open);
        let open: Vec<Held> = open.collect();
        inner.held.iter().copied().chain(open).collect()
    }
}

impl Inner {
    fn turn(&mut self, calls: bool, defect: Defect) {
        for client in &mut self.clients {
            let table = client.admission.table();
            for pool in 0..POOLS {
                let class = pool as u8;
                let before_ns = now_ns();
                let grant = table.granted(0, class);
                let after_ns = now_ns();
                let reading = &mut client.readings[pool];
                if grant == reading.grant {
                    reading.to_ns = before_ns;
                } else {
                    self.held.extend(reading.held(client.number, pool));
                    *reading = Reading {
                        grant,
                        from_ns: after_ns,
                        to_ns: after_ns,
                    };
                    if defect == Defect::KeepsRate && grant.rate_bytes_per_s > 0 {
                        let until_ns = grant.until_ns + EXTENSION_NS;
                        let longer = Grant { until_ns, ..grant };
                        table.set_lease(0, class, longer, after_ns);
                        reading.grant = longer;
                    }
                }
                if calls && !client.stopped {
                    let ask = Ask {
                        destination: b"host",
                        class,
                        bytes: CALL_BYTES,
                    };
                    let verdict = client.admission.decide(ask);
                    // The call ends at once; its latency does not matter here.
                    let _ = client
                        .admission
                        .complete(verdict.ticket, Duration::from_micros(1));
                }
            }
        }
        // The thread of a stopped client has given its leases up when the rates are zero.
        let is_gone = |client: &Client| {
            let grants = client.readings.iter().map(|reading| reading.grant);
            client.stopped && grants.map(|grant| grant.rate_bytes_per_s).sum::<u64>() == 0
        };
        self.clients.retain(|client| !is_gone(client));
    }
}

impl Reading {
    /// The use of the lease that ended or was replaced.
    fn held(&self, client: usize, pool: usize) -> Option<Held> {
        let to_ns = self.to_ns.min(self.grant.until_ns);
        let is_used = self.grant.rate_bytes_per_s > 0 && self.from_ns < to_ns;
        is_used.then_some(Held {
            client,
            pool,
            rate: self.grant.rate_bytes_per_s,
            from_ns: self.from_ns,
            to_ns,
        })
    }
}

impl Client {
    fn open(&self) -> impl Iterator<Item = Held> {
        let readings = self.readings.iter().enumerate();
        readings.filter_map(|(pool, reading)| reading.held(self.number, pool))
    }
}

fn admission(server: SocketAddr, tenant: &str) -> io::Result<Admission> {
    let classes: String = CLASSES
        .iter()
        .enumerate()
        .map(|(place, (name, _))| {
            let target = match place + 1 < CLASSES.len() {
                true => format!("target_per_mtu = \"{}us\"\n", 15 * (place + 1)),
                false => String::new(),
            };
            format!(
                "[[class]]\nname = \"{name}\"\ndscp = {}\n{target}",
                46 - place
            )
        })
        .collect();
    let text = format!(
        "mtu_bytes = 1000\n{classes}[[group]]\nname = \"{GROUP}\"\ndestinations = \"*\"\n[quota]\n\
         server = \"{server}\"\ntenant = \"{tenant}\"\n"
    );
    Admission::from_text("client", &text).map_err(io::Error::other)
}
