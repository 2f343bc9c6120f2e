//! `isolane top` against a daemon's server with snapshots of the test's own.
#![allow(clippy::unwrap_used)]

use isolaned::settings::Listen;
use isolaned::show::server::{Server, Shown, Source};
use isolaned::snapshot::{Snapshot, TenantSnapshot};
use std::path::Path;
use std::process::{Command, Output};

fn top(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_isolane"));
    command.arg("top").args(arguments).output().unwrap()
}

/// Each snapshot is a tenth of a second later than the last, with 1 MB more.
struct Busy(u64);

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
fn without_a_daemon_one_line_says_so_and_the_exit_code_is_3() {
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
fn json_is_the_snapshot() {
    with_server(|path| {
        let output = top(&["--once", "--json", "--socket", path]);
        let read: Snapshot = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(read.tenants[0].name, "backup");
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
