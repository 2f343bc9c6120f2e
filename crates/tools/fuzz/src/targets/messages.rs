//! Messages from tenants, peers, clients and servers.

use super::text;
use crate::Target;
use isolane_memory_service::fleet::server::respond;
use isolane_memory_service::protocol;
use isolane_rdma_emulated_verbs::attributes::{
    DeviceFacts, PairAttributes, SendRequest, read_elements,
};
use isolane_rdma_emulated_verbs::cm::message::{Event as Connected, Parameters};
use isolane_rdma_emulated_verbs::wire::{Reader, Writer};
use isolane_rdma_enforcer::arrival::{Arrival, is_whole};
use isolane_rdma_session::message::{Class, PortAddress, ToDaemon, ToShim};
use isolane_rdma_traffic::worker::{FromWorker, Lines, ToWorker};
use isolane_rpc::quota::line::Address;
use isolane_rpc::quota::protocol as quota;
use isolane_rpc::quota::store::{Record, etcd};
use isolane_study_testbed_verbs::message::{Event, Message, Request};
use isolaned::peers::{handshake, report};
use isolaned::show::server::{Asked, REQUEST_MAX, request};

/// The targets.
pub const TARGETS: &[Target] = &[
    Target {
        name: "session",
        run: session,
        seeds: session_messages,
    },
    Target {
        name: "arrival",
        run: |bytes| {
            let _ = is_whole(bytes);
            if let Ok(arrival) = Arrival::parse(bytes) {
                assert!(arrival.process > 0 && is_whole(bytes));
            }
        },
        seeds: || {
            vec![
                Arrival::message(7, Some("web")),
                br#"{"ociVersion":"1.0.2-dev","fds":["initFd","seccompFd"],"pid":4422,"metadata":"x;isolane-tenant=web","state":{"ociVersion":"1.0.2-dev","id":"c1","status":"creating","pid":4422,"bundle":"/b","annotations":{"app":"db"}}}"#.to_vec(),
            ]
        },
    },
    Target {
        name: "peers",
        run: peers,
        seeds: peer_messages,
    },
    Target {
        name: "metrics-http",
        run: metrics_http,
        seeds: || {
            let heads = [
                "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n",
                "GET /snapshot HTTP/1.0\n\n",
            ];
            heads.map(|head| head.as_bytes().to_vec()).to_vec()
        },
    },
    Target {
        name: "extender-http",
        run: extender_http,
        seeds: extender_requests,
    },
    Target {
        name: "mem-sock",
        run: |bytes| {
            let mut lines = protocol::line::Lines::new(protocol::REQUEST_MAX);
            lines.push(bytes);
            while let Ok(Some(line)) = lines.next_line() {
                let _ = protocol::Request::read(&line);
                let _ = protocol::decode::<protocol::Answer>(&line);
            }
        },
        seeds: || {
            let lines = [
                "{\"status\":null}\n\"metrics\"\n",
                "{\"remove\":{\"name\":\"redis\"}}\n",
            ];
            let all = lines.map(|line| line.as_bytes().to_vec());
            let known = protocol::encode(&protocol::Request::Status);
            [all.to_vec(), vec![known]].concat()
        },
    },
    Target {
        name: "quota",
        run: quota_lines,
        seeds: quota_messages,
    },
    Target {
        name: "etcd",
        run: etcd_answer,
        seeds: etcd_answers,
    },
    Target {
        name: "agent",
        run: |bytes| {
            for line in text(bytes).lines() {
                let _ = Event::decode(line);
                if let Ok(request) = Request::decode(line) {
                    let again = Request::decode(request.encode().trim_end());
                    assert_eq!(again, Ok(request));
                }
            }
        },
        seeds: || {
            let requests = [
                Request::Hello {
                    version: 1,
                    program: "isolane 0.1.0".to_owned(),
                },
                Request::Say {
                    worker: 3,
                    line: "{}".to_owned(),
                },
                Request::Counters {
                    device: "rxe0".to_owned(),
                    port: 1,
                },
                Request::Clear,
            ];
            requests
                .map(|request| request.encode().into_bytes())
                .to_vec()
        },
    },
    Target {
        name: "worker",
        run: |bytes| {
            let mut lines = Lines::new(bytes);
            while let Ok(Some(message)) = lines.next_message::<ToWorker>() {
                drop(message);
            }
            let mut lines = Lines::new(bytes);
            while let Ok(Some(message)) = lines.next_message::<FromWorker>() {
                drop(message);
            }
        },
        seeds: || {
            let lines = [
                "{\"type\":\"start\",\"after_ns\":5}\n{\"type\":\"stop\",\"window\":null}\n",
                "{\"type\":\"connect\",\"peers\":[]}\n",
            ];
            lines.map(|line| line.as_bytes().to_vec()).to_vec()
        },
    },
    Target {
        name: "emulated-verbs",
        run: emulated_verbs,
        seeds: || {
            let words: Vec<u64> = (0..40).collect();
            vec![Writer::of(&words).bytes().to_vec(), vec![0; 400]]
        },
    },
];

