//! A TCP link whose faults the run sets: bytes are held, late, or the connections end.
//!
//! Method: a port of loopback that passes bytes on to a target in both directions, a thread for each. Held bytes are
//! delivered when the fault is over, even if the sender has closed its connection meanwhile: the kernel of a partitioned
//! machine also sends again what it has accepted. The end of requests is passed on after the answer, as proxies do, or
//! after [`ANSWER_MAX`]; etcd would drop a request whose sender is gone. Limits: bytes of one direction of a connection keep their order.

use isolane_common_quantities::rng::Stream;
use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What the link does to the bytes of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Passes them on.
    Open,
    /// Keeps them until the mode changes.
    Hold,
    /// Keeps each piece for a random time, at most [`LATE_MAX_MS`].
    Late,
}

/// Longest delay of a piece: longer than a server waits for etcd.
const LATE_MAX_MS: u64 = 2_000;
/// Longest time for which the end of requests waits for the answer.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// Stack of a thread, bytes; the threads only copy.
const STACK_BYTES: usize = 128 << 10;

#[derive(Debug)]
struct Inner {
    target: Option<SocketAddr>,
    /// Of requests, and of answers.
    modes: [Mode; 2],
    /// Connections so far, and to which of them the modes apply.
    count: u64,
    disturbed: Range<u64>,
    /// Connections whose answers have not ended.
    answering: BTreeSet<u64>,
    /// Sockets, to end them.
    open: Vec<TcpStream>,
    stream: Stream,
    over: bool,
}

#[derive(Debug)]
struct Shared {
    inner: Mutex<Inner>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits as long as the mode of this direction keeps a piece of a connection. False: the link has ended.
    fn wait(&self, connection: u64, direction: usize) -> bool {
        let is = |inner: &Inner, mode: Mode| {
            inner.modes[direction] == mode && inner.disturbed.contains(&connection) && !inner.over
        };
        let mut inner = self.lock();
        if is(&inner, Mode::Late) {
            let time = Duration::from_millis(inner.stream.below(LATE_MAX_MS));
            inner = self.wait_while(inner, time, |inner| is(inner, Mode::Late));
        }
        let held = |inner: &mut Inner| is(inner, Mode::Hold);
        let inner = self.changed.wait_while(inner, held);
        !inner.unwrap_or_else(PoisonError::into_inner).over
    }

    fn wait_while<'a>(
        &self,
        inner: MutexGuard<'a, Inner>,
        time: Duration,
        is: impl Fn(&Inner) -> bool,
    ) -> MutexGuard<'a, Inner> {
        let waited = self
            .changed
            .wait_timeout_while(inner, time, |inner| is(inner));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// A link; it ends with its connections when it is dropped.
#[derive(Debug)]
pub(super) struct Link {
    shared: Arc<Shared>,
    address: SocketAddr,
}

