//! One bounded listener: the listening socket of every service of this project, for TCP and Unix streams.
//!
//! Problem: peers may be slow, many, broken or hostile. They may open connections and send nothing, send without end,
//! read nothing, or take all descriptors of the process. No honest client may wait for them, and the service's memory
//! and descriptors must stay in their bounds. Method:
//!
//! * **Places.** An accepted connection is a *stranger* until the service calls [`Entry::authenticated`] (after a proof
//!   or a whole request). Strangers and sessions have places of their own, so strangers keep no client out. Newcomers
//!   displace strangers of the account that has too many ([`crate::pool`]). With [`crate::pool::PoolLimits::reserved`] no account takes the
//!   last sessions.
//!   A peer that is gone when it is accepted gets no place: connections that a local process opens and closes without pause would
//!   otherwise take a thread each before an honest one has its turn.
//! * **Accounts.** A peer is an address (IPv6: mostly its first 64 bits), or user, cgroup and user namespace of a local process
//!   ([`Account`]).
//! * **Deadlines.** [`Connection::timed`] reads and writes until a deadline for the whole exchange, however slowly bytes
//!   move. A service with an event loop closes the connection itself and calls [`Connection::late`].
//! * **Memory.** [`Entry::hold`] and [`Entry::try_hold`] count bytes before they are taken, against one bound for all
//!   connections. If none is left, the connection that holds most is shed, and the caller waits for its end.
//! * **Shortage.** If the kernel has no descriptor or memory for a connection, one stranger is shed, and nothing is
//!   accepted for [`PAUSE`]: the loop does not spin, and the listener stays. A program ends where an allocation fails, so
//!   the limits of memory are read before a connection is taken. The first failure of a series is reported.
//! * **Counters.** Each service has a [`crate::tally::Tally`]; programs with metrics export all of them as
//!   `isolane_listener_*`.
//!
//! A service has a thread for each connection ([`Listener::serve`]) or an event loop ([`Listener::take`]). Units:
//! connections, bytes. Limits: streams only; services with messages (`SOCK_SEQPACKET`) take places from
//! [`crate::account::Waiting`] and counters from [`crate::tally`].

use crate::account::Account;
use crate::peer::Peer;
use crate::pool::{Entry, Pool, has_memory};
use crate::stream::{Stream, Timed, timespec};
use crate::tally::Shed;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrAny, SocketFlags, accept_with, getpeername, getsockname, sockopt,
};
use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long nothing is accepted after the kernel refused a connection or a thread.
pub const PAUSE: Duration = Duration::from_millis(100);
/// Stack of a thread that serves a connection, bytes.
pub const STACK_BYTES: usize = 256 << 10;
/// How often `stop` and freed places are looked at.
const GLANCE: Duration = Duration::from_millis(50);

/// A listening socket with its places.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    pool: Pool,
    rest: Mutex<Rest>,
}

/// After the kernel has refused a connection.
#[derive(Debug, Default)]
struct Rest {
    until: Option<Instant>,
    /// Whether the series of failures was reported.
    is_short: bool,
}

impl Listener {
    /// Takes a socket that listens, and raises the soft limit of open files to what its places need. Fails if the kernel does not let it accept without waiting.
    pub fn new(socket: impl Into<OwnedFd>, pool: Pool) -> io::Result<Self> {
        let socket = socket.into();
        rustix::io::ioctl_fionbio(&socket, true)?;
        pool.raise_open_files();
        Ok(Self {
            socket,
            pool,
            rest: Mutex::default(),
        })
    }

    /// The address and port; `None` for a Unix socket.
    pub fn address(&self) -> Option<SocketAddr> {
        internet(getsockname(&self.socket).ok()?)
    }

    /// The time before which nothing is accepted; `None`: wait for the socket to be readable.
    pub fn closed_until(&self) -> Option<Instant> {
        let now = Instant::now();
        let rests = self.rest(|rest| rest.until);
        rests
            .filter(|until| *until > now)
            .max(self.pool.full_until())
    }

    /// Accepts a connection without waiting. The error is the first one of a series for which the listener rests; the
    /// caller reports it and goes on.
    pub fn take(&self) -> io::Result<Option<Connection>> {
        let taken = self.next();
        if let Ok(Some(_)) = taken {
            self.rest(|rest| *rest = Rest::default());
        }
        taken
    }

    /// As [`Listener::take`], but a series of failures goes on.
    fn next(&self) -> io::Result<Option<Connection>> {
        if self.closed_until().is_some() {
            return Ok(None);
        }
        if !has_memory(0) {
            if !self.is_ready() {
                return Ok(None);
            }
            self.pool.shed_for(Shed::Memory);
            return self.short(Errno::NOMEM.into()).map_or(Ok(None), Err);
        }
        match accept_with(&self.socket, SocketFlags::CLOEXEC) {
            // A peer that has closed its connection already needs no place and no thread.
            Ok(socket) if is_gone(&socket) => Ok(None),
            Ok(socket) => Ok(Connection::begin(socket, &self.pool)),
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            // Without a free descriptor the kernel returns this error also where no connection waits.
            Err(_) if !self.is_ready() => Ok(None),
            Err(error) => {
                self.pool.shed_for(Shed::Descriptor);
                self.short(error.into()).map_or(Ok(None), Err)
            }
        }
    }

