//! `isolaned --mem` as a program: it serves, is killed at any moment, and its successor cleans up.
//!
//! Method: the emulated machine of the memory service, so no privilege and no tiers are needed; the processes are real.
//! The daemon is killed with SIGKILL at moments that a seed chooses, while applications start and end.

use isolane_memory_service::application::pod::Place;
use isolane_memory_service::application::{Application, Slo};
use isolane_memory_service::protocol::client::Client;
use isolane_memory_service::protocol::status::Status;
use isolane_memory_service::protocol::{Answer, Request, Submission};
use isolane_memory_service::service::settings::Settings;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

struct Daemon(Child);

impl Daemon {
    /// Starts a daemon on the emulated machine below `directory` and waits until it serves.
    fn start(directory: &Path) -> Self {
        let file = directory.join("mem.toml");
        std::fs::write(&file, format!("fake = {directory:?}\n")).expect("the fixture works");
        let child = Command::new(env!("CARGO_BIN_EXE_isolaned"))
            .args(["--mem", "--mem-config"])
            .arg(&file)
            .stderr(Stdio::null())
            .spawn()
            .expect("the fixture works");
        let daemon = Self(child);
        ask(directory, &Request::Status);
        daemon
    }

    fn kill(mut self) {
        self.0.kill().expect("the fixture works");
        self.0.wait().expect("the fixture works");
    }

    fn end(mut self) -> Option<i32> {
        let done = Command::new("kill")
            .arg(self.0.id().to_string())
            .status()
            .expect("the fixture works");
        assert!(done.success());
        self.0.wait().expect("the fixture works").code()
    }
}

/// An application that was started outside the service.
struct Cat(Child);

impl Cat {
    fn start(directory: &Path, cgroup: &str) -> Self {
        let child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("the fixture works");
        let place = directory
            .join("cgroup")
            .join(cgroup.trim_start_matches('/'));
        std::fs::create_dir_all(&place).expect("the fixture works");
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id()))
            .expect("the fixture works");
        let started = stat
            .rsplit_once(')')
            .expect("the fixture works")
            .1
            .split_whitespace()
            .nth(19)
            .expect("the fixture works")
            .to_owned();
        std::fs::write(
            place.join("cgroup.procs"),
            format!("{} {started}\n", child.id()),
        )
        .expect("the fixture works");
        std::fs::write(place.join("cpu.max"), "max 100000").expect("the fixture works");
        Self(child)
    }

    fn is_running(&mut self) -> bool {
        self.0.try_wait().expect("the fixture works").is_none()
    }
}

impl Drop for Cat {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().expect("the fixture works");
    }
}

/// Retries the request until the daemon answers: a new daemon may not listen yet.
fn ask(directory: &Path, request: &Request) -> Answer {
    ask_at(&Settings::fake(directory).socket, request)
}

/// As [`ask`], at this socket.
fn ask_at(socket: &Path, request: &Request) -> Answer {
    for _ in 0..2_400 {
        if let Ok(answer) = Client::connect(socket).and_then(|mut client| client.ask(request)) {
            return answer;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("no service answers at {}", socket.display());
}

fn status(directory: &Path) -> Status {
    match ask(directory, &Request::Status) {
        Answer::Status(status) => *status,
        answer => panic!("{answer:?}"),
    }
}

fn submission(name: &str, priority: u32, place: Place) -> Request {
    let application = Application {
        name: name.to_owned(),
        slo: Slo::LatencyPs(160_000),
        priority,
        weight: 1_000,
        memory_bytes: Some(64 << 20),
        caps: Vec::new(),
        far_tiers: Vec::new(),
        floors: Default::default(),
        profile: None,
    };
    Request::Submit(Submission { application, place })
}

#[test]
fn a_daemon_that_is_killed_again_and_again_loses_and_leaves_nothing() {
    let directory = tempfile::tempdir().expect("the fixture works");
    let directory = directory.path();
    let mut daemon = Daemon::start(directory);
    let mut cats: Vec<Cat> = (0..3)
        .map(|number| Cat::start(directory, &format!("/kube/{number}")))
        .collect();
    for number in 0..3 {
        let place = Place::Cgroup(format!("/kube/{number}"));
        let answer = ask(
            directory,
            &submission(&format!("cat{number}"), number, place),
        );
        assert!(matches!(answer, Answer::Admitted(_)), "{answer:?}");
    }
    let seed: u64 = 0x5851_f42d_4c95_7f2d;
    for round in 0..10_u32 {
        let wait = (seed >> round) % 60;
        // This process makes its own request. The daemon may be killed before, during or after it; nothing may remain.
        let asker = {
            let directory = directory.to_owned();
            std::thread::spawn(move || {
                let socket = Settings::fake(&directory).socket;
                let request = submission("me", 10 + round, Place::Caller);
                let _ = Client::connect(&socket).and_then(|mut client| client.ask(&request));
            })
        };
        std::thread::sleep(Duration::from_millis(wait));
        daemon.kill();
        asker.join().expect("the fixture works");
        daemon = Daemon::start(directory);
        let mut names: Vec<String> = status(directory)
            .applications
            .into_iter()
            .map(|app| app.name)
            .collect();
        names.retain(|name| name != "me");
        assert_eq!(
            names,
            ["cat2", "cat1", "cat0"],
            "round {round}, killed after {wait} ms"
        );
        assert!(cats.iter_mut().all(Cat::is_running), "round {round}");
        // Same state as after the end of this process.
        let _ = std::fs::write(directory.join("cgroup/isolane-mem/me/cgroup.procs"), "");
        for _ in 0..2_400 {
            if !directory.join("cgroup/isolane-mem/me").exists() {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(
            !directory.join("cgroup/isolane-mem/me").exists(),
            "round {round}: left behind"
        );
    }
    assert_eq!(daemon.end(), Some(0));
    assert!(cats.iter_mut().all(Cat::is_running));
    for number in 0..3 {
        let file = directory.join(format!("cgroup/kube/{number}/cpu.max"));
        assert_eq!(
            std::fs::read_to_string(file).expect("the fixture works"),
            "max 100000"
        );
    }
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
