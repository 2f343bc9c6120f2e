//! The listening socket.

use super::ServerError;
use isolane_common_linux::socket::{listen_at, make_client_folder};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, connect, socket_with,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The socket on which processes come, and its file, which goes with it.
#[derive(Debug)]
pub(super) struct Door {
    pub(super) socket: OwnedFd,
    path: PathBuf,
    /// A descriptor in reserve, so that somebody can be shown out when there is no other left.
    spare: Option<OwnedFd>,
}

/// What came of a look at the door.
#[derive(Debug)]
pub(super) enum Came {
    /// Nobody.
    Nobody,
    /// Somebody.
    Somebody(OwnedFd),
    /// Somebody, and no descriptor is left for them.
    Full,
}

impl Door {
    /// Listens at `path`, for users that `mode` lets connect. A socket that a daemon left behind is replaced.
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
                // Nobody listens behind it.
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

    /// Who waits at the door.
    pub(super) fn accept(&mut self) -> Came {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match accept_with(&self.socket, flags) {
            Ok(socket) => Came::Somebody(socket),
            Err(Errno::MFILE | Errno::NFILE) => {
                // Gives up the reserve for a moment, to take the connection and to close it.
                drop(self.spare.take());
                let shown_out = accept_with(&self.socket, flags).is_ok();
                self.spare = spare();
                match shown_out {
                    true => Came::Full,
                    false => Came::Nobody,
                }
            }
            Err(_) => Came::Nobody,
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        // Another daemon may have taken the name meanwhile; then a new one is made when it starts again.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn spare() -> Option<OwnedFd> {
    std::fs::File::open("/dev/null").ok().map(OwnedFd::from)
}

/// Raises the limit of open files as far as the kernel lets us; how many sessions that is good for.
pub(super) fn raise_limit(sessions: usize, guests: usize) -> usize {
    let others = guests as u64 * FILES_PER_GUEST + FILES_OF_DAEMON;
    let wanted = sessions as u64 * FILES_PER_SESSION + others;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let unlimited = current.is_none();
    if current.is_some_and(|current| current < wanted) {
        // With privilege the hard limit goes up too; without, as far as it goes.
        let all = Rlimit {
            current: Some(wanted),
            maximum: maximum.map(|maximum| maximum.max(wanted)),
        };
        let some = Rlimit {
            current: maximum.map(|maximum| maximum.min(wanted)),
            maximum,
        };
        let _ = setrlimit(Resource::Nofile, all).or_else(|_| setrlimit(Resource::Nofile, some));
    }
    match getrlimit(Resource::Nofile).current {
        Some(current) if !unlimited => {
            let free = current.saturating_sub(others) / FILES_PER_SESSION;
            usize::try_from(free).unwrap_or(usize::MAX)
        }
        _ => usize::MAX,
    }
}

const BACKLOG: i32 = 1_024;
/// Socket, process and knocker.
const FILES_PER_SESSION: u64 = 3;
/// Socket and process.
const FILES_PER_GUEST: u64 = 2;
/// Sockets of metrics, devices and peers.
const FILES_OF_DAEMON: u64 = 512;
