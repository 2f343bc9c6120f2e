//! Threads that keep connections to peers: they call, answer, detect the end, and reconnect.
//!
//! Problem: peers start, stop and restart, and setting up a queue pair takes milliseconds that the flow's thread cannot
//! spend. Method: one thread per peer. It sets up a link, passes it to the flow, and then reads from a stream that
//! carries no data. The stream ends when the peer ends (the kernel closes it) or when the link fails (the flow shuts it
//! down). The thread then retries, after [`RETRY_MIN`] at first and twice as long each time, up to [`RETRY_MAX`].
//! Limits: TCP keep-alive detects a machine without power after about ten seconds.

use super::failures::Failures;
use super::flow::{Command, Event, Handle};
use super::handshake::{Endpoint, HandshakeError, answer, call};
use super::port::{LINKS_MAX, Link};
use isolane_common_linux::key::Key;
use isolane_common_linux::listener::{Connection, Listener, STACK_BYTES};
use isolane_common_linux::pool::{Pool, PoolLimits};
use isolane_common_linux::stream::Timed;
use rustix::net::sockopt::{
    set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl, set_tcp_nodelay,
};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// First pause before a retry.
pub(super) const RETRY_MIN: Duration = Duration::from_millis(100);
/// Longest pause before a retry.
pub(super) const RETRY_MAX: Duration = Duration::from_secs(10);
/// Longest duration of a handshake.
const PATIENCE: Duration = Duration::from_secs(5);
/// Largest number of authenticated callers: all links of a few devices.
const CALLERS_MAX: usize = 4 * LINKS_MAX;
/// Largest number of unauthenticated connections.
const STRANGERS_MAX: usize = 64;
/// Seconds of silence before the first TCP keep-alive probe, and between probes.
const ALIVE_S: u64 = 5;

/// Output for lines for people.
#[derive(Clone, Debug)]
pub(super) struct Notes {
    pub(super) events: Sender<(usize, Event)>,
    pub(super) bell: Arc<super::flow::Bell>,
}

impl Notes {
    fn say(&self, device: usize, text: String) {
        let _ = self.events.send((device, Event::Note(text)));
        self.bell.ring();
    }
}

/// Keeps a link between two devices of this daemon, or of a device with itself. The reference flow starts at `ours`.
pub(super) fn keep_here(
    ours: (usize, Handle),
    theirs: Handle,
    notes: Notes,
) -> std::io::Result<()> {
    let (device, ours) = ours;
    let name = format!("peer {}", theirs.port.name());
    spawn(&name.clone(), move || {
        keep(device, &name, &notes, || {
            let (alive, end) = UnixStream::pair()?;
            let (mut near, mut far) = (ours.port.prepare()?, theirs.port.prepare()?);
            let [ours_end, theirs_end] = [
                near.endpoint(theirs.port.name()),
                far.endpoint(ours.port.name()),
            ];
            far.connect(ours_end)?;
            near.connect(theirs_end)?;
            near.carries_reference = true;
            let itself = Arc::ptr_eq(&ours.port, &theirs.port);
            (near.reports, far.reports) = (!itself, !itself);
            near.alive = Some(alive.try_clone()?.into());
            far.alive = Some(alive.into());
            let numbers = [near.number, far.number];
            theirs.tell(Command::Add(Box::new(far)));
            ours.tell(Command::Add(Box::new(near)));
            let (ours, theirs) = (ours.clone(), theirs.clone());
            Ok(Kept {
                stream: end.into(),
                ended: Box::new(move || {
                    ours.tell(Command::Remove(numbers[0]));
                    theirs.tell(Command::Remove(numbers[1]));
                }),
            })
        });
    })
}

/// Keeps a link to a device of another daemon.
pub(super) fn keep_there(
    ours: (usize, Handle),
    address: SocketAddr,
    wanted: String,
    key: Key,
    notes: Notes,
) -> std::io::Result<()> {
    let (device, ours) = ours;
    let name = format!("peer {wanted} at {address}");
    spawn(&name.clone(), move || {
        keep(device, &name, &notes, || {
            let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
            prepare(&stream)?;
            let mut link = ours.port.prepare()?;
            let mut timed = Timed::new(&stream, Instant::now(), PATIENCE);
            let theirs = call(&mut timed, &key, &link.endpoint(&wanted))?;
            link.connect(theirs)?;
            link.carries_reference = true;
            watched(&ours, link, stream.into())
        });
    })
}

/// Answers calls of other daemons. `handles` are the devices that they may reach.
pub(super) fn answer_all(
    listener: TcpListener,
    handles: Vec<(usize, Handle)>,
    key: Key,
    notes: Notes,
) -> std::io::Result<()> {
    let limits = PoolLimits {
        strangers: PoolLimits::shared(STRANGERS_MAX),
        grace: Duration::ZERO,
        sessions: PoolLimits::shared(CALLERS_MAX),
        // A handshake's messages have a fixed length.
        memory_bytes: 0,
    };
    let listener = Listener::new(listener, Pool::new("peers", limits))?;
    let failures = Arc::new(Mutex::new(Failures::default()));
    let device = handles.first().map_or(0, |(device, _)| *device);
    let short = notes.clone();
    spawn("peering", move || {
        let begin = |connection: Connection| {
            let (handles, key, notes) = (handles.clone(), key.clone(), notes.clone());
            let failures = Arc::clone(&failures);
            spawn("peer", move || {
                let from = connection.from;
                if let Err(error) = answer_one(connection, &handles, &key)
                    && let Some(from) = from
                {
                    let text = format!("the call from {from} failed: {error}");
                    let mut failures = failures.lock().unwrap_or_else(PoisonError::into_inner);
                    let line = failures.line(Instant::now(), from.ip(), &text);
                    if let Some(line) = line {
                        notes.say(device, line);
                    }
                }
            })
        };
        listener.serve(None, begin, |line| short.say(device, line.to_owned()));
    })
}

