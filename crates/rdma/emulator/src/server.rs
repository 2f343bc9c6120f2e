//! Sockets, the loop, and the clock.
//!
//! Problem: a peer may connect and send nothing, send anything, read nothing, or end while it is served. Method: the
//! socket's file has mode 0600 and only processes of the broker's own user get one of the [`CLIENTS_MAX`] places. A
//! peer that opens no device in [`Settings::open_time`] loses its place, earlier if a new peer finds no free place. A
//! peer also loses it when its message is malformed or too long, when there is no room for an answer to it, and when its
//! process ends: the pidfd reports the end before another process may get the number. The broker waits for no peer, and a round takes at most
//! `MESSAGES_PER_ROUND` messages of each.
//! Limits: the broker reads and writes memory of its clients. A process that serves its own page faults (userfaultfd,
//! FUSE) can hold up the broker for as long as it answers none of them.

use crate::answer::Answered;
use crate::clock::Clock;
use crate::fabric::Fabric;
use crate::facts;
use crate::faults::{Chances, Faults};
use crate::memory::{Span, read};
use crate::objects;
use crate::tree::Tree;
use isolane_common_linux::listener::PAUSE;
use isolane_common_linux::open_files;
use isolane_common_linux::peer::Peer;
use isolane_common_linux::socket::listen_at;
use isolane_common_quantities::units::Instant;
use isolane_rdma_emulated_verbs::attributes::DeviceFacts;
use isolane_rdma_emulated_verbs::wire::{
    MESSAGE_MAX, PROBE, Reader, VERSION, Writer, op, receive, send,
};
use isolane_rdma_scenario::model::Topology;
use isolane_rdma_scenario::profile::Profile;
use isolane_rdma_simulator::rnic::SimError;
use isolane_rdma_simulator::rnic::live::LiveNics;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, accept_with, socket_with};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::geteuid;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant as Wall};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 64;
/// Connections at once: a process may have 1,024 descriptors by default.
pub const CLIENTS_MAX: usize = 128;
/// Socket, process, and what a request is about.
const FILES_PER_CLIENT: u64 = 3;
/// Sockets, files and devices of the broker itself.
const FILES_OF_BROKER: u64 = 128;
/// Time in which a connection has to open a device.
pub const OPEN_TIME: Duration = Duration::from_secs(10);
/// Messages of one client in one round of the loop: more than fit in the buffer of its socket.
const MESSAGES_PER_ROUND: usize = 512;
/// The mode of the socket's file.
const MODE: u32 = 0o600;
/// Reports between two looks at the sockets.
const REPORTS_PER_ROUND: usize = 32;

/// What is emulated.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The device of every host.
    pub profile: Profile,
    /// Hosts on one switch, each with one device.
    pub hosts: usize,
    /// How many times slower than the real clock the model's runs.
    pub dilation: f64,
    /// Seed of the model and of faults.
    pub seed: u64,
    /// Whether the devices limit the rates of single queue pairs.
    pub paces: bool,
    /// What goes wrong.
    pub chances: Chances,
    /// Path of the socket.
    pub socket: PathBuf,
    /// Directory of the devices' files ([`crate::tree`]); it must not exist.
    pub tree: PathBuf,
    /// Time in which a connection has to open a device: [`OPEN_TIME`].
    pub open_time: Duration,
}

/// Why there is no broker.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum StartError {
    /// The model does not take the settings.
    #[error(transparent)]
    Model(#[from] SimError),
    #[error("socket {}: cannot be made ({reason}); give a directory that you may write to, with a short path", path.display())]
    Socket {
        path: PathBuf,
        reason: std::io::Error,
    },
    #[error("the devices' files in {} cannot be written: {reason}; remove what is there, or give another directory", path.display())]
    Files {
        path: PathBuf,
        reason: std::io::Error,
    },
}

/// What happened, for who started the broker.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Messages that took effect.
    pub messages: u64,
    /// Their payload, bytes.
    pub bytes: u64,
    /// Part of the time with work for which the model's clock was stopped, because the broker was behind, 0 to 1.
    pub stood_still: f64,
    /// Bytes that each host sent and received on its port, by the model.
    pub ports: Vec<(u64, u64)>,
    /// Connections that were closed because they sent what the library never sends, or opened no device in time.
    pub rejected: u64,
    /// Connections of other users.
    pub foreign: u64,
    /// Counters and lists of objects that could not be written to the devices' files.
    pub unwritten: u64,
}

/// A broker that runs in a thread.
#[derive(Debug)]
pub struct Broker {
    thread: Option<JoinHandle<Summary>>,
    /// Closed when the thread is to end.
    stop: Option<OwnedFd>,
    socket: PathBuf,
}

