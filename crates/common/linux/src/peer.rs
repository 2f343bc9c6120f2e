//! The process at the peer end of a Unix socket, identified by the kernel.
//!
//! Problem: a socket's credentials contain a process id and a user. Root in a container is user 0 as well, and a
//! process id is reused after its process ends. Method: a pidfd holds the peer's process. Linux 6.5 returns the pidfd
//! of the very process that connected (`SO_PEERPIDFD`); on an older kernel the pidfd of the process id is opened. Data
//! of `/proc` counts only if the pidfd shows afterwards that its process still runs. [`Peer::check_authority`] requires
//! more than user 0: the peer must be in this process's user namespace and PID namespace. A check that cannot be made
//! fails. Limits: before Linux 6.5 a peer that ended before the check can be mistaken for a new process with its id. A
//! container that shares the host's user namespace and PID namespace counts as the host. Source: unix(7),
//! pidfd_open(2), namespaces(7).

use crate::account::Account;
use crate::cgroup;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::time::Timespec;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

/// `SO_PEERPIDFD` (Linux 6.5) on all supported architectures.
const SO_PEERPIDFD: libc::c_int = 77;

/// The process that connected.
#[derive(Debug)]
pub struct Peer {
    process: u32,
    user: u32,
    pidfd: Option<OwnedFd>,
}

/// Why a peer may not control this host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum NoAuthority {
    #[error("user {user} may not; only root and user {own} may")]
    User { user: u32, own: u32 },
    #[error(
        "process {process} is in another {kind} namespace; only processes of the host's {kind} namespace may"
    )]
    Namespace {
        /// Process id of the peer here, 0 if it has none.
        process: u32,
        kind: &'static str,
    },
    #[error("process {process} has ended, or its {kind} namespace cannot be read")]
    Unknown { process: u32, kind: &'static str },
}

impl Peer {
    /// The process at the peer end of `socket`. Fails with the kernel's error, for example if the process has ended.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        let socket = socket.as_fd();
        let credentials = credentials(socket)?;
        let pidfd = match Pid::from_raw(credentials.pid) {
            // Not visible in this PID namespace.
            None => None,
            Some(pid) => Some(match peer_pidfd(socket) {
                Some(pidfd) => pidfd,
                None => pidfd_open(pid, PidfdFlags::NONBLOCK)?,
            }),
        };
        Ok(Self {
            process: credentials.pid.cast_unsigned(),
            user: credentials.uid,
            pidfd,
        })
    }

    /// Process id in this process's PID namespace; 0 if it has none.
    pub fn process(&self) -> u32 {
        self.process
    }

    /// Effective user id at the time of the connection, in this process's user namespace.
    pub fn user(&self) -> u32 {
        self.user
    }

    /// Readable once the process has ended; `None` if it has no process id here.
    pub fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        self.pidfd.as_ref().map(AsFd::as_fd)
    }

    /// Whether the process still runs, so that its id is still valid.
    pub fn runs(&self) -> bool {
        let Some(pidfd) = &self.pidfd else {
            return false;
        };
        let mut polled = [PollFd::new(pidfd, PollFlags::IN)];
        matches!(poll(&mut polled, Some(&Timespec::default())), Ok(0))
    }

    /// Checks that the peer may control this host: it is root or this process's own user, and in the user namespace and
    /// the PID namespace of this process. The error says why the peer may not.
    pub fn check_authority(&self) -> Result<(), NoAuthority> {
        let own = rustix::process::geteuid().as_raw();
        if self.user != 0 && self.user != own {
            return Err(NoAuthority::User {
                user: self.user,
                own,
            });
        }
        self.check_host()
    }

    /// Checks that the peer is in the user namespace and the PID namespace of this process, with any user. The error
    /// says in which it is not.
    pub fn check_host(&self) -> Result<(), NoAuthority> {
        let process = self.process;
        for kind in ["PID", "user"] {
            if self.pidfd.is_none() {
                return Err(NoAuthority::Namespace { process, kind });
            }
            let unknown = NoAuthority::Unknown { process, kind };
            let (Some(theirs), Some(ours)) = (
                namespace(&process.to_string(), kind),
                namespace("self", kind),
            ) else {
                return Err(unknown);
            };
            if !self.runs() {
                return Err(unknown);
            }
            if theirs != ours {
                return Err(NoAuthority::Namespace { process, kind });
            }
        }
        Ok(())
    }

    /// The account of the peer's places. A process that cannot be read counts for its user alone.
    pub fn account(&self) -> Account {
        let unknown = Account::of_user(self.user);
        if self.pidfd.is_none() {
            return unknown;
        }
        let cgroups = fs::read_to_string(format!("/proc/{}/cgroup", self.process));
        let account = Account {
            group: cgroup::responsible(cgroup::path(&cgroups.unwrap_or_default())).to_owned(),
            user_namespace: namespace(&self.process.to_string(), "user")
                .map_or(0, |(_, inode)| inode),
            ..unknown.clone()
        };
        match self.runs() {
            true => account,
            false => unknown,
        }
    }
}

