//! A directory of journals that no other user may write to, without links in it.
//!
//! Problem: a privileged program that opens a file by its path follows any link in that path. Method: the directory is
//! opened once, without following a link. It must belong to this process's user, and no other user may write to it; a
//! missing directory is made with mode 0700. Every file is opened relative to the directory's descriptor by a name
//! without `/`, with `O_NOFOLLOW`, and must be a regular file of this user with one name. A file is replaced as a
//! whole: written under a new name that must not exist, then renamed. Limits: the administrator is responsible for the
//! directories above.

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, openat, renameat, statat, unlinkat};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Mode of a directory that is made.
const MODE: u32 = 0o700;
/// Write permission of group and others.
const OTHERS_WRITE: u32 = 0o022;

/// An open directory.
#[derive(Debug)]
pub struct PrivateDirectory {
    descriptor: OwnedFd,
    path: PathBuf,
}

impl PrivateDirectory {
    /// Opens the directory; makes it and its parents if missing. Fails with `InvalidData` for a link, or for a
    /// directory that others own or may write to.
    pub fn open_or_make(path: &Path) -> io::Result<Self> {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        match std::fs::DirBuilder::new().mode(MODE).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Self::open(path),
        }
    }

    /// Opens a directory that exists. Fails with `NotFound` where there is none; see [`Self::open_or_make`].
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let descriptor =
            rustix::fs::open(path, flags, Mode::empty()).map_err(|error| match error {
                rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR => {
                    wrong(path, "is a link or not a directory; remove it")
                }
                error => error.into(),
            })?;
        let status = fstat(&descriptor)?;
        let own = rustix::process::geteuid().as_raw();
        if status.st_uid != own {
            let detail = format!(
                "belongs to user {}, not to user {own}; remove it",
                status.st_uid
            );
            return Err(wrong(path, &detail));
        }
        if status.st_mode & OTHERS_WRITE != 0 {
            return Err(wrong(path, "may be written by others; chmod 700"));
        }
        Ok(Self {
            descriptor,
            path: path.to_owned(),
        })
    }

    /// Path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The names of its files, sorted.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.descriptor)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// The text of a file of at most `most` bytes; `None` if there is no such file. Fails with `InvalidData` for a
    /// link, another user's file, a file with two names, a longer file, or bytes that are not text.
    pub fn read(&self, name: &str, most: u64) -> io::Result<Option<String>> {
        let opened = match self.open_file(name, OFlags::RDONLY | OFlags::NONBLOCK) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let mut bytes = Vec::new();
        File::from(opened).take(most + 1).read_to_end(&mut bytes)?;
        let path = self.path.join(name);
        if bytes.len() as u64 > most {
            return Err(wrong(&path, &format!("has more than {most} bytes")));
        }
        let text = String::from_utf8(bytes).map_err(|_| wrong(&path, "is no text"))?;
        Ok(Some(text))
    }

    /// Makes an empty file for writing; a file or a link of that name is removed first.
    pub fn create(&self, name: &str) -> io::Result<File> {
        self.remove(name)?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        Ok(openat(&self.descriptor, name, flags, mode)?.into())
    }

    /// Replaces or makes a file. An error leaves the file unchanged.
    pub fn replace(&self, name: &str, text: &str) -> io::Result<()> {
        let part = format!("{}.part", checked(name)?);
        // Remove a file that a killed program left, or a link.
        let mut file = self.create(&part)?;
        let written = file.write_all(text.as_bytes()).and_then(|()| {
            renameat(&self.descriptor, part.as_str(), &self.descriptor, name)?;
            Ok(())
        });
        written.inspect_err(|_| {
            // Best effort: on a full disk the partial file takes the space.
            let _ = self.remove(&part);
        })
    }

    /// Removes a file or a link; a missing one is not an error.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        match unlinkat(&self.descriptor, checked(name)?, AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens a file for locking; makes it if missing. Fails with `InvalidData` for a link.
    pub fn lock_file(&self, name: &str) -> io::Result<OwnedFd> {
        self.open_file(name, OFlags::RDWR | OFlags::CREATE)
    }

    /// Whether the name still refers to the open file.
    pub fn names_file(&self, name: &str, file: impl AsFd) -> bool {
        let named = statat(&self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW);
        match (fstat(file), named) {
            (Ok(file), Ok(named)) => (file.st_dev, file.st_ino) == (named.st_dev, named.st_ino),
            _ => false,
        }
    }

    fn open_file(&self, name: &str, flags: OFlags) -> io::Result<OwnedFd> {
        let path = self.path.join(name);
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let (file, status) = loop {
            let file = match openat(&self.descriptor, checked(name)?, flags, mode) {
                Err(rustix::io::Errno::LOOP) => return Err(wrong(&path, "is a link; remove it")),
                file => file?,
            };
            let status = fstat(&file)?;
            // A file without a name was replaced or removed since it was opened.
            if status.st_nlink > 0 {
                break (file, status);
            }
        };
        let own = rustix::process::geteuid().as_raw();
        if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
            return Err(wrong(&path, "is not a regular file; remove it"));
        }
        if status.st_uid != own || status.st_nlink != 1 {
            let detail = format!(
                "belongs to user {} and has {} names; must belong to user {own} and have one: remove it",
                status.st_uid, status.st_nlink
            );
            return Err(wrong(&path, &detail));
        }
        Ok(file)
    }
}