/// Both directions of the session's protocol: what decodes is encoded to bytes that decode to the same.
fn session(bytes: &[u8]) {
    if let Ok(message) = ToDaemon::decode(bytes) {
        assert_eq!(ToDaemon::decode(&message.encode()), Ok(message));
    }
    if let Ok(message) = ToShim::decode(bytes) {
        assert_eq!(ToShim::decode(&message.encode()), Ok(message));
    }
}

fn session_messages() -> Vec<Vec<u8>> {
    let to_daemon = [
        ToDaemon::Hello {
            class: Class::Auto,
            weight: 1,
            tenant: "web".to_owned(),
            program: "ib_write_bw".to_owned(),
        },
        ToDaemon::Open {
            device: "mlx5_0".to_owned(),
        },
        ToDaemon::OpenReads {
            device: "mlx5_0".to_owned(),
            source: PortAddress::of_lid(3),
        },
        ToDaemon::Enforce,
        ToDaemon::Limit {
            tenant: 3,
            bytes_per_s: 1_000,
        },
        ToDaemon::Belongs {
            process: 7,
            tenant: 3,
        },
    ];
    let to_shim = [
        ToShim::Welcome {
            session: 1,
            region_bytes: 4_096,
            class: Class::Bandwidth,
        },
        ToShim::Refused {
            reason: "full".to_owned(),
        },
        ToShim::Opened {
            outgoing: 0,
            remote_read: 1,
        },
        ToShim::Look,
        ToShim::Heeded,
    ];
    let mut all: Vec<Vec<u8>> = to_daemon.iter().map(ToDaemon::encode).collect();
    all.extend(to_shim.iter().map(ToShim::encode));
    all
}

/// Reports over the reference flow, and endpoints of the handshake.
fn peers(bytes: &[u8]) {
    if let Ok(state) = report::decode(bytes) {
        assert_eq!(report::encode(&state), bytes);
    }
    if let Ok(endpoint) = handshake::Endpoint::decode(bytes) {
        let again = handshake::Endpoint::decode(&endpoint.encode());
        assert_eq!(again.ok(), Some(endpoint));
    }
}

fn peer_messages() -> Vec<Vec<u8>> {
    let endpoint = handshake::Endpoint {
        daemon: [7; 16],
        device: "mlx5_0".to_owned(),
        wanted: "mlx5_1".to_owned(),
        gid: [1; 16],
        lid: 0,
        queue_pair: 77,
        packet_sequence: 5,
        mtu: 4_096,
        address: 1 << 40,
        remote_key: 9,
        addresses: vec![PortAddress([9; 16]), PortAddress::of_lid(3)],
    };
    let state = isolane_rdma_policy::RemoteState::default();
    vec![endpoint.encode(), report::encode(&state).to_vec()]
}

fn metrics_http(bytes: &[u8]) {
    match request(bytes) {
        Asked::More => assert!(bytes.len() <= REQUEST_MAX),
        Asked::Path(path) => assert!(!path.contains(char::is_whitespace)),
        Asked::Refused(status) => assert!(status.starts_with('4')),
    }
}

/// A request to the scheduler extender and its answer, which is JSON for any request.
fn extender_http(bytes: &[u8]) {
    let answer = respond(bytes, |_| Ok(()), 1_000).expect("a slice does not fail");
    assert!(serde_json::from_str::<serde_json::Value>(&answer.body).is_ok());
}

