//! Attacks of local processes on the guardian: each attack is rejected, and an honest tenant's control verbs still go
//! on.
//!
//! Method: attackers and victims are this program again ([`roles`]), as other users and in their own namespaces. The
//! kernel traps a call before it checks the descriptor, so `/dev/null` can replace a device. Tests that need root
//! report a skip without it.
#![allow(unsafe_code)]

mod null_call;
mod roles;

use isolane_common_linux::skip::skip;
use isolane_rdma_enforcer::arrival::Arrival;
use isolane_rdma_enforcer::guardian::kept::LISTENERS;
use isolane_rdma_enforcer::guardian::{Link, OnDeath, agent_path, guardian_path, serve};
use roles::{ATTACKER, HONEST, Role, Running, has_seccomp, is_root, start};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Upper bound of all waits, so a failed test ends.
const PATIENCE: Duration = Duration::from_secs(90);
/// Calls of an honest tenant during an attack.
const CALLS: usize = 2_000;

struct Guarded {
    directory: tempfile::TempDir,
    thread: Option<JoinHandle<()>>,
}

impl Guarded {
    /// Runs a guardian in a thread, with the code of the real process.
    fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(directory.path(), open).expect("a directory of ours");
        let place = directory.path().to_owned();
        let thread = std::thread::spawn(move || serve::serve(&place).expect("it serves"));
        wait_until("the guardian listens", || {
            guardian_path(directory.path()).exists()
        });
        Self {
            directory,
            thread: Some(thread),
        }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn honest(&self, calls: usize) -> Running {
        start(&Role::Tenant { calls }, self.path(), HONEST, &[])
    }

    fn attack(&self, role: &Role) -> Running {
        start(role, self.path(), ATTACKER, &[])
    }