/// Answers a call, and keeps its link until it ends.
fn answer_one(
    mut connection: Connection,
    handles: &[(usize, Handle)],
    key: &Key,
) -> Result<(), HandshakeError> {
    prepare(&connection.stream)?;
    let mut timed = connection.timed(PATIENCE);
    let place = &mut connection.place;
    let (_, (handle, link)) = answer(&mut timed, key, |theirs: &Endpoint| {
        place.authenticated().map_err(|full| full.to_string())?;
        let handle = handles
            .iter()
            .find(|(_, handle)| handle.port.name() == theirs.wanted);
        let (_, handle) =
            handle.ok_or_else(|| format!("there is no device {} here", theirs.wanted))?;
        let mut link = handle.port.prepare().map_err(|error| error.to_string())?;
        let ours = link.endpoint(&theirs.device);
        link.connect(theirs.clone())
            .map_err(|error| error.to_string())?;
        Ok((ours, (handle.clone(), link)))
    })?;
    let stream = connection.stream.as_fd().try_clone_to_owned()?;
    watched(&handle, link, stream)?.wait();
    Ok(())
}

/// Ties the link and its stream together: when one ends, the other ends too.
fn watched(handle: &Handle, mut link: Link, stream: OwnedFd) -> Result<Kept, HandshakeError> {
    link.alive = Some(stream.try_clone()?);
    let number = link.number;
    handle.tell(Command::Add(Box::new(link)));
    let handle = handle.clone();
    Ok(Kept {
        stream,
        ended: Box::new(move || handle.tell(Command::Remove(number))),
    })
}

fn prepare(stream: impl AsFd + Copy) -> std::io::Result<()> {
    set_tcp_nodelay(stream, true)?;
    set_socket_keepalive(stream, true)?;
    set_tcp_keepidle(stream, Duration::from_secs(ALIVE_S))?;
    set_tcp_keepintvl(stream, Duration::from_secs(1))?;
    Ok(set_tcp_keepcnt(stream, ALIVE_S as u32)?)
}

/// An established link, and the cleanup at its end.
struct Kept {
    stream: OwnedFd,
    ended: Box<dyn FnOnce()>,
}

impl Kept {
    /// Waits until the peer closes the stream. Ignores received bytes.
    fn wait(self) {
        let mut bytes = [0u8; 64];
        loop {
            match rustix::io::read(&self.stream, &mut bytes) {
                Ok(count) if count > 0 => {}
                Err(rustix::io::Errno::INTR) => {}
                _ => break,
            }
        }
        (self.ended)();
    }
}

/// Sets up a link, waits for its end, and repeats forever. Prints an error when it changes.
fn keep(
    device: usize,
    name: &str,
    notes: &Notes,
    mut connect: impl FnMut() -> Result<Kept, HandshakeError>,
) {
    let mut pause = RETRY_MIN;
    let mut said = String::new();
    loop {
        match connect() {
            Ok(kept) => {
                notes.say(device, format!("{name}: connected"));
                said.clear();
                let since = Instant::now();
                kept.wait();
                notes.say(device, format!("{name}: gone"));
                if since.elapsed() > RETRY_MAX {
                    pause = RETRY_MIN;
                }
            }
            Err(error) => {
                let text = error.to_string();
                if text != said {
                    notes.say(device, format!("{name}: {text}; retrying"));
                    said = text;
                }
            }
        }
        std::thread::sleep(pause);
        pause = next_pause(pause);
    }
}

fn next_pause(pause: Duration) -> Duration {
    (pause * 2).min(RETRY_MAX)
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let name: String = name.chars().filter(|c| *c != '\0').take(15).collect();
    std::thread::Builder::new()
        .name(name)
        .stack_size(STACK_BYTES)
        .spawn(work)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn pauses_double_up_to_a_limit() {
        let mut pauses = vec![RETRY_MIN];
        for _ in 0..10 {
            pauses.push(next_pause(*pauses.last().unwrap()));
        }
        assert_eq!(pauses[1], RETRY_MIN * 2);
        assert_eq!(pauses[10], RETRY_MAX);
    }

    #[test]
    fn strangers_keep_no_peer_out() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        std::fs::write(&file, [b'k'; 40]).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let key = Key::read(&file).unwrap();
        let (events, _heard) = std::sync::mpsc::channel();
        let bell = super::super::flow::Bell::new().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        answer_all(listener, Vec::new(), key.clone(), Notes { events, bell }).unwrap();
        let silent: Vec<TcpStream> = (0..3 * STRANGERS_MAX)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        let ours = Endpoint {
            device: "here".to_owned(),
            wanted: "there".to_owned(),
            mtu: 1_024,
            ..Endpoint::default()
        };
        let mut stream = TcpStream::connect(address).unwrap();
        // The peer is authenticated; only the device is missing.
        let error = call(&mut stream, &key, &ours).unwrap_err();
        assert!(
            error.to_string().contains("there is no device there here"),
            "{error}"
        );
        drop(silent);
    }
}
