//! The directory of a broker: its socket, the links that programs load, and the devices' files.
//!
//! Problem: a broker that is killed leaves its directory, and the next one must not be stopped by it. Method: a broker
//! holds a lock on its directory (flock(2)), which the kernel releases when the process ends. A directory that nobody
//! holds and that has nothing but what a broker makes is taken over, or removed if its name was a random one.
//! Releases before the lock: a socket that answers is a living broker's. Limits: a file that something else put there
//! stays, and so does the directory; but all below [`TREE`] is removed.

use rustix::fs::{FlockOperation, Mode, OFlags, Stat, flock, fstat, open, stat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::geteuid;
use std::fs::DirBuilder;
use std::io::{Error, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, symlink};
use std::path::{Path, PathBuf};

/// The name of our libibverbs in the directory, which programs load.
pub const SONAME: &str = "libibverbs.so.1";
/// The name of librdmacm, whose functions are in the same file.
pub const CONNECTIONS: &str = "librdmacm.so.1";
/// The name of the library that shows the devices' files.
pub const FILES: &str = "libisolane_device_files.so";
/// The directory of the devices' files ([`crate::tree`]).
pub const TREE: &str = "isolane-devices";
/// The broker's socket.
pub const SOCKET: &str = "broker.sock";
/// The socket before it listens (`isolane_common_linux::socket::listen_at`).
const SOCKET_NEW: &str = "broker.new";
/// All that a broker leaves.
const LINKS: [&str; 3] = [SONAME, CONNECTIONS, FILES];
const SOCKETS: [&str; 2] = [SOCKET, SOCKET_NEW];
/// What names that the user did not choose begin with.
const PREFIX: &str = "isolane-emulate-";
/// Names that are tried: another process may have the same number in another PID namespace.
const NAMES_MAX: u32 = 16;

/// A directory of this broker alone; it is removed at the end with what is in it.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// Holds the lock.
    _lock: OwnedFd,
}

impl Directory {
    /// Makes the directory, or takes over the directory of a broker that was killed. Fails with `ResourceBusy` if a
    /// broker holds it, and with `AlreadyExists` if it is another user's, or has files that no broker makes.
    pub fn at(path: &Path) -> Result<Self, Error> {
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
            _ => Self::hold(path),
        }
    }

    /// Makes a directory in `base`, and removes those of killed brokers there. Fails if `base` takes no directory.
    pub fn in_base(base: &Path) -> Result<Self, Error> {
        // A base that cannot be listed may still take a directory.
        for entry in std::fs::read_dir(base).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(PREFIX) {
                // Whatever is not a killed broker's stays.
                drop(Self::hold(&entry.path()));
            }
        }
        let mut failed = Error::from(ErrorKind::AlreadyExists);
        for number in 0..NAMES_MAX {
            match Self::at(&base.join(format!("{PREFIX}{}-{number}", std::process::id()))) {
                Err(error) => failed = error,
                made => return made,
            }
        }
        Err(failed)
    }

    /// Locks a directory and empties it.
    fn hold(path: &Path) -> Result<Self, Error> {
        let foreign = || Error::from(ErrorKind::AlreadyExists);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = open(path, flags, Mode::empty()).map_err(|error| match error {
            Errno::NOTDIR | Errno::LOOP | Errno::ACCESS => foreign(),
            other => other.into(),
        })?;
        let held = fstat(&lock)?;
        if held.st_uid != geteuid().as_raw() || held.st_mode & 0o077 != 0 {
            return Err(foreign());
        }
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            Errno::WOULDBLOCK => Error::from(ErrorKind::ResourceBusy),
            other => other.into(),
        })?;
        let place = |stat: &Stat| (stat.st_dev, stat.st_ino);
        // A broker that ended meanwhile removed it, and the name may be another's now.
        if place(&stat(path)?) != place(&held) {
            return Err(Error::from(ErrorKind::ResourceBusy));
        }
        for entry in std::fs::read_dir(path)? {
            let entry = entry?;
            let (name, kind) = (entry.file_name(), entry.file_type()?);
            let is_link = kind.is_symlink() && LINKS.iter().any(|link| name == *link);
            let is_socket = kind.is_socket() && SOCKETS.iter().any(|socket| name == *socket);
            let is_tree = kind.is_dir() && name == TREE;
            if !is_link && !is_socket && !is_tree {
                return Err(foreign());
            }
        }
        if answers(&path.join(SOCKET)) {
            return Err(Error::from(ErrorKind::ResourceBusy));
        }
        let directory = Self {
            path: path.to_owned(),
            _lock: lock,
        };
        directory.empty();
        Ok(directory)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of the broker's socket.
    pub fn socket(&self) -> PathBuf {
        self.path.join(SOCKET)
    }

    /// The directory of the devices' files.
    pub fn tree(&self) -> PathBuf {
        self.path.join(TREE)
    }

    /// Makes a link with this name, [`SONAME`], [`CONNECTIONS`] or [`FILES`], to `file`.
    pub fn link(&self, file: &Path, name: &str) -> Result<(), Error> {
        symlink(file, self.path.join(name))
    }

    fn empty(&self) {
        for name in LINKS.into_iter().chain(SOCKETS) {
            // Most are not there.
            let _ = std::fs::remove_file(self.path.join(name));
        }
        let _ = std::fs::remove_dir_all(self.tree());
    }
}

