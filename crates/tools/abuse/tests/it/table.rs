//! The services: how an honest client uses each, and what a full disk and a clock that is set mean for it.

use crate::clients::{self, agent_echoes, device_opens, peer_is_answered, session_begins, shown};
use crate::short::{Stores, memory_stores, quota_stores};
use crate::{has, over_tcp, over_unix, port};
use isolane_common_linux::key::Key;
use isolane_rpc::quota::client::ask_once;
use isolane_rpc::quota::protocol::{Answer, Request};
use isolane_tools_abuse::{Place, Running, Target};
use std::path::{Path, PathBuf};

/// A service under attacks and shortages.
pub(crate) struct Service {
    /// The role of its process.
    pub(crate) role: &'static str,
    /// The running service as attackers and clients see it.
    pub(crate) subject: fn(&Running) -> Subject,
    pub(crate) disk: Disk,
    pub(crate) clock: Clock,
}

/// What it writes to a disk.
pub(crate) enum Disk {
    /// What clients change, kept in files.
    Stores(fn(&Path) -> Stores),
    /// Lines of its log alone, for this reason.
    Log(&'static str),
}

/// What a clock that is set does to its clients.
pub(crate) enum Clock {
    /// Nothing.
    Serves,
    /// It rejects them with an error that has these words, until the clock is right.
    Rejects(&'static str),
}

/// A target and its honest client.
pub(crate) struct Subject {
    pub(crate) target: Target,
    pub(crate) honest: Box<dyn Fn() -> Result<(), String>>,
}

impl Subject {
    pub(crate) fn new(target: Target, honest: impl Fn() -> Result<(), String> + 'static) -> Self {
        Self {
            target,
            honest: Box::new(honest),
        }
    }
}

const fn service(role: &'static str, subject: fn(&Running) -> Subject, disk: Disk) -> Service {
    Service {
        role,
        subject,
        disk,
        clock: Clock::Serves,
    }
}

const NO_FILE: &str = "it writes no file";
const AT_START: &str = "its sockets and devices are made at its start";

pub(crate) const QUOTA: Service = service("quota", quota, Disk::Stores(quota_stores));
pub(crate) const QUOTA_WITH_A_KEY: Service =
    service("quota-key", quota_with_a_key, Disk::Stores(quota_stores));
pub(crate) const EXTENDER: Service = service("extender", extender, Disk::Log(NO_FILE));
pub(crate) const MEMORY: Service = service("memory", memory, Disk::Stores(memory_stores));
pub(crate) const METRICS: Service = service("metrics", metrics, Disk::Log(NO_FILE));
pub(crate) const SNAPSHOTS: Service = service("metrics", snapshots, Disk::Log(NO_FILE));
pub(crate) const SESSIONS: Service = service("daemon", sessions, Disk::Log(AT_START));
pub(crate) const PEERS: Service = service("peers", peers, Disk::Log(NO_FILE));
pub(crate) const EMULATOR: Service = service("emulator", emulator, Disk::Log(AT_START));
pub(crate) const AGENT: Service = Service {
    // A certificate is valid for 397 days.
    clock: Clock::Rejects("CertificateExpired"),
    ..service("agent", agent, Disk::Log("it reads its certificate only"))
};
pub(crate) const TRAFFIC: Service = service("traffic", traffic, Disk::Log(NO_FILE));

pub(crate) const ALL: [&Service; 11] = [
    &QUOTA,
    &QUOTA_WITH_A_KEY,
    &EXTENDER,
    &MEMORY,
    &METRICS,
    &SNAPSHOTS,
    &SESSIONS,
    &PEERS,
    &EMULATOR,
    &AGENT,
    &TRAFFIC,
];

fn quota(running: &Running) -> Subject {
    let path = running.folder().join("socket");
    let address = format!("unix:{}", path.display()).parse().unwrap();
    let target = Target {
        place: Place::Unix(path),
        request: b"{\"ask\":\"show\"}\n".to_vec(),
        crowd: 200,
        memory_max: 96 << 20,
        descriptors_max: 300,
    };
    Subject::new(target, move || {
        match ask_once(&address, None, &Request::Show) {
            Ok(Answer::Pools(_)) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
}

fn quota_with_a_key(running: &Running) -> Subject {
    let key = running.folder().join("key");
    let address = running.said().parse().unwrap();
    let hello = format!("{{\"ask\":\"hello\",\"nonce\":\"{}\"}}\n", "0".repeat(64));
    let target = Target {
        place: Place::Tcp(port(running)),
        request: hello.into_bytes(),
        crowd: 200,
        memory_max: 96 << 20,
        descriptors_max: 300,
    };
    Subject::new(target, move || {
        match ask_once(&address, Some(&key), &Request::Show) {
            Ok(Answer::Pools(_)) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
}

fn extender(running: &Running) -> Subject {
    let address = port(running);
    let body = r#"{"Pod":{"metadata":{}},"Nodes":{"items":[{"metadata":{"name":"n"}}]}}"#;
    let length = body.len();
    let request =
        format!("POST /prioritize HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes();
    let target = Target {
        place: Place::Tcp(address),
        request: request.clone(),
        crowd: 200,
        memory_max: 96 << 20,
        descriptors_max: 160,
    };
    Subject::new(target, move || has(over_tcp(address, &request), "200 OK"))
}

fn memory(running: &Running) -> Subject {
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
    Subject::new(target, move || {
        has(over_unix(&path, &request), "applications")
    })
}

fn metrics(running: &Running) -> Subject {
    let address = port(running);
    let request = b"GET /metrics HTTP/1.1\r\n\r\n".to_vec();
    let target = Target {
        place: Place::Tcp(address),
        request: request.clone(),
        crowd: 200,
        memory_max: 32 << 20,
        descriptors_max: 100,
    };
    Subject::new(target, move || has(over_tcp(address, &request), "200 OK"))
}

fn snapshots(running: &Running) -> Subject {
    let path = running.folder().join("control.sock");
    let request = b"GET /snapshot HTTP/1.0\r\n\r\n".to_vec();
    let target = Target {
        place: Place::Unix(path.clone()),
        request: request.clone(),
        crowd: 200,
        memory_max: 32 << 20,
        descriptors_max: 100,
    };
    Subject::new(target, move || has(over_unix(&path, &request), "200 OK"))
}

fn sessions(running: &Running) -> Subject {
    let path = running.folder().join("run/isolaned.sock");
    let target = Target {
        place: Place::Messages(path.clone()),
        request: clients::hello(),
        crowd: 400,
        memory_max: 96 << 20,
        descriptors_max: 600,
    };
    Subject::new(target, move || session_begins(&path))
}

fn peers(running: &Running) -> Subject {
    let address = port(running);
    let key = Key::read(&running.folder().join("key")).unwrap();
    let target = Target {
        place: Place::Tcp(address),
        request: clients::peer_greeting(),
        crowd: 200,
        memory_max: 32 << 20,
        // 64 places, each with two descriptors; one more in accept.
        descriptors_max: 160,
    };
    Subject::new(target, move || peer_is_answered(address, &key))
}

fn emulator(running: &Running) -> Subject {
    let path = PathBuf::from(running.said());
    let target = Target {
        place: Place::Messages(path.clone()),
        request: clients::open(),
        crowd: 200,
        memory_max: 96 << 20,
        descriptors_max: 300,
    };
    Subject::new(target, move || device_opens(&path))
}

fn agent(running: &Running) -> Subject {
    let address = port(running);
    let identity = running.folder().join("certificates/controller");
    let target = Target {
        place: Place::Tcp(address),
        // The head of a TLS record with a handshake message, and the start of a greeting.
        request: [&[22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &[7; 505]].concat(),
        crowd: 200,
        memory_max: 96 << 20,
        descriptors_max: 200,
    };
    Subject::new(target, move || agent_echoes(address, &identity))
}

fn traffic(running: &Running) -> Subject {
    let address = port(running);
    let target = Target {
        place: Place::Tcp(address),
        request: clients::job(),
        crowd: 200,
        // Each of 64 connections without a job holds a line of up to 1 MiB, and a line doubles when it grows.
        memory_max: 160 << 20,
        descriptors_max: 120,
    };
    Subject::new(target, move || has(shown(address), "failed"))
}
