//! A small HTTP server for metrics and snapshots, on a thread of its own.
//!
//! Problem: readers may be slow, many, broken or hostile and must not slow the event loop. Method: bounded listeners
//! ([`isolane_common_linux::listener`]) whose sockets never block. Each has at most [`CONNECTIONS_MAX`] connections, a
//! request at most [`REQUEST_MAX`] bytes, all answers [`ANSWERS_MAX`], and an exchange at most [`PATIENCE`]; then the
//! connection is closed. When a listener's places are taken, a newcomer replaces a connection of the account that holds
//! most. One `GET` per connection. The snapshot of an answer is at most [`FRESH`] old, so a reader in a tight loop costs
//! the event loop ten snapshots a second. Limits: HTTP/1.0 and 1.1 requests without a body; no TLS. TCP therefore
//! listens on this machine only, unless the operator configures otherwise.

use super::openmetrics;
use crate::settings::Listen;
use crate::snapshot::Snapshot;
use isolane_common_linux::listener::{Connection as Accepted, Listener as Bounded};
use isolane_common_linux::pool::{GRACE, Pool, PoolLimits};
use isolane_common_linux::socket::listen_for_streams;
use isolane_common_linux::stream::timespec;
use isolane_common_linux::tally;
use isolane_common_text_output::openmetrics::CONTENT_TYPE;
use rustix::event::{PollFd, PollFlags, poll};
use std::fs::DirBuilder;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
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

/// Mode of a directory that is made for a socket.
const FOLDER_MODE: u32 = 0o700;
/// Memory of all answers of one listener, bytes. A thousand sessions take about 4 MiB.
pub const ANSWERS_MAX: u64 = 64 << 20;
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
    stop: OwnedFd,
}

struct Listener {
    bounded: Bounded,
    shown: Shown,
    /// Path of a Unix socket, removed when the server ends.
    path: Option<PathBuf>,
}

struct Connection {
    accepted: Accepted,
    shown: Shown,
    request: Vec<u8>,
    answer: Vec<u8>,
    written: usize,
    /// Its request is whole, and a connection that was shed for its answer still ends.
    waits: bool,
}

impl Connection {
    fn until(&self) -> Instant {
        self.accepted.since() + PATIENCE
    }
}

impl<S: Source> Server<S> {
    /// A server without listeners; it ends when `stop` is readable.
    pub fn new(source: S, stop: OwnedFd) -> Self {
        Self {
            listeners: Vec::new(),
            connections: Vec::new(),
            source,
            latest: None,
            stop,
        }
    }

    /// Listens at `place`. Replaces a Unix socket without a listener. Fails if the address is taken or not permitted.
    pub fn listen(&mut self, place: &Listen, shown: Shown) -> Result<(), ServerError> {
        let (socket, name) = match place {
            Listen::Unix(path) => (unix(path).map(OwnedFd::from), path.display().to_string()),
            Listen::Tcp(address) => {
                let listener = TcpListener::bind(address);
                (listener.map(OwnedFd::from), address.to_string())
            }
        };
        let service = match shown {
            Shown::Metrics => "metrics",
            Shown::Everything => "control",
        };
        let limits = PoolLimits {
            strangers: PoolLimits::shared(CONNECTIONS_MAX),
            grace: GRACE,
            // An exchange never needs a session.
            sessions: PoolLimits::shared(1),
            memory_bytes: ANSWERS_MAX,
        };
        let bounded = socket.and_then(|socket| Bounded::new(socket, Pool::new(service, limits)));
        self.listeners.push(Listener {
            bounded: bounded.map_err(|error| failed(name, error))?,
            shown,
            path: match place {
                Listen::Unix(path) => Some(path.clone()),
                Listen::Tcp(_) => None,
            },
        });
        Ok(())
    }

