//! Unmodified programs of Debian's package `rdmacm-utils`, which connect by rdma_cm.
//!
//! Where a program is not installed, its test prints that; CI must have it. The server runs on host 0, the client on host 1.

use crate::client::Place;
use crate::programs::{self, DEADLINE, command, free_port, is_installed};
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
fn wait_for_rdma(place: &Place, child: &mut Child, port: u16) {
    let start = Instant::now();
    let words = [op::CM_LISTENS, pack(0, u32::from(port))];
    while place.connect().call(&words).is_err() {
        if child.try_wait().unwrap().is_some() || start.elapsed() > DEADLINE {
            return;
        }
    }
}

/// Runs a server that listens at a port by rdma_cm and a client of it; what both printed.
fn run(port: u16, server: (&str, &[&str]), client: (&str, &[&str])) -> Option<[String; 2]> {
    run_until(
        |place, child| wait_for_rdma(place, child, port),
        1,
        server,
        client,
    )
}

/// Runs a server on host 0, and a client of it when `listens` returns; what both printed.
fn run_until(
    listens: impl FnOnce(&Place, &mut Child),
    client_host: u32,
    server: (&str, &[&str]),
    client: (&str, &[&str]),
) -> Option<[String; 2]> {
    if !is_installed(server.0) || !is_installed(client.0) {
        return None;
    }
    let place = Place::new();
    let mut listening = command(&place, 0, server.0);
    listening.args(server.1).stdin(Stdio::null());
    listening.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = listening.spawn().unwrap();
    listens(&place, &mut child);
    let output = command(&place, client_host, client.0)
        .args(client.1)
        .output()
        .unwrap();
    if !output.status.success() {
        programs::end(&child);
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

/// Its client sends inline data for which it asked no room; devices have room for an element.
#[test]
fn rdma_xclient_and_xserver_send_inline() {
    let client: &[&str] = &["-s", SERVER];
    run(7471, ("rdma_xserver", &[]), ("rdma_xclient", client));
}

/// The server listens twice at its port, first for its parameters, and the client connects twice.
#[test]
fn perftest_connects_by_rdma_cm() {
    for program in ["ib_write_bw", "ib_send_lat"] {
        for _ in 0..5 {
            let port = free_port();
            let text = port.to_string();
            let server: &[&str] = &["-R", "-F", "-n", "20", "-s", "4096", "-p", &text];
            let client = [server, &[SERVER]].concat();
            run(port, (program, server), (program, &client));
        }
    }
}

/// libfabric resolves addresses that it does not name (`rdma_getaddrinfo` with hints alone). Its utility provider `ofi_rxm` is left
/// out: its server may fail after the last message, though the broker completed all requests (docs/guides/emulate.md).
#[test]
fn libfabric_connects_by_rdma_cm() {
    for kind in [
        &["-p", "verbs", "-e", "msg"],
        &["-p", "verbs", "-e", "dgram"],
    ] {
        let port = free_port();
        let text = port.to_string();
        // The programs have one host, because they use the address of their socket. With `-c` they check every byte.
        let server = [&["-c", "-B", &text][..], kind].concat();
        let client = [&["-c", "-P", &text][..], kind, &["127.0.0.1"]].concat();
        let listens = |_: &Place, child: &mut Child| programs::wait_for_listener(child, port);
        run_until(
            listens,
            0,
            ("fi_pingpong", &server),
            ("fi_pingpong", &client),
        );
    }
}

/// The error of a device without XRC.
#[test]
fn xrc_is_an_operation_that_is_not_supported() {
    for (program, arguments, line) in [
        (
            "ibv_xsrq_pingpong",
            &["-d", "rnic0"][..],
            "Couldn't Open the XRC Domain 95",
        ),
        (
            "rdma_xserver",
            &["-c", "x"],
            "rdma_create_ep: Operation not supported",
        ),
    ] {
        if !is_installed(program) {
            continue;
        }
        let place = Place::new();
        let mut tried = command(&place, 0, program);
        let output = tried.args(arguments).output().unwrap();
        let printed = text(&output);
        assert!(!output.status.success(), "{program}: {printed}");
        assert!(printed.contains(line), "{program}: {printed}");
        assert_eq!(place.stop().rejected, 0);
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
