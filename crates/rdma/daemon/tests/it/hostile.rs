//! Attacks of local processes on the daemon: root in a container sets no limits, one container does not lock out
//! another, and an honest process keeps its lease.
//!
//! Method: attackers are this program again, in their own namespaces (`unshare`). Tests report a skip where the
//! namespaces cannot be made.

use crate::support::{Caller, Client, Daemon, config, hello, wait_for};
use isolane_common_linux::skip::skip;
use isolane_rdma_session::message::{Class, NO_METER, ToDaemon, ToShim};
use isolaned::config::Config;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Environment variable that sets the role of a child process and the socket's path.
const ROLE: &str = "ISOLANED_HOSTILE_ROLE";
const SOCKET: &str = "ISOLANED_HOSTILE_SOCKET";

/// A process in its own namespaces; killed on drop.
struct Container(Child);

impl Drop for Container {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.0.wait();
    }
}

/// Starts this program as `role` under `unshare` with these options; `None` where namespaces are refused.
fn start(role: &str, socket: &Path, options: &[&str]) -> Option<(Container, String)> {
    use std::os::unix::process::CommandExt;
    let child = Command::new("unshare")
        .args(options)
        .arg("--")
        .arg(std::env::current_exe().expect("this program"))
        .args([
            "--exact",
            "hostile::role",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(ROLE, role)
        .env(SOCKET, socket)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn();
    let mut container = match child {
        Ok(child) => Container(child),
        Err(error) => {
            skip(format_args!("no unshare here ({error})"));
            return None;
        }
    };
    let mut lines = BufReader::new(container.0.stdout.take().expect("a pipe")).lines();
    let said = lines.find_map(|line| {
        let line = line.expect("a pipe");
        Some(line.split_once("said: ")?.1.to_owned())
    });
    if said.is_none() {
        skip(format_args!("no namespaces here ({options:?})"));
    }
    Some((container, said?))
}

/// Not a test: the body of a process with a role.
#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let socket = PathBuf::from(std::env::var_os(SOCKET).expect("set beside the role"));
    let mut kept: Vec<Box<dyn std::any::Any>> = Vec::new();
    match role.as_str() {
        "enforcer" => {
            let caller = Caller::connect(&socket);
            caller.say(&ToDaemon::Enforce.encode());
            println!("said: {:?}", caller.hear().map(|(answer, _)| answer));
            kept.push(Box::new(caller));
        }
        "guests" => {
            kept.extend((0..400).map(|_| Box::new(Caller::connect(&socket)) as _));
            println!("said: {}", kept.len());
        }
        "sessions" => {
            let taken = (0..64).filter(|_| {
                let caller = Caller::connect(&socket);
                caller.say(&hello("greedy", Class::Auto, 1).encode());
                let welcomed = matches!(caller.hear(), Some((ToShim::Welcome { .. }, _)));
                kept.push(Box::new(caller));
                welcomed
            });
            println!("said: {}", taken.count());
        }
        other => panic!("no role {other}"),
    }
    // Waits until the test ends.
    let _ = std::io::stdin().lock().read_until(b'\n', &mut Vec::new());
}

/// The namespaces of a container: with a user namespace, and for root also without one.
fn containers() -> Vec<Vec<&'static str>> {
    let pid = ["--pid", "--fork"];
    let mut all = vec![[&pid[..], &["--user", "--map-root-user"]].concat()];
    if rustix::process::geteuid().is_root() {
        all.push(pid.to_vec());
    }
    all
}

#[test]
fn a_containers_root_sets_no_limits() {
    let daemon = Daemon::start(config());
    let victim = Client::start(&daemon.socket, "victim", Class::Bandwidth);
    let before = victim.meter().lease().rate_bytes_per_s;
    for options in containers() {
        let Some((_container, said)) = start("enforcer", &daemon.socket, &options) else {
            continue;
        };
        assert!(
            said.contains("Refused") && said.contains("namespace"),
            "{options:?}: {said}"
        );
        assert_eq!(victim.meter().lease().rate_bytes_per_s, before);
    }
    // The host's enforcer can still connect.
    let enforcer = Caller::connect(&daemon.socket);
    enforcer.say(&ToDaemon::Enforce.encode());
    assert!(matches!(enforcer.hear(), Some((ToShim::Heeded, _))));
}

#[test]
fn silent_guests_of_one_container_keep_no_other_process_out() {
    let daemon = Daemon::start(config());
    for options in containers() {
        let Some((_container, said)) = start("guests", &daemon.socket, &options) else {
            continue;
        };
        assert_eq!(said, "400");
        for _ in 0..20 {
            Client::start(&daemon.socket, "honest", Class::Auto);
        }
    }
}

/// The user namespace alone makes another account of the same user and cgroup.
#[test]
fn a_container_that_fills_its_sessions_leaves_places_to_the_host() {
    let daemon = Daemon::start(Config {
        sessions_max: 40,
        sessions_per_account_max: 16,
        ..config()
    });
    let options = ["--user", "--map-root-user", "--pid", "--fork"];
    let Some((container, said)) = start("sessions", &daemon.socket, &options) else {
        return;
    };
    let taken: usize = said.parse().expect("a number");
    // Later sessions of the same account replace sessions without a device.
    assert_eq!((taken, daemon.sessions()), (64, 16));
    let honest: Vec<Client> = (0..10)
        .map(|_| Client::start(&daemon.socket, "honest", Class::Auto))
        .collect();
    assert!(honest.iter().all(|client| client.meters[0] != NO_METER));
    drop(container);
    daemon.wait_for_sessions(10);
}

/// A session with a device is never dropped for a newcomer; one without a device is.
#[test]
fn sessions_that_never_open_a_device_are_shed_first() {
    let daemon = Daemon::start(Config {
        sessions_per_account_max: 3,
        ..config()
    });
    let working = Client::start(&daemon.socket, "works", Class::Auto);
    let silent: Vec<Caller> = (0..2)
        .map(|_| {
            let caller = Caller::connect(&daemon.socket);
            caller.say(&hello("silent", Class::Auto, 1).encode());
            assert!(matches!(caller.hear(), Some((ToShim::Welcome { .. }, _))));
            caller
        })
        .collect();
    let _late: Vec<Client> = (0..2)
        .map(|_| Client::start(&daemon.socket, "late", Class::Auto))
        .collect();
    for caller in &silent {
        let Some((ToShim::Refused { reason }, _)) = caller.hear() else {
            panic!("no message arrives");
        };
        assert!(reason.contains("opened no device"), "{reason}");
    }
    let Err(reason) = Client::try_start(&daemon.socket, "more", Class::Auto, 1) else {
        panic!("a fourth");
    };
    assert!(reason.contains("sessions_per_account_max"), "{reason}");
    working.send_until_active();
    wait_for("three sessions", || daemon.sessions() == 3);
}
