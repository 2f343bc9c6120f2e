//! The listener of metrics and snapshots, with slow and hostile readers.

use super::*;
use crate::snapshot::TenantSnapshot;
use rustix::event::{EventfdFlags, eventfd};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

/// The number of snapshots so far, and the size of their text, bytes.
struct Fixed(Arc<AtomicUsize>, usize);

impl Source for Fixed {
    fn snapshot(&mut self) -> Option<Snapshot> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let tenants = (self.1 > 0).then(|| TenantSnapshot {
            name: "x".repeat(self.1),
            ..TenantSnapshot::default()
        });
        Some(Snapshot {
            tenants: tenants.into_iter().collect(),
            ..Snapshot::default()
        })
    }
}

struct Running {
    metrics: std::net::SocketAddr,
    control: PathBuf,
    asked: Arc<AtomicUsize>,
    stop: OwnedFd,
    thread: Option<JoinHandle<()>>,
    _directory: tempfile::TempDir,
}

fn start() -> Running {
    start_with(0)
}

fn start_with(snapshot_bytes: usize) -> Running {
    let directory = tempfile::tempdir().unwrap();
    let control = directory.path().join("control.sock");
    let stop = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let mut server = Server::new(
        Fixed(Arc::clone(&asked), snapshot_bytes),
        stop.try_clone().unwrap(),
    );
    server
        .listen(&Listen::Tcp("127.0.0.1:0".parse().unwrap()), Shown::Metrics)
        .unwrap();
    server
        .listen(&Listen::Unix(control.clone()), Shown::Everything)
        .unwrap();
    Running {
        metrics: server.address().unwrap(),
        control,
        asked,
        stop,
        thread: Some(std::thread::spawn(move || server.run())),
        _directory: directory,
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        rustix::io::write(&self.stop, &1u64.to_ne_bytes()).unwrap();
        self.thread.take().unwrap().join().unwrap();
        assert!(!self.control.exists(), "the socket goes with the server");
    }
}

fn ask(mut stream: impl Read + Write, request: &str) -> String {
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn tcp(running: &Running, request: &str) -> String {
    ask(TcpStream::connect(running.metrics).unwrap(), request)
}

#[test]
fn metrics_come_over_tcp_and_snapshots_over_the_control_socket_only() {
    let running = start();
    let metrics = tcp(&running, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(metrics.starts_with("HTTP/1.1 200 OK\r\n"), "{metrics}");
    assert!(metrics.ends_with("# EOF\n"));
    let refused = tcp(&running, "GET /snapshot HTTP/1.1\r\n\r\n");
    assert!(refused.starts_with("HTTP/1.1 404"), "{refused}");
    let control = UnixStream::connect(&running.control).unwrap();
    let snapshot = ask(control, "GET /snapshot HTTP/1.0\r\n\r\n");
    let (_, body) = snapshot.split_once("\r\n\r\n").unwrap();
    let read: Snapshot = serde_json::from_str(body).unwrap();
    assert_eq!(read, Snapshot::default());
}

#[test]
fn requests_that_are_none_are_refused() {
    let running = start();
    for (request, status) in [
        ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
        ("hello\n\n", "400"),
        ("GET /metrics SPDY\r\n\r\n", "400"),
        ("GET /etc/passwd HTTP/1.1\r\n\r\n", "404"),
    ] {
        let answer = tcp(&running, request);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{request:?}: {answer}"
        );
    }
    let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(REQUEST_MAX));
    assert!(tcp(&running, &long).starts_with("HTTP/1.1 431"));
}

#[test]
fn a_client_that_is_slow_to_ask_keeps_its_place_beside_32_others() {
    let running = start();
    let request = "GET /snapshot HTTP/1.0\r\n\r\n";
    let slow = UnixStream::connect(&running.control).unwrap();
    for _ in 0..4 {
        let others = (0..32).map(|_| UnixStream::connect(&running.control).unwrap());
        let others: Vec<_> = others.collect();
        // When the last one has its answer, the server has accepted all.
        for other in others.into_iter().rev() {
            assert!(ask(other, request).contains("200 OK"));
        }
    }
    assert!(ask(slow, request).contains("200 OK"));
}

#[test]
fn a_request_waits_for_the_memory_of_the_connection_that_was_shed_for_it() {
    let running = start_with(ANSWERS_MAX as usize / 4);
    let request = "GET /snapshot HTTP/1.0\r\n\r\n";
    let greedy = (0..3).map(|_| {
        let mut stream = UnixStream::connect(&running.control).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        // The answer has begun, so its memory is counted.
        stream.read_exact(&mut [0]).unwrap();
        stream
    });
    let _greedy: Vec<_> = greedy.collect();
    let honest = UnixStream::connect(&running.control).unwrap();
    let answer = ask(honest, request);
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{:.200}", answer);
}

#[test]
fn a_tight_loop_of_readers_shares_snapshots() {
    let running = start();
    let began = Instant::now();
    for _ in 0..50 {
        tcp(&running, "GET /metrics HTTP/1.1\r\n\r\n");
    }
    let most = 1 + began.elapsed().as_millis() / FRESH.as_millis();
    assert!(running.asked.load(Ordering::Relaxed) as u128 <= most);
}

#[test]
fn a_dead_daemons_socket_is_replaced_and_other_files_are_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let living = unix(&path).unwrap();
    assert_eq!(unix(&path).unwrap_err().kind(), ErrorKind::AddrInUse);
    drop(living);
    let file = directory.path().join("file");
    std::fs::write(&file, "precious").unwrap();
    assert!(unix(&file).is_err());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
}
