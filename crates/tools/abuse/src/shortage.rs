//! A machine whose disk is full, or whose clock is set.
//!
//! Method: [`SmallDisk`] is a file system in memory, in a mount namespace of its own; the service's files and its
//! standard error lie there. [`Wall`] sets the wall clock of the service's process by libfaketime, while the process
//! runs. Units: bytes, seconds. Limits: a disk without inodes and errors of a disk are not tried; a clock that the
//! service reads by a system call of its own, without the C library, does not move.

use crate::process::{Running, command};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Size of the disk, bytes.
const SIZE: u64 = 4 << 20;

/// A small file system of its own; it ends when it is dropped.
#[derive(Debug)]
pub struct SmallDisk {
    holder: Child,
    folder: PathBuf,
    _under: tempfile::TempDir,
}

impl SmallDisk {
    /// Mounts one. `None`: the machine permits no namespaces.
    pub fn mount() -> Option<Self> {
        let under = tempfile::tempdir().expect("a directory");
        let script = "mount -t tmpfs -o size=$1,mode=755 small $0 && echo && exec cat";
        let mut holder = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", script])
            .arg(under.path())
            .arg(SIZE.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let mut line = String::new();
        let output = holder.stdout.take().expect("a pipe");
        let read = BufReader::new(output).read_line(&mut line);
        let root = PathBuf::from(format!("/proc/{}/root", holder.id()));
        let inside = under.path().strip_prefix("/").expect("it is absolute");
        let disk = Self {
            folder: root.join(inside),
            holder,
            _under: under,
        };
        (read.is_ok() && line == "\n").then_some(disk)
    }

    /// Its files, as every process of this user sees them.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn filler(&self) -> PathBuf {
        self.folder.join("filler")
    }

    /// Fills it to the last byte. Panics if it does not become full.
    pub fn fill(&self) {
        let mut file = File::create(self.filler()).expect("room for a name");
        let piece = vec![0; 4 << 10];
        for _ in 0..=2 * SIZE / piece.len() as u64 {
            if let Err(error) = file.write_all(&piece) {
                assert_eq!(error.kind(), ErrorKind::StorageFull);
                return;
            }
        }
        panic!("the disk has no end");
    }

    /// Removes what filled it. Panics if it was not full.
    pub fn free(&self) {
        fs::remove_file(self.filler()).expect("it was filled");
    }

    /// Starts a service with the files of `folder`, whose standard error lies on this disk. See [`Running::spawn`].
    pub fn spawn(&self, role: &str, folder: &Path) -> Running {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.folder.join("log"));
        let mut command = command(role, folder);
        command.stderr(log.expect("room for a name"));
        Running::spawn_as(command, folder)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// The library that changes the wall clock of a process; it is there where Debian has it.
pub fn faketime() -> PathBuf {
    let folder = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    Path::new(&folder).join("faketime/libfaketime.so.1")
}

/// Lets a program run under [`faketime`]. It reads the file with the offset, like `+60` s, at each look at its clock.
pub fn with_wall<'a>(command: &'a mut Command, file: &Path) -> &'a mut Command {
    command
        .env("LD_PRELOAD", faketime())
        .env("FAKETIME_TIMESTAMP_FILE", file)
        .env("FAKETIME_NO_CACHE", "1")
        .env("DONT_FAKE_MONOTONIC", "1")
}

/// The wall clock of services that are started with it.
#[derive(Debug)]
pub struct Wall {
    folder: tempfile::TempDir,
}

impl Wall {
    /// A clock that is right. `None`: libfaketime is not installed.
    pub fn find() -> Option<Self> {
        let wall = Self {
            folder: tempfile::tempdir().expect("a directory"),
        };
        faketime().exists().then(|| {
            wall.set(0);
            wall
        })
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("wall")
    }

    /// Sets it so many seconds ahead of the machine's.
    pub fn set(&self, ahead_s: i64) {
        // Complete under its name: the service reads it all the time.
        let unnamed = self.folder.path().join("wall.new");
        fs::write(&unnamed, format!("{ahead_s:+}")).expect("a file of our own");
        fs::rename(unnamed, self.file()).expect("in one directory");
    }

    /// Starts a service under this clock. See [`Running::spawn`].
    pub fn spawn(&self, role: &str, folder: &Path) -> Running {
        let mut command = command(role, folder);
        with_wall(&mut command, &self.file());
        Running::spawn_as(command, folder)
    }
}
