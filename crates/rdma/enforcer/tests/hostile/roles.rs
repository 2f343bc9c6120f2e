//! The processes of these tests: this program again; an environment variable sets the role.

use crate::null_call::goes_on;
use isolane_rdma_enforcer::arrival::Arrival;
use isolane_rdma_enforcer::guardian::{Link, OnDeath, agent_path};
use isolane_rdma_enforcer::handoff;
use isolane_rdma_enforcer::launch::{Launch, supervise_self};
use isolane_rdma_enforcer::seccomp::filter::{RDMA_VERBS_IOCTL, conventions, program};
use isolane_rdma_enforcer::seccomp::interrupt::Interrupter;
use isolane_rdma_enforcer::seccomp::notify::{Listener, Received, install};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with, sockopt};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// User id of the attacker; no other process uses it.
pub(crate) const ATTACKER: Option<u32> = Some(64_901);
/// User id of the honest tenant.
pub(crate) const HONEST: Option<u32> = Some(64_902);

const ROLE: &str = "ISOLANE_HOSTILE_ROLE";
const PLACE: &str = "ISOLANE_HOSTILE_DIRECTORY";
const USER: &str = "ISOLANE_HOSTILE_USER";

/// The role of a process. After its work the process waits until its standard input ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Starts under supervision and makes `calls` calls.
    Tenant { calls: usize },
    /// Sends its listener `times` times, then makes `calls` calls.
    Duplicates { times: usize, calls: usize },
    /// Sends its listener, keeps a copy and receives from it while `calls` calls are made.
    Thief { calls: usize },
    /// Sends `listeners` listeners, one per thread.
    Many { listeners: usize },
    /// Opens `connections` connections and sends nothing.
    Silent { connections: usize },
    /// Connects as an enforcer does.
    Enforcer,
    /// Sends its listener and claims another process.
    Claim { process: u32 },
}

impl Role {
    fn words(&self) -> String {
        match self {
            Self::Tenant { calls } => format!("tenant {calls} 0"),
            Self::Duplicates { times, calls } => format!("duplicates {times} {calls}"),
            Self::Thief { calls } => format!("thief {calls} 0"),
            Self::Many { listeners } => format!("many {listeners} 0"),
            Self::Silent { connections } => format!("silent {connections} 0"),
            Self::Enforcer => "enforcer 0 0".to_owned(),
            Self::Claim { process } => format!("claim {process} 0"),
        }
    }
}

/// A process with a role; killed on drop.
pub(crate) struct Running {
    child: Child,
    _stays: Option<ChildStdin>,
    lines: Mutex<(BufReader<std::process::ChildStdout>, String)>,
}

/// Starts a process as `user`, under `unshare` with these options if any are given.
pub(crate) fn start(role: &Role, place: &Path, user: Option<u32>, unshare: &[&str]) -> Running {
    let own = std::env::current_exe().expect("this program");
    let mut command = match unshare {
        [] => Command::new(own),
        options => {
            let mut command = Command::new("unshare");
            command.args(options).arg("--").arg(own);
            command
        }
    };
    command
        .args(["--exact", "roles::process_with_a_role", "--ignored"])
        .args(["--nocapture", "--test-threads", "1"])
        .env(ROLE, role.words())
        .env(PLACE, place)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        // `unshare --fork` has a child, which ends with it.
        .process_group(0);
    if let Some(user) = user {
        command.env(USER, user.to_string());
    }
    let mut child = command.spawn().expect("a process");
    let (stays, lines) = (child.stdin.take(), child.stdout.take());
    let lines = BufReader::new(lines.expect("a pipe"));
    Running {
        child,
        _stays: stays,
        lines: Mutex::new((lines, String::new())),
    }
}

impl Running {
    /// Waits for the number that the process prints under this name.
    pub(crate) fn said(&self, name: &str) -> usize {
        let mut lines = self.lines.lock().expect("no holder of the lock panics");
        let (reader, text) = &mut *lines;
        loop {
            let found = text.lines().find_map(|line| {
                let value = line.split(&format!("{name}: ")).nth(1)?;
                value.split(' ').next()?.parse().ok()
            });
            if let Some(found) = found {
                return found;
            }
            let read = reader.read_line(text).expect("a pipe");
            assert!(read > 0, "the process did not say `{name}`: {text}");
        }
    }

    /// All output so far.
    pub(crate) fn text(&self) -> String {
        self.lines
            .lock()
            .expect("no holder of the lock panics")
            .1
            .clone()
    }

