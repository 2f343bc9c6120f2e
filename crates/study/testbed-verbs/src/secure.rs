//! A byte stream over TLS with certificates on both sides.
//!
//! The rest of the crate reads and writes plain streams from several threads; a TLS connection has one state that both
//! directions change. So one thread owns it and moves bytes between the network and a pair of local sockets.
//!
//! Limits: TLS 1.3 only. Each direction buffers one record or so: a peer that does not read slows the other down and
//! fills no memory. A network that is silent for about half a minute ends the connection (TCP keepalive).

use crate::error::VerbsError;
use crate::identity;
use crate::link::PORT;
use crate::target::Machine;
use isolane_common_linux::stream::{Stream, Timed};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Longest time for a connection and its handshake.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// TCP keepalive: silence before the first probe, time between probes, and number of probes.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(10), Duration::from_secs(5), 4);
/// Bytes moved at once: a TLS record.
const CHUNK: usize = 16 << 10;

/// Why a connection ended, once it has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fate(Arc<Mutex<Option<String>>>);

impl Fate {
    fn set(&self, reason: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
    }

    /// What is known of it.
    pub(crate) fn text(&self) -> Option<String> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// A connection to the agent of `machine`, with the certificates in `identity`.
pub(crate) fn connect(
    machine: &Machine,
    identity: &Path,
) -> Result<(UnixStream, Fate), VerbsError> {
    let unreachable = |reason: String| VerbsError::Unreachable {
        machine: machine.to_string(),
        reason,
    };
    let config = identity::client(identity).map_err(|error| unreachable(error.to_string()))?;
    let name = ServerName::try_from(machine.name.clone()).map_err(|_| {
        unreachable("certificates are for host names and addresses, without USER@".to_owned())
    })?;
    let address = (machine.name.as_str(), machine.port.unwrap_or(PORT));
    let connection = ClientConnection::new(config, name);
    let connection = connection.map_err(|error| unreachable(error.to_string()))?;
    let opened = open(address).and_then(|tcp| {
        let (ours, theirs) = UnixStream::pair()?;
        Ok((Arc::new(Stream::new(tcp)), ours, theirs))
    });
    let (tcp, ours, theirs) = opened.map_err(|error| {
        unreachable(format!(
            "{error} (port {}); is `isolane rdma agent --listen` running there?",
            address.1
        ))
    })?;
    let mut connection = Connection::Client(connection);
    let mut timed = Timed::new(Arc::clone(&tcp), Instant::now(), PATIENCE);
    handshake(&mut connection, &mut timed).map_err(|error| unreachable(error.to_string()))?;
    let fate = Fate::default();
    let failure = fate.clone();
    thread::spawn(move || {
        if let Err(error) = pump(connection, &tcp, &theirs) {
            failure.set(error.to_string());
        }
        // The reader of the other end learns of the end by this; an error means that it is gone.
        let _ = theirs.shutdown(Shutdown::Both);
    });
    Ok((ours, fate))
}

fn open(address: (&str, u16)) -> io::Result<TcpStream> {
    let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(tcp) => return Ok(tcp),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The handshake of `connection` over `tcp`, until its deadline.
pub(crate) fn handshake(
    connection: &mut Connection,
    tcp: &mut Timed<Arc<Stream>>,
) -> io::Result<()> {
    let (idle, interval, count) = KEEPALIVE;
    let socket = tcp.socket();
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, idle)?;
    sockopt::set_tcp_keepintvl(socket, interval)?;
    sockopt::set_tcp_keepcnt(socket, count)?;
    sockopt::set_tcp_nodelay(socket, true)?;
    while connection.is_handshaking() {
        let done = connection.complete_io(tcp);
        done.map_err(|error| match error.kind() {
            ErrorKind::TimedOut => {
                io::Error::new(ErrorKind::TimedOut, "no TLS handshake within 10 s")
            }
            ErrorKind::UnexpectedEof => io::Error::new(
                ErrorKind::UnexpectedEof,
                "the other side closed the connection during the TLS handshake",
            ),
            _ => error,
        })?;
    }
    Ok(())
}

/// What `error` means for people, where it is about certificates.
fn refusal(error: &rustls::Error) -> String {
    use rustls::AlertDescription as Alert;
    match error {
        rustls::Error::AlertReceived(
            Alert::DecryptError
            | Alert::UnknownCA
            | Alert::BadCertificate
            | Alert::CertificateUnknown
            | Alert::CertificateRequired
            | Alert::AccessDenied,
        ) => {
            format!("the peer rejects our certificate: another authority signed it ({error})")
        }
        rustls::Error::AlertReceived(Alert::CertificateExpired) => {
            format!("the peer rejects our certificate: it has expired ({error})")
        }
        other => other.to_string(),
    }
}

/// Moves what `connection` has decrypted to `inward`; whether more may come.
fn take(connection: &mut Connection, buffer: &mut [u8], inward: &mut Vec<u8>) -> io::Result<bool> {
    loop {
        match connection.reader().read(buffer) {
            Ok(0) => return Ok(false),
            Ok(count) => inward.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(false),
            Err(error) => return Err(error),
        }
    }
}

/// Moves bytes between `tcp` and `local` until either ends.
pub(crate) fn pump(
    mut connection: Connection,
    mut tcp: &Stream,
    mut local: &UnixStream,
) -> io::Result<()> {
    local.set_nonblocking(true)?;
    let mut inward: Vec<u8> = Vec::new();
    let mut buffer = vec![0_u8; CHUNK];
    let mut local_open = true;
    let mut tcp_open = true;
    loop {
        // Before waiting: the peer's first bytes may have come with the end of the handshake, its last with that of the stream.
        if inward.is_empty() {
            tcp_open &= take(&mut connection, &mut buffer, &mut inward)?;
        }
        if !local_open && !connection.wants_write() {
            return Ok(());
        }
        if !tcp_open && inward.is_empty() {
            return Ok(());
        }
        let flags = |readable: bool, writable: bool| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, readable);
            flags.set(PollFlags::OUT, writable);
            flags
        };
        let of_tcp = flags(tcp_open && inward.is_empty(), connection.wants_write());
        let of_local = flags(local_open && !connection.wants_write(), !inward.is_empty());
        let mut waiting = [PollFd::new(&tcp, of_tcp), PollFd::new(&local, of_local)];
        match poll(
            &mut waiting,
            Some(&Timespec {
                tv_sec: 5,
                tv_nsec: 0,
            }),
        ) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = waiting.map(|entry| entry.revents());
        if connection.wants_write() {
            match connection.write_tls(&mut tcp) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                written => {
                    written?;
                }
            }
        }
        if ready[0].intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) && tcp_open {
            tcp_open = read_records(&mut connection, tcp)?;
        }
        if !inward.is_empty() {
            match local.write(&inward) {
                Ok(count) => {
                    inward.drain(..count);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return Ok(()),
            }
        }
        if ready[1].intersects(PollFlags::IN | PollFlags::HUP) && local_open {
            match local.read(&mut buffer) {
                Ok(count @ 1..) => connection.writer().write_all(&buffer[..count])?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Ok(0) | Err(_) => {
                    local_open = false;
                    connection.send_close_notify();
                }
            }
        }
    }
}

/// Reads what has come from the peer; false at its end.
fn read_records(connection: &mut Connection, mut tcp: &Stream) -> io::Result<bool> {
    let open = match connection.read_tls(&mut tcp) {
        Ok(count) => count > 0,
        Err(error) if error.kind() == ErrorKind::WouldBlock => true,
        Err(error) => return Err(error),
    };
    if let Err(error) = connection.process_new_packets() {
        // Send the reason to the peer, if the peer still reads.
        let _ = connection.write_tls(&mut tcp);
        return Err(io::Error::new(ErrorKind::InvalidData, refusal(&error)));
    }
    Ok(open)
}
