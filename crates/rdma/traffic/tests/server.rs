//! The server of `isolane rdma traffic` among connections that never send a job, or send something else.
#![allow(clippy::unwrap_used)]

use isolane_rdma_traffic::engine::Overrides;
use isolane_rdma_traffic::tcp;
use isolane_rdma_traffic::worker::{FromWorker, Job, Lines, ToWorker, VERSION, Warmup, write_line};
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// A server on a free port; it serves until this program ends.
fn server() -> SocketAddr {
    let listener = tcp::listen("127.0.0.1", 0).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || tcp::serve_clients(&listener, &Overrides::default(), |_| {}));
    address
}

/// The server's first answer to a job on a device that no machine has.
fn answer(address: SocketAddr) -> FromWorker {
    let mut stream = TcpStream::connect(address).unwrap();
    let job = Job {
        version: VERSION,
        tenant: "t".to_owned(),
        device: "no-such-device".to_owned(),
        port: 1,
        gid_index: None,
        warmup: Warmup::Fixed { ns: 0 },
        duration_ns: 1,
        sample_interval_ns: 1,
        seed: 1,
        check: false,
        events: false,
        ends: Vec::new(),
    };
    write_line(&mut stream, &ToWorker::Job(Box::new(job))).unwrap();
    let mut lines = Lines::new(BufReader::new(stream));
    lines.next_message().unwrap().unwrap()
}

/// Goal: a client is served, however many connections are silent, send half a job, or send another program's bytes.
#[test]
fn connections_without_a_job_keep_no_client_out() {
    let address = server();
    let open = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(address).unwrap();
        // The server may have closed it for a newcomer.
        let _ = stream.write_all(bytes);
        stream
    };
    let silent: Vec<TcpStream> = (0..100).map(|_| open(b"")).collect();
    let halves: Vec<TcpStream> = (0..100).map(|_| open(b"{\"type\":\"job\"")).collect();
    assert!(matches!(answer(address), FromWorker::Failed(_)));
    let mut other = open(b"GET / HTTP/1.1\r\n\r\n");
    let mut answered = Vec::new();
    // Closed or reset.
    let _ = other.read_to_end(&mut answered);
    assert!(answered.is_empty());
    assert!(matches!(answer(address), FromWorker::Failed(_)));
    drop((silent, halves));
}
