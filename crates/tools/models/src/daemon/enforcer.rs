//! The enforcer beside a daemon: its decision ([`Law`]) and its end of the connection ([`Pacing`]) are the product's, over a real socket.
//!
//! Units: nanoseconds of the run, bytes per second. Limits: the daemon's end is the run's event loop, and everyone has authority; congestion notifications are counted and reach no device; control verbs
//! are not in.

use super::processes::Process;
use super::{DEVICES, MS, TENANTS};
use isolane_common_quantities::rng::Stream;
use isolane_common_quantities::units;
use isolane_rdma_enforcer::law::{Law, Seen, Traffic};
use isolane_rdma_enforcer::pacing::{Pacing, Table};
use isolane_rdma_scenario::enforcement::parse;
use isolane_rdma_session::message::{MESSAGE_MAX, ToDaemon, ToShim};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with,
    bind, listen, recv, send, socket_with,
};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Time between two steps of the product's loop, ns.
const STEP_NS: u64 = 10 * MS;

/// An enforcer that runs.
#[derive(Debug)]
pub(super) struct Enforcer {
    law: Law,
    pacing: Pacing,
    /// What the daemon should know.
    pub(super) wanted: Table,
    /// Since when the daemon that runs accepts limits.
    pub(super) heeded_ns: Option<u64>,
    /// Since when each process is known.
    known_ns: BTreeMap<u32, u64>,
    begun: (Instant, u64),
    stepped_ns: u64,
    counted: u64,
}

impl Enforcer {
    /// An enforcer for a port of random rate, of which some tenants have a guarantee.
    pub(super) fn start(door: &Door, stream: &mut Stream, now_ns: u64) -> Self {
        let rate = 30 + stream.below(300);
        let mut text = format!("[capacity]\nrate = \"{rate}Mb/s\"\n");
        for (name, _) in TENANTS {
            text += &format!("[[tenant]]\nname = \"{name}\"\n");
            if stream.chance(1, 2) {
                let guarantee = 1 + stream.below(rate / 3);
                text += &format!("guarantee = {{ rate = \"{guarantee}Mb/s\" }}\n");
            }
        }
        let file = parse(&text, "enforce.toml").expect("a valid file");
        let law = Law::new(&file.tenants, file.capacity).expect("guarantees below the capacity");
        Self {
            law,
            pacing: Pacing::new(door.folder.path().join(NAME)),
            wanted: Table::default(),
            heeded_ns: None,
            known_ns: BTreeMap::new(),
            begun: (Instant::now(), now_ns),
            stepped_ns: 0,
            counted: 0,
        }
    }

    /// What its loop does when it is due: it looks at the processes, decides, and sends what changed.
    pub(super) fn step(&mut self, now_ns: u64, processes: &[Process]) {
        if now_ns < self.stepped_ns + STEP_NS {
            return;
        }
        self.stepped_ns = now_ns;
        let mut wanted = Table::default();
        for place in 0..TENANTS.len() {
            let allowed = self.law.allowed(place).expect("the file has a capacity");
            wanted.limit(place, allowed.as_bps() / 8);
        }
        for process in processes {
            wanted.assign(process.number, process.tenant);
            self.known_ns.entry(process.number).or_insert(now_ns);
        }
        self.wanted = wanted;
        let (begun, begun_ns) = self.begun;
        let elapsed_ns = now_ns - begun_ns;
        self.pacing
            .step(begun + Duration::from_nanos(elapsed_ns), &self.wanted);
        self.heeded_ns = match self.pacing.is_heeded() {
            true => self.heeded_ns.or(Some(now_ns)),
            false => None,
        };
        let seen = self.count(processes);
        let _notifications = self
            .law
            .poll(units::Instant::from_ps(elapsed_ns * 1_000), &seen);
    }

    /// Whether the daemon was told before `by_ns` which tenant owns the process.
    pub(super) fn has_told(&self, process: &Process, by_ns: u64) -> bool {
        let known_ns = self.known_ns.get(&process.number);
        known_ns.is_some_and(|&known_ns| known_ns < by_ns)
    }

    /// What the devices' counters rose by, with the tenants that can send.
    fn count(&mut self, processes: &[Process]) -> Seen {
        let sent: u64 = processes.iter().map(|process| process.sent).sum();
        let traffic = Traffic {
            sent_bytes: sent.saturating_sub(std::mem::replace(&mut self.counted, sent)),
            ..Traffic::default()
        };
        let holders = processes.iter().map(|process| process.tenant).collect();
        Seen {
            devices: [(DEVICES[0].0.to_owned(), (traffic, holders))].into(),
        }
    }
}

/// Name of the daemon's socket.
const NAME: &str = "isolaned.sock";

/// The daemon's socket for an enforcer. It stays when the daemon is killed; who connects then is not answered.
#[derive(Debug)]
pub(super) struct Door {
    folder: tempfile::TempDir,
    socket: OwnedFd,
}

impl Door {
    pub(super) fn open() -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let socket = socket.expect("a socket");
        let path = folder.path().join(NAME);
        let address = SocketAddrUnix::new(&path).expect("a short path");
        bind(&socket, &address).expect("a new name");
        listen(&socket, 4).expect("a bound socket");
        Self { folder, socket }
    }

    /// The next caller's connection, if there is one.
    pub(super) fn accept(&self) -> Option<Caller> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = accept_with(&self.socket, flags).ok()?;
        Some(Caller(socket))
    }
}

/// The daemon's end of an enforcer's connection.
#[derive(Debug)]
pub(super) struct Caller(OwnedFd);

/// What a connection has.
pub(super) enum Heard {
    Nothing,
    Message(ToDaemon),
    Gone,
}

impl Caller {
    pub(super) fn hear(&self) -> Heard {
        let mut bytes = [0; MESSAGE_MAX];
        match recv(&self.0, &mut bytes[..], RecvFlags::DONTWAIT) {
            Ok((length @ 1.., _)) => {
                let message = ToDaemon::decode(&bytes[..length]);
                Heard::Message(message.expect("what the product encodes"))
            }
            Err(rustix::io::Errno::AGAIN) => Heard::Nothing,
            _ => Heard::Gone,
        }
    }

    /// Accepts its limits from now on.
    pub(super) fn heed(&self) {
        // A caller that has ended is noticed at the next reading.
        let _ = send(&self.0, &ToShim::Heeded.encode(), SendFlags::NOSIGNAL);
    }
}
