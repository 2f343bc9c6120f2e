//! Tests the guardian with real listeners; callers are processes.

use super::connect::Link;
use super::table::Table;
use super::{OnDeath, agent_path, serve};
use crate::arrival::Arrival;
use crate::control::pace::Limits;
use crate::control::supervisor::{Mode, Supervisor, Tenant};
use crate::handoff;
use crate::seccomp::call::Verb;
use crate::seccomp::notify::{Listener, Received};
use crate::testing::{Caller, Ending, receive, wait_until};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;
use tempfile::TempDir;

/// Runs a guardian in a thread, with the code of the real process.
fn guardian(directory: &Path) -> JoinHandle<()> {
    let place = directory.to_owned();
    let thread = std::thread::spawn(move || serve::serve(&place).unwrap());
    wait_until("the guardian listens", || agent_path(directory).exists());
    thread
}

/// A connection to the agents' socket.
fn agent(directory: &Path) -> OwnedFd {
    let socket = socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    let address = SocketAddrUnix::new(agent_path(directory)).unwrap();
    rustix::net::connect(&socket, &address).unwrap();
    socket
}

/// Sends a listener in two pieces, as a container runtime can.
fn hand_over(directory: &Path, listener: Listener, message: &[u8]) {
    let socket = agent(directory);
    let (first, rest) = message.split_at(5);
    handoff::send(&socket, first, &[&listener]).unwrap();
    handoff::send(&socket, rest, &[]).unwrap();
    let mut answer = [0; 1];
    assert_eq!(handoff::receive(&socket, &mut answer).unwrap().0, 1);
}

fn supervisor(rate: Option<u64>, table: super::table::Table) -> Supervisor {
    let tenant = Tenant {
        name: "a".to_owned(),
        limits: Limits {
            all: rate,
            ..Limits::default()
        },
    };
    Supervisor::start(vec![tenant], Mode::Enforce, Some(table)).unwrap()
}

/// Connects without a start command: the guardian already runs.
fn link(directory: &Path, on_death: OnDeath) -> (Link, Table) {
    Link::open(directory, &[], on_death).unwrap()
}

/// A guardian in a directory of its own, with one enforcer.
fn served() -> (TempDir, JoinHandle<()>, (Link, Table)) {
    let directory = tempfile::tempdir().unwrap();
    let thread = guardian(directory.path());
    let first = link(directory.path(), OnDeath::Open);
    (directory, thread, first)
}

#[test]
fn calls_go_on_without_an_enforcer_when_open() {
    let directory = tempfile::tempdir().unwrap();
    let Some((caller, listener)) = Caller::start(&[Verb::RegisterMemory], 50) else {
        return;
    };
    let thread = guardian(directory.path());
    hand_over(
        directory.path(),
        listener,
        &Arrival::message(caller.id(), Some("a")),
    );
    assert_eq!(caller.join(), Ending::Calls(50));
    // The guardian ends by itself: it has no tenant and no enforcer.
    thread.join().unwrap();
    assert!(!agent_path(directory.path()).exists());
}

/// The first enforcer admits 1 call per second and is killed with an unanswered call; the second has no limit.
#[test]
fn an_enforcer_that_is_killed_leaves_no_call_behind() {
    for on_death in [OnDeath::Open, OnDeath::Closed] {
        let directory = tempfile::tempdir().unwrap();
        let Some((caller, listener)) = Caller::start(&[Verb::RegisterMemory], 50) else {
            return;
        };
        let thread = guardian(directory.path());
        let (first, table) = link(directory.path(), on_death);
        hand_over(
            directory.path(),
            listener,
            &Arrival::message(caller.id(), Some("a")),
        );
        let handed = first.receive().unwrap().unwrap();
        assert_eq!(handed.sender, std::process::id());
        assert_eq!(handed.arrival.unwrap().process, caller.id());
        // Received and recorded by hand, as by an enforcer that is then killed: only its descriptors close.
        let call = loop {
            if let Received::Call(call) = receive(&handed.listener) {
                break call;
            }
        };
        table.set(handed.slot, Some(call.id), Some(call.id));
        // The guardian may notice the closed connection only after its successor connects.
        let dying = std::thread::spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            drop((handed.listener, table, first));
        });
        if on_death == OnDeath::Closed {
            let (second, table) = link(directory.path(), on_death);
            let supervisor = supervisor(None, table);
            let handed = second.receive().unwrap().unwrap();
            supervisor.watch(handed.listener, 0, Some(handed.slot));
            wait_until("every call goes on", || supervisor.calls()[0].resumed == 50);
            drop((supervisor, second));
        }
        dying.join().unwrap();
        assert_eq!(caller.join(), Ending::Calls(50), "{on_death:?}");
        thread.join().unwrap();
    }
}

#[test]
fn a_second_enforcer_gets_an_error_that_names_the_first() {
    let (directory, thread, first) = served();
    let error = Link::open(directory.path(), &[], OnDeath::Open).unwrap_err();
    assert!(error.to_string().contains("another enforcer"), "{error}");
    drop(first);
    thread.join().unwrap();
}

#[test]
fn noise_at_the_agents_socket_is_dropped() {
    let (directory, thread, first) = served();
    for noise in [&b"{\"pid\": 1, \"fds\": []}"[..], b"\xff\xff", b"]"] {
        let socket = agent(directory.path());
        handoff::send(&socket, noise, &[]).unwrap();
        // The guardian closes the connection without an answer.
        assert_eq!(
            handoff::receive(&socket, &mut [0; 4]).map_or(0, |got| got.0),
            0
        );
    }
    drop(first);
    thread.join().unwrap();
}
