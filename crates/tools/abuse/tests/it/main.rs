//! Every service under every attack. The service is this program again, in the role that its test names.
#![allow(clippy::unwrap_used)]

mod clients;
mod kills;
mod limits;
mod planted;
mod services;

use clients::{agent_echoes, device_opens, peer_is_answered, session_begins, shown};
use isolane_common_linux::key::Key;
use isolane_rpc::quota::client::ask_once;
use isolane_rpc::quota::protocol::{Answer, Request};
use isolane_tools_abuse::{Honest, Place, Running, Target, check};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

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
fn judge(running: &Running, target: &Target, honest: &Honest<'_>) {
    if let Err(wrong) = check(running, target, honest) {
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
    let running = Running::start("quota");
    let path = running.folder().join("socket");
    let address = format!("unix:{}", path.display()).parse().unwrap();
    let target = Target {
        place: Place::Unix(path),
        request: b"{\"ask\":\"show\"}\n".to_vec(),
        crowd: 200,
        memory_max: 96 << 20,
        descriptors_max: 300,
    };
    judge(
        &running,
        &target,
        &|| match ask_once(&address, None, &Request::Show) {
            Ok(Answer::Pools(_)) => Ok(()),
            other => Err(format!("{other:?}")),
        },
    );
}

#[test]
fn quota_server_with_a_key() {
    let running = Running::start("quota-key");
    let key = running.folder().join("key");
    let address = running.said().parse().unwrap();
    let hello = format!("{{\"ask\":\"hello\",\"nonce\":\"{}\"}}\n", "0".repeat(64));
    let target = Target {
        place: Place::Tcp(port(&running)),
        request: hello.into_bytes(),
        crowd: 200,
        memory_max: 96 << 20,
        descriptors_max: 300,
    };
    judge(
        &running,
        &target,
        &|| match ask_once(&address, Some(&key), &Request::Show) {
            Ok(Answer::Pools(_)) => Ok(()),
            other => Err(format!("{other:?}")),
        },
    );
}

#[test]
fn scheduler_extender() {
    let running = Running::start("extender");
    let body = r#"{"Pod":{"metadata":{}},"Nodes":{"items":[{"metadata":{"name":"n"}}]}}"#;
    let length = body.len();
    let request =
        format!("POST /prioritize HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes();
    let target = Target {
        place: Place::Tcp(port(&running)),
        request: request.clone(),
        crowd: 200,
        memory_max: 96 << 20,
        descriptors_max: 160,
    };
    judge(&running, &target, &|| {
        has(over_tcp(port(&running), &request), "200 OK")
    });
}

#[test]
fn memory_service() {
    let running = Running::start("memory");
    let path = running.folder().join("mem.sock");
    let version = isolane_memory_service::protocol::VERSION;
    let request = format!("{{\"version\":{version},\"say\":\"status\"}}\n").into_bytes();
    let target = Target {
        place: Place::Unix(path.clone()),
        request: request.clone(),
        crowd: 200,
        memory_max: 96 << 20,
        descriptors_max: 100,
    };
    judge(&running, &target, &|| {
        has(over_unix(&path, &request), "applications")
    });
}

#[test]
fn metrics_of_the_daemon() {
    let running = Running::start("metrics");
    let request = b"GET /metrics HTTP/1.1\r\n\r\n".to_vec();
    let target = Target {
        place: Place::Tcp(port(&running)),
        request: request.clone(),
        crowd: 200,
        memory_max: 32 << 20,
        descriptors_max: 100,
    };
    judge(&running, &target, &|| {
        has(over_tcp(port(&running), &request), "200 OK")
    });
}

#[test]
fn snapshots_of_the_daemon() {
    let running = Running::start("metrics");
    let path = running.folder().join("control.sock");
    let request = b"GET /snapshot HTTP/1.0\r\n\r\n".to_vec();
    let target = Target {
        place: Place::Unix(path.clone()),
        request: request.clone(),
        crowd: 200,
        memory_max: 32 << 20,
        descriptors_max: 100,
    };
    judge(&running, &target, &|| {
        has(over_unix(&path, &request), "200 OK")
    });
}

#[test]
fn sessions_of_the_daemon() {
    let running = Running::start("daemon");
    let path = running.folder().join("run/isolaned.sock");
    let target = Target {
        place: Place::Messages(path.clone()),
        request: clients::hello(),
        crowd: 400,
        memory_max: 96 << 20,
        descriptors_max: 600,
    };
    judge(&running, &target, &|| session_begins(&path));
}

#[test]
fn peers_of_the_daemon() {
    let running = Running::start("peers");
    let key = Key::read(&running.folder().join("key")).unwrap();
    let target = Target {
        place: Place::Tcp(port(&running)),
        request: clients::peer_greeting(),
        crowd: 200,
        memory_max: 32 << 20,
        // 64 places, each with two descriptors; one more in accept.
        descriptors_max: 160,
    };
    judge(&running, &target, &|| {
        peer_is_answered(port(&running), &key)
    });
}

#[test]
fn broker_of_emulated_devices() {
    let running = Running::start("emulator");
    let path = PathBuf::from(running.said());
    let target = Target {
        place: Place::Messages(path.clone()),
        request: clients::open(),
        crowd: 200,
        memory_max: 96 << 20,
        descriptors_max: 300,
    };
    judge(&running, &target, &|| device_opens(&path));
}

#[test]
fn agent_on_a_port() {
    let running = Running::start("agent");
    let identity = running.folder().join("certificates/controller");
    let target = Target {
        place: Place::Tcp(port(&running)),
        // The head of a TLS record with a handshake message, and the start of a greeting.
        request: [&[22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &[7; 505]].concat(),
        crowd: 200,
        memory_max: 96 << 20,
        descriptors_max: 200,
    };
    judge(&running, &target, &|| {
        agent_echoes(port(&running), &identity)
    });
}

#[test]
fn server_of_traffic() {
    let running = Running::start("traffic");
    let target = Target {
        place: Place::Tcp(port(&running)),
        request: clients::job(),
        crowd: 200,
        // Each of 64 connections without a job holds a line of up to 1 MiB, and a line doubles when it grows.
        memory_max: 160 << 20,
        descriptors_max: 120,
    };
    judge(&running, &target, &|| has(shown(port(&running)), "failed"));
}
