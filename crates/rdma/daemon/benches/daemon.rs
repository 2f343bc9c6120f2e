//! Measures the daemon's cost: processor time with active tenants, memory with many sessions, and the time from a
//! missed target to a new lease.
//!
//! Method: the daemon runs in its own process over the real socket and regions, under Justitia. This process plays all
//! clients, which send as fast as their leases permit. Processor times are the kernel's for the daemon's process.
//! `cargo bench -p isolaned` prints one line per figure and checks none, because the figures depend on the machine.

#[path = "../tests/it/support/mod.rs"]
mod support;

use isolane_common_quantities::units::Duration as Span;
use isolane_rdma_session::message::Class;
use isolaned::server::now_ns;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use support::{Client, Daemon, config};

const ROLE: &str = "ISOLANED_BENCH_DAEMON";

fn main() {
    if let Some(name) = std::env::var_os(ROLE) {
        let daemon = Daemon::start(config());
        std::fs::write(&name, daemon.socket.as_os_str().as_encoded_bytes()).expect("a file");
        // Runs until the parent ends it.
        std::thread::sleep(Duration::from_secs(600));
        return;
    }
    processor_time();
    memory();
    decision();
    reaction();
}

/// A daemon in its own process.
struct Other {
    child: std::process::Child,
    socket: PathBuf,
    _folder: tempfile::TempDir,
}

