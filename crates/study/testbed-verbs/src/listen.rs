//! An agent that waits for controllers on a TCP port.
//!
//! Every connection that shows a controller's certificate of the authority gets a process of its own, `isolane rdma agent --stdio`, at the
//! end of a local socket: one session cannot touch another, and the end of the listening process ends them all.
//!
//! Limits: [`ListenOptions::sessions`] sessions at once; further ones are closed after the handshake. A connection without a handshake has one
//! of `STRANGERS_MAX` places of its own ([`isolane_common_linux::pool`]), so that silent ones keep no controller out.

use crate::identity::{self, CONTROLLER, IdentityError};
use crate::message::{Event, Message};
use crate::secure::{handshake, pump};
use isolane_common_linux::pool::{Entry, Pool, PoolLimits};
use rustls::{Connection, ServerConfig, ServerConnection};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// How to listen.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// Address and port, like `0.0.0.0:18530`.
    pub address: String,
    /// The machine's certificates.
    pub identity: PathBuf,
    /// Sessions at once.
    pub sessions: usize,
    /// The program that serves a session on its standard input and output.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
}

/// Why an agent cannot listen.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum ListenError {
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("cannot listen on {address}: {source}; choose another address or port")]
    Address { address: String, source: io::Error },
}

/// How long a session's process may take to end after its connection.
const ENDING: Duration = Duration::from_secs(10);
/// Pause after a failed accept, so that a full table of files does not spin.
const PAUSE: Duration = Duration::from_millis(100);

/// Connections that have shown no certificate: more than controllers that connect at the same moment.
const STRANGERS_MAX: usize = 64;

/// How long a refused peer may take to read why.
const DRAINING: Duration = Duration::from_secs(5);

/// A listening agent.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    config: Arc<ServerConfig>,
    options: ListenOptions,
    pool: Pool,
}

impl Listener {
    /// Binds the address.
    pub fn bind(options: ListenOptions) -> Result<Self, ListenError> {
        let config = identity::server(&options.identity)?;
        let socket =
            TcpListener::bind(&options.address).map_err(|source| ListenError::Address {
                address: options.address.clone(),
                source,
            })?;
        let pool = Pool::new(PoolLimits {
            strangers: STRANGERS_MAX,
            sessions: options.sessions.max(1),
        });
        Ok(Self {
            socket,
            config,
            options,
            pool,
        })
    }

    /// The address that it listens on, with the port that the system chose for port 0.
    pub fn address(&self) -> io::Result<std::net::SocketAddr> {
        self.socket.local_addr()
    }

    /// Serves forever and reports each connect and disconnect to `log`.
    pub fn serve(&self, log: &(dyn Fn(&str) + Sync)) {
        thread::scope(|scope| {
            loop {
                let (tcp, peer) = match self.socket.accept() {
                    Ok(accepted) => accepted,
                    Err(error) => {
                        log(&format!("cannot accept a connection: {error}"));
                        thread::sleep(PAUSE);
                        continue;
                    }
                };
                let other = match tcp.try_clone() {
                    Ok(other) => other,
                    Err(error) => {
                        log(&format!("{peer}: refused: {error}"));
                        thread::sleep(PAUSE);
                        continue;
                    }
                };
                let entry = self.pool.enter(Some(peer.ip()), move || {
                    // One that has ended meanwhile is no loss.
                    let _ = other.shutdown(Shutdown::Both);
                });
                scope.spawn(
                    move || match self.session(tcp, &peer.to_string(), entry, log) {
                        Ok(()) => log(&format!("{peer}: session ended")),
                        Err(error) => log(&format!("{peer}: {error}")),
                    },
                );
            }
        });
    }

    fn session(
        &self,
        mut tcp: TcpStream,
        peer: &str,
        mut entry: Entry,
        log: &dyn Fn(&str),
    ) -> io::Result<()> {
        let connection = ServerConnection::new(Arc::clone(&self.config));
        let mut connection = Connection::Server(connection.map_err(io::Error::other)?);
        let shaken = handshake(&mut connection, &mut tcp);
        if shaken.is_err() {
            // The TLS alert with the reason may still be unsent.
            let _ = connection.write_tls(&mut tcp);
            drain(&tcp);
            shaken?;
        }
        if !identity::is_controller(connection.peer_certificates()) {
            return refuse(&mut connection, &mut tcp);
        }
        entry.authenticated().map_err(io::Error::other)?;
        log(&format!("{peer}: session began"));
        let (ours, theirs) = UnixStream::pair()?;
        let input: OwnedFd = theirs.try_clone()?.into();
        let output: OwnedFd = theirs.into();
        let child = Command::new(&self.options.program)
            .args(&self.options.arguments)
            .process_group(0)
            .stdin(input)
            .stdout(output)
            .spawn()?;
        let moved = pump(connection, &tcp, &ours);
        // The end of its input ends the session's process; errors mean that the ends are closed already.
        let _ = ours.shutdown(Shutdown::Both);
        let _ = tcp.shutdown(Shutdown::Both);
        reap(child);
        moved
    }
}

/// Sends the reason to a peer with the certificate of a machine, which gets no session.
fn refuse(connection: &mut Connection, tcp: &mut TcpStream) -> io::Result<()> {
    let reason = format!(
        "the certificate is not for the name {CONTROLLER:?}; make one with `isolane rdma agent init DIR {CONTROLLER}`"
    );
    let answer = Event::Failed {
        reason: reason.clone(),
    };
    connection.writer().write_all(answer.encode().as_bytes())?;
    connection.send_close_notify();
    while connection.wants_write() {
        connection.write_tls(tcp)?;
    }
    drain(tcp);
    Err(io::Error::new(io::ErrorKind::PermissionDenied, reason))
}

/// Reads away what is on its way: closing a socket with unread bytes resets the connection, and the peer would never
/// see the alert.
fn drain(mut tcp: &TcpStream) {
    let until = Instant::now() + DRAINING;
    let _ = tcp.shutdown(Shutdown::Write);
    let _ = tcp.set_read_timeout(Some(DRAINING));
    let mut buffer = [0; 4096];
    while Instant::now() < until && matches!(tcp.read(&mut buffer), Ok(count) if count > 0) {}
}

/// Waits for `child`, and kills it when that takes too long.
fn reap(mut child: Child) {
    let until = Instant::now() + ENDING;
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() > until {
            // Not waited for yet, so the number is still its own.
            let _ = child.kill();
        }
        thread::sleep(Duration::from_millis(10));
    }
}
