//! The service in a process of its own: a test program that runs again as the service.

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process_group, prlimit};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Environment variables of the process: its role, and a folder for its files.
const ROLE: &str = "ISOLANE_ABUSE_ROLE";
const FOLDER: &str = "ISOLANE_ABUSE_FOLDER";
/// Start of the line in which the service says where it listens.
const SAID: &str = "listening: ";

/// A running service; killed on drop, with its children.
#[derive(Debug)]
pub struct Running {
    child: Child,
    said: String,
    folder: tempfile::TempDir,
}

impl Running {
    /// Starts this test program again in `role`. Its test `role` must call [`role`] and [`serve_until_killed`]. Panics
    /// if the process does not start or ends before it listens.
    pub fn start(role: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let program = std::env::current_exe().expect("this program");
        let mut child = Command::new(program)
            .args(["--exact", "role", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env(FOLDER, folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("this program starts again");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let said = lines
            .map_while(Result::ok)
            .find_map(|line| Some(line.split_once(SAID)?.1.to_owned()));
        let said = said.unwrap_or_else(|| panic!("{role} ended before it listened"));
        Self {
            child,
            said,
            folder,
        }
    }

    /// What the service printed about where it listens.
    pub fn said(&self) -> &str {
        &self.said
    }

    /// The folder of its files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn proc(&self, file: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{file}", self.child.id()))
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Whether it has not ended.
    pub fn lives(&self) -> bool {
        let status = fs::read_to_string(self.proc("status")).unwrap_or_default();
        status.contains("State:") && !status.contains("State:\tZ")
    }

    /// Open descriptors.
    pub fn descriptors(&self) -> usize {
        fs::read_dir(self.proc("fd")).map_or(0, Iterator::count)
    }

    /// Peak of its resident memory, bytes. Panics if it has ended.
    pub fn peak_memory(&self) -> u64 {
        let status = fs::read_to_string(self.proc("status")).expect("it lives");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
        let kilobytes: u64 = kilobytes
            .and_then(|text| text.parse().ok())
            .expect("a size");
        kilobytes << 10
    }

    /// Time that it has used of processors. Panics if it has ended.
    pub fn processor_time(&self) -> Duration {
        let stat = fs::read_to_string(self.proc("stat")).expect("it lives");
        let (_, words) = stat.rsplit_once(')').expect("a name in brackets");
        // The fields utime and stime of proc(5), in ticks of 10 ms.
        let ticks = words.split_whitespace().skip(11).take(2);
        let ticks: u64 = ticks
            .map(|word| word.parse::<u64>().expect("a number"))
            .sum();
        Duration::from_millis(10 * ticks)
    }

    /// Lets it open no further descriptor. Returns the limit that was in force. Panics if the kernel refuses it.
    pub fn forbid_descriptors(&self) -> Rlimit {
        let entries = fs::read_dir(self.proc("fd")).expect("it lives");
        let names = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let taken: BTreeSet<u64> = names.collect();
        // A new descriptor gets the lowest free number, which must be below the limit.
        let free = (0..)
            .find(|number| !taken.contains(number))
            .expect("a number");
        let old = rustix::process::getrlimit(Resource::Nofile);
        let new = Rlimit {
            current: Some(free),
            maximum: old.maximum,
        };
        prlimit(Some(self.pid()), Resource::Nofile, new).expect("a limit of our own process")
    }

    /// Sets the limit of open descriptors again. Panics if the kernel refuses it.
    pub fn allow_descriptors(&self, limit: Rlimit) {
        prlimit(Some(self.pid()), Resource::Nofile, limit).expect("a limit of our own process");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = kill_process_group(self.pid(), Signal::KILL);
        let _ = self.child.wait();
    }
}

/// The role and folder of this process, if it was started as a service.
pub fn role() -> Option<(String, PathBuf)> {
    let role = std::env::var(ROLE).ok()?;
    Some((role, std::env::var_os(FOLDER)?.into()))
}

/// Says where the service listens, and waits until the process that started it ends or kills it.
pub fn serve_until_killed(place: &str) {
    println!("{SAID}{place}");
    let _ = std::io::stdin().lock().read_until(b'\n', &mut Vec::new());
}