impl Other {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let name = folder.path().join("socket");
        let child = std::process::Command::new(std::env::current_exe().expect("this program"))
            .env(ROLE, &name)
            .spawn()
            .expect("a process");
        support::wait_for("a daemon", || {
            std::fs::read(&name).is_ok_and(|path| !path.is_empty())
        });
        let socket = PathBuf::from(std::fs::read_to_string(&name).expect("a path"));
        Self {
            child,
            socket,
            _folder: folder,
        }
    }

    /// Processor time, user and system, seconds.
    fn cpu_s(&self) -> f64 {
        let text =
            std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("proc");
        let (_, rest) = text.rsplit_once(')').expect("a name");
        let words: Vec<&str> = rest.split_whitespace().collect();
        let ticks: u64 = words[11..13]
            .iter()
            .map(|word| word.parse::<u64>().expect("ticks"))
            .sum();
        // The kernel's unit for user space is 10 ms on all supported machines.
        ticks as f64 / 100.0
    }

    /// A field of `/proc/PID/smaps_rollup`, KiB.
    fn memory_kib(&self, name: &str) -> u64 {
        let text =
            std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("proc");
        let line = text
            .lines()
            .find(|line| line.starts_with(name))
            .expect("a figure");
        line.split_whitespace()
            .nth(1)
            .and_then(|word| word.parse().ok())
            .expect("a number")
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(path: &Path, count: usize, class: Class) -> Vec<Client> {
    let name = |at: usize| format!("tenant-{at}");
    (0..count)
        .map(|at| Client::start(path, &name(at), class))
        .collect()
}

/// Lets every client send what its lease admits for `length`, with one step every 200 us. True rates do not matter
/// here.
fn send_for(clients: &[Client], length: Duration) {
    let began = Instant::now();
    let mut last = now_ns();
    while began.elapsed() < length {
        std::thread::sleep(Duration::from_micros(200));
        let now = now_ns();
        for client in clients {
            let meter = client.meter();
            let lease = meter.lease();
            let bytes = lease.rate_bytes_per_s / 1_000 * (now - last) / 1_000_000;
            meter.passed_bytes.fetch_add(bytes, Ordering::Relaxed);
            meter
                .passed_operations
                .fetch_add(bytes.div_ceil(4_096), Ordering::Relaxed);
            meter.waiting_since_ns.store(now, Ordering::Relaxed);
            if lease.flags & isolane_rdma_session::region::METER_ACTIVE == 0 {
                client.signal();
            }
        }
        last = now;
    }
}

fn processor_time() {
    for active in [1, 10, 100, 1_000] {
        let other = Other::start();
        let clients = start(&other.socket, active, Class::Bandwidth);
        let _latency = Client::start(&other.socket, "latency", Class::Latency);
        send_for(&clients, Duration::from_millis(500));
        let (before, began) = (other.cpu_s(), Instant::now());
        send_for(&clients, Duration::from_secs(5));
        let share = (other.cpu_s() - before) / began.elapsed().as_secs_f64();
        println!(
            "active_tenants {active:5} daemon_share_of_one_core {:6.2} %",
            share * 100.0
        );
    }
    let other = Other::start();
    let _clients = start(&other.socket, 100, Class::Bandwidth);
    std::thread::sleep(Duration::from_millis(300));
    let (before, began) = (other.cpu_s(), Instant::now());
    std::thread::sleep(Duration::from_secs(5));
    let share = (other.cpu_s() - before) / began.elapsed().as_secs_f64();
    println!(
        "idle_tenants     100 daemon_share_of_one_core {:6.2} %",
        share * 100.0
    );
}

fn memory() {
    let other = Other::start();
    let empty = [other.memory_kib("RssAnon"), other.memory_kib("RssShmem")];
    let clients = start(&other.socket, 1_000, Class::Auto);
    send_for(&clients, Duration::from_millis(500));
    let full = [other.memory_kib("RssAnon"), other.memory_kib("RssShmem")];
    println!(
        "sessions        1000 private_kib {} (empty: {}) shared_kib {} (empty: {})",
        full[0], empty[0], full[1], empty[1]
    );
}

/// Measures from the end of a reference period with a missed target until all leases are written: the governor's time
/// without the event loop and the scheduler.
fn decision() {
    let daemon = Daemon::start(config());
    let clients = start(&daemon.socket, 100, Class::Bandwidth);
    let _latency = Client::start(&daemon.socket, "latency", Class::Latency);
    let mut times = Vec::new();
    for _ in 0..200 {
        send_for(&clients, Duration::from_millis(2));
        times.push(daemon.ask(|now_ns, governor| {
            let rates = vec![isolane_common_quantities::units::BitRate::from_gbps(10)];
            let config = governor.config().clone();
            governor
                .reconfigure(now_ns, config, rates)
                .expect("as before");
            governor.reference_latency(now_ns, 0, Span::from_ms(50));
            let due = governor
                .next_deadline_ns()
                .expect("a reference period")
                .max(now_ns);
            let before = governor.figures().leases_total;
            let began = Instant::now();
            governor.advance(due + 1_000_000);
            let time = began.elapsed();
            assert!(
                governor.figures().leases_total >= before + 100,
                "leases are another"
            );
            time
        }));
    }
    times.sort_unstable();
    println!(
        "decision_to_100_leases_us median {:.1} p99 {:.1}",
        times[times.len() / 2].as_secs_f64() * 1e6,
        times[times.len() * 99 / 100].as_secs_f64() * 1e6
    );
}

/// Measures from the report of a late reference message to the resulting lease.
fn reaction() {
    let daemon = Daemon::start(config());
    let clients = start(&daemon.socket, 100, Class::Bandwidth);
    let _latency = Client::start(&daemon.socket, "latency", Class::Latency);
    let mut times = Vec::new();
    for _ in 0..200 {
        // SafeUtil starts at the whole device again.
        daemon.ask(|now_ns, governor| {
            let (config, rates) = (
                governor.config().clone(),
                vec![isolane_common_quantities::units::BitRate::from_gbps(10)],
            );
            governor
                .reconfigure(now_ns, config, rates)
                .expect("as before");
        });
        send_for(&clients, Duration::from_millis(5));
        let before = clients[0].meter().lease().rate_bytes_per_s;
        let began = daemon.ask(|now_ns, governor| {
            governor.reference_latency(now_ns, 0, Span::from_ms(50));
            now_ns
        });
        let mut waited = 0;
        while clients[0].meter().lease().rate_bytes_per_s == before && waited < 1_000_000_000 {
            waited = now_ns() - began;
        }
        times.push(now_ns() - began);
    }
    times.sort_unstable();
    println!(
        "report_to_lease_us median {} p99 {} (a reference period of 1000 is part of it)",
        times[times.len() / 2] / 1_000,
        times[times.len() * 99 / 100] / 1_000
    );
}
