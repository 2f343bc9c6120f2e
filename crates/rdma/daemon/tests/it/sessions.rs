//! Real processes at a real socket: served, killed at every step, hostile, too many.

use crate::support::{self, Caller, Client, Daemon, config, hello, wait_for};
use isolane_rdma_session::message::{Class, ToDaemon, ToShim};
use isolane_rdma_session::region::{METER_ACTIVE, METER_RELEASED, STATE_RELEASED};
use isolaned::config::Config;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// Environment variable of a client process: the socket's path.
const ROLE: &str = "ISOLANED_TEST_ROLE";
const SOCKET: &str = "ISOLANED_TEST_SOCKET";

/// Starts this program again as `role`.
fn start_role(role: &str, socket: &Path) -> Child {
    let program = std::env::current_exe().expect("this program");
    Command::new(program)
        .args([
            "--exact",
            "sessions::role",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(ROLE, role)
        .env(SOCKET, socket)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("a process")
}

fn die() -> ! {
    let own = rustix::process::getpid();
    kill_process(own, Signal::KILL).expect("a signal to itself");
    unreachable!("killed");
}

/// Not a test: the body of a process with a role.
#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let socket = PathBuf::from(std::env::var_os(SOCKET).expect("set beside the role"));
    match role.split_once(':') {
        Some(("step", step)) => die_at(step.parse().expect("a number"), &socket),
        Some(("heir", _)) => die_with_an_heir(&socket),
        Some(("poor", _)) => run_a_poor_daemon(),
        _ => panic!("no role {role}"),
    }
}

const STEPS: u32 = 8;

/// Connects to the daemon and is killed before one of [`STEPS`] steps.
fn die_at(step: u32, socket: &Path) {
    let reached = |now| {
        if now == step {
            die();
        }
    };
    reached(0);
    let caller = Caller::connect(socket);
    reached(1);
    caller.say(&hello("victim", Class::Auto, 1).encode());
    reached(2);
    let (_, files) = caller.hear().expect("an answer");
    reached(3);
    let region = isolane_rdma_session::region::Region::map(&files[0]).expect("a region");
    caller.say(
        &ToDaemon::Open {
            device: "rxe0".to_owned(),
        }
        .encode(),
    );
    reached(4);
    caller.hear().expect("an answer");
    reached(5);
    region.meters[0]
        .passed_bytes
        .store(1 << 20, Ordering::Relaxed);
    region.meters[0]
        .waiting_since_ns
        .store(1, Ordering::Relaxed);
    reached(6);
    rustix::io::write(&files[1], &1u64.to_ne_bytes()).expect("a counter");
    reached(7);
    wait_for("a lease", || {
        region.meters[0].lease().flags & METER_ACTIVE != 0
    });
    die();
}

/// Is killed and leaves its socket to a child. The child lives until the test closes its input or ends.
#[expect(clippy::zombie_processes, reason = "the child is to outlive us")]
fn die_with_an_heir(socket: &Path) {
    let client = Client::start(socket, "parent", Class::Auto);
    for file in [&client.caller.socket, &client.signal_counter] {
        rustix::io::fcntl_setfd(file, rustix::io::FdFlags::empty()).expect("a descriptor");
    }
    Command::new("cat")
        .stdout(Stdio::null())
        .spawn()
        .expect("a child");
    die();
}

/// A daemon with very few file descriptors; it serves until its input ends.
fn run_a_poor_daemon() {
    let daemon = Daemon::start(config());
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let current = Some(40);
    setrlimit(Resource::Nofile, Rlimit { current, maximum }).expect("a lower limit");
    let name = std::env::var_os(SOCKET).expect("where to say the path");
    std::fs::write(&name, daemon.socket.as_os_str().as_encoded_bytes()).expect("a file");
    std::thread::sleep(support::PATIENCE);
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("proc").count()
}

#[test]
fn a_process_is_served_and_its_end_is_noticed() {
    let daemon = Daemon::start(Config {
        trust_names: true,
        ..config()
    });
    let client = Client::start(&daemon.socket, "someone", Class::Auto);
    let snapshot = daemon.snapshot();
    let session = &snapshot.sessions[0];
    assert_eq!(
        (session.pid, session.tenant.as_str()),
        (std::process::id(), "someone")
    );
    assert_eq!(session.user, rustix::process::getuid().as_raw());
    client
        .meter()
        .passed_bytes
        .store(100_000, Ordering::Relaxed);
    client.signal();
    wait_for("a lease", || client.meter().lease().flags == METER_ACTIVE);
    assert_eq!(client.meter().lease().rate_bytes_per_s, 1_000_000_000);
    drop(client);
    daemon.wait_for_sessions(0);
    assert!(daemon.snapshot().tenants.is_empty());
}

/// Goal: a process killed at any instruction leaves no session, lease or descriptor.
#[test]
fn processes_killed_at_every_step_leave_nothing_behind() {
    let mut daemon = Daemon::start(config());
    let survivor = Client::start(&daemon.socket, "survivor", Class::Bandwidth);
    survivor
        .meter()
        .waiting_since_ns
        .store(1, Ordering::Relaxed);
    for round in 0..3 {
        let mut victims: Vec<Child> = (0..=STEPS)
            .map(|step| start_role(&format!("step:{step}"), &daemon.socket))
            .collect();
        for victim in &mut victims {
            let status = victim.wait().expect("a child");
            assert!(!status.success(), "killed, round {round}");
        }
        daemon.wait_for_sessions(1);
    }
    let snapshot = daemon.snapshot();
    assert_eq!(snapshot.tenants.len(), 1);
    assert!(snapshot.devices[0].active_sending <= 1);
    // Killed guests hold descriptors until the daemon notices their end.
    survivor
        .meter()
        .passed_bytes
        .fetch_add(1, Ordering::Relaxed);
    survivor.signal();
    wait_for("the whole rate", || {
        survivor.meter().lease().rate_bytes_per_s == 1_000_000_000
    });
    drop(survivor);
    daemon.wait_for_sessions(0);
    daemon.stop();
}

#[test]
fn a_killed_process_is_gone_though_its_child_holds_the_socket() {
    let daemon = Daemon::start(config());
    let mut parent = start_role("heir:", &daemon.socket);
    let heir = parent.stdin.take();
    parent.wait().expect("a child");
    daemon.wait_for_sessions(0);
    assert_eq!(daemon.snapshot().daemon.sessions_total, 1);
    drop(heir);
}

#[test]
fn an_invalid_message_is_answered_once_and_closes_the_connection() {
    let daemon = Daemon::start(config());
    let honest = Client::start(&daemon.socket, "honest", Class::Auto);
    let open = ToDaemon::Open {
        device: "rxe0".to_owned(),
    };
    let mut version = open.encode();
    version[4] = 9;
    let long = vec![0u8; 4_000];
    for (bytes, expected) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "version"),
        (&version, "version 9"),
        (&open.encode(), "before Hello"),
        (&long, "too long"),
        (&[0], "cut short"),
    ] {
        let caller = Caller::connect(&daemon.socket);
        caller.say(bytes);
        let Some((ToShim::Refused { reason }, files)) = caller.hear() else {
            panic!("no reason for {expected}");
        };
        assert!(reason.contains(expected), "{reason}");
        assert!(files.is_empty());
        assert!(caller.hear().is_none(), "the daemon closes the connection");
    }
    let twice = Client::start(&daemon.socket, "twice", Class::Auto);
    twice.caller.say(&hello("thrice", Class::Auto, 1).encode());
    assert!(matches!(
        twice.caller.hear(),
        Some((ToShim::Refused { .. }, _))
    ));
    daemon.wait_for_sessions(1);
    assert!(honest.session > 0);
}

