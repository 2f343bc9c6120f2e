//! A journal: a file of lines that a program appends to and reads when it restarts.
//!
//! Problem: a kill or a full disk can cut off the last line, and the next line must not continue the torn one. Method:
//! each append is one write of whole lines. [`Journal::open`] returns the whole lines; bytes after the last line end
//! stay in the file until the next append, which removes them first. A failed append is removed in the same way. A
//! symbolic link in place of the file is an error, so a privileged program never writes elsewhere. Units: bytes.
//! Limits: appends are not synced: a kill of the program loses no append, a machine crash can. [`Journal::replace`] is
//! synced. One writer: [`Journal::lock`] excludes others if all writers call it.
#![forbid(unsafe_code)]

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Mode of the file: only its owner may read it.
const PRIVATE: u32 = 0o600;

/// A journal opened for appending.
#[derive(Debug)]
pub struct Journal {
    file: File,
    /// Bytes of whole lines.
    bytes: u64,
    /// Whether bytes after the whole lines may be in the file.
    torn: bool,
}

impl Journal {
    /// Makes an empty journal; removes the lines of an existing one. Fails with the kernel's error, also for a symbolic
    /// link at `path`.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = options().write(true).create(true).truncate(true).open(path);
        Ok(Self::of(file?, 0))
    }

    /// Makes an empty journal where there is none. Fails with [`ErrorKind::AlreadyExists`] or the kernel's error.
    pub fn create_new(path: &Path) -> io::Result<Self> {
        let file = options().write(true).create_new(true).open(path);
        Ok(Self::of(file?, 0))
    }

    /// Opens a journal for appending, and returns its whole lines, each with its end. The file is unchanged. Fails with
    /// [`ErrorKind::NotFound`] or the kernel's error, also for a symbolic link at `path`.
    pub fn open(path: &Path) -> io::Result<(Self, Vec<u8>)> {
        Self::read(options().read(true).write(true).open(path)?)
    }

    /// Opens a journal as [`Journal::open`] does, and excludes other writers as [`Journal::lock`] does before it reads.
    /// The lines are therefore those of the last writer. Fails as these two do. The file may have lost its name before
    /// the lock: compare the two.
    pub fn open_locked(path: &Path) -> io::Result<(Self, Vec<u8>)> {
        let journal = Self::of(options().read(true).write(true).open(path)?, 0);
        journal.lock()?;
        Self::read(journal.file)
    }

    fn read(mut file: File) -> io::Result<(Self, Vec<u8>)> {
        let mut lines = Vec::new();
        file.read_to_end(&mut lines)?;
        let end = lines.iter().rposition(|&byte| byte == b'\n');
        let whole = end.map_or(0, |end| end + 1);
        let mut journal = Self::of(file, whole as u64);
        journal.torn = lines.len() > whole;
        lines.truncate(whole);
        Ok((journal, lines))
    }

    /// Replaces the journal at `path` by one that holds `lines`: it is written beside (suffix `.new`), synced, and
    /// renamed. Only its owner may read it. Fails with the kernel's error, also for a symbolic link at the new file;
    /// the journal at `path` is then unchanged, or replaced if only the directory could not be synced.
    pub fn replace(path: &Path, lines: &str) -> io::Result<Self> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        let beside = path.with_file_name(name);
        let mut open = options();
        let open = open.write(true).create(true).truncate(true).mode(PRIVATE);
        let mut file = open.open(&beside)?;
        file.write_all(lines.as_bytes())?;
        file.sync_all()?;
        // Before the new name: a lack of descriptors changes nothing.
        let folder = File::open(folder(path))?;
        std::fs::rename(&beside, path)?;
        folder.sync_all()?;
        Ok(Self::of(file, lines.len() as u64))
    }

    /// Excludes other writers until the journal is dropped. Does nothing on a file system without locks. Fails with
    /// [`ErrorKind::WouldBlock`] if another writer has the lock.
    pub fn lock(&self) -> io::Result<()> {
        match self.file.try_lock() {
            Err(TryLockError::WouldBlock) => Err(ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) if error.kind() != ErrorKind::Unsupported => Err(error),
            _ => Ok(()),
        }
    }

    /// Appends whole lines. After an error none of `lines` is in the journal. Panics if the last line has no end.
    pub fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        assert!(lines.ends_with(b"\n"), "a journal holds whole lines");
        self.remove_torn()?;
        // One write: a kill can only cut it off.
        let written = self.file.write_all(lines);
        if let Err(error) = written {
            self.torn = true;
            // If this fails too, the next append or the next start removes the rest.
            let _ = self.remove_torn();
            return Err(error);
        }
        self.bytes += lines.len() as u64;
        Ok(())
    }

    /// Drops the lines after the first `bytes`, which must end with a line: the next append removes them from the file.
    pub fn cut(&mut self, bytes: u64) {
        self.torn |= bytes < self.bytes;
        self.bytes = self.bytes.min(bytes);
    }

    /// Length of the whole lines, bytes.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    const fn of(file: File, bytes: u64) -> Self {
        Self {
            file,
            bytes,
            torn: false,
        }
    }

    fn remove_torn(&mut self) -> io::Result<()> {
        if self.torn {
            self.file.set_len(self.bytes)?;
            self.file.seek(SeekFrom::Start(self.bytes))?;
            self.torn = false;
        }
        Ok(())
    }
}

