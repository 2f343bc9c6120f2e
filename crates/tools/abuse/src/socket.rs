//! Connections of attackers: to TCP ports, Unix sockets, and Unix sockets with messages.

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, connect, send,
    shutdown, socket_with,
};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Longest wait of an attacker for the service. It bounds every attack, and also `connect` on a Unix socket.
const WAIT: Duration = Duration::from_millis(200);

/// Where a service listens.
#[derive(Clone, Debug)]
pub enum Place {
    /// A TCP port.
    Tcp(SocketAddr),
    /// A Unix socket with a stream of bytes.
    Unix(PathBuf),
    /// A Unix socket with messages (`SOCK_SEQPACKET`).
    Messages(PathBuf),
}

impl Place {
    /// Opens a connection whose waits are bounded. A full queue of a Unix socket is the error `WouldBlock`.
    pub fn connect(&self) -> io::Result<Connection> {
        let (family, kind) = match self {
            Self::Tcp(SocketAddr::V4(_)) => (AddressFamily::INET, SocketType::STREAM),
            Self::Tcp(SocketAddr::V6(_)) => (AddressFamily::INET6, SocketType::STREAM),
            Self::Unix(_) => (AddressFamily::UNIX, SocketType::STREAM),
            Self::Messages(_) => (AddressFamily::UNIX, SocketType::SEQPACKET),
        };
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_timeout(&socket, Timeout::Send, Some(WAIT))?;
        sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(WAIT))?;
        match self {
            Self::Tcp(address) => connect(&socket, address)?,
            Self::Unix(path) | Self::Messages(path) => {
                connect(&socket, &SocketAddrUnix::new(path)?)?;
            }
        }
        Ok(Connection(socket))
    }

    /// A line that [`Place::of_text`] reads.
    pub(crate) fn to_text(&self) -> String {
        match self {
            Self::Tcp(address) => format!("tcp {address}"),
            Self::Unix(path) => format!("unix {}", path.display()),
            Self::Messages(path) => format!("messages {}", path.display()),
        }
    }

    /// Panics if [`Place::to_text`] has not written it.
    pub(crate) fn of_text(text: &str) -> Self {
        match text.split_once(' ') {
            Some(("tcp", address)) => Self::Tcp(address.parse().expect("an address")),
            Some(("unix", path)) => Self::Unix(path.into()),
            Some(("messages", path)) => Self::Messages(path.into()),
            _ => panic!("{text:?} is no place"),
        }
    }

    /// Whether descriptors can be sent over it.
    pub fn is_local(&self) -> bool {
        !matches!(self, Self::Tcp(_))
    }
}

/// An attacker's connection.
#[derive(Debug)]
pub struct Connection(pub OwnedFd);

impl Connection {
    /// Sends what the kernel takes without waiting. False: the service has closed the connection.
    pub fn push(&self, bytes: &[u8]) -> bool {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        matches!(send(&self.0, bytes, flags), Ok(_) | Err(Errno::AGAIN))
    }

    /// Ends the direction to the service.
    pub fn end(&self) {
        // The service may have closed the connection.
        let _ = shutdown(&self.0, Shutdown::Write);
    }

    /// Closes it; a TCP connection ends with a reset instead of a handshake.
    pub fn reset(self) {
        // Fails on Unix sockets, which have no such end.
        let _ = sockopt::set_socket_linger(&self.0, Some(Duration::ZERO));
    }
}