#[test]
fn who_talks_all_the_time_is_shown_out_and_the_others_are_served() {
    let daemon = Daemon::start(config());
    let talker = Client::start(&daemon.socket, "talker", Class::Auto);
    let open = ToDaemon::Open {
        device: "rxe0".to_owned(),
    }
    .encode();
    let over = AtomicBool::new(false);
    let reason = std::thread::scope(|scope| {
        let _end = SetOnDrop(&over);
        // Waits for the rejection; a thousand messages may take this process some seconds.
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                talker.caller.say(&open);
            }
        });
        loop {
            match talker.caller.hear().expect("a message arrives").0 {
                ToShim::Opened { .. } => {}
                ToShim::Refused { reason } => break reason,
                other => panic!("{other:?}"),
            }
        }
    });
    assert!(reason.contains("messages in a second"), "{reason}");
    Client::start(&daemon.socket, "other", Class::Auto);
    daemon.wait_for_sessions(0);
}

/// Ends the flood even if the test fails.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_process_that_signals_all_the_time_delays_no_other() {
    let daemon = Daemon::start(config());
    let flooder = Client::start(&daemon.socket, "flooder", Class::Auto);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _end = SetOnDrop(&over);
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                flooder.signal();
            }
        });
        for _ in 0..50 {
            let client = Client::start(&daemon.socket, "honest", Class::Bandwidth);
            client.send_until_active();
        }
    });
    // The daemon reads its signals again afterwards.
    flooder.send_until_active();
}

