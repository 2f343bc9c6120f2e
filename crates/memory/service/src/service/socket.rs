//! Connections within bounds: few, with short requests, and none waits for another.
//!
//! Problem: readers and writers may be slow, many, broken or hostile, and none may slow the loop or make it grow.
//! Method: a bounded listener ([`isolane_common_linux::listener`]) whose sockets never block. At most
//! [`CONNECTIONS_MAX`] connections, whose lines and answers hold [`MEMORY_MAX`] bytes; one line of each is answered per
//! turn, and nothing more is read of one that has an answer waiting. A connection that does not finish a request or take
//! its answer within [`PATIENCE`], or sends no request for [`IDLE`], is closed. When all places are taken, a newcomer
//! gets that of the account that holds most, and of that account's a connection without a request so far, or else the
//! one whose last request is longest ago.

use crate::protocol::REQUEST_MAX;
use crate::protocol::line::Lines;
use isolane_common_linux::listener::{Connection as Accepted, Listener};
use isolane_common_linux::peer::Peer;
use isolane_common_linux::pool::{GRACE, Pool, PoolLimits};
use isolane_common_linux::socket::{listen_for_streams, make_client_folder};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub(super) const CONNECTIONS_MAX: usize = 64;
/// Memory of all lines and answers, bytes: each connection holds a piece that is read, a request and an answer.
const MEMORY_MAX: u64 = 32 << 20;
/// Connections that one turn takes: what has come is served before it can lose its place.
const ACCEPTED_MAX: usize = CONNECTIONS_MAX / 4;
/// How long a request or an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a connection may be without a request.
const IDLE: Duration = Duration::from_secs(120);

/// Connections that the kernel keeps.
const BACKLOG: i32 = 128;

/// Why the service cannot listen.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen at {}: {error}{remedy}", path.display())]
pub struct DoorError {
    path: PathBuf,
    error: std::io::Error,
    remedy: &'static str,
}

/// The listening socket; its file goes with it.
#[derive(Debug)]
pub struct Door {
    listener: Listener,
    path: PathBuf,
}

impl Door {
    /// Listens at `path`, for users that `mode` lets connect. A socket without a listener is replaced; other files and
    /// sockets in use are not. Fails if the place is taken or not allowed.
    pub fn open(path: &Path, mode: u32) -> Result<Self, DoorError> {
        let listener = listen(path, mode).map_err(|error| DoorError {
            path: path.to_owned(),
            remedy: match error.kind() {
                ErrorKind::AddrInUse => "; another service runs here, or choose another place",
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                    "; run as root or choose another place"
                }
                _ => "; choose another place",
            },
            error,
        })?;
        Ok(Self {
            listener,
            path: path.to_owned(),
        })
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        // Best effort: the next start replaces it.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn listen(path: &Path, mode: u32) -> std::io::Result<Listener> {
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        make_client_folder(folder)?;
    }
    let limits = PoolLimits {
        strangers: PoolLimits::shared(CONNECTIONS_MAX),
        grace: GRACE,
        // Every local process may send requests, so no connection has a session.
        sessions: PoolLimits::shared(1),
        memory_bytes: MEMORY_MAX,
    };
    let socket = listen_for_streams(path, mode, BACKLOG)?;
    Listener::new(socket, Pool::new("memory", limits))
}

#[derive(Debug)]
pub(super) enum Wanted {
    /// An answer to a line of this process, and whether it is a process of this host.
    Line(Vec<u8>, Option<u32>, Result<(), String>),
    /// A last answer: what it sent is no line.
    Nonsense(String),
}

#[derive(Debug)]
pub(super) struct Connections {
    door: Door,
    all: Vec<Connection>,
    /// Who is ready after the last wait: the door, then each connection.
    ready: Vec<bool>,
}

#[derive(Debug)]
struct Connection {
    accepted: Accepted,
    lines: Lines,
    answer: Vec<u8>,
    written: usize,
    until: Instant,
    /// A whole line may wait in `lines`.
    is_pending: bool,
    /// No more is read: it ended its side, or sent nonsense.
    is_last: bool,
}

impl Connections {
    pub(super) fn new(door: Door) -> Self {
        Self {
            door,
            all: Vec::new(),
            ready: Vec::new(),
        }
    }

