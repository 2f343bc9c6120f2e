//! `isolaned --mem` as a program: its files, its sockets and its figures.
//!
//! Method: the emulated machine of the memory service, so no privilege and no tiers are needed. `crates/tools/abuse` kills
//! the service.

use isolane_memory_service::protocol::client::Client;
use isolane_memory_service::protocol::{Answer, Request};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

struct Daemon(Child);

impl Daemon {
    fn end(mut self) -> Option<i32> {
        let done = Command::new("kill")
            .arg(self.0.id().to_string())
            .status()
            .expect("the fixture works");
        assert!(done.success());
        self.0.wait().expect("the fixture works").code()
    }
}

/// Retries the request until the daemon answers: a new daemon may not listen yet.
fn ask_at(socket: &Path, request: &Request) -> Answer {
    for _ in 0..2_400 {
        if let Ok(answer) = Client::connect(socket).and_then(|mut client| client.ask(request)) {
            return answer;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("no service answers at {}", socket.display());
}

/// The unit's umask is 077; users whom the mode of the socket admits must reach it.
#[test]
fn a_folder_that_is_made_for_the_socket_can_be_entered_whatever_the_umask() {
    let directory = tempfile::tempdir().expect("the fixture works");
    let directory = directory.path();
    let socket = directory.join("clients/mem.sock");
    let file = directory.join("mem.toml");
    let settings = format!("fake = {directory:?}\nsocket = {socket:?}\n");
    std::fs::write(&file, settings).expect("the fixture works");
    let child = Command::new("sh")
        .args(["-c", "umask 077; exec \"$0\" --mem --mem-config \"$1\""])
        .arg(env!("CARGO_BIN_EXE_isolaned"))
        .arg(&file)
        .stderr(Stdio::null())
        .spawn();
    let daemon = Daemon(child.expect("the fixture works"));
    ask_at(&socket, &Request::Status);
    let folder = std::fs::metadata(directory.join("clients")).expect("the daemon made it");
    assert_eq!(daemon.end(), Some(0));
    assert_eq!(folder.permissions().mode() & 0o7777, 0o755);
}

#[test]
fn a_configuration_is_checked_and_its_mistakes_named() {
    let directory = tempfile::tempdir().expect("the fixture works");
    let file = directory.path().join("mem.toml");
    let check = |text: &str| {
        std::fs::write(&file, text).expect("the fixture works");
        let output = Command::new(env!("CARGO_BIN_EXE_isolaned"))
            .arg("--mem-check")
            .arg(&file)
            .output()
            .expect("the fixture works");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), said)
    };
    assert_eq!(check("policy = \"fcfs\"\n"), (Some(0), String::new()));
    let (code, said) = check("\npolicy = \"mercurry\"\n");
    assert_eq!(code, Some(2));
    assert!(
        said.contains("mem.toml:2: policy = \"mercurry\"")
            && said.contains("did you mean mercury?"),
        "{said}"
    );
}

#[test]
fn a_log_on_a_full_disk_ends_no_daemon() {
    let directory = tempfile::tempdir().expect("the fixture works");
    let full = std::fs::File::create("/dev/full").expect("a device of the kernel");
    let status = Command::new(env!("CARGO_BIN_EXE_isolaned"))
        .arg("--mem-check")
        .arg(directory.path().join("missing"))
        .stderr(full)
        .status()
        .expect("the fixture works");
    assert_eq!(status.code(), Some(2), "a panic is 101");
}

#[test]
fn its_figures_are_served_on_a_unix_socket_without_devices() {
    let directory = tempfile::tempdir().expect("the fixture works");
    let metrics = directory.path().join("metrics.sock");
    figures_are_served_at(&metrics.display().to_string(), || {
        std::os::unix::net::UnixStream::connect(&metrics)
    });
}

#[test]
fn its_figures_are_served_on_loopback_without_devices() {
    // The port is free now. If another process takes it meanwhile, the daemon reports it and the test fails.
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback is there");
    let address = free.local_addr().expect("it is bound");
    drop(free);
    figures_are_served_at(&address.to_string(), || {
        std::net::TcpStream::connect(address)
    });
}

fn figures_are_served_at<S: std::io::Read + std::io::Write>(
    metrics: &str,
    connect: impl Fn() -> std::io::Result<S>,
) {
    let directory = tempfile::tempdir().expect("the fixture works");
    let directory = directory.path();
    let file = directory.join("mem.toml");
    std::fs::write(
        &file,
        format!("fake = {directory:?}\nmetrics = {metrics:?}\n"),
    )
    .expect("the fixture works");
    let child = Command::new(env!("CARGO_BIN_EXE_isolaned"))
        .args(["--mem", "--mem-config"])
        .arg(&file)
        .stderr(Stdio::null())
        .spawn();
    let daemon = Daemon(child.expect("the fixture works"));
    let scrape = || {
        let mut stream = connect().ok()?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        text.contains("isolane_memory_tier_capacity_bytes{tier=\"0\"}")
            .then_some(text)
    };
    let mut text = None;
    for _ in 0..2_400 {
        text = scrape();
        if text.is_some() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let text = text.expect("figures within two minutes");
    assert!(
        text.ends_with("# EOF\n") && text.contains("application/openmetrics-text"),
        "{text}"
    );
    assert_eq!(daemon.end(), Some(0));
}
