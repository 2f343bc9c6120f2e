//! Connections within bounds: few, with short requests, and none waits for another.
//!
//! Problem: readers and writers may be slow, many, broken or hostile, and none may slow the loop or make it grow.
//! Method: sockets never block. At most [`CONNECTIONS_MAX`] connections; one line of each is answered per turn, and
//! nothing more is read of one that has an answer waiting. A connection that does not finish a request or take its
//! answer within [`PATIENCE`], or sends no request for [`IDLE`], is closed. When all places are taken, a newcomer gets that of the
//! user who holds most, and of that user's a connection without a request so far, or else the one whose last request is longest ago ([`place_to_free`]).

use crate::protocol::REQUEST_MAX;
use crate::protocol::line::Lines;
use isolane_common_linux::pool::place_to_free;
use isolane_common_linux::socket::{listen_for_streams, make_client_folder};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub(super) const CONNECTIONS_MAX: usize = 64;
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
    listener: UnixListener,
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

fn listen(path: &Path, mode: u32) -> std::io::Result<UnixListener> {
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        make_client_folder(folder)?;
    }
    listen_for_streams(path, mode, BACKLOG)
}

#[derive(Debug)]
pub(super) enum Wanted {
    /// An answer to a line of this process.
    Line(Vec<u8>, Option<u32>),
    /// A last answer: what it sent is no line.
    Nonsense(String),
}

#[derive(Debug)]
pub(super) struct Connections {
    door: Door,
    all: Vec<Connection>,
    /// Who is ready after the last wait: the door, then each connection.
    ready: Vec<bool>,
    /// No connection is accepted until this time, after the kernel had no descriptor for one.
    closed_until: Option<Instant>,
}

/// How long the door stays closed then: what waits would wake us at once otherwise.
const CLOSED: Duration = Duration::from_millis(100);

#[derive(Debug)]
struct Connection {
    stream: UnixStream,
    process: Option<u32>,
    /// The kernel's word; none where it says nothing.
    user: Option<u32>,
    came: Instant,
    /// When its last request came.
    asked: Option<Instant>,
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
            closed_until: None,
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
        self.closed_until = self.closed_until.filter(|until| *until > now);
        if let Some(until) = self.closed_until {
            left = left.min(until - now);
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
        let door = match self.closed_until.is_none() {
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
            let stream = match self.door.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.closed_until = Some(now + CLOSED);
                    return;
                }
            };
            if stream.set_nonblocking(true).is_ok() {
                self.make_room();
                self.all.push(Connection::new(stream, now));
            }
        }
    }

    /// Frees a place if all are taken.
    fn make_room(&mut self) {
        let held = self.all.iter().enumerate();
        // Those that never sent a request come first.
        let held = held.map(|(place, one)| (one.user, (one.asked, one.came, place)));
        if self.all.len() >= CONNECTIONS_MAX
            && let Some((_, _, place)) = place_to_free(held)
        {
            self.all.remove(place);
        }
    }
}

impl Connection {
    fn new(stream: UnixStream, now: Instant) -> Self {
        let peer = sockopt::socket_peercred(&stream).ok();
        let process = peer.map(|peer| peer.pid.as_raw_nonzero().get());
        Self {
            process: process.and_then(|process| u32::try_from(process).ok()),
            user: peer.map(|peer| peer.uid.as_raw()),
            came: now,
            asked: None,
            stream,
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
        let fd: BorrowedFd<'_> = self.stream.as_fd();
        PollFd::from_borrowed_fd(fd, flags)
    }

    /// False: done with it.
    fn turn(
        &mut self,
        now: Instant,
        is_ready: bool,
        answer: &mut impl FnMut(Wanted) -> Vec<u8>,
    ) -> bool {
        if now >= self.until {
            return false;
        }
        if self.answer.is_empty() {
            if is_ready && !self.is_pending && !self.is_last && !self.read() {
                return false;
            }
            match self.lines.next_line() {
                Ok(Some(line)) => {
                    self.asked = Some(now);
                    self.answer = answer(Wanted::Line(line, self.process));
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
                    self.until = now + PATIENCE;
                }
            }
        }
        self.write(now)
    }

    fn read(&mut self) -> bool {
        let mut bytes = [0; 16 << 10];
        match self.stream.read(&mut bytes) {
            Ok(0) => self.is_last = true,
            Ok(count) => {
                if !self.lines.is_partial() {
                    self.until = Instant::now() + PATIENCE;
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
            match self.stream.write(&self.answer[self.written..]) {
                Ok(0) => return false,
                Ok(count) => self.written += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
        if !self.answer.is_empty() {
            (self.answer, self.written) = (Vec::new(), 0);
            self.until = now + IDLE;
        }
        true
    }
}