impl Broker {
    /// Starts a broker.
    pub fn start(settings: Settings) -> Result<Self, StartError> {
        let nics = LiveNics::new(
            &settings.profile,
            settings.hosts,
            Topology::Switch,
            settings.seed,
        )?;
        let hosts = 0..settings.hosts as u32;
        let pacing_kbps_max = match settings.paces {
            true => facts::pacing_kbps_max(&settings.profile, settings.dilation),
            false => 0,
        };
        let device = |host| DeviceFacts {
            pacing_kbps_max,
            ..facts::of(&settings.profile, host)
        };
        let devices: Vec<DeviceFacts> = hosts.map(device).collect();
        let made = Tree::make(
            &settings.tree,
            &settings.profile,
            &devices,
            settings.dilation,
        );
        let tree = made.map_err(|reason| StartError::Files {
            path: settings.tree.clone(),
            reason,
        })?;
        let path = settings.socket.clone();
        let failed = |reason: std::io::Error| StartError::Socket {
            path: path.clone(),
            reason,
        };
        let (stopped, stop) =
            pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
        let listener = listening(&path).map_err(failed)?;
        let mut server = Server {
            fabric: Fabric::new(
                nics,
                settings.dilation,
                devices,
                Faults::new(settings.chances, settings.seed),
            ),
            clock: Clock::new(settings.dilation),
            tree,
            listener,
            stopped,
            clients: BTreeMap::new(),
            next: 0,
            begun: Wall::now(),
            accepts_from: None,
            open_time: settings.open_time,
            rejected: 0,
            foreign: 0,
            buffer: vec![0; MESSAGE_MAX],
        };
        let thread = std::thread::Builder::new().name("broker".to_owned());
        let thread = thread.spawn(move || server.run()).map_err(failed)?;
        Ok(Self {
            thread: Some(thread),
            stop: Some(stop),
            socket: path,
        })
    }

    /// Where programs find it.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Ends it.
    pub fn stop(mut self) -> Summary {
        self.end()
    }

    fn end(&mut self) -> Summary {
        self.stop = None;
        let _ = std::fs::remove_file(&self.socket);
        let thread = self.thread.take();
        thread.map_or_else(Summary::default, |thread| {
            thread.join().expect("the broker's thread does not panic")
        })
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.end();
        }
    }
}

fn listening(path: &Path) -> std::io::Result<OwnedFd> {
    open_files::raise_towards(CLIENTS_MAX as u64 * FILES_PER_CLIENT + FILES_OF_BROKER);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    listen_at(&socket, path, MODE, BACKLOG)?;
    Ok(socket)
}

/// A connection.
struct Place {
    socket: OwnedFd,
    peer: Peer,
    since: Wall,
}

struct Server {
    fabric: Fabric,
    clock: Clock,
    tree: Tree,
    listener: OwnedFd,
    stopped: OwnedFd,
    clients: BTreeMap<u32, Place>,
    next: u32,
    begun: Wall,
    /// Nothing is accepted earlier: the kernel gave no more connections.
    accepts_from: Option<Wall>,
    open_time: Duration,
    rejected: u64,
    foreign: u64,
    buffer: Vec<u8>,
}

impl Server {
    fn run(&mut self) -> Summary {
        // Sleep ends when the model's next event is due, not 50 us later.
        // SAFETY: this option takes a number and touches no memory.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong, 0, 0, 0) };
        // The start of this thread is no lateness of the model.
        self.clock = Clock::new(self.fabric.dilation);
        loop {
            let begin = Wall::now();
            let works = self.fabric.next_time().is_some();
            // What is due at the beginning of a round happens after its messages were read: a receive that was posted
            // before a message was sent is known when the message arrives.
            let due = self.clock.now();
            if !self.take_messages() {
                break;
            }
            self.take_reports(due);
            self.count(works);
            if works {
                self.clock.worked(begin.elapsed());
            }
        }
        self.summary()
    }

    /// Writes the devices' counters and objects when it is time.
    fn count(&mut self, works: bool) {
        if works {
            self.tree.touch();
        }
        if self.tree.due().is_some_and(|due| due <= Wall::now()) {
            let fabric = &self.fabric;
            let count = |host| fabric.nics.counters(host);
            self.tree
                .write(count, |host| objects::list(fabric, host as u32));
        }
    }

    fn summary(&self) -> Summary {
        let hosts = 0..self.fabric.facts.len();
        Summary {
            messages: self.fabric.messages,
            bytes: self.fabric.bytes,
            stood_still: self.clock.stood_still(),
            ports: hosts
                .map(|host| self.fabric.nics.port_bytes(host))
                .collect(),
            rejected: self.rejected,
            foreign: self.foreign,
            unwritten: self.tree.failed,
        }
    }