impl AsFd for Journal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.custom_flags(libc::O_NOFOLLOW);
    options
}

fn folder(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    folder.unwrap_or(Path::new(".")).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn lines_are_read_again_and_a_cut_anywhere_costs_the_last_one_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let whole = b"one\ntwo\nthree\n";
        for length in 0..=whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            let (mut journal, lines) = Journal::open(&path).unwrap();
            let complete = whole[..length].iter().rposition(|&byte| byte == b'\n');
            let expected = &whole[..complete.map_or(0, |end| end + 1)];
            assert_eq!(lines, expected, "cut at {length}");
            assert_eq!(fs::read(&path).unwrap().len(), length, "reading changed it");
            journal.append(b"next\n").unwrap();
            assert_eq!(fs::read(&path).unwrap(), [expected, b"next\n"].concat());
        }
    }

    #[test]
    fn a_write_that_fails_leaves_whole_lines() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let mut journal = Journal::create(&path).unwrap();
        journal.append(b"one\n").unwrap();
        // A full disk leaves half a line and an error.
        journal.file.write_all(b"tw").unwrap();
        journal.torn = true;
        journal.append(b"three\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one\nthree\n");
        assert_eq!(journal.bytes(), 10);
        journal.file = File::open(&path).unwrap();
        journal.append(b"four\n").unwrap_err();
        assert_eq!(journal.bytes(), 10);
        assert_eq!(fs::read(&path).unwrap(), b"one\nthree\n");
    }

    #[test]
    fn a_full_disk_is_an_error() {
        let mut journal = Journal::create(Path::new("/dev/full")).unwrap();
        let error = journal.append(b"one\n").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        assert_eq!(journal.bytes(), 0);
    }

    #[test]
    fn a_symbolic_link_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (path, precious) = (
            directory.path().join("journal"),
            directory.path().join("precious"),
        );
        fs::write(&precious, "data\n").unwrap();
        std::os::unix::fs::symlink(&precious, &path).unwrap();
        Journal::create(&path).unwrap_err();
        Journal::create_new(&path).unwrap_err();
        Journal::open(&path).unwrap_err();
        fs::rename(&path, directory.path().join("journal.new")).unwrap();
        Journal::replace(&path, "one\n").unwrap_err();
        assert_eq!(fs::read(&precious).unwrap(), b"data\n");
    }

    #[test]
    fn a_replaced_journal_goes_on() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let mut old = Journal::create_new(&path).unwrap();
        old.append(b"one\ntwo\n").unwrap();
        let mut journal = Journal::replace(&path, "two\n").unwrap();
        journal.append(b"three\n").unwrap();
        let (mut journal, lines) = Journal::open(&path).unwrap();
        assert_eq!(lines, b"two\nthree\n");
        journal.cut(4);
        journal.append(b"four\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two\nfour\n");
    }

    #[test]
    fn a_second_writer_is_kept_out() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let first = Journal::create(&path).unwrap();
        first.lock().unwrap();
        let (second, _) = Journal::open(&path).unwrap();
        assert_eq!(second.lock().unwrap_err().kind(), ErrorKind::WouldBlock);
        let locked = Journal::open_locked(&path).unwrap_err();
        assert_eq!(locked.kind(), ErrorKind::WouldBlock);
        drop(first);
        second.lock().unwrap();
    }
}
