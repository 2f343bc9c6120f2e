//! Files of Unix sockets, and their directories.
//!
//! Problem: a directory of client sockets is mounted into containers, whose root may rename and link there. A privileged program
//! that changes the mode of a path may then change the mode of any file. Method: the mode is set on the file that was opened
//! without following a link and that is a socket.

use rustix::fs::{CWD, FileType, Mode, OFlags, RenameFlags, fchmod, fstat, open, renameat_with};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// Makes the directory of a client socket with mode 0755, if missing.
pub fn make_client_folder(folder: &Path) -> io::Result<()> {
    const MODE: u32 = 0o755;
    if let Some(above) = folder.parent() {
        fs::create_dir_all(above)?;
    }
    match fs::DirBuilder::new().mode(MODE).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
        // Restores bits that the umask removed.
        Ok(()) => {
            let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let made = open(folder, flags, Mode::empty())?;
            Ok(fchmod(&made, Mode::from_raw_mode(MODE))?)
        }
    }
}

/// Listens with `socket` at `path` with this mode, for `backlog` connections. It listens before the file has its name,
/// so a connection to this name is never refused. Fails with `AddrInUse` if the path is taken, and with `InvalidData`
/// if another file took the socket's place.
pub fn listen_at(socket: impl AsFd, path: &Path, mode: u32, backlog: i32) -> io::Result<()> {
    let unnamed = path.with_extension("new");
    match fs::remove_file(&unnamed) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    bind_with_mode(&socket, &unnamed, mode)?;
    let listened = listen(&socket, backlog)
        .and_then(|()| renameat_with(CWD, &unnamed, CWD, path, RenameFlags::NOREPLACE));
    listened.map_err(|error| {
        let _ = fs::remove_file(&unnamed);
        match error {
            Errno::EXIST => Errno::ADDRINUSE.into(),
            error => error.into(),
        }
    })
}

/// Listens for streams at `path` without blocking. Replaces the socket of a dead server, but no living server's and no
/// other file: these are `AddrInUse`.
pub fn listen_for_streams(path: &Path, mode: u32, backlog: i32) -> io::Result<UnixListener> {
    if fs::symlink_metadata(path).is_ok_and(|data| data.file_type().is_socket()) {
        match UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                fs::remove_file(path)?;
            }
            _ => return Err(io::ErrorKind::AddrInUse.into()),
        }
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    listen_at(&socket, path, mode, backlog)?;
    Ok(socket.into())
}

fn bind_with_mode(socket: impl AsFd, path: &Path, mode: u32) -> io::Result<()> {
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = open(path, flags, Mode::empty())?;
    if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::Socket {
        let text = format!("{} is not a socket any more", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    // fchmod(2) accepts no descriptor opened as a path; this name refers to the open file.
    let name = format!("/proc/self/fd/{}", file.as_raw_fd());
    fs::set_permissions(name, fs::Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        listen_at(&socket, &path, 0o666, 1).unwrap();
        assert_eq!(mode(&path), 0o666);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_is_there_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.sock");
        fs::write(&path, "data").unwrap();
        let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        let error = listen_at(&socket, &path, 0o600, 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert_eq!(fs::read(&path).unwrap(), b"data");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
