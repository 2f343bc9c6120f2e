//! A small HTTP server for metrics and snapshots, on a thread of its own.
//!
//! Problem: readers may be slow, many, broken or hostile and must not slow the event loop. Method: sockets never block.
//! Each listener has at most [`CONNECTIONS_MAX`] connections, a request at most [`REQUEST_MAX`] bytes, and an exchange
//! at most [`PATIENCE`]; then the connection is closed. When a listener's places are taken, a newcomer replaces a
//! connection of the peer that holds most ([`place_to_free`]). One `GET` per connection. The snapshot of an answer is
//! at most [`FRESH`] old, so a reader in a tight loop costs the event loop ten snapshots a second. Limits: HTTP/1.0 and
//! 1.1 requests without a body; no TLS. TCP therefore listens on this machine only, unless the operator configures
//! otherwise.

use super::openmetrics;
use crate::settings::Listen;
use crate::snapshot::Snapshot;
use isolane_common_linux::pool::place_to_free;
use isolane_common_linux::socket::listen_for_streams;
use isolane_common_text_output::openmetrics::CONTENT_TYPE;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_peercred;
use std::fs::DirBuilder;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Largest number of connections of one listener. A client between its connect and its request loses its place only
/// when others of its user or address hold this many, however often they connect anew.
pub const CONNECTIONS_MAX: usize = 64;
/// Longest request, bytes.
pub const REQUEST_MAX: usize = 4_096;
/// Longest duration of one exchange.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// A snapshot younger than this is reused.
pub const FRESH: Duration = Duration::from_millis(100);
/// Connections accepted from a listener per turn: accepted connections are served before they can lose their place.
const ACCEPTED_MAX: usize = CONNECTIONS_MAX / 4;
/// Mode of the sockets: the daemon's user and group may connect.
const SOCKET_MODE: u32 = 0o660;

/// Mode of a folder that is made for a socket.
const FOLDER_MODE: u32 = 0o700;
/// Pause after a failed accept: a descriptor may become free.
const PAUSE: Duration = Duration::from_millis(100);
/// Connections that the kernel queues before they are accepted.
const BACKLOG: i32 = 128;

/// The source of snapshots.
pub trait Source: Send {
    /// A fresh snapshot; `None` while the daemon is too busy or ends.
    fn snapshot(&mut self) -> Option<Snapshot>;
}

/// Why the server cannot listen.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen at {place}: {error}{remedy}")]
pub struct ServerError {
    place: String,
    error: std::io::Error,
    remedy: &'static str,
}

impl ServerError {
    /// The thread or its descriptors cannot be made.
    pub(crate) fn thread(error: std::io::Error) -> Self {
        failed("metrics' own thread".to_owned(), error)
    }
}

/// The pages of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// Only `/metrics`.
    Metrics,
    /// `/metrics` and `/snapshot`.
    Everything,
}

/// The server; its thread runs [`Server::run`].
pub struct Server<S> {
    listeners: Vec<Listener>,
    connections: Vec<Connection>,
    source: S,
    latest: Option<(Instant, Arc<Snapshot>)>,
    /// Nothing is accepted earlier: no descriptor was left.
    accepts_from: Option<Instant>,
    stop: OwnedFd,
}

struct Listener {
    socket: Socket,
    shown: Shown,
    /// Path of a Unix socket, removed when the server ends.
    path: Option<PathBuf>,
}

enum Socket {
    Unix(UnixListener),
    Tcp(TcpListener),
}

enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// The owner of a connection, for limits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Peer {
    User(u32),
    Address(IpAddr),
    Unknown,
}

struct Connection {
    stream: Stream,
    /// Index of the listener.
    listener: usize,
    peer: Peer,
    shown: Shown,
    until: Instant,
    request: Vec<u8>,
    answer: Vec<u8>,
    written: usize,
}

impl<S: Source> Server<S> {
    /// A server without listeners; it ends when `stop` is readable.
    pub fn new(source: S, stop: OwnedFd) -> Self {
        Self {
            listeners: Vec::new(),
            connections: Vec::new(),
            source,
            latest: None,
            accepts_from: None,
            stop,
        }
    }

    /// Listens at `place`. Replaces a Unix socket without a listener. Fails if the address is taken or not permitted.
    pub fn listen(&mut self, place: &Listen, shown: Shown) -> Result<(), ServerError> {
        let (socket, path) = match place {
            Listen::Unix(path) => {
                let failed = |error| failed(path.display().to_string(), error);
                (
                    Socket::Unix(unix(path).map_err(failed)?),
                    Some(path.clone()),
                )
            }
            Listen::Tcp(address) => {
                let listener = TcpListener::bind(address)
                    .and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
                let failed = |error| failed(address.to_string(), error);
                (Socket::Tcp(listener.map_err(failed)?), None)
            }
        };
        self.listeners.push(Listener {
            socket,
            shown,
            path,
        });
        Ok(())
    }

