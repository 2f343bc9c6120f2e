//! Unmodified programs of Debian's packages `ibverbs-utils`, `perftest` and `ucx-utils` on the emulated devices.
//!
//! Where a program is not installed, its test prints that; CI must have it. `ibv_*_pingpong -c` checks every byte that it receives; perftest ends
//! with an error when a completion has one.

use crate::client::Place;
use isolane_common_linux::skip::{does_not_apply, skip};
use isolane_rdma_emulator::{HOST_VARIABLE, SOCKET_VARIABLE};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A program that needs longer does not end, and a server that listens later than this does not work.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

pub(crate) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    if !found {
        skip(format_args!("{program} is not installed"));
    }
    found
}

/// A program that loads our library, and is ended at the deadline.
pub(crate) fn command(place: &Place, host: u32, program: &str) -> Command {
    let library = place.directory.path().join("libibverbs.so.1");
    let file = PathBuf::from(env!("CARGO_BIN_EXE_isolane-ibverbs"));
    let _ = std::os::unix::fs::symlink(&file, &library);
    let _ = std::os::unix::fs::symlink(file, place.directory.path().join("librdmacm.so.1"));
    let mut command = Command::new("timeout");
    // The address sanitizer's runtime has to come first in a program that was compiled without it.
    let runtime = std::env::var("ISOLANE_SANITIZER_RUNTIME").unwrap_or_default();
    let files = env!("CARGO_BIN_EXE_isolane-device-files");
    command
        .args([&DEADLINE.as_secs().to_string(), program])
        .env("LD_LIBRARY_PATH", place.directory.path())
        .env("LD_PRELOAD", format!("{runtime} {files}"))
        .env(SOCKET_VARIABLE, place.socket())
        .env(HOST_VARIABLE, host.to_string());
    command
}

