//! Threads that keep connections to peers: they call, answer, notice the end, and call again.
//!
//! Problem: peers come, die and come back, and setting up a queue pair takes milliseconds that the flow's thread does not
//! have. Method: one thread per peer. It sets a link up, hands it to the flow, and then reads from a stream on which
//! nothing is ever written: its end is the end of the peer (the kernel closes it however the peer dies) or of the link
//! (the flow shuts it down). Then it tries again, after [`RETRY_MIN`] at first and twice as long each time, up to
//! [`RETRY_MAX`].
//! Limits: a machine that loses power is noticed by TCP keep-alive, after about ten seconds.

use super::flow::{Command, Event, Handle};
use super::handshake::{Endpoint, HandshakeError, answer, call};
use super::port::{LINKS_MAX, Link};
use isolane_common_linux::key::Key;
use rustix::net::sockopt::{
    set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl, set_tcp_nodelay,
};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// First pause before calling again.
pub(super) const RETRY_MIN: Duration = Duration::from_millis(100);
/// Longest pause.
pub(super) const RETRY_MAX: Duration = Duration::from_secs(10);
/// How long a peer may take in the handshake.
const PATIENCE: Duration = Duration::from_secs(5);
/// Callers at a time: all links of a few devices, and strangers.
const CALLERS_MAX: usize = 4 * LINKS_MAX;
/// Seconds of silence before TCP asks, and between its questions.
const ALIVE_S: u64 = 5;
/// Stack of a thread that mostly reads.
const STACK_BYTES: usize = 256 << 10;

/// Where a keeper says what people should know.
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

/// Keeps a link between two devices of this daemon, or of a device with itself; the reference flow goes from `ours`.
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
            let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
            prepare(&stream)?;
            let mut link = ours.port.prepare()?;
            let theirs = call(&mut stream, &key, &link.endpoint(&wanted))?;
            link.connect(theirs)?;
            link.carries_reference = true;
            watched(&ours, link, stream)
        });
    })
}

/// Answers other daemons that call. `handles` are the devices that they may reach.
pub(super) fn answer_all(
    listener: TcpListener,
    handles: Vec<(usize, Handle)>,
    key: Key,
    notes: Notes,
) -> std::io::Result<()> {
    let callers = Arc::new(AtomicUsize::new(0));
    spawn("peering", move || {
        loop {
            let Ok((stream, from)) = listener.accept() else {
                // Out of descriptors, most likely: others may give some back.
                std::thread::sleep(RETRY_MIN);
                continue;
            };
            if callers.fetch_add(1, Ordering::Relaxed) >= CALLERS_MAX {
                callers.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let (handles, key, notes, count) = (
                handles.clone(),
                key.clone(),
                notes.clone(),
                Arc::clone(&callers),
            );
            let serve = move || {
                let device = handles.first().map_or(0, |(device, _)| *device);
                match answer_one(stream, &handles, &key) {
                    Ok(kept) => kept.wait(),
                    Err(error) => notes.say(
                        device,
                        format!("a call from {from} came to nothing: {error}"),
                    ),
                }
                count.fetch_sub(1, Ordering::Relaxed);
            };
            if spawn("peer", serve).is_err() {
                callers.fetch_sub(1, Ordering::Relaxed);
            }
        }
    })
}

fn answer_one(
    mut stream: TcpStream,
    handles: &[(usize, Handle)],
    key: &Key,
) -> Result<Kept, HandshakeError> {
    prepare(&stream)?;
    let (_, (handle, link)) = answer(&mut stream, key, |theirs: &Endpoint| {
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
    watched(&handle, link, stream)
}

/// A link that lives as long as its stream, and the other way round.
fn watched(handle: &Handle, mut link: Link, stream: TcpStream) -> Result<Kept, HandshakeError> {
    stream.set_read_timeout(None)?;
    link.alive = Some(stream.try_clone()?.into());
    let number = link.number;
    handle.tell(Command::Add(Box::new(link)));
    let handle = handle.clone();
    Ok(Kept {
        stream: stream.into(),
        ended: Box::new(move || handle.tell(Command::Remove(number))),
    })
}

fn prepare(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    set_tcp_nodelay(stream, true)?;
    set_socket_keepalive(stream, true)?;
    set_tcp_keepidle(stream, Duration::from_secs(ALIVE_S))?;
    set_tcp_keepintvl(stream, Duration::from_secs(1))?;
    Ok(set_tcp_keepcnt(stream, ALIVE_S as u32)?)
}

/// A link that is up, and what to do at its end.
struct Kept {
    stream: OwnedFd,
    ended: Box<dyn FnOnce()>,
}

impl Kept {
    /// Until the other end has gone. What it writes is of no interest.
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

/// Sets a link up, waits for its end, and begins again, for ever. What goes wrong is said when it changes.
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
                    notes.say(device, format!("{name}: {text}; trying again"));
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

    #[test]
    fn pauses_double_up_to_a_limit() {
        let mut pauses = vec![RETRY_MIN];
        for _ in 0..10 {
            pauses.push(next_pause(*pauses.last().unwrap()));
        }
        assert_eq!(pauses[1], RETRY_MIN * 2);
        assert_eq!(pauses[10], RETRY_MAX);
    }
}