    /// Whether the role began; `unshare` may be refused.
    pub(crate) fn could_start(&self) -> bool {
        let mut lines = self.lines.lock().expect("no holder of the lock panics");
        let (reader, text) = &mut *lines;
        while !text.contains("role begins") {
            if reader.read_line(text).expect("a pipe") == 0 {
                return false;
            }
        }
        true
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.child.wait();
    }
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether a filter with a listener can be installed, tried in a thread that ends with it.
pub(crate) fn has_seccomp() -> bool {
    std::thread::spawn(|| filter().is_some())
        .join()
        .expect("no panic")
}

fn filter() -> Option<Listener> {
    let program = program(conventions()?, RDMA_VERBS_IOCTL);
    rustix::thread::set_no_new_privs(true).ok()?;
    install(&program).ok()
}

/// Not a test: the body of a process with a role.
#[test]
#[ignore = "runs inside a process that `start` makes"]
fn process_with_a_role() {
    let Ok(words) = std::env::var(ROLE) else {
        return;
    };
    if let Ok(user) = std::env::var(USER) {
        let user: libc::uid_t = user.parse().expect("a number");
        // SAFETY: numbers only; the group goes first, while this is root.
        let done = unsafe {
            (
                libc::setgroups(0, std::ptr::null()),
                libc::setgid(user),
                libc::setuid(user),
            )
        };
        assert_eq!(done, (0, 0, 0));
    }
    say("role begins: 1");
    let place = std::path::PathBuf::from(std::env::var(PLACE).expect("a directory"));
    let words: Vec<&str> = words.split(' ').collect();
    let (first, second) = (
        words[1].parse().expect("a number"),
        words[2].parse().expect("a number"),
    );
    match words[0] {
        "tenant" => tenant(&place, first),
        "duplicates" => duplicates(&place, first, second),
        "thief" => thief(&place, first),
        "many" => many(&place, first),
        "silent" => silent(&place, first),
        "enforcer" => enforcer(&place),
        "claim" => {
            let listener = filter().expect("a listener");
            let process = u32::try_from(first).expect("a process");
            hand_over(&place, &listener, process);
            stay();
        }
        other => panic!("no role {other}"),
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .expect("a pipe");
}

/// Waits until the test ends.
fn stay() {
    let _ = std::io::stdin().lock().read_until(b'\n', &mut Vec::new());
}

/// Makes `calls` calls. Each must go on: `/dev/null` returns ENOTTY.
fn make_calls(calls: usize) {
    let file = std::fs::File::open("/dev/null").expect("a file");
    let bytes = [0_u8; 256];
    for call in 0..calls {
        goes_on(&file, RDMA_VERBS_IOCTL, &bytes, call);
    }
}

fn connect(place: &Path) -> Option<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
    let address = SocketAddrUnix::new(agent_path(place)).ok()?;
    rustix::net::connect(&socket, &address).ok()?;
    Some(socket)
}

/// Returns whether the guardian keeps the listener.
fn hand_over(place: &Path, listener: &Listener, process: u32) -> bool {
    let Some(socket) = connect(place) else {
        return false;
    };
    let patience = Some(Duration::from_secs(20));
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, patience).expect("a timeout");
    let message = Arrival::message(process, None);
    handoff::send(&socket, &message, &[listener]).is_ok()
        && matches!(handoff::receive(&socket, &mut [0; 1]), Ok((1, _)))
}

fn tenant(place: &Path, calls: usize) {
    let launch = Launch {
        directory: place.to_owned(),
        tenant: None,
    };
    supervise_self(&launch).expect("a guardian");
    make_calls(calls);
    say(&format!("went on: {calls}"));
    stay();
}

fn duplicates(place: &Path, times: usize, calls: usize) {
    let listener = filter().expect("a listener");
    let own = std::process::id();
    let kept = (0..times)
        .filter(|_| hand_over(place, &listener, own))
        .count();
    say(&format!("kept: {kept}"));
    make_calls(calls);
    say(&format!("went on: {calls}"));
    stay();
}

fn thief(place: &Path, calls: usize) {
    let listener = filter().expect("a listener");
    assert!(hand_over(place, &listener, std::process::id()));
    let caller = std::thread::spawn(move || make_calls(calls));
    let interrupter = Interrupter::of_this_thread().expect("a timer");
    while !caller.is_finished() {
        if let Ok(Received::Call(call)) = listener.receive(&interrupter.arm()) {
            let _ = listener.resume(call.id);
        }
    }
    caller.join().expect("every call went on");
    say(&format!("went on: {calls}"));
    stay();
}

fn many(place: &Path, listeners: usize) {
    let kept = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..listeners {
            let (begun, begin) = std::sync::mpsc::channel();
            let kept = &kept;
            let thread = std::thread::Builder::new().stack_size(1 << 16);
            let run = move || {
                let listener = filter().expect("a listener");
                if hand_over(place, &listener, std::process::id()) {
                    kept.fetch_add(1, Ordering::Relaxed);
                }
                drop(listener);
                begun.send(()).expect("the receiver waits");
                // A listener ends with its last thread.
                loop {
                    std::thread::park();
                }
            };
            thread.spawn_scoped(scope, run).expect("a thread");
            begin.recv().expect("it began");
        }
        say(&format!("kept: {}", kept.load(Ordering::Relaxed)));
        loop {
            std::thread::park();
        }
    });
}

fn silent(place: &Path, connections: usize) {
    let connected: Vec<OwnedFd> = (0..connections).filter_map(|_| connect(place)).collect();
    say(&format!("connected: {}", connected.len()));
    stay();
}

fn enforcer(place: &Path) {
    match Link::open(place, &[], OnDeath::Closed) {
        Ok(_) => say("welcomed: 1"),
        Err(error) => say(&format!("welcomed: 0 ({error})")),
    }
}