/// Waits until `child` listens at `port`. A trial connection is no way to find out, because the program accepts one
/// connection only.
pub(crate) fn wait_for_listener(child: &mut Child, port: u16) {
    let wanted = format!(":{port:04X} ");
    let start = Instant::now();
    while start.elapsed() < DEADLINE {
        let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(std::fs::read_to_string);
        let mut lines = tables.iter().flatten().flat_map(|table| table.lines());
        // State 0A is LISTEN.
        if lines.any(|line| line.contains(&wanted) && line.contains(" 0A ")) {
            return;
        }
        if child.try_wait().unwrap().is_some() {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Ends a program of [`command`]; `timeout` passes this signal on, and SIGKILL would leave the program.
pub(crate) fn end(program: &Child) {
    let process = rustix::process::Pid::from_child(program);
    let _ = rustix::process::kill_process(process, rustix::process::Signal::TERM);
}

/// A free port below those that the kernel gives to connections of other programs, which take it before the server listens.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = || std::process::id() * 64 + NEXT.fetch_add(1, Ordering::Relaxed);
    let ports = std::iter::repeat_with(|| 30_100 + (next() % 2_600) as u16);
    let mut ports = ports.take(2_600);
    let free = ports.find(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok());
    free.expect("one of 2,600 ports is free")
}

/// Runs a program as server on host 0 and as client on host 1; what the client printed.
fn run(program: &str, arguments: &[&str]) -> Option<String> {
    run_on(program, arguments, |command, device| {
        command.args(["-d", device]);
    })
}

/// The same, with an option that names the program's device.
fn run_on(program: &str, arguments: &[&str], on: fn(&mut Command, device: &str)) -> Option<String> {
    if !is_installed(program) {
        return None;
    }
    let place = Place::new();
    let port = free_port();
    let with = |host: u32| {
        let mut command = command(&place, host, program);
        command.args(arguments).args(["-p", &port.to_string()]);
        on(&mut command, &format!("rnic{host}"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let mut server = with(0).spawn().unwrap();
    wait_for_listener(&mut server, port);
    let client = with(1).arg("127.0.0.1").output().unwrap();
    if !client.status.success() {
        end(&server);
    }
    let server = server.wait_with_output().unwrap();
    let text = |output: &Output| {
        format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )
    };
    let both = client.status.success() && server.status.success();
    assert!(
        both,
        "{program} {arguments:?}: {}\n{}",
        text(&server),
        text(&client)
    );
    let summary = place.stop();
    assert!(summary.messages > 0 && summary.rejected == 0, "{summary:?}");
    Some(text(&client))
}

#[test]
fn devices_are_listed_with_their_attributes() {
    if !is_installed("ibv_devinfo") {
        return;
    }
    let place = Place::new();
    let output = command(&place, 1, "ibv_devinfo").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    for line in ["rnic1", "PORT_ACTIVE", "Ethernet", "phys_port_cnt:\t\t\t1"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(!text.contains("rnic0"), "{text}");
}

#[test]
fn pingpong_programs_check_every_byte() {
    for program in [
        "ibv_rc_pingpong",
        "ibv_uc_pingpong",
        "ibv_ud_pingpong",
        "ibv_srq_pingpong",
    ] {
        let arguments = match program {
            "ibv_ud_pingpong" => &["-g", "1", "-n", "200", "-s", "1000", "-c"][..],
            _ => &["-g", "1", "-n", "200", "-s", "10000", "-c"],
        };
        run(program, arguments);
    }
}

/// Completion channels: the program sleeps until the device wakes it.
#[test]
fn pingpong_programs_wait_for_events() {
    run("ibv_rc_pingpong", &["-g", "1", "-n", "100", "-e"]);
    run(
        "ibv_ud_pingpong",
        &["-g", "1", "-n", "100", "-s", "1000", "-e"],
    );
}

#[test]
fn perftest_measures_every_verb_and_transport() {
    let cases: [(&str, &[&str]); 12] = [
        ("ib_write_bw", &["-q", "4"]),
        ("ib_write_bw", &["-c", "UC"]),
        ("ib_write_bw", &["-b"]),
        ("ib_write_lat", &[]),
        ("ib_read_bw", &[]),
        ("ib_read_lat", &[]),
        ("ib_send_bw", &["-r", "64", "--use-srq"]),
        ("ib_send_bw", &["-c", "UD", "-s", "1024"]),
        ("ib_send_lat", &["-e"]),
        ("ib_send_lat", &["-c", "UD"]),
        ("ib_atomic_bw", &["-A", "FETCH_AND_ADD"]),
        ("ib_atomic_lat", &["-A", "CMP_AND_SWAP"]),
    ];
    for (program, more) in cases {
        let arguments: Vec<&str> = ["-n", "100", "-F"].iter().chain(more).copied().collect();
        if let Some(text) = run(program, &arguments) {
            assert!(text.contains("#bytes"), "{program} {more:?}: {text}");
        }
    }
}

/// UCX looks at the devices' files and moves data by RC, with UD for its connections.
#[test]
fn ucx_runs_on_rc_and_on_ud() {
    for on in [
        |command: &mut Command, device: &str| {
            command.env("UCX_TLS", "rc_v,ud_v,self");
            command.env("UCX_NET_DEVICES", format!("{device}:1"));
        },
        |command: &mut Command, device: &str| {
            command.env("UCX_TLS", "ud_v,self");
            command.env("UCX_NET_DEVICES", format!("{device}:1"));
        },
    ] {
        run_on(
            "ucx_perftest",
            &["-t", "tag_bw", "-s", "20000", "-n", "50", "-w", "5"],
            on,
        );
    }
}

/// The tests of rdma-core itself, as Debian's packages `rdma-core` and `python3-pyverbs` have them. What the devices do not
/// have, the tests skip.
#[test]
fn the_tests_of_rdma_core_pass() {
    let tests = "/usr/share/doc/rdma-core/tests";
    let python = "/usr/bin/python3";
    let loads = Command::new(python).args(["-c", "import pyverbs"]).output();
    let loads = loads.is_ok_and(|output| output.status.success());
    if !loads {
        skip("pyverbs is not installed");
        return;
    }
    if !std::path::Path::new(tests).is_dir() {
        does_not_apply(
            "this machine's packages are installed without their documents, which have the tests of rdma-core",
        );
        return;
    }
    let place = Place::new();
    let copy = place.directory.path().join("tests");
    let unpack = format!("cp -r {tests} {0} && gunzip -f {0}/*.gz", copy.display());
    assert!(
        Command::new("sh")
            .args(["-c", &unpack])
            .status()
            .unwrap()
            .success()
    );
    let mut tests = command(&place, 0, python);
    tests.arg(copy.join("run_tests.py"));
    let output = tests
        .args(["--dev", "rnic0", "--gid", "1", "-v"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let passed = text.matches("... ok").count();
    assert!(passed >= 80, "{passed} passed: {text}");
    assert_eq!(place.stop().rejected, 0);
}