    /// Address of the first TCP listener, for tests that let the kernel choose the port.
    pub fn address(&self) -> Option<std::net::SocketAddr> {
        self.listeners
            .iter()
            .find_map(|listener| match &listener.socket {
                Socket::Tcp(socket) => socket.local_addr().ok(),
                Socket::Unix(_) => None,
            })
    }

    /// Serves until the stop descriptor is readable.
    pub fn run(mut self) {
        while self.turn() {}
        for listener in &self.listeners {
            if let Some(path) = &listener.path {
                // Best effort: the next start replaces the file.
                let _ = std::fs::remove_file(path);
            }
        }
    }

    /// Waits for one round of events and handles it. False means stop.
    fn turn(&mut self) -> bool {
        let (stopped, ready) = {
            let mut wanted = vec![PollFd::new(&self.stop, PollFlags::IN)];
            for connection in &self.connections {
                let flags = match connection.answer.is_empty() {
                    true => PollFlags::IN,
                    false => PollFlags::OUT,
                };
                wanted.push(PollFd::from_borrowed_fd(connection.stream.as_fd(), flags));
            }
            if self.accepts_from.is_none() {
                let sockets = self.listeners.iter().map(|one| one.socket.as_fd());
                wanted
                    .extend(sockets.map(|socket| PollFd::from_borrowed_fd(socket, PollFlags::IN)));
            }
            let connections = self.connections.iter().map(|connection| connection.until);
            let until = connections.chain(self.accepts_from).min();
            let timeout = until.map(|until| {
                let left =
                    until.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
                Timespec {
                    tv_sec: left.as_secs().cast_signed(),
                    tv_nsec: left.subsec_nanos().into(),
                }
            });
            if poll(&mut wanted, timeout.as_ref()).is_err() {
                return true;
            }
            let ready: Vec<bool> = wanted
                .iter()
                .map(|wanted| !wanted.revents().is_empty())
                .collect();
            (ready[0], ready)
        };
        if stopped {
            return false;
        }
        let (connections, listeners) = ready[1..].split_at(self.connections.len());
        let now = Instant::now();
        self.accepts_from = self.accepts_from.filter(|until| now < *until);
        let mut kept = Vec::with_capacity(self.connections.len());
        for (mut connection, ready) in std::mem::take(&mut self.connections)
            .into_iter()
            .zip(connections)
        {
            let alive = now < connection.until && (!ready || self.serve(&mut connection, now));
            if alive {
                kept.push(connection);
            }
        }
        self.connections = kept;
        for (index, ready) in listeners.iter().enumerate() {
            if *ready {
                self.accept(index, now);
            }
        }
        true
    }