    /// Address of the first TCP listener, for tests that let the kernel choose the port.
    pub fn address(&self) -> Option<std::net::SocketAddr> {
        let mut listeners = self.listeners.iter();
        listeners.find_map(|listener| listener.bounded.address())
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
        let mut wanted = vec![PollFd::new(&self.stop, PollFlags::IN)];
        let mut until = None;
        for connection in &self.connections {
            let flags = match connection.answer.is_empty() && !connection.waits {
                true => PollFlags::IN,
                false => PollFlags::OUT,
            };
            wanted.push(PollFd::from_borrowed_fd(
                connection.accepted.stream.as_fd(),
                flags,
            ));
            until = earliest(until, Some(connection.until()));
        }
        for listener in &self.listeners {
            let closed = listener.bounded.closed_until();
            let flags = match closed {
                None => PollFlags::IN,
                Some(_) => PollFlags::empty(),
            };
            wanted.push(PollFd::from_borrowed_fd(listener.bounded.as_fd(), flags));
            until = earliest(until, closed);
        }
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if poll(&mut wanted, left.map(timespec).as_ref()).is_err() {
            return true;
        }
        let ready: Vec<bool> = wanted.iter().map(|one| !one.revents().is_empty()).collect();
        drop(wanted);
        if ready[0] {
            return false;
        }
        let (connections, listeners) = ready[1..].split_at(self.connections.len());
        self.serve_all(connections);
        for (index, ready) in listeners.iter().enumerate() {
            if *ready {
                self.accept(index);
            }
        }
        true
    }

    fn serve_all(&mut self, ready: &[bool]) {
        let now = Instant::now();
        let mut kept = Vec::with_capacity(self.connections.len());
        for (mut connection, ready) in std::mem::take(&mut self.connections).into_iter().zip(ready)
        {
            if now >= connection.until() {
                connection.accepted.late();
            } else if !ready || self.serve(&mut connection, now) {
                kept.push(connection);
            }
        }
        self.connections = kept;
    }

    fn accept(&mut self, index: usize) {
        let listener = &self.listeners[index];
        for _ in 0..ACCEPTED_MAX {
            // A failure is counted, and the listener rests.
            let Ok(Some(accepted)) = listener.bounded.take() else {
                return;
            };
            self.connections.push(Connection {
                accepted,
                shown: listener.shown,
                request: Vec::new(),
                answer: Vec::new(),
                written: 0,
                waits: false,
            });
        }
    }

    /// Reads or writes as much as possible. False means that the connection is finished.
    fn serve(&mut self, connection: &mut Connection, now: Instant) -> bool {
        if connection.answer.is_empty() {
            if !connection.waits {
                let mut bytes = [0; 1024];
                match (&*connection.accepted.stream).read(&mut bytes) {
                    Ok(0) => return false,
                    Ok(count) => connection.request.extend(&bytes[..count]),
                    Err(error) => return error.kind() == ErrorKind::WouldBlock,
                }
            }
            let mut made = match request(&connection.request) {
                Asked::More => return true,
                Asked::Refused(status) => answer(status, "text/plain", status),
                Asked::Path(path) => self.answer(&path, connection.shown, now),
            };
            let place = &mut connection.accepted.place;
            place.served();
            match place.try_hold(made.len() as u64) {
                Ok(true) => {}
                // The answer is made again, so that none is kept which is not counted.
                Ok(false) => {
                    connection.waits = true;
                    return true;
                }
                Err(full) => {
                    made = answer(
                        "503 Service Unavailable",
                        "text/plain",
                        &format!("{full}\n"),
                    );
                }
            }
            connection.answer = made;
        }
        loop {
            let rest = &connection.answer[connection.written..];
            match (&*connection.accepted.stream).write(rest) {
                Ok(0) => return false,
                Ok(count) => connection.written += count,
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
            if connection.written == connection.answer.len() {
                connection.accepted.stream.finish();
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

fn earliest(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}

/// Metrics of Titan's attachments on this machine, empty if there are none or the permission is missing; of this
/// process's memory service, if it runs; and of every socket on which this process listens.
fn others() -> String {
    let system = isolane_ethernet_attach::System::machine();
    let cards = isolane_ethernet_attach::openmetrics::families(&system).unwrap_or_default();
    let memory = isolane_memory_service::service::metrics::latest();
    cards + &memory + &super::listeners::families(&tally::figures())
}

#[cfg(test)]
mod tests;
