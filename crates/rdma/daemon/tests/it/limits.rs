//! The enforcer's limits over the real socket: who may set them, their effect, their end, and a process with the real
//! shim that obeys them.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]

use crate::application;
use crate::support::{self, Caller, Client, Daemon, config, wait_for};
use isolane_common_linux::skip::skip;
use isolane_common_quantities::units::Bytes;
use isolane_rdma_enforcer::pacing::{Pacing, Table};
use isolane_rdma_session::message::{Class, NO_TENANT, ToDaemon, ToShim};
use std::process::{Command, Stdio};
use std::time::Instant;

const LIMIT: u64 = 1_000_000;

/// A connection as the enforcer.
fn enforcer(daemon: &Daemon) -> Caller {
    let caller = Caller::connect(&daemon.socket);
    caller.say(&ToDaemon::Enforce.encode());
    let (answer, _) = caller.hear().expect("an answer");
    assert_eq!(answer, ToShim::Heeded);
    caller
}

/// Assigns this process to tenant 0, which has a limit.
fn limit_ourselves(enforcer: &Caller) {
    let limit = ToDaemon::Limit {
        tenant: 0,
        bytes_per_s: LIMIT,
    };
    enforcer.say(&limit.encode());
    say_whose(enforcer, 0);
}

fn say_whose(enforcer: &Caller, tenant: u32) {
    let process = std::process::id();
    enforcer.say(&ToDaemon::Belongs { process, tenant }.encode());
}

fn wait_for_rate(client: &Client, what: &str, fits: impl Fn(u64) -> bool) {
    wait_for(what, || fits(client.meter().lease().rate_bytes_per_s));
}

fn refusal(caller: &Caller) -> String {
    match caller.hear() {
        Some((ToShim::Refused { reason }, _)) => reason,
        other => panic!("{other:?} instead of a refusal"),
    }
}

#[test]
fn a_limit_reaches_the_lease_and_ends_with_the_connection() {
    let daemon = Daemon::start(config());
    let client = Client::start(&daemon.socket, "a", Class::Bandwidth);
    assert!(client.meter().lease().rate_bytes_per_s > LIMIT);
    let first = enforcer(&daemon);
    limit_ourselves(&first);
    wait_for_rate(&client, "limit", |rate| rate == LIMIT);
    let late = Client::start(&daemon.socket, "b", Class::Bandwidth);
    wait_for_rate(&late, "limit of a newcomer", |rate| rate <= LIMIT);
    say_whose(&first, NO_TENANT);
    wait_for_rate(&client, "lease without a limit", |rate| rate > LIMIT);
    limit_ourselves(&first);
    wait_for_rate(&client, "limit again", |rate| rate <= LIMIT);
    drop(first);
    wait_for_rate(&client, "end of the limit", |rate| rate > LIMIT);
}

#[test]
fn one_enforcer_at_a_time_and_no_other_process_sets_limits() {
    let daemon = Daemon::start(config());
    let first = enforcer(&daemon);
    let second = Caller::connect(&daemon.socket);
    second.say(&ToDaemon::Enforce.encode());
    assert!(refusal(&second).contains("sets limits already"));
    let other = Caller::connect(&daemon.socket);
    say_whose(&other, 0);
    assert!(refusal(&other).contains("did not connect as the enforcer"));
    let client = Client::start(&daemon.socket, "a", Class::Bandwidth);
    say_whose(&client.caller, 0);
    assert!(refusal(&client.caller).contains("did not connect as the enforcer"));
    // An enforcer cannot open devices.
    first.say(&support::hello("a", Class::Auto, 1).encode());
    assert!(refusal(&first).contains("second greeting"));
    daemon.wait_for_sessions(0);
}

#[test]
fn a_large_table_is_taken_at_once() {
    let daemon = Daemon::start(config());
    let client = Client::start(&daemon.socket, "a", Class::Bandwidth);
    let first = enforcer(&daemon);
    for process in 1..=2_000 {
        // No process id is this large, so no real process is meant.
        let process = u32::MAX - process;
        first.say(&ToDaemon::Belongs { process, tenant: 5 }.encode());
    }
    limit_ourselves(&first);
    wait_for_rate(&client, "limit", |rate| rate == LIMIT);
}

