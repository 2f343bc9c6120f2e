//! A service whose limit of open files is below what all its clients need, and an account that opens all sessions it gets.

use crate::table::{ALL, Subject};
use crate::{PATIENCE, answer, port};
use isolane_common_linux::open_files;
use isolane_tools_abuse::process::command;
use isolane_tools_abuse::{Attack, Running, check_some};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;

/// The limit of a process that is started by hand, as most systems set it.
const OPEN_FILES: u32 = 1_024;
/// Open files with which every service can start, fewer than its places need.
const FEW_FILES: u32 = 64;
/// Clients of a quota server at most, and sessions of one account.
const CLIENTS: usize = 2_048;
const OF_ONE_ACCOUNT: usize = CLIENTS - CLIENTS / 4;
const REQUEST: &[u8] = b"{\"ask\":\"show\"}\n";

/// A service, started by `shell` commands that end in `exec "$@"`.
fn start(role: &str, shell: &str, folder: &std::path::Path) -> Running {
    let role = command(role, folder);
    let mut command = Command::new("sh");
    command.args(["-c", shell, "sh"]).arg(role.get_program());
    command.args(role.get_args());
    for (name, value) in role.get_envs() {
        command.env(name, value.expect("it is set"));
    }
    let mut running = Running::spawn_as(command, folder);
    running.listens().unwrap();
    running
}

/// A session from the address 127.0.0.`peer`, which is an account.
fn session(server: SocketAddr, peer: u8) -> Result<TcpStream, String> {
    let from = SocketAddr::from((Ipv4Addr::new(127, 0, 0, peer), 0));
    // A server that another test starts must not inherit it.
    let flags = SocketFlags::CLOEXEC;
    let made = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
    bind(&made, &from).map_err(|error| error.to_string())?;
    connect(&made, &server).map_err(|error| error.to_string())?;
    let stream = TcpStream::from(made);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let answer = answer(&stream, REQUEST)?;
    match answer.contains("pools") {
        true => Ok(stream),
        false => Err(answer),
    }
}

/// Sessions of one account until one gets no answer, and one more honest client after each hundred and at the end.
fn sessions_beside_honest_clients(running: &Running) -> usize {
    assert!(
        open_files::raise_towards(4_096) >= 3_000,
        "for the sessions"
    );
    let server = port(running);
    // Each has an account of its own: the last session of one may not have ended yet, and an account gets two of the reserve.
    let mut peers = 3_u8..;
    let mut honest = |held: usize| {
        let begun = session(server, peers.next().unwrap());
        assert!(
            begun.is_ok(),
            "with {held} sessions of one account: {begun:?}"
        );
    };
    let mut held = Vec::new();
    while held.len() < CLIENTS
        && let Ok(one) = session(server, 2)
    {
        held.push(one);
        if held.len().is_multiple_of(100) {
            honest(held.len());
        }
    }
    for _ in 0..10 {
        honest(held.len());
    }
    held.len()
}

#[test]
fn a_soft_limit_of_open_files_is_raised_to_what_all_sessions_need() {
    let folder = tempfile::tempdir().unwrap();
    let shell = format!("ulimit -S -n {OPEN_FILES}; exec \"$@\"");
    let running = start("quota-port", &shell, folder.path());
    assert_eq!(sessions_beside_honest_clients(&running), OF_ONE_ACCOUNT);
}

/// Goal: a soft limit below the places of a service takes no place from honest clients. Method: every service begins with
/// fewer descriptors than its target may have, and 200 and more connections are silent.
#[test]
fn every_service_raises_its_soft_limit_of_open_files() {
    for service in ALL {
        let folder = tempfile::tempdir().unwrap();
        let shell = format!("ulimit -S -n {FEW_FILES}; exec \"$@\"");
        let running = start(service.role, &shell, folder.path());
        let Subject { target, honest } = (service.subject)(&running);
        let role = service.role;
        // A service that listens may not serve yet; one that answers has raised its limit.
        honest().unwrap_or_else(|wrong| panic!("{role}: {wrong}"));
        let limit = soft_limit(&running);
        assert!(
            limit >= target.descriptors_max as u64,
            "{role}: {limit} files"
        );
        let checked = check_some(&[Attack::Silent], &running, &target, &honest);
        checked.unwrap_or_else(|wrong| panic!("{role}: {wrong}"));
    }
}

/// The soft limit of open files of the service's process.
fn soft_limit(running: &Running) -> u64 {
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", running.id())).unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let soft = line.unwrap().split_whitespace().nth(3).unwrap();
    soft.parse().unwrap()
}

/// Without the privilege to raise the hard limit.
#[test]
fn one_account_leaves_descriptors_to_others_below_a_hard_limit() {
    let folder = tempfile::tempdir().unwrap();
    let without = match rustix::process::geteuid().is_root() {
        true => "setpriv --bounding-set=-sys_resource",
        false => "",
    };
    let shell = format!("ulimit -n {OPEN_FILES}; exec {without} \"$@\"");
    let running = start("quota-port", &shell, folder.path());
    let held = sessions_beside_honest_clients(&running);
    assert!((400..OPEN_FILES as usize).contains(&held), "{held}");
}