    /// Waits for a connection. Errors are those of [`Listener::take`].
    pub fn accept(&self) -> io::Result<Connection> {
        loop {
            match self.take()? {
                Some(connection) => return Ok(connection),
                None => self.wait(None),
            }
        }
    }

    /// Accepts connections until `stop` is set, for ever without one; `begin` starts a thread for each. At the end, all
    /// connections are hung up. `say` gets one line for each series of failures.
    pub fn serve(
        &self,
        stop: Option<&AtomicBool>,
        mut begin: impl FnMut(Connection) -> io::Result<()>,
        say: impl Fn(&str),
    ) {
        while stop.is_none_or(|stop| !stop.load(Ordering::Relaxed)) {
            let failed = match self.next() {
                Ok(Some(connection)) => match begin(connection) {
                    Ok(()) => {
                        self.rest(|rest| *rest = Rest::default());
                        None
                    }
                    Err(error) => self.short(error),
                },
                Ok(None) => {
                    self.wait(stop.map(|_| GLANCE));
                    None
                }
                Err(error) => Some(error),
            };
            if let Some(error) = failed {
                say(&format!(
                    "cannot accept a connection: {error}; retrying; if this lasts, raise the limits of open files (ulimit -n), of threads and of memory"
                ));
            }
        }
        self.pool.hang_up_all();
    }

    /// Waits until a connection may be accepted, for at most `longest`.
    fn wait(&self, longest: Option<Duration>) {
        match self.closed_until() {
            Some(until) => {
                let left = until.saturating_duration_since(Instant::now());
                std::thread::sleep(left.min(GLANCE));
            }
            None => {
                let mut polled = [PollFd::new(&self.socket, PollFlags::IN)];
                // A failure is one of the socket, which the next `take` returns.
                let _ = poll(&mut polled, longest.map(timespec).as_ref());
            }
        }
    }

    /// Rests because the kernel has no descriptor, memory or thread. Returns the error if it is the first of a series.
    pub fn short(&self, error: io::Error) -> Option<io::Error> {
        self.pool
            .tally()
            .count(|figures| figures.starved_total += 1);
        self.rest(|rest| {
            rest.until = Some(Instant::now() + PAUSE);
            (!std::mem::replace(&mut rest.is_short, true)).then_some(error)
        })
    }