/// Not a test: the body of the next test's process.
#[test]
fn role() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        application::run(ROLE, std::path::Path::new(&folder));
    }
}

/// Goal: a rate passes from the enforcer through the daemon and the shared page to the process's posts. Method: an
/// application over a provider without hardware, which would move a hundred times as much. Only an upper bound in time,
/// so a slow machine does not fail.
#[test]
fn a_process_under_the_shim_keeps_to_the_enforcers_rate() {
    const RATE: u64 = 4_000_000;
    /// Two bursts, and the application's messages in flight.
    const AT_ONCE: u64 = 2 * 65_536 + 8 * 65_536;
    let mut config = config();
    config.devices[0].chunk_without_latency = Some(Bytes::from_kib(64));
    let daemon = Daemon::start(config);
    let folder = daemon.socket.ancestors().nth(2).expect("two directories");
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "limits::role", "--nocapture"])
        .env(FOLDER, folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("a process");
    let passed = || {
        let snapshot = daemon.snapshot();
        let meter = snapshot.sessions.first().and_then(|one| one.meters.first());
        meter.map_or((0, 0), |meter| {
            (meter.passed_bytes, meter.lease_bytes_per_s)
        })
    };
    wait_for("traffic", || passed().0 > 0);
    let mut pacing = Pacing::new(daemon.socket.clone());
    let mut table = Table::default();
    table.limit(0, RATE);
    table.assign(child.id(), 0);
    wait_for("the limit", || {
        pacing.step(Instant::now(), &table);
        passed().1 == RATE
    });
    // Messages in flight complete first.
    let held = passed().0;
    wait_for("traffic at the limit", || passed().0 > held + AT_ONCE);
    let (began, before) = (Instant::now(), passed().0);
    wait_for("more of it", || passed().0 > before + 3_000_000);
    let moved = passed().0 - before;
    let allowed = began.elapsed().as_micros() as u64 * RATE / 1_000_000 + AT_ONCE;
    assert!(
        moved <= allowed,
        "{moved} bytes, where {allowed} are allowed"
    );
    // Without the enforcer the application has no limit and ends successfully.
    drop(pacing);
    wait_for("the end of the limit", || passed().1 > RATE);
    drop(child.stdin.take());
    assert!(child.wait().expect("a child").success());
}

const ROLE: &str = "limited:1:bandwidth";
const FOLDER: &str = "ISOLANED_TEST_LIMITS_FOLDER";

/// Every user may connect, but only root may set limits.
#[test]
fn another_user_may_not_set_limits() {
    if !rustix::process::geteuid().is_root() {
        skip("only root can become another user");
        return;
    }
    let daemon = Daemon::start(config());
    let folder = daemon.socket.parent().expect("a directory");
    for folder in [folder, folder.parent().expect("a directory")] {
        let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder, everybody).expect("a directory of ours");
    }
    let program = std::env::current_exe().expect("this program");
    let copy = folder.join("copy");
    // By a process of its own: one that another thread starts meanwhile would inherit the open copy, which then cannot be run.
    let copied = std::process::Command::new("cp")
        .arg(program)
        .arg(&copy)
        .status();
    assert!(
        copied.expect("cp").success(),
        "a copy that the other user can run"
    );
    let mut command = std::process::Command::new(copy);
    std::os::unix::process::CommandExt::uid(&mut command, 65_534);
    let output = command
        .args(["--exact", "limits::greet_as_somebody_else", "--nocapture"])
        .env(SOCKET, &daemon.socket)
        .current_dir("/")
        .output()
        .expect("a process");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("user 65534 may not; only root"), "{said}");
}

/// Not a test: the body of [`another_user_may_not_set_limits`]'s process.
#[test]
fn greet_as_somebody_else() {
    let Some(socket) = std::env::var_os(SOCKET) else {
        return;
    };
    let caller = Caller::connect(std::path::Path::new(&socket));
    caller.say(&ToDaemon::Enforce.encode());
    println!("{}", refusal(&caller));
}

const SOCKET: &str = "ISOLANED_TEST_LIMITS_SOCKET";
