//! An agent that waits for controllers on a TCP port.
//!
//! Every connection that shows a controller's certificate of the authority gets a process of its own, `isolane rdma agent --stdio`, at the
//! end of a local socket: one session cannot touch another, and the end of the listening process ends them all.
//!
//! Limits: [`ListenOptions::sessions`] sessions at once; further ones are closed after the handshake. A connection without a handshake has one
//! of `STRANGERS_MAX` places of its own ([`isolane_common_linux::listener`]), so that silent ones keep no controller out.

use crate::identity::{self, CONTROLLER, IdentityError};
use crate::message::{Event, Message};
use crate::secure::{PATIENCE, handshake, pump};
use isolane_common_linux::listener::{Connection, Listener as Bounded, STACK_BYTES};
use isolane_common_linux::pool::{Pool, PoolLimits};
use rustls::{ServerConfig, ServerConnection};
use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
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
/// Connections that have shown no certificate: more than controllers that connect at the same moment.
const STRANGERS_MAX: usize = 64;

/// How long a refused peer may take to read why.
const DRAINING: Duration = Duration::from_secs(5);

/// A listening agent.
#[derive(Debug)]
pub struct Listener {
    socket: Bounded,
    config: Arc<ServerConfig>,
    options: ListenOptions,
}

impl Listener {
    /// Binds the address.
    pub fn bind(options: ListenOptions) -> Result<Self, ListenError> {
        let config = identity::server(&options.identity)?;
        let limits = PoolLimits {
            strangers: PoolLimits::shared(STRANGERS_MAX),
            grace: Duration::ZERO,
            sessions: PoolLimits::shared(options.sessions.max(1)),
            // The memory of a connection is that of its TLS records, which do not grow.
            memory_bytes: 0,
        };
        let socket = TcpListener::bind(&options.address)
            .and_then(|socket| Bounded::new(socket, Pool::new("agent", limits)))
            .map_err(|source| ListenError::Address {
                address: options.address.clone(),
                source,
            })?;
        Ok(Self {
            socket,
            config,
            options,
        })
    }

    /// The address that it listens on, with the port that the system chose for port 0.
    pub fn address(&self) -> SocketAddr {
        self.socket.address().expect("a TCP socket has one")
    }

    /// Serves forever and reports each connect and disconnect to `log`.
    pub fn serve(&self, log: &(dyn Fn(&str) + Sync)) {
        thread::scope(|scope| {
            let begin = |connection: Connection| {
                let peer = connection
                    .from
                    .map_or_else(String::new, |from| from.to_string());
                let session = move || match self.session(connection, &peer, log) {
                    Ok(()) => log(&format!("{peer}: session ended")),
                    Err(error) => log(&format!("{peer}: {error}")),
                };
                thread::Builder::new()
                    .stack_size(2 * STACK_BYTES)
                    .spawn_scoped(scope, session)
                    .map(drop)
            };
            self.socket.serve(None, begin, log);
        });
    }

    fn session(&self, mut accepted: Connection, peer: &str, log: &dyn Fn(&str)) -> io::Result<()> {
        let tls = ServerConnection::new(Arc::clone(&self.config));
        let mut tls = rustls::Connection::Server(tls.map_err(io::Error::other)?);
        let mut timed = accepted.timed(PATIENCE);
        let shaken = handshake(&mut tls, &mut timed);
        if shaken.is_err() {
            // The TLS alert with the reason may still be unsent.
            let _ = tls.write_tls(&mut timed);
            accepted.drain(DRAINING);
            shaken?;
        }
        if !identity::is_controller(tls.peer_certificates()) {
            let refused = refuse(&mut tls, &mut timed);
            accepted.drain(DRAINING);
            return refused;
        }
        accepted.place.authenticated().map_err(io::Error::other)?;
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
        let moved = pump(tls, &accepted.stream, &ours);
        // The end of its input ends the session's process; errors mean that the ends are closed already.
        let _ = ours.shutdown(Shutdown::Both);
        accepted.stream.hang_up();
        reap(child);
        moved
    }
}

/// Sends the reason to a peer with the certificate of a machine, which gets no session.
fn refuse(tls: &mut rustls::Connection, stream: &mut impl Write) -> io::Result<()> {
    let reason = format!(
        "the certificate is not for the name {CONTROLLER:?}; make one with `isolane rdma agent init DIR {CONTROLLER}`"
    );
    let answer = Event::Failed {
        reason: reason.clone(),
    };
    tls.writer().write_all(answer.encode().as_bytes())?;
    tls.send_close_notify();
    while tls.wants_write() {
        tls.write_tls(stream)?;
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, reason))
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