impl Link {
    /// Listens on a free port of loopback.
    pub(super) fn start(stream: Stream) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let inner = Inner {
            target: None,
            modes: [Mode::Open; 2],
            count: 0,
            disturbed: 0..u64::MAX,
            answering: BTreeSet::new(),
            open: Vec::new(),
            stream,
            over: false,
        };
        let shared = Arc::new(Shared {
            inner: Mutex::new(inner),
            changed: Condvar::new(),
        });
        let held = Arc::clone(&shared);
        spawn(move || {
            while let Ok((near, _)) = listener.accept() {
                if held.lock().over {
                    return;
                }
                // Without a server the connection ends at once.
                let _ = connect(&held, near);
            }
        })?;
        Ok(Self { shared, address })
    }

    /// Where clients connect.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where later connections lead; without a target they end at once.
    pub(super) fn lead_to(&self, target: Option<SocketAddr>) {
        self.shared.lock().target = target;
    }

    /// Sets the modes of requests and of answers.
    pub(super) fn set(&self, modes: [Mode; 2]) {
        let mut inner = self.shared.lock();
        (inner.modes, inner.disturbed) = (modes, 0..u64::MAX);
        self.shared.changed.notify_all();
    }

    /// The modes apply to the connections so far only; later ones are open.
    pub(super) fn spare_later(&self) {
        let mut inner = self.shared.lock();
        inner.disturbed = 0..inner.count;
    }

    /// The modes apply to the connections after the next one only.
    #[cfg(test)]
    pub(super) fn spare_next(&self) {
        let mut inner = self.shared.lock();
        inner.disturbed = inner.count + 1..u64::MAX;
    }

    /// Waits until every request has its answer and the connection has ended, as those to etcd do. Panics if that takes
    /// a minute.
    #[cfg(test)]
    pub(super) fn wait_for_answers(&self) {
        let inner = self.shared.lock();
        let answers = |inner: &Inner| !inner.answering.is_empty();
        let inner = self
            .shared
            .wait_while(inner, Duration::from_secs(60), answers);
        assert!(inner.answering.is_empty(), "no answer in a minute");
    }

    /// Ends every connection.
    pub(super) fn reset(&self) {
        end(&mut self.shared.lock());
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let mut inner = self.shared.lock();
        inner.over = true;
        end(&mut inner);
        drop(inner);
        self.shared.changed.notify_all();
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

fn end(inner: &mut Inner) {
    for stream in inner.open.drain(..) {
        // It may have ended already.
        let _ = stream.shutdown(Shutdown::Both);
    }
}

fn connect(shared: &Arc<Shared>, near: TcpStream) -> io::Result<()> {
    let target = shared.lock().target;
    let target = target.ok_or(io::ErrorKind::NotConnected)?;
    let far = TcpStream::connect_timeout(&target, Duration::from_secs(1))?;
    for stream in [&near, &far] {
        stream.set_nodelay(true)?;
    }
    let copies = [near.try_clone()?, far.try_clone()?];
    let ways = [(near.try_clone()?, far.try_clone()?), (far, near)];
    let mut inner = shared.lock();
    // Ended connections are forgotten here.
    inner.open.retain(|stream| stream.peer_addr().is_ok());
    inner.open.extend(copies);
    let number = inner.count;
    inner.count += 1;
    inner.answering.insert(number);
    drop(inner);
    for (direction, (from, to)) in ways.into_iter().enumerate() {
        let shared = Arc::clone(shared);
        spawn(move || pass(&shared, (number, direction), from, to))?;
    }
    Ok(())
}

fn pass(
    shared: &Shared,
    (connection, direction): (u64, usize),
    mut from: TcpStream,
    mut to: TcpStream,
) {
    let mut piece = [0; 16 << 10];
    loop {
        let count = from.read(&mut piece).unwrap_or(0);
        if !shared.wait(connection, direction) || count == 0 {
            break;
        }
        if to.write_all(&piece[..count]).is_err() {
            break;
        }
    }
    let mut inner = shared.lock();
    match direction {
        0 => {
            let answers = |inner: &Inner| inner.answering.contains(&connection) && !inner.over;
            drop(shared.wait_while(inner, ANSWER_MAX, answers));
        }
        _ => {
            inner.answering.remove(&connection);
            drop(inner);
            shared.changed.notify_all();
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

fn spawn(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
    thread.spawn(work).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link to a server that reads all bytes of a connection.
    fn link() -> (Link, TcpListener) {
        let link = Link::start(Stream::named(1, "link")).unwrap();
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        link.lead_to(Some(server.local_addr().unwrap()));
        (link, server)
    }

    #[test]
    fn held_bytes_arrive_after_the_fault_though_their_sender_is_gone() {
        let (link, server) = link();
        link.set([Mode::Hold, Mode::Open]);
        let mut first = TcpStream::connect(link.address()).unwrap();
        first.write_all(b"first").unwrap();
        drop(first);
        let (mut held, _) = server.accept().unwrap();
        held.set_nonblocking(true).unwrap();
        let mut bytes = Vec::new();
        let error = held.read_to_end(&mut bytes).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        held.set_nonblocking(false).unwrap();
        link.set([Mode::Open; 2]);
        held.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, b"first");
    }

    #[test]
    fn a_link_without_a_target_ends_connections_and_a_reset_ends_open_ones() {
        let (link, server) = link();
        let mut open = TcpStream::connect(link.address()).unwrap();
        let mut accepted = server.accept().unwrap().0;
        // What has passed a byte is among the connections that a reset ends.
        open.write_all(b"x").unwrap();
        accepted.read_exact(&mut [0]).unwrap();
        link.reset();
        assert_eq!(open.read(&mut [0]).unwrap_or(0), 0);
        link.lead_to(None);
        let mut late = TcpStream::connect(link.address()).unwrap();
        assert_eq!(late.read(&mut [0]).unwrap_or(0), 0);
    }
}
