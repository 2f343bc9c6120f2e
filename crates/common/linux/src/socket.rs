//! Files of Unix sockets, and their folders.
//!
//! Problem: a folder of client sockets is mounted into containers, whose root may rename and link there. A privileged program
//! that changes the mode of a path may then change the mode of any file. Method: the mode is set on the file that was opened
//! without following a link and that is a socket.

use rustix::fs::{FileType, Mode, OFlags, fchmod, fstat, open};
use rustix::net::{SocketAddrUnix, bind};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

/// Makes the folder of a socket that clients reach, with mode 0755, where there is none.
///
/// # Errors
/// The kernel's.
pub fn make_client_folder(folder: &Path) -> io::Result<()> {
    const MODE: u32 = 0o755;
    if let Some(above) = folder.parent() {
        fs::create_dir_all(above)?;
    }
    match fs::DirBuilder::new().mode(MODE).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
        // Whatever the umask took away.
        Ok(()) => {
            let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let made = open(folder, flags, Mode::empty())?;
            Ok(fchmod(&made, Mode::from_raw_mode(MODE))?)
        }
    }
}

/// Binds `socket` to `path` and gives the file this mode.
///
/// # Errors
/// The kernel's; `InvalidData` when something else is at the path by then.
pub fn bind_with_mode(socket: impl AsFd, path: &Path, mode: u32) -> io::Result<()> {
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = open(path, flags, Mode::empty())?;
    if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::Socket {
        let text = format!("{} is no socket any more", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    // fchmod(2) takes no descriptor that was opened as a path; this name means the open file.
    let name = format!("/proc/self/fd/{}", file.as_raw_fd());
    fs::set_permissions(name, fs::Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketType};

    #[test]
    fn a_socket_has_its_mode_and_its_folder_can_be_entered() {
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().join("a/clients");
        make_client_folder(&folder).unwrap();
        make_client_folder(&folder).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode(&folder), 0o755);
        let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        let path = folder.join("x.sock");
        bind_with_mode(&socket, &path, 0o666).unwrap();
        assert_eq!(mode(&path), 0o666);
    }
}