    /// Waits until something is due or a message comes; false at the end.
    fn take_messages(&mut self) -> bool {
        let timeout = self.wait().map(|wait| Timespec {
            tv_sec: wait.as_secs().min(3600) as i64,
            tv_nsec: i64::from(wait.subsec_nanos()),
        });
        let numbers: Vec<u32> = self.clients.keys().copied().collect();
        // What finds no place waits in the kernel until one is free.
        let place = numbers.len() < CLIENTS_MAX || self.unopened().next().is_some();
        self.accepts_from = self.accepts_from.filter(|until| Wall::now() < *until);
        let listens = match place && self.accepts_from.is_none() {
            true => PollFlags::IN,
            false => PollFlags::empty(),
        };
        let mut fds = vec![
            PollFd::new(&self.listener, listens),
            PollFd::new(&self.stopped, PollFlags::IN),
        ];
        for place in self.clients.values() {
            let process = place
                .peer
                .pidfd()
                .expect("a place is given to known processes");
            fds.push(PollFd::new(&place.socket, PollFlags::IN));
            fds.push(PollFd::from_borrowed_fd(process, PollFlags::IN));
        }
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return false,
        }
        self.fabric.connections.pass(self.begun.elapsed());
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        for (number, ready) in numbers.into_iter().zip(ready[2..].chunks_exact(2)) {
            match (ready[0], ready[1]) {
                (_, true) => self.leave(number),
                (true, false) => self.drain(number),
                (false, false) => {}
            }
        }
        self.end_places_without_device();
        if ready[0] {
            self.accept();
        }
        !ready[1]
    }

    /// Time until something is due.
    fn wait(&self) -> Option<Duration> {
        let event = self.fabric.next_time().map(|at| self.clock.until(at));
        let unopened = self.unopened().map(|(_, since)| since).min();
        let expires = unopened.map(|since| self.open_time.saturating_sub(since.elapsed()));
        let accepts = self.accepts_from;
        let accepts = accepts.map(|until| until.saturating_duration_since(Wall::now()));
        let rejects = self.fabric.connections.rejects_at();
        let rejects = rejects.map(|until| until.saturating_sub(self.begun.elapsed()));
        let counts = self.tree.due();
        let counts = counts.map(|due| due.saturating_duration_since(Wall::now()));
        [event, expires, accepts, rejects, counts]
            .into_iter()
            .flatten()
            .min()
    }

    /// Connections without a device.
    fn unopened(&self) -> impl Iterator<Item = (u32, Wall)> {
        let places = self
            .clients
            .iter()
            .map(|(number, place)| (*number, place.since));
        places.filter(|(number, _)| {
            !self.fabric.is_open(*number) && !self.fabric.connections.is_open(*number)
        })
    }

    fn end_places_without_device(&mut self) {
        let late = self
            .unopened()
            .filter(|(_, since)| since.elapsed() >= self.open_time);
        for (number, _) in late.collect::<Vec<_>>() {
            self.reject(number);
        }
    }

    fn take_reports(&mut self, due: Instant) {
        let mut budget = REPORTS_PER_ROUND;
        while budget > 0
            && let Some(at) = self.fabric.next_time()
            && at <= due
        {
            self.clock.late(at);
            self.fabric.nics.run_until(at);
            self.fabric.take_timers(at);
            while let Some((when, report)) = self.fabric.nics.next_report(at) {
                self.fabric.reported(when, report);
                budget = budget.saturating_sub(1);
            }
        }
    }

    fn accept(&mut self) {
        let socket = match accept_with(&self.listener, SocketFlags::CLOEXEC) {
            Ok(socket) => socket,
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return,
            // No descriptors, for example: some may become free.
            Err(_) => {
                self.accepts_from = Some(Wall::now() + PAUSE);
                return;
            }
        };
        // A process that ended meanwhile needs no place.
        let Ok(peer) = Peer::of(&socket) else { return };
        if peer.user() != geteuid().as_raw() || peer.pidfd().is_none() {
            self.foreign += 1;
            return;
        }
        if self.clients.len() >= CLIENTS_MAX {
            let Some((oldest, _)) = self.unopened().min_by_key(|(_, since)| *since) else {
                return;
            };
            self.reject(oldest);
        }
        let place = Place {
            socket,
            peer,
            since: Wall::now(),
        };
        self.clients.insert(self.next, place);
        self.next += 1;
    }

    /// Takes all messages of a client; one that is gone or sends nonsense is dropped.
    fn drain(&mut self, client: u32) {
        for _ in 0..MESSAGES_PER_ROUND {
            let socket = &self.clients[&client].socket;
            let length = match receive(socket, &mut self.buffer, false) {
                Ok((0, _)) => return self.leave(client),
                Ok((length, _)) => length,
                Err(Errno::AGAIN) => return,
                Err(_) => return self.reject(client),
            };
            let buffer = std::mem::take(&mut self.buffer);
            let fits = self.take(client, &mut Reader::new(&buffer[..length]));
            self.buffer = buffer;
            if fits.is_none() {
                return self.reject(client);
            }
        }
    }

    fn leave(&mut self, client: u32) {
        self.fabric.close(client);
        self.tree.touch_objects();
        self.clients.remove(&client);
    }

    fn reject(&mut self, client: u32) {
        self.rejected += 1;
        self.leave(client);
    }

    /// One message; `None` when it is malformed.
    fn take(&mut self, client: u32, reader: &mut Reader<'_>) -> Option<()> {
        let now = self.clock.now();
        let operation = reader.word()?;
        if operation == op::LIST {
            return self.list(client, reader);
        }
        if operation == op::OPEN {
            return self.open(client, reader);
        }
        if operation == op::CM_LISTENS {
            let answer = self.fabric.connections.listens(reader)?;
            return self.answer(client, answer);
        }
        if operation == op::CM_OPEN {
            return self.open_connections(client, reader);
        }
        if self.fabric.connections.is_open(client) {
            let hosts = self.fabric.facts.len() as u32;
            let connections = &mut self.fabric.connections;
            let answer = connections.request(client, operation, reader, hosts)?;
            return self.answer(client, answer);
        }
        if !self.fabric.is_open(client) {
            return None;
        }
        match operation {
            op::POST_SEND => self.fabric.post_sends(now, client, reader),
            op::POST_RECV => self.fabric.post_receives(client, reader),
            op::POST_SRQ_RECV => self.fabric.post_shared(client, reader),
            _ => {
                let answer = self.fabric.request(client, operation, reader)?;
                if answer.is_ok() && !matches!(operation, op::QUERY_QP | op::QUERY_SRQ) {
                    self.tree.touch_objects();
                }
                self.answer(client, answer)
            }
        }
    }

    fn list(&self, client: u32, reader: &mut Reader<'_>) -> Option<()> {
        let (version, host) = (reader.word()?, reader.word()?);
        let shown = |device: &&DeviceFacts| host == u64::MAX || u64::from(device.host) == host;
        let devices: Vec<&DeviceFacts> = self.fabric.facts.iter().filter(shown).collect();
        let mut writer = Writer::of(&[0, devices.len() as u64]);
        for device in devices {
            device.write(&mut writer);
        }
        let answer = match version == VERSION {
            true => Ok((writer, None)),
            false => Err(libc::EPROTO),
        };
        self.answer(client, answer)
    }

    /// A connection that manages connections has no device.
    fn open_connections(&mut self, client: u32, reader: &mut Reader<'_>) -> Option<()> {
        let version = reader.word()?;
        if self.fabric.is_open(client) || self.fabric.connections.is_open(client) {
            return None;
        }
        let answer = match version == VERSION {
            false => Err(libc::EPROTO),
            true => {
                self.fabric.connections.open(client);
                Ok((Writer::of(&[0]), None))
            }
        };
        self.answer(client, answer)
    }

    fn open(&mut self, client: u32, reader: &mut Reader<'_>) -> Option<()> {
        let version = reader.word()?;
        let host = reader.number()?;
        let addr = reader.word()?;
        if self.fabric.is_open(client) || self.fabric.connections.is_open(client) {
            return None;
        }
        let pid = self.clients[&client].peer.process().cast_signed();
        let mut word = [0; 8];
        let span = Span {
            pid,
            addr,
            length: 8,
        };
        let readable = read(span, &mut word) && u64::from_ne_bytes(word) == PROBE;
        let answer = match (version == VERSION, readable) {
            (false, _) => Err(libc::EPROTO),
            (true, false) => Err(libc::EPERM),
            (true, true) => {
                let opened = self.fabric.open(client, pid, host);
                self.tree.touch_objects();
                opened.map(|events| (Writer::of(&[0]), Some(events)))
            }
        };
        self.answer(client, answer)
    }

    /// Sends an answer; `None` when the client takes none.
    fn answer(&self, client: u32, answer: Answered) -> Option<()> {
        let (writer, fd) = match answer {
            Ok(answer) => answer,
            Err(errno) => (Writer::of(&[errno.unsigned_abs().into()]), None),
        };
        let socket = &self.clients[&client].socket;
        // Our library waits for each answer before its next request, so that there is room. Another client is not waited for.
        send(socket, writer.bytes(), fd.as_ref().map(AsFd::as_fd), false).ok()
    }
}