    /// Waits for the guardian to end; it ends when no tenant and no enforcer are left.
    fn join(mut self) {
        let thread = self.thread.take().expect("joined once");
        thread.join().expect("it did not panic");
    }
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "{what}: not in {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Whether this machine can run the attacks; prints the reason if not.
fn can_attack() -> bool {
    if !is_root() {
        skip("an attacker of another user needs root");
        return false;
    }
    if !has_seccomp() {
        skip("no seccomp listener here");
        return false;
    }
    true
}

/// Regression: a listener that was kept twice was read twice, and the second read blocked forever.
#[test]
fn a_listener_handed_over_sixty_times_is_kept_once_and_stops_no_other() {
    if !can_attack() {
        return;
    }
    let guarded = Guarded::start();
    let victim = guarded.honest(CALLS);
    let attacker = guarded.attack(&Role::Duplicates {
        times: 60,
        calls: 500,
    });
    assert_eq!(attacker.said("kept"), 1);
    assert_eq!(attacker.said("went on"), 500);
    assert_eq!(victim.said("went on"), CALLS);
    let newcomer = guarded.honest(3);
    assert_eq!(newcomer.said("went on"), 3);
    drop((attacker, victim, newcomer));
    guarded.join();
}

/// A sender that keeps a copy takes calls from it between the guardian's poll(2) and its receive.
#[test]
fn a_sender_that_takes_its_own_calls_stops_no_other() {
    if !can_attack() {
        return;
    }
    let guarded = Guarded::start();
    let victim = guarded.honest(CALLS);
    let thief = guarded.attack(&Role::Thief { calls: 3_000 });
    assert_eq!(thief.said("went on"), 3_000);
    assert_eq!(victim.said("went on"), CALLS);
    let newcomer = guarded.honest(3);
    assert_eq!(newcomer.said("went on"), 3);
    drop((thief, victim, newcomer));
    guarded.join();
}

#[test]
fn one_user_has_so_many_listeners_and_others_still_find_places() {
    if !can_attack() {
        return;
    }
    let guarded = Guarded::start();
    let greedy = guarded.attack(&Role::Many {
        listeners: LISTENERS.per_account + 8,
    });
    assert_eq!(greedy.said("kept"), LISTENERS.per_account);
    let victim = guarded.honest(100);
    assert_eq!(victim.said("went on"), 100);
    drop((greedy, victim));
    guarded.join();
}

#[test]
fn silent_senders_of_one_user_keep_no_launch_out() {
    if !can_attack() {
        return;
    }
    let guarded = Guarded::start();
    let silent = guarded.attack(&Role::Silent { connections: 200 });
    assert_eq!(silent.said("connected"), 200);
    for _ in 0..20 {
        let victim = guarded.honest(1);
        assert_eq!(victim.said("went on"), 1);
    }
    drop(silent);
    guarded.join();
}

/// The whole directory is mounted into the container.
#[test]
fn a_containers_root_is_no_enforcer() {
    let guarded = Guarded::start();
    let user = ["--user", "--map-root-user"];
    let pid = ["--pid", "--fork"];
    let mut containers = vec![[user, pid].concat()];
    if is_root() {
        containers.push(pid.to_vec());
    }
    for options in containers {
        let root = start(&Role::Enforcer, guarded.path(), None, &options);
        if !root.could_start() {
            skip(format_args!("no namespaces here ({options:?})"));
            continue;
        }
        assert_eq!(root.said("welcomed"), 0, "{options:?}");
        assert!(root.text().contains("namespace"), "{}", root.text());
    }
    // The host's own is.
    let link = Link::open(guarded.path(), &[], OnDeath::Open).expect("an enforcer");
    drop(link);
    guarded.join();
}

/// The attacker sends its own listener and claims another tenant's process.
#[test]
fn the_root_of_a_container_acts_for_its_container_only() {
    if !can_attack() {
        return;
    }
    let guarded = Guarded::start();
    let (link, _table) = Link::open(guarded.path(), &[], OnDeath::Open).expect("an enforcer");
    let options = ["--pid", "--fork"];
    let role = Role::Claim { process: 1 };
    let container = start(&role, guarded.path(), None, &options);
    let handed = link.receive().expect("a guardian").expect("a listener");
    assert_eq!(handed.user, 0);
    assert!(!handed.has_authority, "{handed:?}");
    let said = handed.arrival.as_ref().map(|arrival| arrival.process);
    assert_eq!(said, Some(1));
    drop((handed, link, container));
    guarded.join();
}

/// Regression: a socket had its name before it listened, and a connection between the two was refused.
#[test]
fn a_guardian_that_starts_refuses_no_connection() {
    for _ in 0..50 {
        let directory = tempfile::tempdir().expect("a directory");
        let place = directory.path().to_owned();
        let thread = std::thread::spawn(move || serve::serve(&place).expect("it serves"));
        let begun = Instant::now();
        // Without a start command the first refused connection is an error.
        let link = loop {
            match guardian_path(directory.path()).exists() {
                true => break Link::open(directory.path(), &[], OnDeath::Open),
                false => assert!(begun.elapsed() < PATIENCE, "no guardian in {PATIENCE:?}"),
            }
        };
        drop(link.expect("an enforcer"));
        thread.join().expect("it did not panic");
    }
}

#[test]
fn a_second_guardian_is_refused_while_the_first_serves() {
    let guarded = Guarded::start();
    let link = Link::open(guarded.path(), &[], OnDeath::Open).expect("an enforcer");
    let refused = serve::serve(guarded.path()).expect_err("one serves already");
    assert_eq!(refused.kind(), std::io::ErrorKind::AddrInUse);
    assert!(refused.to_string().contains("another guardian serves"));
    assert!(guardian_path(guarded.path()).exists());
    drop(link);
    guarded.join();
}

#[test]
fn sockets_of_clients_and_of_the_host_are_apart() {
    let guarded = Guarded::start();
    let mode = |path: &Path| {
        let folder = path.parent().expect("a directory");
        let metadata = std::fs::metadata(folder).expect("it is there");
        metadata.permissions().mode() & 0o777
    };
    let (agent, control) = (agent_path(guarded.path()), guardian_path(guarded.path()));
    assert_eq!((mode(&agent), mode(&control)), (0o755, 0o700));
    assert_ne!(agent.parent(), control.parent());
    let link = Link::open(guarded.path(), &[], OnDeath::Open).expect("an enforcer");
    drop(link);
    guarded.join();
}

/// The test above relies on the message format of [`Arrival`].
#[test]
fn a_message_names_the_process_that_it_claims() {
    let message = Arrival::message(7, None);
    assert_eq!(Arrival::parse(&message).expect("ours").process, 7);
}
