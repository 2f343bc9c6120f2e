//! The network namespace of the calling thread, in a form that a journal can keep.
//!
//! Problem: interface indices and device names repeat across namespaces, and the inode number of an ended namespace is
//! reused. Method: the inode number and the cookie, which the kernel gives once per boot. Limits: a kernel before Linux
//! 5.14 has no cookies; there an ended namespace can be mistaken for a new one with the same number. Source:
//! namespaces(7), `SO_NETNS_COOKIE`.

use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;

/// Since Linux 5.14.
const SO_NETNS_COOKIE: libc::c_int = 71;

/// A network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkNamespace {
    /// Inode number; 0 if `/proc` cannot be read.
    pub inode: u64,
    /// Cookie; 0 if the kernel has none.
    pub cookie: u64,
}

impl NetworkNamespace {
    /// That of the calling thread.
    pub fn here() -> Self {
        let file = std::fs::metadata("/proc/thread-self/ns/net");
        Self {
            inode: file.map_or(0, |file| file.ino()),
            cookie: cookie().unwrap_or(0),
        }
    }

    /// Whether both are one namespace. A cookie that one of the two lacks is not compared.
    pub fn is(self, other: Self) -> bool {
        let known = self.cookie != 0 && other.cookie != 0;
        self.inode == other.inode && (!known || self.cookie == other.cookie)
    }
}

/// The number that names the calling thread's network namespace until the next boot, never 0. Fails on a kernel before
/// Linux 5.14.
pub fn cookie() -> io::Result<u64> {
    let socket = rustix::net::socket(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::DGRAM,
        None,
    )?;
    let mut cookie = 0_u64;
    let mut bytes = size_of::<u64>() as libc::socklen_t;
    // SAFETY: both pointers are valid for the sizes given.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut bytes,
        )
    };
    match result {
        0 => Ok(cookie),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_known_by_number_and_cookie() {
        let here = NetworkNamespace::here();
        assert!(here.inode != 0 && here.is(NetworkNamespace::here()));
        let reused = NetworkNamespace {
            cookie: here.cookie + 1,
            ..here
        };
        assert_eq!(here.is(reused), here.cookie == 0);
        let other = NetworkNamespace {
            inode: here.inode + 1,
            ..here
        };
        assert!(!here.is(other));
    }
}