    fn accept(&mut self, index: usize, now: Instant) {
        for _ in 0..ACCEPTED_MAX {
            let listener = &self.listeners[index];
            let (stream, peer) = match listener.socket.accept() {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Waiting again at once would compute without pause.
                    let empty = error.kind() == ErrorKind::WouldBlock;
                    self.accepts_from = (!empty).then(|| now + PAUSE);
                    return;
                }
            };
            let shown = listener.shown;
            self.make_room(index);
            self.connections.push(Connection {
                stream,
                listener: index,
                peer,
                shown,
                until: now + PATIENCE,
                request: Vec::new(),
                answer: Vec::new(),
                written: 0,
            });
        }
    }

    /// Frees a place of this listener if all are taken.
    fn make_room(&mut self, listener: usize) {
        let all = self.connections.iter().enumerate();
        let held: Vec<(Peer, usize)> = all
            .filter(|(_, connection)| connection.listener == listener)
            .map(|(place, connection)| (connection.peer, place))
            .collect();
        if held.len() >= CONNECTIONS_MAX
            && let Some(place) = place_to_free(held.into_iter())
        {
            self.connections.remove(place);
        }
    }

    /// Reads or writes as much as possible. False means that the connection is finished.
    fn serve(&mut self, connection: &mut Connection, now: Instant) -> bool {
        if connection.answer.is_empty() {
            let mut bytes = [0; 1024];
            match connection.stream.read(&mut bytes) {
                Ok(0) => return false,
                Ok(count) => connection.request.extend(&bytes[..count]),
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
            match request(&connection.request) {
                Asked::More => return true,
                Asked::Refused(status) => connection.answer = answer(status, "text/plain", status),
                Asked::Path(path) => connection.answer = self.answer(&path, connection.shown, now),
            }
        }
        loop {
            match connection
                .stream
                .write(&connection.answer[connection.written..])
            {
                Ok(0) => return false,
                Ok(count) => connection.written += count,
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
            if connection.written == connection.answer.len() {
                connection.stream.finish();
                return false;
            }
        }
    }

    fn answer(&mut self, path: &str, shown: Shown, now: Instant) -> Vec<u8> {
        let is_snapshot = path == "/snapshot" && shown == Shown::Everything;
        if path != "/metrics" && !is_snapshot {
            return answer(
                "404 Not Found",
                "text/plain",
                "not found; this server has /metrics\n",
            );
        }
        let fresh = self
            .latest
            .as_ref()
            .filter(|(at, _)| now.duration_since(*at) < FRESH);
        let snapshot = match fresh {
            Some((_, snapshot)) => Arc::clone(snapshot),
            None => match self.source.snapshot() {
                Some(snapshot) => {
                    let snapshot = Arc::new(snapshot);
                    self.latest = Some((now, Arc::clone(&snapshot)));
                    snapshot
                }
                None => {
                    return answer(
                        "503 Service Unavailable",
                        "text/plain",
                        "the daemon is busy or ends; retry\n",
                    );
                }
            },
        };
        if !is_snapshot {
            return answer(
                "200 OK",
                CONTENT_TYPE,
                &openmetrics::render(&snapshot, &others()),
            );
        }
        match serde_json::to_string(&*snapshot) {
            Ok(text) => answer("200 OK", "application/json", &(text + "\n")),
            Err(_) => answer(
                "500 Internal Server Error",
                "text/plain",
                "the snapshot cannot be written as JSON\n",
            ),
        }
    }
}

fn failed(place: String, error: std::io::Error) -> ServerError {
    let remedy = match error.kind() {
        ErrorKind::AddrInUse => "; another daemon runs here, or choose another place",
        ErrorKind::PermissionDenied => "; run as root or choose another place",
        ErrorKind::NotFound => "; make the directory first",
        _ => "",
    };
    ServerError {
        place,
        error,
        remedy,
    }
}

/// Opens a listening socket at `path`. Replaces the socket of a dead daemon, but no living daemon's and no other file.
fn unix(path: &Path) -> std::io::Result<UnixListener> {
    if let Some(folder) = path.parent() {
        // Only the superuser may open the default folder; an existing folder keeps its mode.
        let made = DirBuilder::new().mode(FOLDER_MODE).create(folder);
        made.or_else(|error| match error.kind() {
            ErrorKind::AlreadyExists => Ok(()),
            _ => Err(error),
        })?;
    }
    listen_for_streams(path, SOCKET_MODE, BACKLOG)
}

/// What the bytes of a request say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The request has no end yet.
    More,
    /// The path of a `GET`.
    Path(String),
    /// The status of an invalid request.
    Refused(&'static str),
}

/// Parses the bytes received so far.
pub fn request(bytes: &[u8]) -> Asked {
    let ended = bytes.windows(4).any(|part| part == b"\r\n\r\n")
        || bytes.windows(2).any(|part| part == b"\n\n");
    if !ended {
        return match bytes.len() <= REQUEST_MAX {
            true => Asked::More,
            false => Asked::Refused("431 Request Header Fields Too Large"),
        };
    }
    let line = bytes.split(|&byte| byte == b'\n').next().unwrap_or(b"");
    let Ok(line) = std::str::from_utf8(line) else {
        return Asked::Refused("400 Bad Request");
    };
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        ["GET", path, version] if version.starts_with("HTTP/1.") => {
            Asked::Path(path.split('?').next().unwrap_or("").to_owned())
        }
        [_, _, version] if version.starts_with("HTTP/1.") => {
            Asked::Refused("405 Method Not Allowed")
        }
        _ => Asked::Refused("400 Bad Request"),
    }
}

fn answer(status: &str, kind: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}").into_bytes()
}

impl Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(socket) => socket.as_fd(),
            Self::Tcp(socket) => socket.as_fd(),
        }
    }

    fn accept(&self) -> std::io::Result<(Stream, Peer)> {
        match self {
            Self::Unix(socket) => {
                let (stream, _) = socket.accept()?;
                stream.set_nonblocking(true)?;
                let peer = socket_peercred(&stream);
                let peer = peer.map_or(Peer::Unknown, |peer| Peer::User(peer.uid.as_raw()));
                Ok((Stream::Unix(stream), peer))
            }
            Self::Tcp(socket) => {
                let (stream, from) = socket.accept()?;
                stream.set_nonblocking(true)?;
                Ok((Stream::Tcp(stream), Peer::Address(from.ip())))
            }
        }
    }
}

impl Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
        }
    }

    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(bytes),
            Self::Tcp(stream) => stream.read(bytes),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(bytes),
            Self::Tcp(stream) => stream.write(bytes),
        }
    }

    /// Closes the sending side. A failure means that the reader has closed.
    fn finish(&self) {
        let both = std::net::Shutdown::Write;
        let _ = match self {
            Self::Unix(stream) => stream.shutdown(both),
            Self::Tcp(stream) => stream.shutdown(both),
        };
    }
}

/// Metrics of Titan's attachments on this machine, empty if there are none or the permission is missing; and of this
/// process's memory service, if it runs.
fn others() -> String {
    let system = isolane_ethernet_attach::System::machine();
    let cards = isolane_ethernet_attach::openmetrics::families(&system).unwrap_or_default();
    cards + &isolane_memory_service::service::metrics::latest()
}

#[cfg(test)]
mod tests;