/// Device and inode of a process's namespace.
fn namespace(process: &str, kind: &str) -> Option<(u64, u64)> {
    let file = format!("/proc/{process}/ns/{}", kind.to_ascii_lowercase());
    let namespace = fs::metadata(file).ok()?;
    Some((namespace.dev(), namespace.ino()))
}

/// Reads `SO_PEERCRED`. The process id is 0 for a process that is not visible here.
fn credentials(socket: BorrowedFd<'_>) -> io::Result<libc::ucred> {
    let mut credentials = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, the size of `credentials`, which is plain data and outlives the call.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut length,
        )
    };
    match done {
        0 => Ok(credentials),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The pidfd of the process that connected, if the kernel supports it.
fn peer_pidfd(socket: BorrowedFd<'_>) -> Option<OwnedFd> {
    let mut descriptor: libc::c_int = -1;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, the size of `descriptor`, which outlives the call.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut descriptor).cast(),
            &raw mut length,
        )
    };
    if done != 0 || descriptor < 0 {
        return None;
    }
    // SAFETY: a new descriptor of the kernel, close-on-exec, with no other owner.
    Some(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_process_of_this_host_has_authority_and_an_account() {
        let (one, _other) = UnixStream::pair().unwrap();
        let peer = Peer::of(&one).unwrap();
        assert_eq!(peer.process(), std::process::id());
        assert!(peer.runs());
        assert_eq!(peer.check_authority(), Ok(()));
        assert_eq!(peer.account().user, peer.user());
        assert_ne!(peer.account().user_namespace, 0);
    }

    #[test]
    fn a_peer_without_a_number_here_has_no_authority() {
        let peer = Peer {
            process: 0,
            user: 0,
            pidfd: None,
        };
        for refusal in [peer.check_authority(), peer.check_host()] {
            assert!(matches!(
                refusal,
                Err(NoAuthority::Namespace { process: 0, .. })
            ));
        }
        assert_eq!(peer.account(), Account::of_user(0));
    }

    #[test]
    fn another_user_has_no_authority() {
        let own = rustix::process::geteuid().as_raw();
        let (one, _other) = UnixStream::pair().unwrap();
        let peer = Peer {
            user: own + 1,
            ..Peer::of(&one).unwrap()
        };
        assert_eq!(
            peer.check_authority(),
            Err(NoAuthority::User { user: own + 1, own })
        );
        assert_eq!(peer.check_host(), Ok(()));
    }

    #[test]
    fn a_process_that_has_ended_has_no_authority() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let process = child.id();
        let pid = Pid::from_child(&child);
        let pidfd = pidfd_open(pid, PidfdFlags::NONBLOCK).unwrap();
        child.wait().unwrap();
        let peer = Peer {
            process,
            user: rustix::process::geteuid().as_raw(),
            pidfd: Some(pidfd),
        };
        assert!(!peer.runs());
        assert!(matches!(
            peer.check_authority(),
            Err(NoAuthority::Unknown { .. })
        ));
    }
}
