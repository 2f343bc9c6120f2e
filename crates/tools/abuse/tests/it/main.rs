//! Every service under every attack. The service is this program again, in the role that its test names.
#![allow(clippy::unwrap_used)]

mod clients;
mod descriptors;
mod kills;
mod limits;
mod planted;
mod services;
mod short;
mod table;

use isolane_tools_abuse::{Running, check};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use table::{Service, Subject};

/// How long an honest client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Not a test: the body of a process that is a service.
#[test]
fn role() {
    if let Some((role, folder)) = isolane_tools_abuse::process::role() {
        services::serve(&role, &folder);
    }
}

/// Checks a service; panics with what it does wrong.
fn attack(service: &Service) {
    let running = Running::start(service.role);
    let Subject { target, honest } = (service.subject)(&running);
    if let Err(wrong) = check(&running, &target, &honest) {
        panic!("{wrong}");
    }
}

fn port(running: &Running) -> SocketAddr {
    running.said().parse().unwrap()
}

/// What the service answers to `request` until it closes the connection or the answer has an end of line.
fn answer(mut stream: impl Read + Write, request: &[u8]) -> Result<String, String> {
    stream
        .write_all(request)
        .map_err(|error| error.to_string())?;
    let mut text = Vec::new();
    let mut buffer = [0; 16 << 10];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => text.extend_from_slice(&buffer[..count]),
            Err(error) => return Err(error.to_string()),
        }
        if request.ends_with(b"}\n") && text.ends_with(b"\n") {
            break;
        }
    }
    String::from_utf8(text).map_err(|error| error.to_string())
}

fn over_tcp(address: SocketAddr, request: &[u8]) -> Result<String, String> {
    let stream =
        TcpStream::connect_timeout(&address, PATIENCE).map_err(|error| error.to_string())?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    answer(stream, request)
}

fn over_unix(path: &Path, request: &[u8]) -> Result<String, String> {
    let stream = UnixStream::connect(path).map_err(|error| error.to_string())?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    answer(stream, request)
}

/// Whether an answer has what it must have.
fn has(answer: Result<String, String>, wanted: &str) -> Result<(), String> {
    let text = answer?;
    match text.contains(wanted) {
        true => Ok(()),
        false => Err(format!("{text:?} has no {wanted:?}")),
    }
}

#[test]
fn quota_server_on_a_unix_socket() {
    attack(&table::QUOTA);
}

#[test]
fn quota_server_with_a_key() {
    attack(&table::QUOTA_WITH_A_KEY);
}

#[test]
fn scheduler_extender() {
    attack(&table::EXTENDER);
}

#[test]
fn memory_service() {
    attack(&table::MEMORY);
}

#[test]
fn metrics_of_the_daemon() {
    attack(&table::METRICS);
}

#[test]
fn snapshots_of_the_daemon() {
    attack(&table::SNAPSHOTS);
}

#[test]
fn sessions_of_the_daemon() {
    attack(&table::SESSIONS);
}

#[test]
fn peers_of_the_daemon() {
    attack(&table::PEERS);
}

#[test]
fn broker_of_emulated_devices() {
    attack(&table::EMULATOR);
}

#[test]
fn agent_on_a_port() {
    attack(&table::AGENT);
}

#[test]
fn server_of_traffic() {
    attack(&table::TRAFFIC);
}
