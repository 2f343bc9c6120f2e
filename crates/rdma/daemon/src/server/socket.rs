//! The listening socket.

use super::ServerError;
use isolane_common_linux::account::PlaceLimits;
use isolane_common_linux::open_files;
use isolane_common_linux::say_error;
use isolane_common_linux::socket::{listen_at, make_client_folder};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, connect, socket_with,
};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The listening socket for processes, and its file, which is removed with it.
#[derive(Debug)]
pub(super) struct ListeningSocket {
    pub(super) socket: OwnedFd,
    path: PathBuf,
    /// A reserved descriptor: it permits closing a connection properly when no other descriptor is left.
    spare: Option<OwnedFd>,
}

#[derive(Debug)]
pub(super) enum Accepted {
    /// No connection waits.
    Nothing,
    Connection(OwnedFd),
    /// A connection was closed because no descriptor is left.
    NoDescriptor,
}

impl ListeningSocket {
    /// Listens at `path` with the permission bits `mode`. Replaces the socket of a dead daemon.
    pub(super) fn open(path: &Path, mode: u32) -> Result<Self, ServerError> {
        let failed = |what| {
            move |error| ServerError::Socket {
                what,
                path: path.to_owned(),
                error,
            }
        };
        let address = SocketAddrUnix::new(path).map_err(failed("name"))?;
        let stream = || {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        };
        let socket = stream().map_err(failed("make"))?;
        if let Some(folder) = path.parent() {
            make_client_folder(folder).map_err(|error| ServerError::Folder {
                path: folder.to_owned(),
                error,
            })?;
        }
        let other = stream().map_err(failed("make"))?;
        match connect(&other, &address) {
            Err(Errno::CONNREFUSED) => {
                // The socket file has no listener.
                let _ = std::fs::remove_file(path);
            }
            Err(Errno::NOENT) => {}
            Ok(()) | Err(Errno::AGAIN) => {
                return Err(ServerError::Taken {
                    path: path.to_owned(),
                });
            }
            Err(error) => return Err(failed("look at")(error)),
        }
        listen_at(&socket, path, mode, BACKLOG).map_err(|error| {
            failed("listen at")(Errno::from_io_error(&error).unwrap_or(Errno::IO))
        })?;
        Ok(Self {
            socket,
            path: path.to_owned(),
            spare: spare(),
        })
    }

    /// Accepts the next waiting connection.
    pub(super) fn accept(&mut self) -> Accepted {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match accept_with(&self.socket, flags) {
            Ok(socket) => Accepted::Connection(socket),
            Err(Errno::MFILE | Errno::NFILE) => {
                // Closes the reserve for a moment, to accept the connection and close it.
                drop(self.spare.take());
                let shown_out = accept_with(&self.socket, flags).is_ok();
                self.spare = spare();
                match shown_out {
                    true => Accepted::NoDescriptor,
                    false => Accepted::Nothing,
                }
            }
            Err(_) => Accepted::Nothing,
        }
    }
}

impl Drop for ListeningSocket {
    fn drop(&mut self) {
        // Another daemon may have taken the reserve; the next accept opens it again.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn spare() -> Option<OwnedFd> {
    std::fs::File::open("/dev/null").ok().map(OwnedFd::from)
}

/// Raises the limit of open files to what all `sessions` and `guests` need. Where less is permitted, returns the same
/// shares of fewer, so that no account can take the last descriptor, and says so.
pub(super) fn within_open_files(
    sessions: PlaceLimits,
    guests: PlaceLimits,
) -> (PlaceLimits, PlaceLimits) {
    let needed = files(sessions, guests) + FILES_OF_DAEMON;
    let most = open_files::raise_towards(needed);
    if most >= needed {
        return (sessions, guests);
    }
    let all = sessions.total;
    let (sessions, guests) = shared(sessions, guests, most);
    say_error(&format!(
        "isolaned: the limit of open files allows {} processes, not {all}, and {} of one account; raise it (ulimit -n)",
        sessions.total, sessions.per_account
    ));
    (sessions, guests)
}

fn files(sessions: PlaceLimits, guests: PlaceLimits) -> u64 {
    sessions.total as u64 * FILES_PER_SESSION + guests.total as u64 * FILES_PER_GUEST
}

/// The same shares of so many places as `most` files suffice for.
fn shared(sessions: PlaceLimits, guests: PlaceLimits, most: u64) -> (PlaceLimits, PlaceLimits) {
    let places = files(sessions, guests);
    let left = u128::from(most - FILES_OF_DAEMON.min(most / 4));
    let share = |limits: PlaceLimits| {
        let total = limits.total as u128 * left / u128::from(places);
        limits.scaled_to((total as usize).max(1))
    };
    (share(sessions), share(guests))
}

const BACKLOG: i32 = 1_024;
/// Socket, process and event counter.
const FILES_PER_SESSION: u64 = 3;
/// Socket and process.
const FILES_PER_GUEST: u64 = 2;
/// Sockets of metrics, devices and peers.
const FILES_OF_DAEMON: u64 = 512;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::server::guests::GUESTS;

    #[test]
    fn all_places_together_fit_into_few_open_files_and_no_account_has_them_all() {
        let configured = Config::default().session_places();
        for most in [256, 1_024, 4_096] {
            let (sessions, guests) = shared(configured, GUESTS, most);
            assert!(files(sessions, guests) < most, "{sessions:?} {guests:?}");
            for places in [sessions, guests] {
                assert!(
                    places.per_account + places.reserve < places.total,
                    "{places:?}"
                );
                assert!(places.per_account > 0, "{places:?}");
            }
        }
    }
}
