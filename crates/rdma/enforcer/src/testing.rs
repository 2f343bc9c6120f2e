//! Callers for tests: this test program again, under the filter, running only [`caller_process`].
//!
//! The kernel traps a call before it checks the descriptor, so `/dev/null` can replace a device: a call that goes on
//! fails with ENOTTY.

use crate::handoff;
use crate::seccomp::call::{ATTRIBUTE, HEADER, Verb};
use crate::seccomp::filter::{RDMA_VERBS_IOCTL, conventions, program};
use crate::seccomp::interrupt::Interrupter;
use crate::seccomp::notify::{Listener, Received, install};
use isolane_common_linux::skip::skip;
use null_call::goes_on;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

#[path = "../tests/hostile/null_call.rs"]
mod null_call;

/// Environment variable that lists a caller's calls: `9 0.7.1 ...`, see [`bytes_of`].
const CALLS: &str = "ISOLANE_TEST_CALLS";

/// A child process that calls verbs.
pub(crate) struct Caller(Option<Child>);

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// All calls went on; their number.
    Calls(usize),
    Killed,
    /// A call failed with an unexpected error.
    Failed(String),
}

impl Caller {
    /// Starts a caller that calls `verbs` in turn, `count` calls in all. `None` where seccomp listeners are refused.
    pub(crate) fn start(verbs: &[Verb], count: usize) -> Option<(Self, Listener)> {
        let program = program(conventions()?, RDMA_VERBS_IOCTL);
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        let names: Vec<&str> = verbs.iter().map(|verb| verb.name()).collect();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args([
                "--exact",
                "testing::caller_process",
                "--ignored",
                "--nocapture",
            ])
            .args(["--test-threads", "1"])
            .env(CALLS, format!("{count} {}", names.join(" ")))
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        // SAFETY: between fork and exec the closure makes system calls only; the program and the socket were made
        // before, and nothing is allocated.
        unsafe {
            command.pre_exec(move || {
                rustix::thread::set_no_new_privs(true)?;
                let listener = install(&program)?;
                handoff::send(&theirs, b"x", &[&listener])
            });
        }
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                skip(format_args!("no seccomp listener here ({error})"));
                return None;
            }
        };
        drop(command);
        let (_, mut descriptors) = handoff::receive(&ours, &mut [0; 8]).unwrap();
        let listener = Listener::adopt(descriptors.remove(0)).unwrap();
        Some((Self(Some(child)), listener))
    }

    /// Waits for the process to end.
    pub(crate) fn join(mut self) -> Ending {
        let child = self.0.take().expect("not joined yet");
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.signal().is_some() {
            return Ending::Killed;
        }
        let went_on = text.split("went on: ").nth(1).and_then(|rest| {
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().ok()
        });
        match went_on {
            Some(calls) if output.status.success() => Ending::Calls(calls),
            _ => Ending::Failed(text),
        }
    }

    pub(crate) fn kill(mut self) -> Ending {
        self.0.as_mut().expect("not joined yet").kill().unwrap();
        self.join()
    }
}

impl Caller {
    pub(crate) fn id(&self) -> u32 {
        self.0.as_ref().expect("not joined yet").id()
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Not a test: the body of a caller process.
#[test]
#[ignore = "runs inside a process that Caller::start makes"]
fn caller_process() {
    let Ok(order) = std::env::var(CALLS) else {
        return;
    };
    let mut words = order.split(' ');
    let count: usize = words.next().unwrap().parse().unwrap();
    let calls: Vec<Vec<u8>> = words.map(bytes_of).collect();
    let file = std::fs::File::open("/dev/null").unwrap();
    for index in 0..count {
        let bytes = &calls[index % calls.len()];
        goes_on(&file, RDMA_VERBS_IOCTL, bytes, index);
    }
    println!("went on: {count}");
}

/// The header bytes of a call, as libibverbs makes it.
fn bytes_of(name: &str) -> Vec<u8> {
    let mut bytes = vec![0; HEADER + 3 * ATTRIBUTE];
    bytes[6] = 3;
    match name {
        "reg_mr" => {
            bytes[HEADER + 2 * ATTRIBUTE] = 2;
            bytes[HEADER + 2 * ATTRIBUTE + 8] = 9;
        }
        "dereg_mr" => (bytes[2], bytes[4]) = (7, 1),
        other => panic!("no bytes for {other}"),
    }
    bytes
}

/// Receives one notification within a millisecond.
pub(crate) fn receive(listener: &Listener) -> Received {
    let interrupter = Interrupter::of_this_thread().unwrap();
    listener.receive(&interrupter.arm()).unwrap()
}

/// Waits until `done` returns true; panics after one minute.
pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{what}: did not happen within a minute"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}
