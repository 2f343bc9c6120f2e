//! The service in a process of its own: a test program that runs again as the service.

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process_group, prlimit};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Environment variables of the process: its role, and a directory for its files.
const ROLE: &str = "ISOLANE_ABUSE_ROLE";
const FOLDER: &str = "ISOLANE_ABUSE_FOLDER";
/// Start of the line in which the service says where it listens.
const SAID: &str = "listening: ";
/// How long a service may take to listen.
const STARTING: Duration = Duration::from_secs(60);

/// A running service; killed on drop, with its children.
#[derive(Debug)]
pub struct Running {
    child: Child,
    input: Option<ChildStdin>,
    said: String,
    lines: Receiver<String>,
    folder: PathBuf,
    _own: Option<tempfile::TempDir>,
    /// Whether what it started stays when the value is dropped.
    leaves_group: bool,
}

impl Running {
    /// Starts this test program again in `role`. Its test `role` must call [`role`] and [`serve_until_killed`]. Panics
    /// if the process does not start or ends before it listens.
    pub fn start(role: &str) -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let mut running = Self::spawn(role, folder.path());
        running._own = Some(folder);
        if let Err(reason) = running.listens() {
            panic!("{role}: {reason}");
        }
        running
    }

    /// Starts this test program again in `role`, with the files of an earlier service in `folder`, and does not wait
    /// until it listens: see [`Running::listens`].
    pub fn spawn(role: &str, folder: &Path) -> Self {
        Self::spawn_as(command(role, folder), folder)
    }

    /// As [`Running::spawn`], with a [`command`] that the caller has changed.
    pub fn spawn_as(mut command: Command, folder: &Path) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("this program starts again");
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let (say, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                // The receiver may have been dropped with the service.
                let _ = say.send(line);
            }
        });
        Self {
            child,
            input,
            said: String::new(),
            lines,
            folder: folder.to_owned(),
            _own: None,
            leaves_group: false,
        }
    }

    /// Waits until it listens. The error is what it printed instead.
    pub fn listens(&mut self) -> Result<(), String> {
        let began = Instant::now();
        let mut printed = String::new();
        loop {
            let left = STARTING.saturating_sub(began.elapsed());
            match self.lines.recv_timeout(left) {
                Ok(line) => match line.split_once(SAID) {
                    Some((_, said)) => {
                        self.said = said.to_owned();
                        return Ok(());
                    }
                    None => printed.push_str(&format!("{line}; ")),
                },
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!("does not listen within {STARTING:?}: {printed}"));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(format!("ended before it listened: {printed}"));
                }
            }
        }
    }

    /// Kills the service, not its children.
    pub fn kill(mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.leaves_group = true;
    }

    /// Asks it to end, and waits. The error says how it ended otherwise.
    pub fn end(&mut self) -> Result<(), String> {
        self.input = None;
        let began = Instant::now();
        while began.elapsed() < STARTING {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => {
                    return Err(format!(
                        "{status}: {:?}",
                        self.lines.iter().collect::<Vec<_>>()
                    ));
                }
                Ok(None) => std::thread::sleep(Duration::from_millis(1)),
                Err(error) => return Err(error.to_string()),
            }
        }
        Err(format!("does not end within {STARTING:?}"))
    }

    /// Number of its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What the service printed about where it listens.
    pub fn said(&self) -> &str {
        &self.said
    }

    /// The directory of its files.
    pub fn folder(&self) -> &Path {
        &self.folder
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
        self.memory("VmHWM:")
    }

    /// A size in its status, bytes.
    fn memory(&self, name: &str) -> u64 {
        let status = fs::read_to_string(self.proc("status")).expect("it lives");
        let line = status.lines().find_map(|line| line.strip_prefix(name));
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

    /// Time for which each of its threads has used a processor or waited for one, by the thread's id.
    pub fn runnable(&self) -> BTreeMap<u32, Duration> {
        let threads = fs::read_dir(self.proc("task")).into_iter().flatten();
        let time_of = |thread: PathBuf| {
            let id = thread.file_name()?.to_str()?.parse().ok()?;
            // Nanoseconds on a processor, and nanoseconds in a queue for one.
            let text = fs::read_to_string(thread.join("schedstat")).ok()?;
            let times = text.split_whitespace().take(2);
            let times = times.map(|word| word.parse::<u64>().expect("a number"));
            Some((id, Duration::from_nanos(times.sum())))
        };
        threads
            .filter_map(|thread| time_of(thread.ok()?.path()))
            .collect()
    }

    /// Lets it open no further descriptor. Returns the limit that was in force. Panics if the kernel refuses it.
    pub fn forbid_descriptors(&self) -> Limit {
        let entries = fs::read_dir(self.proc("fd")).expect("it lives");
        let names = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let taken: BTreeSet<u64> = names.collect();
        // A new descriptor gets the lowest free number, which must be below the limit.
        let free = (0..)
            .find(|number| !taken.contains(number))
            .expect("a number");
        self.limit(Resource::Nofile, free)
    }

    /// Lets its private writable memory, thread stacks included, grow by at most `more` bytes. Returns the limit that was
    /// in force. Panics if the kernel refuses it.
    pub fn limit_memory(&self, more: u64) -> Limit {
        self.limit(Resource::Data, self.memory("VmData:") + more)
    }

    fn limit(&self, resource: Resource, most: u64) -> Limit {
        let maximum = rustix::process::getrlimit(resource).maximum;
        let new = Rlimit {
            current: Some(most),
            maximum,
        };
        Limit(resource, self.set(resource, new))
    }

    fn set(&self, resource: Resource, limit: Rlimit) -> Rlimit {
        prlimit(Some(self.pid()), resource, limit).expect("a limit of our own process")
    }

    /// Sets a limit again that was in force. Panics if the kernel refuses it.
    pub fn allow(&self, limit: Limit) {
        self.set(limit.0, limit.1);
    }
}

/// A limit of a service's process that another one replaces.
#[derive(Clone, Debug)]
pub struct Limit(Resource, Rlimit);

impl Drop for Running {
    fn drop(&mut self) {
        if self.leaves_group {
            return;
        }
        let _ = kill_process_group(self.pid(), Signal::KILL);
        let _ = self.child.wait();
    }
}

/// The command that runs this test program again in `role`.
pub fn command(role: &str, folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .args(["--exact", "role", "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .env(FOLDER, folder);
    command
}

/// The processes that were started for services of `folder`, also by services that have ended.
pub fn started_for(folder: &Path) -> Vec<u32> {
    let wanted = [
        FOLDER.as_bytes(),
        b"=",
        folder.as_os_str().as_encoded_bytes(),
    ]
    .concat();
    let is_of = |process: &u32| {
        let variables = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        variables
            .split(|byte| *byte == 0)
            .any(|variable| variable == wanted)
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(is_of).collect()
}

/// The role and directory of this process, if it was started as a service.
pub fn role() -> Option<(String, PathBuf)> {
    let role = std::env::var(ROLE).ok()?;
    Some((role, std::env::var_os(FOLDER)?.into()))
}

/// Says where the service listens, and waits until the process that started it ends or kills it.
pub fn serve_until_killed(place: &str) {
    println!("{SAID}{place}");
    let _ = std::io::stdin().lock().read_until(b'\n', &mut Vec::new());
}