    fn rest<T>(&self, act: impl FnOnce(&mut Rest) -> T) -> T {
        act(&mut self.rest.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn is_ready(&self) -> bool {
        let mut polled = [PollFd::new(&self.socket, PollFlags::IN)];
        matches!(poll(&mut polled, Some(&Timespec::default())), Ok(1))
    }
}

/// Whether both directions are closed, or the connection was reset.
fn is_gone(socket: &impl AsFd) -> bool {
    let mut polled = [PollFd::new(socket, PollFlags::empty())];
    matches!(poll(&mut polled, Some(&Timespec::default())), Ok(1))
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// An accepted connection with its place.
#[derive(Debug)]
pub struct Connection {
    /// The stream.
    pub stream: Arc<Stream>,
    /// The place, freed on drop.
    pub place: Entry,
    /// The peer's address; `None` for a Unix socket.
    pub from: Option<SocketAddr>,
    /// The peer's process id; `None` for TCP, and for a process that has none here.
    pub process: Option<u32>,
    since: Instant,
}

impl Connection {
    /// `None`: the peer has gone already.
    fn begin(socket: OwnedFd, pool: &Pool) -> Option<Self> {
        let from = getpeername(&socket).ok()??;
        let (account, from, process) = match internet(from) {
            Some(from) => (Account::of_address(from.ip()), Some(from), None),
            None => {
                let (account, process) = local(&socket);
                (account, None, process)
            }
        };
        let stream = Arc::new(Stream::new(socket));
        Some(Self {
            place: pool.enter(account, Arc::clone(&stream)),
            stream,
            from,
            process,
            since: Instant::now(),
        })
    }

    /// When it was accepted.
    pub fn since(&self) -> Instant {
        self.since
    }

    /// Reads and writes that must end within `patience` after the connection was accepted.
    pub fn timed(&self, patience: Duration) -> Timed<Arc<Stream>> {
        let timed = Timed::new(Arc::clone(&self.stream), self.since, patience);
        timed.counted(self.place.tally().clone())
    }

    /// Ends the direction to the peer, and reads away what is on its way for at most `patience`: to close a socket with
    /// unread bytes resets the connection, and the peer would never see the last answer.
    pub fn drain(&self, patience: Duration) {
        self.stream.finish();
        let mut timed = Timed::new(&*self.stream, Instant::now(), patience);
        let mut buffer = [0; 4_096];
        while matches!(timed.read(&mut buffer), Ok(count) if count > 0) {}
    }

    /// Counts it as too slow. The caller closes it.
    pub fn late(&self) {
        self.place.tally().count(|figures| figures.late_total += 1);
    }
}

/// Account and process id of the peer of a Unix socket. Without a descriptor for the process the user counts alone.
fn local(socket: &OwnedFd) -> (Account, Option<u32>) {
    match Peer::of(socket) {
        Ok(peer) => (peer.account(), Some(peer.process()).filter(|id| *id > 0)),
        Err(_) => {
            let peer = sockopt::socket_peercred(socket);
            let user = peer.map_or(u32::MAX, |peer| peer.uid.as_raw());
            (Account::of_user(user), None)
        }
    }
}

fn internet(address: SocketAddrAny) -> Option<SocketAddr> {
    match address.address_family() {
        AddressFamily::INET | AddressFamily::INET6 => SocketAddr::try_from(address).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::PoolLimits;
    use std::io::Write;
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::os::unix::net::{UnixListener, UnixStream};

    const LONG: Duration = Duration::from_secs(60);

    fn pool() -> Pool {
        Pool::new(
            "listener-test",
            PoolLimits {
                strangers: PoolLimits::shared(4),
                grace: Duration::ZERO,
                sessions: PoolLimits::shared(4),
                memory_bytes: 1,
            },
        )
    }

    #[test]
    fn peers_of_tcp_and_unix_sockets_are_known() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let listener = Listener::new(socket, pool()).unwrap();
        assert!(listener.take().unwrap().is_none(), "it does not wait");
        let mut client = TcpStream::connect(listener.address().unwrap()).unwrap();
        let taken = listener.accept().unwrap();
        assert_eq!(taken.from, Some(client.local_addr().unwrap()));
        let mut timed = taken.timed(LONG);
        timed.write_all(b"hello").unwrap();
        let mut heard = [0; 5];
        client.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"hello");

        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let socket = UnixListener::bind(&path).unwrap();
        let listener = Listener::new(socket, pool()).unwrap();
        assert_eq!(listener.address(), None);
        let _client = UnixStream::connect(&path).unwrap();
        let taken = listener.accept().unwrap();
        let process = Some(std::process::id());
        assert_eq!((taken.process, taken.from), (process, None));
    }

    #[test]
    fn a_peer_that_has_gone_before_it_is_accepted_takes_no_place() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = Listener::new(UnixListener::bind(&path).unwrap(), pool()).unwrap();
        for _ in 0..10 {
            let mut gone = UnixStream::connect(&path).unwrap();
            gone.write_all(b"half a request").unwrap();
        }
        let mut half_closed = UnixStream::connect(&path).unwrap();
        half_closed.write_all(b"all").unwrap();
        half_closed.shutdown(Shutdown::Write).unwrap();
        let mut heard = String::new();
        let taken = listener.accept().unwrap();
        let mut timed = taken.timed(LONG);
        timed.read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "all");
        assert_eq!(listener.pool.tally().figures().accepted_total, 1);
    }

    #[test]
    fn a_listener_that_is_short_rests_reports_once_and_accepts_again() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let listener = Listener::new(socket, pool()).unwrap();
        let _client = TcpStream::connect(listener.address().unwrap()).unwrap();
        let full = || Errno::MFILE.into();
        assert!(listener.short(full()).is_some());
        assert!(listener.closed_until().is_some());
        assert!(listener.take().unwrap().is_none());
        assert!(listener.short(full()).is_none(), "reported once");
        drop(listener.accept().unwrap());
        assert!(listener.short(full()).is_some(), "a new series");
        let figures = listener.pool.tally().figures();
        assert_eq!((figures.starved_total, figures.accepted_total), (3, 1));
    }

    #[test]
    fn a_thread_that_cannot_start_is_reported_and_the_listener_stays() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let listener = Listener::new(socket, pool()).unwrap();
        let address = listener.address().unwrap();
        let _clients: Vec<_> = (0..3)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        let (stop, mut came, said) = (AtomicBool::new(false), 0, Mutex::new(Vec::new()));
        let begin = |_connection| {
            came += 1;
            stop.store(came == 3, Ordering::Relaxed);
            match came {
                3 => Ok(()),
                _ => Err(Errno::AGAIN.into()),
            }
        };
        listener.serve(Some(&stop), begin, |line| {
            said.lock().unwrap().push(line.to_owned());
        });
        let said = said.into_inner().unwrap();
        assert_eq!(said.len(), 1, "one line for a series: {said:?}");
        assert!(
            said[0].starts_with("cannot accept a connection: "),
            "{said:?}"
        );
    }
}