#[test]
fn a_forged_region_harms_its_owner_only() {
    let daemon = Daemon::start(config());
    let honest = Client::start(&daemon.socket, "honest", Class::Bandwidth);
    let forger = Client::start(&daemon.socket, "forger", Class::Auto);
    for (at, meter) in forger.region.meters.iter().enumerate() {
        let word = u64::MAX - at as u64;
        meter.passed_bytes.store(word, Ordering::Relaxed);
        meter.passed_operations.store(word, Ordering::Relaxed);
        meter.waiting_since_ns.store(word, Ordering::Relaxed);
        meter.valid_until_ns.store(word, Ordering::Relaxed);
    }
    for slot in &forger.region.slots {
        slot.state.store(1, Ordering::Relaxed);
        slot.meters.store(u32::MAX, Ordering::Relaxed);
        slot.posted_messages.store(u64::MAX, Ordering::Relaxed);
    }
    forger
        .region
        .header
        .slots_high
        .store(u32::MAX, Ordering::Relaxed);
    forger.region.header.magic.store(0, Ordering::Relaxed);
    forger.signal();
    honest.send_until_active();
    assert!(honest.meter().lease().rate_bytes_per_s >= 500_000_000);
    assert!(daemon.snapshot().daemon.implausible_total > 0);
}

#[test]
fn at_the_end_every_process_may_pass_and_the_socket_is_gone() {
    let mut daemon = Daemon::start(config());
    let client = Client::start(&daemon.socket, "someone", Class::Auto);
    daemon.stop();
    let header = &client.region.header;
    assert_eq!(header.state.load(Ordering::Acquire), STATE_RELEASED);
    assert!(client.meter().lease().flags & METER_RELEASED != 0);
    assert!(matches!(client.caller.hear(), Some((ToShim::Look, _))));
    assert!(client.caller.hear().is_none());
    assert!(!daemon.socket.exists());
}

#[test]
fn a_second_daemon_gets_an_error_that_names_the_first() {
    let daemon = Daemon::start(config());
    let second = Config {
        socket: daemon.socket.clone(),
        ..config()
    };
    let rates = vec![isolane_common_quantities::units::BitRate::from_gbps(10)];
    let governor = isolaned::governor::Governor::new(second, rates, 0).expect("sensible");
    let stop = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("a counter");
    let Err(error) = isolaned::server::Server::new(governor, stop) else {
        panic!("two daemons at one socket");
    };
    assert!(error.to_string().contains("a daemon answers at"), "{error}");
    Client::start(&daemon.socket, "someone", Class::Auto);
}

#[test]
fn a_daemon_without_descriptors_left_lives_on() {
    let folder = tempfile::tempdir().expect("a directory");
    let name = folder.path().join("socket");
    let mut child = start_role("poor:", &name);
    wait_for("a daemon", || {
        std::fs::read(&name).is_ok_and(|path| !path.is_empty())
    });
    let path = PathBuf::from(std::fs::read_to_string(&name).expect("a path"));
    let clients: Vec<_> = (0..30)
        .map(|_| Client::try_start(&path, "many", Class::Auto, 1))
        .collect();
    let served = clients.iter().filter(|client| client.is_ok()).count();
    assert!(
        (1..30).contains(&served),
        "{served} of 30 with 40 descriptors"
    );
    assert!(clients[0].is_ok(), "the first found room");
    drop(clients);
    wait_for("room again", || {
        Client::try_start(&path, "one", Class::Auto, 1).is_ok()
    });
    child.kill().expect("our child");
    child.wait().expect("our child");
}

#[test]
fn one_account_at_a_time_has_so_many_sessions() {
    let daemon = Daemon::start(Config {
        sessions_per_account_max: 3,
        ..config()
    });
    let first: Vec<Client> = (0..3)
        .map(|_| Client::start(&daemon.socket, "a", Class::Auto))
        .collect();
    let Err(reason) = Client::try_start(&daemon.socket, "b", Class::Auto, 1) else {
        panic!("a fourth");
    };
    assert!(reason.contains("sessions_per_account_max"), "{reason}");
    drop(first);
    daemon.wait_for_sessions(0);
    Client::start(&daemon.socket, "b", Class::Auto);
}

#[test]
fn a_thousand_sessions_leave_no_descriptor_behind() {
    let daemon = Daemon::start(config());
    Client::start(&daemon.socket, "first", Class::Auto);
    daemon.wait_for_sessions(0);
    let before = open_files();
    for _ in 0..10 {
        let clients: Vec<Client> = (0..100)
            .map(|at| Client::start(&daemon.socket, &format!("t{at}"), Class::Auto))
            .collect();
        assert_eq!(daemon.sessions(), 100);
        drop(clients);
        daemon.wait_for_sessions(0);
    }
    // Other tests of this program hold descriptors too, but not a thousand.
    assert!(
        open_files() < before + 500,
        "{} before, {} after",
        before,
        open_files()
    );
}
