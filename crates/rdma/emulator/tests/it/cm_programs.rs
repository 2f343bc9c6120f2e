//! Unmodified programs of Debian's package `rdmacm-utils`, which connect by rdma_cm.
//!
//! A program that is not installed is skipped with a line. The server runs on host 0, the client on host 1.

use crate::client::Place;
use crate::programs::{DEADLINE, command, is_installed};
use isolane_rdma_emulated_verbs::wire::{op, pack};
use std::process::{Child, Output, Stdio};
use std::time::Instant;

/// The address of host 0.
const SERVER: &str = "10.77.0.1";
fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Waits until a program listens at `port` of host 0, or the child ends.
fn wait_for_listener(place: &Place, child: &mut Child, port: u32) {
    let start = Instant::now();
    let words = [op::CM_LISTENS, pack(0, port)];
    while place.connect().call(&words).is_err() {
        if child.try_wait().unwrap().is_some() || start.elapsed() > DEADLINE {
            return;
        }
    }
}

/// Runs a server and a client of it; what both printed.
fn run(port: u32, server: (&str, &[&str]), client: (&str, &[&str])) -> Option<[String; 2]> {
    if !is_installed(server.0) || !is_installed(client.0) {
        return None;
    }
    let place = Place::new();
    let mut listening = command(&place, 0, server.0);
    listening.args(server.1).stdin(Stdio::null());
    listening.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = listening.spawn().unwrap();
    wait_for_listener(&place, &mut child, port);
    let output = command(&place, 1, client.0)
        .args(client.1)
        .output()
        .unwrap();
    if !output.status.success() {
        let _ = child.kill();
    }
    let served = child.wait_with_output().unwrap();
    assert!(
        output.status.success() && served.status.success(),
        "{server:?}: {}\n{}\n{client:?}: {}\n{}",
        served.status,
        text(&served),
        output.status,
        text(&output)
    );
    let summary = place.stop();
    assert!(summary.messages > 0 && summary.rejected == 0, "{summary:?}");
    Some([text(&served), text(&output)])
}

/// rping compares every byte that returns (`-V`).
#[test]
fn rping_checks_every_byte() {
    let server: &[&str] = &["-s", "-a", SERVER, "-C", "20", "-S", "1000", "-V"];
    let client: &[&str] = &["-c", "-a", SERVER, "-C", "20", "-S", "1000", "-V", "-v"];
    if let Some([_, printed]) = run(7174, ("rping", server), ("rping", client)) {
        assert_eq!(
            printed.matches("ping data: rdma-ping-").count(),
            20,
            "{printed}"
        );
    }
}

#[test]
fn ucmatose_connects_many_times_in_both_directions() {
    let server: &[&str] = &["-c", "10", "-C", "5", "-S", "1000"];
    let client = [&["-s", SERVER], server].concat();
    if let Some([_, printed]) = run(7471, ("ucmatose", server), ("ucmatose", &client)) {
        assert!(printed.contains("return status 0"), "{printed}");
    }
}

#[test]
fn udaddy_exchanges_datagrams() {
    let server: &[&str] = &["-c", "4", "-C", "5", "-S", "500"];
    let client = [&["-s", SERVER], server].concat();
    if let Some([_, printed]) = run(7174, ("udaddy", server), ("udaddy", &client)) {
        assert!(printed.contains("return status 0"), "{printed}");
    }
}

/// Endpoints (`rdma_create_ep`), without a channel of the program's own.
#[test]
fn rdma_client_and_server_use_endpoints() {
    let client: &[&str] = &["-s", SERVER];
    if let Some([_, printed]) = run(7471, ("rdma_server", &[]), ("rdma_client", client)) {
        assert!(printed.contains("rdma_client: end 0"), "{printed}");
    }
}

/// What is not emulated fails with its name.
#[test]
fn multicast_and_rsockets_name_themselves() {
    for (program, arguments, name) in [
        (
            "mckey",
            &["-m", "224.1.1.1", "-b", SERVER][..],
            "rdma_join_multicast_ex",
        ),
        ("rstream", &[], "rsocket"),
    ] {
        if !is_installed(program) {
            continue;
        }
        let place = Place::new();
        let output = command(&place, 0, program)
            .args(arguments)
            .output()
            .unwrap();
        let printed = text(&output);
        let line = format!("isolane: {name} is not emulated");
        assert!(printed.contains(&line), "{program}: {printed}");
    }
}