    /// Waits for anything, for at most `left`. True: stop.
    pub(super) fn wait(&mut self, stop: &OwnedFd, left: Duration) -> bool {
        let now = Instant::now();
        let until = self
            .all
            .iter()
            .map(|connection| connection.until.saturating_duration_since(now));
        let mut left = until.min().map_or(left, |until| until.min(left));
        let closed = self.door.listener.closed_until();
        if let Some(until) = closed {
            left = left.min(until.saturating_duration_since(now));
        }
        if self
            .all
            .iter()
            .any(|connection| connection.is_pending && connection.answer.is_empty())
        {
            left = Duration::ZERO;
        }
        // Rounded up, so that what is due is due after the wait.
        let left = left + Duration::from_micros(50);
        let timeout = Timespec {
            tv_sec: left.as_secs().cast_signed(),
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut wanted = vec![PollFd::new(stop, PollFlags::IN)];
        let door = match closed.is_none() {
            true => PollFlags::IN,
            false => PollFlags::empty(),
        };
        wanted.push(PollFd::from_borrowed_fd(self.door.listener.as_fd(), door));
        wanted.extend(self.all.iter().map(Connection::poll_fd));
        if poll(&mut wanted, Some(&timeout)).is_err() {
            self.ready = Vec::new();
            return false;
        }
        let mut ready = wanted.iter().map(|wanted| !wanted.revents().is_empty());
        let is_stop = ready.next().unwrap_or(false);
        self.ready = ready.collect();
        is_stop
    }

    /// Reads, answers at most one line of each, and writes.
    pub(super) fn serve(&mut self, mut answer: impl FnMut(Wanted) -> Vec<u8>) {
        let now = Instant::now();
        let ready = std::mem::take(&mut self.ready);
        let mut ready = ready.into_iter();
        let is_somebody_there = ready.next().unwrap_or(false);
        let mut kept = Vec::with_capacity(self.all.len());
        for mut connection in std::mem::take(&mut self.all) {
            let is_ready = ready.next().unwrap_or(false);
            if connection.turn(now, is_ready, &mut answer) {
                kept.push(connection);
            }
        }
        self.all = kept;
        let come = if is_somebody_there { ACCEPTED_MAX } else { 0 };
        for _ in 0..come {
            // A failure is counted, and the listener rests.
            let Ok(Some(accepted)) = self.door.listener.take() else {
                return;
            };
            self.all.push(Connection::new(accepted, now));
        }
    }
}

impl Connection {
    fn new(accepted: Accepted, now: Instant) -> Self {
        Self {
            accepted,
            lines: Lines::new(REQUEST_MAX),
            answer: Vec::new(),
            written: 0,
            until: now + PATIENCE,
            is_pending: false,
            is_last: false,
        }
    }

    fn poll_fd(&self) -> PollFd<'_> {
        let flags = match (self.answer.is_empty(), self.is_pending || self.is_last) {
            (false, _) => PollFlags::OUT,
            (true, true) => PollFlags::empty(),
            (true, false) => PollFlags::IN,
        };
        PollFd::from_borrowed_fd(self.accepted.stream.as_fd(), flags)
    }

    /// False: done with it.
    fn turn(
        &mut self,
        now: Instant,
        is_ready: bool,
        answer: &mut impl FnMut(Wanted) -> Vec<u8>,
    ) -> bool {
        if now >= self.until {
            self.accepted.late();
            return false;
        }
        if self.answer.is_empty() {
            if is_ready && !self.is_pending && !self.is_last && !self.read() {
                return false;
            }
            match self.lines.next_line() {
                Ok(Some(line)) => {
                    let place = &mut self.accepted.place;
                    place.served();
                    place.release(line.len() as u64 + 1);
                    let peer = Peer::of(&*self.accepted.stream).map_err(|error| error.to_string());
                    let host =
                        peer.and_then(|peer| peer.check_host().map_err(|error| error.to_string()));
                    self.answer = answer(Wanted::Line(line, self.accepted.process, host));
                    if place.hold(self.answer.len() as u64, now).is_err() {
                        return false;
                    }
                    self.is_pending = true;
                    self.until = now + PATIENCE;
                }
                Ok(None) => {
                    self.is_pending = false;
                    if self.is_last {
                        return false;
                    }
                }
                Err(error) => {
                    self.answer = answer(Wanted::Nonsense(error.to_string()));
                    (self.is_pending, self.is_last) = (false, true);
                    self.lines = Lines::new(0);
                    self.accepted.place.release(u64::MAX);
                    self.until = now + PATIENCE;
                }
            }
        }
        self.write(now)
    }

    fn read(&mut self) -> bool {
        let mut bytes = [0; 16 << 10];
        match (&*self.accepted.stream).read(&mut bytes) {
            Ok(0) => self.is_last = true,
            Ok(count) => {
                let now = Instant::now();
                if !self.lines.is_partial() {
                    self.until = now + PATIENCE;
                }
                if self.accepted.place.hold(count as u64, now).is_err() {
                    return false;
                }
                self.lines.push(&bytes[..count]);
            }
            Err(error) => {
                return matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted);
            }
        }
        true
    }

    fn write(&mut self, now: Instant) -> bool {
        while self.written < self.answer.len() {
            match (&*self.accepted.stream).write(&self.answer[self.written..]) {
                Ok(0) => return false,
                Ok(count) => self.written += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
        if !self.answer.is_empty() {
            self.accepted.place.release(self.answer.len() as u64);
            (self.answer, self.written) = (Vec::new(), 0);
            self.until = now + IDLE;
        }
        true
    }
}
