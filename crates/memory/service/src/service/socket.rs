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
use rustix::io::ioctl_fionread;
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
        let listener = listen(path, mode, MEMORY_MAX).map_err(|error| DoorError {
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

fn listen(path: &Path, mode: u32, memory_bytes: u64) -> std::io::Result<Listener> {
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
        memory_bytes,
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
    /// A connection that was shed for the memory of the answer still ends.
    waits: bool,
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
        // While an answer waits for memory, no other one is made, which would not be counted either.
        let mut is_short = self.all.iter().any(|connection| connection.waits);
        for mut connection in std::mem::take(&mut self.all) {
            let is_ready = ready.next().unwrap_or(false);
            if connection.turn(now, is_ready, is_short, &mut answer) {
                is_short |= connection.waits;
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
            waits: false,
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
        is_short: bool,
        answer: &mut impl FnMut(Wanted) -> Vec<u8>,
    ) -> bool {
        if now >= self.until {
            self.accepted.late();
            return false;
        }
        if self.answer.is_empty() && !is_short {
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
                    self.waits = true;
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
        if self.waits {
            match self.accepted.place.try_hold(self.answer.len() as u64) {
                Ok(is_held) => self.waits = !is_held,
                Err(_) => return false,
            }
        }
        self.waits || self.write(now)
    }

    fn read(&mut self) -> bool {
        let mut bytes = [0; 16 << 10];
        let stream = &*self.accepted.stream;
        let come = ioctl_fionread(stream).map_or(1, |come| come.clamp(1, bytes.len() as u64));
        match self.accepted.place.try_hold(come) {
            Ok(true) => {}
            Ok(false) => return true,
            Err(_) => return false,
        }
        let read = (&*stream).read(&mut bytes[..come as usize]);
        let count = *read.as_ref().unwrap_or(&0);
        self.accepted.place.release(come - count as u64);
        match read {
            Ok(0) => self.is_last = true,
            Ok(_) => {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    /// Connections that hold `memory_bytes` together at most. Each line gets an answer of `answer_bytes`.
    struct Bench {
        all: Connections,
        answer_bytes: usize,
        stop: OwnedFd,
        _stopper: UnixStream,
        _directory: tempfile::TempDir,
    }

    impl Bench {
        fn new(memory_bytes: u64, answer_bytes: usize) -> Self {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("mem.sock");
            let listener = listen(&path, 0o666, memory_bytes).unwrap();
            let (stop, stopper) = UnixStream::pair().unwrap();
            Self {
                all: Connections::new(Door { listener, path }),
                answer_bytes,
                stop: stop.into(),
                _stopper: stopper,
                _directory: directory,
            }
        }

        /// A client that has sent `bytes`, which were read.
        fn sent(&mut self, bytes: &[u8]) -> UnixStream {
            let mut client = UnixStream::connect(&self.all.door.path).unwrap();
            client.set_nonblocking(true).unwrap();
            client.write_all(bytes).unwrap();
            self.turn();
            self.turn();
            client
        }

        fn turn(&mut self) {
            self.all.wait(&self.stop, Duration::ZERO);
            let answer_bytes = self.answer_bytes;
            self.all.serve(|_| vec![b'x'; answer_bytes]);
        }

        /// Bytes that the client gets until the whole answer or the connection's end.
        fn answer(&mut self, mut client: UnixStream) -> usize {
            let (mut taken, mut bytes) = (0, vec![0; 64 << 10]);
            while taken < self.answer_bytes {
                match client.read(&mut bytes) {
                    Ok(0) => break,
                    Ok(count) => taken += count,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => self.turn(),
                    Err(error) => panic!("{error}"),
                }
            }
            taken
        }
    }

    #[test]
    fn a_request_waits_for_the_memory_of_the_connection_that_was_shed_for_it() {
        let mut bench = Bench::new(100, 10);
        let _greedy = bench.sent(&[b'x'; 95]);
        let honest = bench.sent(b"status\n");
        assert_eq!(bench.answer(honest), 10);
    }

    #[test]
    fn an_answer_waits_for_the_memory_of_the_connection_that_was_shed_for_it() {
        let mut bench = Bench::new(3 << 20, 2 << 20);
        let _greedy = bench.sent(b"status\n");
        let honest = bench.sent(b"status\n");
        assert_eq!(bench.answer(honest), 2 << 20);
    }
}