impl AsFd for PrivateDirectory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Checks that `name` is a file name in the directory itself.
fn checked(name: &str) -> io::Result<&str> {
    match name.is_empty() || name == "." || name == ".." || name.contains('/') {
        true => Err(wrong(
            Path::new(name),
            "is not the name of a file in the directory",
        )),
        false => Ok(name),
    }
}

fn wrong(path: &Path, detail: &str) -> io::Error {
    let text = format!("{} {detail}", path.display());
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn directory() -> (tempfile::TempDir, PrivateDirectory) {
        let folder = tempfile::tempdir().unwrap();
        let directory = PrivateDirectory::open_or_make(&folder.path().join("a/journals")).unwrap();
        (folder, directory)
    }

    #[test]
    fn a_file_is_readable_while_another_thread_replaces_it() {
        const READS: usize = 20_000;
        let (_folder, directory) = directory();
        directory.replace("one.json", "text").unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        let reads: io::Result<Vec<_>> = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    directory.replace("one.json", "text").unwrap();
                }
            });
            let reads = (0..READS).map(|_| directory.read("one.json", 10)).collect();
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            reads
        });
        let text = Some("text".to_owned());
        assert!(reads.unwrap().iter().all(|read| *read == text));
    }

    #[test]
    fn files_are_replaced_read_listed_and_removed() {
        let (_folder, directory) = directory();
        assert_eq!(directory.read("one.json", 10).unwrap(), None);
        directory.replace("one.json", "first").unwrap();
        directory.replace("one.json", "second").unwrap();
        assert_eq!(
            directory.read("one.json", 6).unwrap().as_deref(),
            Some("second")
        );
        assert!(
            directory.read("one.json", 5).is_err(),
            "longer than allowed"
        );
        assert_eq!(directory.names().unwrap(), ["one.json"]);
        directory.remove("one.json").unwrap();
        directory.remove("one.json").unwrap();
        assert_eq!(directory.names().unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_refused() {
        let (folder, directory) = directory();
        let path = directory.path().to_owned();
        let set = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o700
        );
        set(0o777);
        let error = PrivateDirectory::open(&path).unwrap_err();
        assert!(
            error.to_string().contains("may be written by others"),
            "{error}"
        );
        // The state that an earlier release left.
        set(0o755);
        PrivateDirectory::open(&path).unwrap();
        let link = folder.path().join("link");
        symlink(&path, &link).unwrap();
        let error = PrivateDirectory::open_or_make(&link).unwrap_err();
        assert!(error.to_string().contains("is a link"), "{error}");
    }

    #[test]
    fn no_link_is_followed() {
        let (folder, directory) = directory();
        let precious = folder.path().join("precious");
        fs::write(&precious, "precious").unwrap();
        for name in ["j", "j.part", "lock"] {
            symlink(&precious, directory.path().join(name)).unwrap();
        }
        assert!(
            directory
                .read("j", 100)
                .unwrap_err()
                .to_string()
                .contains("is a link")
        );
        assert!(directory.lock_file("lock").is_err());
        directory.replace("j", "ours").unwrap();
        assert_eq!(directory.read("j", 100).unwrap().as_deref(), Some("ours"));
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
        // A second name of another user's file is as dangerous as a link.
        fs::hard_link(&precious, directory.path().join("hard")).unwrap();
        assert!(
            directory
                .read("hard", 100)
                .unwrap_err()
                .to_string()
                .contains("2 names")
        );
    }

    #[test]
    fn names_do_not_leave_the_directory() {
        let (_folder, directory) = directory();
        for name in ["", ".", "..", "../x", "a/b"] {
            assert!(directory.replace(name, "x").is_err(), "{name}");
            assert!(directory.read(name, 1).is_err(), "{name}");
            assert!(directory.remove(name).is_err(), "{name}");
        }
    }
}
