//! `isolane rdma top` against a daemon's server with snapshots of the test's own.
#![allow(clippy::unwrap_used)]

use isolaned::settings::Listen;
use isolaned::show::server::{Server, Shown, Source};
use isolaned::snapshot::{LimitSnapshot, MeterSnapshot, SessionSnapshot, Snapshot, TenantSnapshot};
use std::path::Path;
use std::process::{Command, Output};

fn top(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_isolane"));
    command
        .args(["rdma", "top"])
        .args(arguments)
        .output()
        .unwrap()
}

/// Each snapshot is a tenth of a second later than the last, with 1 MB more. The enforcer holds one process to 2 MB/s, and
/// another one of the same tenant, of the latency class, to nothing.
struct Busy(u64);

fn session(number: u64, class: &str) -> SessionSnapshot {
    SessionSnapshot {
        session: number,
        tenant: "backup".to_owned(),
        pid: 70 + number as u32,
        program: "copy".to_owned(),
        class: class.to_owned(),
        limit: (number < 3).then_some(4),
        ..SessionSnapshot::default()
    }
}

fn meter(limit: Option<u64>, passed_bytes: u64) -> MeterSnapshot {
    MeterSnapshot {
        device: "r0".to_owned(),
        active: true,
        lease_bytes_per_s: limit.unwrap_or(5_000_000),
        limit_bytes_per_s: limit,
        passed_bytes,
        ..MeterSnapshot::default()
    }
}

impl Source for Busy {
    fn snapshot(&mut self) -> Option<Snapshot> {
        self.0 += 1;
        Some(Snapshot {
            now_ns: self.0 * 100_000_000,
            tenants: vec![TenantSnapshot {
                name: "backup".to_owned(),
                weight: 1,
                passed_bytes: self.0 * 1_000_000,
                ..TenantSnapshot::default()
            }],
            limits: vec![LimitSnapshot {
                number: 4,
                bytes_per_s: 2_000_000,
                sessions: 2,
                unheld: 1,
                tenants: vec!["backup".to_owned()],
            }],
            sessions: vec![
                SessionSnapshot {
                    meters: vec![meter(Some(2_000_000), self.0 * 200_000)],
                    ..session(1, "bandwidth")
                },
                SessionSnapshot {
                    meters: vec![meter(None, 0)],
                    ..session(2, "latency")
                },
                session(3, "auto"),
            ],
            ..Snapshot::default()
        })
    }
}

/// Runs `test` while a server listens at the path it is given.
fn with_server(test: impl FnOnce(&str)) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("control.sock");
    let (stop, stopper) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut server = Server::new(Busy(0), stop.into());
    server
        .listen(&Listen::Unix(path.clone()), Shown::Everything)
        .unwrap();
    let thread = std::thread::spawn(move || server.run());
    test(path.to_str().unwrap());
    drop(stopper);
    thread.join().unwrap();
    assert!(!Path::new(&path).exists());
}

#[test]
fn without_a_daemon_one_line_reports_it_and_the_exit_code_is_3() {
    let output = top(&["--once", "--socket", "/nonexistent/control.sock"]);
    assert_eq!(output.status.code(), Some(3));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(
        stderr.contains("no daemon answers at /nonexistent/control.sock"),
        "{stderr}"
    );
}

#[test]
fn one_view_has_rates_and_no_escape_codes() {
    with_server(|path| {
        // Longer than a snapshot stays fresh, so that the two differ.
        let output = top(&["--once", "--interval", "200ms", "--socket", path]);
        assert_eq!(output.status.code(), Some(0));
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert!(!stdout.contains('\x1b'), "{stdout}");
        let row = stdout
            .lines()
            .find(|line| line.trim().starts_with("backup"))
            .unwrap();
        // 1 MB in a tenth of a second.
        assert_eq!(row.split_whitespace().nth(3), Some("0.0800"));
    });
}

#[test]
fn limits_are_shown_with_whom_they_hold() {
    let want = "\
0 processes, 1 tenant, 0 devices; rates over 0.1000 s

Devices
  device  policy  max Gb/s  safe Gb/s  min Gb/s  senders  readers  latency  ref p99 us  foreign Gb/s

Tenants
  tenant  weight  processes    Gb/s  messages/s
  backup       1          0  0.0800           0

Limits
  limit    Gb/s  processes  not held  tenants
      4  0.0160          2         1  backup

Processes
  tenant  pid  program  class      device  direction  state   limit  limit Gb/s  lease Gb/s    Gb/s  messages/s  waiting
  backup   71  copy     bandwidth  r0      send       active      4      0.0160      0.0160  0.0160           0        0
  backup   72  copy     latency    r0      send       active      4           -      0.0400       0           0        0
  backup   73  copy     auto
";
    with_server(|path| {
        let output = top(&["--once", "--interval", "200ms", "--socket", path]);
        assert_eq!(String::from_utf8(output.stdout).unwrap(), want);
    });
}

#[test]
fn json_is_the_snapshot() {
    with_server(|path| {
        let output = top(&["--once", "--json", "--socket", path]);
        let read: Snapshot = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(read.tenants[0].name, "backup");
        assert_eq!(
            (read.limits[0].number, read.limits[0].bytes_per_s),
            (4, 2_000_000)
        );
        let parts: Vec<_> = read
            .sessions
            .iter()
            .map(|session| (session.limit, session.meters.first()))
            .map(|(limit, meter)| (limit, meter.and_then(|meter| meter.limit_bytes_per_s)))
            .collect();
        assert_eq!(
            parts,
            [(Some(4), Some(2_000_000)), (Some(4), None), (None, None)]
        );
    });
}

#[test]
fn an_interval_out_of_range_is_refused() {
    let output = top(&["--interval", "1ms"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("must be 100ms to 100s")
    );
}