fn extender_requests() -> Vec<Vec<u8>> {
    let body = r#"{"Pod":{"metadata":{"name":"redis-0","annotations":{"isolane.dev/type":"ls","isolane.dev/slo":"160ns","isolane.dev/priority":"3","isolane.dev/memory":"1GB"}}},"Nodes":{"items":[{"metadata":{"name":"n","annotations":{"isolane.dev/machine":"{\"format\":1,\"at_unix_s\":1000,\"tiers\":[{\"capacity_bytes\":16000000000,\"used_bytes\":4}],\"applications\":[{\"name\":\"a\",\"priority\":1,\"held_bytes\":[1,2],\"cpu_per_mille\":1000}]}"}}},{"metadata":{"name":"m"}}]}}"#;
    let request = |path: &str| {
        let length = body.len();
        format!("POST {path} HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
    };
    vec![
        request("/filter"),
        request("/prioritize"),
        b"GET /healthz HTTP/1.1\r\n\r\n".to_vec(),
    ]
}

/// Lines of the quota server and its clients, and addresses.
fn quota_lines(bytes: &[u8]) {
    for line in text(bytes).lines() {
        if let Ok(request) = serde_json::from_str::<quota::Request>(line) {
            let again = serde_json::to_string(&request).expect("plain data");
            assert_eq!(
                serde_json::from_str::<quota::Request>(&again).ok(),
                Some(request)
            );
        }
        let _ = serde_json::from_str::<quota::Answer>(line);
        let _ = line.parse::<Address>();
    }
}

fn quota_messages() -> Vec<Vec<u8>> {
    let renew = quota::Request::Renew {
        tenant: "t".to_owned(),
        client: "c".to_owned(),
        wants: vec![quota::Want {
            group: "g".to_owned(),
            class: "high".to_owned(),
            demand_bytes_per_s: 10,
            holds: Some(1),
        }],
    };
    let answer = quota::Answer::Leases(vec![quota::Leased {
        serial: 1,
        rate_bytes_per_s: 10,
        term_ms: 3_000,
    }]);
    let line = |text: Result<String, serde_json::Error>| text.expect("plain data").into_bytes();
    vec![
        line(serde_json::to_string(&renew)),
        line(serde_json::to_string(&answer)),
        br#"{"ask":"show"}"#.to_vec(),
        b"unix:/run/isolane/quota.sock\n[::1]:7777".to_vec(),
    ]
}

/// An answer of etcd, and the records in it.
fn etcd_answer(bytes: &[u8]) {
    let text = text(bytes);
    let body = etcd::status_and_body(&text).map_or(&text[..], |(_, body)| body);
    let Ok(found) = serde_json::from_str(body) else {
        return;
    };
    for record in etcd::read_records(&found).into_iter().flatten() {
        let again = serde_json::to_vec(&record).expect("plain data");
        assert_eq!(serde_json::from_slice::<Record>(&again).ok(), Some(record));
    }
}

fn etcd_answers() -> Vec<Vec<u8>> {
    // {"grant":{"group":"g","class":"high","tenant":"t","client":"c","serial":1,"rate_bytes_per_s":10,"term_ms":3000}}
    let grant = "eyJncmFudCI6eyJncm91cCI6ImciLCJjbGFzcyI6ImhpZ2giLCJ0ZW5hbnQiOiJ0IiwiY2xpZW50IjoiYyIsInNlcmlhbCI6MSwicmF0ZV9ieXRlc19wZXJfcyI6MTAsInRlcm1fbXMiOjMwMDB9fQ==";
    let answers = [
        format!(
            r#"{{"header":{{"revision":"7"}},"kvs":[{{"key":"YQ==","value":"{grant}"}}],"count":"1"}}"#
        ),
        r#"{"error":"etcdserver: request timed out","code":14}"#.to_owned(),
    ];
    let head = "HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n";
    answers
        .map(|answer| format!("{head}{answer}").into_bytes())
        .into()
}

/// The words that an application's library sends to the broker of emulated devices, and the broker to the library.
fn emulated_verbs(bytes: &[u8]) {
    let _ = PairAttributes::read(&mut Reader::new(bytes));
    let _ = Parameters::read(&mut Reader::new(bytes));
    if let Some(event) = Connected::read(&mut Reader::new(bytes)) {
        let mut writer = Writer::default();
        event.write(&mut writer);
        assert_eq!(
            Connected::read(&mut Reader::new(writer.bytes())),
            Some(event)
        );
    }
    let _ = DeviceFacts::read(&mut Reader::new(bytes));
    let mut reader = Reader::new(bytes);
    while let Some(request) = SendRequest::read(&mut reader) {
        drop(request);
    }
    let mut reader = Reader::new(bytes);
    let count = reader.number().unwrap_or(u32::MAX) as usize;
    if let Some(elements) = read_elements(count, &mut reader) {
        assert!(elements.len() * 8 <= bytes.len());
    }
}