/// Whether a broker listens at this socket.
fn answers(path: &Path) -> bool {
    let made = socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    );
    let address = SocketAddrUnix::new(path);
    made.is_ok_and(|socket| address.is_ok_and(|address| connect(&socket, &address).is_ok()))
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.empty();
        // The directory stays if it has a file that is not the broker's.
        let _ = std::fs::remove_dir(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_common_linux::socket::listen_at;
    use std::fs;
    use std::os::unix::net::UnixListener;

    /// A directory as a killed broker leaves it.
    fn left(path: &Path) {
        DirBuilder::new().mode(0o700).create(path).unwrap();
        for name in LINKS {
            symlink("/dev/null", path.join(name)).unwrap();
        }
        for name in SOCKETS {
            UnixListener::bind(path.join(name)).unwrap();
        }
        fs::create_dir_all(path.join(TREE).join("all/sys")).unwrap();
    }

    #[test]
    fn the_directory_of_a_killed_broker_is_taken_over() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("mine");
        left(&path);
        let directory = Directory::at(&path).unwrap();
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
        directory.link(Path::new("/dev/null"), SONAME).unwrap();
        drop(directory);
        assert!(!path.exists());
    }

    #[test]
    fn a_directory_in_use_or_of_others_stays() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("mine");
        let directory = Directory::at(&path).unwrap();
        let kind = |path: &Path| Directory::at(path).unwrap_err().kind();
        assert_eq!(kind(&path), ErrorKind::ResourceBusy);
        // A file with one of our names that is no link of ours.
        drop(directory);
        DirBuilder::new().mode(0o700).create(&path).unwrap();
        fs::write(path.join(SONAME), "").unwrap();
        assert_eq!(kind(&path), ErrorKind::AlreadyExists);
        assert!(path.join(SONAME).exists());
        fs::remove_file(path.join(SONAME)).unwrap();
        // A broker of a release without locks.
        let kind_of_socket = SocketType::SEQPACKET;
        let socket = rustix::net::socket(AddressFamily::UNIX, kind_of_socket, None).unwrap();
        listen_at(&socket, &path.join(SOCKET), 0o600, 1).unwrap();
        assert_eq!(kind(&path), ErrorKind::ResourceBusy);
        assert!(path.join(SOCKET).exists());
        let open = base.path().join("open");
        DirBuilder::new().mode(0o755).create(&open).unwrap();
        assert_eq!(kind(&open), ErrorKind::AlreadyExists);
        let link = base.path().join("link");
        symlink(&open, &link).unwrap();
        assert_eq!(kind(&link), ErrorKind::AlreadyExists);
        assert!(open.exists());
    }

    #[test]
    fn directories_of_killed_brokers_are_removed() {
        let base = tempfile::tempdir().unwrap();
        let killed = base.path().join(format!("{PREFIX}1-0"));
        left(&killed);
        let first = Directory::in_base(base.path()).unwrap();
        let second = Directory::in_base(base.path()).unwrap();
        assert!(!killed.exists() && first.path().exists() && second.path().exists());
        drop((first, second));
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
    }
}
