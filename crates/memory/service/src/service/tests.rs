//! The service behind its socket, on the made-up machine: real connections, real processes.

use super::settings::Settings;
use super::*;
use crate::application::pod::Place;
use crate::application::tests::redis;
use crate::application::{Application, Slo};
use crate::protocol::client::Client;
use crate::protocol::status::Status;
use crate::protocol::{Name, Submission, VERSION};
use isolane_common_linux::Root;
use isolane_common_linux::process::Process;
use isolane_common_linux::skip::skip;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

/// A service on a thread, with the end that stops it.
struct Bench {
    directory: tempfile::TempDir,
    running: Option<(UnixStream, JoinHandle<Ended>)>,
}

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut bench = Self {
            directory,
            running: None,
        };
        bench.start();
        bench
    }

    fn settings(&self) -> Settings {
        Settings::fake(self.directory.path())
    }

    fn start(&mut self) {
        let service = open(&self.settings()).unwrap();
        let (stop, stopper) = UnixStream::pair().unwrap();
        let stop: OwnedFd = stop.into();
        let thread = std::thread::spawn(move || service.run(&stop));
        self.running = Some((stopper, thread));
    }

    fn stop(&mut self) -> Ended {
        let (mut stopper, thread) = self.running.take().unwrap();
        stopper.write_all(b"x").unwrap();
        thread.join().unwrap()
    }

    fn ask(&self, request: &Request) -> Answer {
        Client::connect(&self.settings().socket)
            .unwrap()
            .ask(request)
            .unwrap()
    }

    fn status(&self) -> Status {
        match self.ask(&Request::Status) {
            Answer::Status(status) => *status,
            answer => panic!("{answer:?}"),
        }
    }

    /// Asks until it is as wanted: the service has its own clock.
    fn until(&self, wanted: impl Fn(&Status) -> bool) -> Status {
        for _ in 0..2_400 {
            let status = self.status();
            if wanted(&status) {
                return status;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("never: {:?}", self.status());
    }

    fn raw(&self) -> UnixStream {
        let stream = UnixStream::connect(self.settings().socket).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        stream
    }

    /// Makes a foreign cgroup with this process in it.
    fn foreign(&self, path: &str, process: u32) -> Place {
        let directory = self
            .directory
            .path()
            .join("cgroup")
            .join(path.trim_start_matches('/'));
        std::fs::create_dir_all(&directory).unwrap();
        let started = Process::read(&Root::machine(), process)
            .unwrap()
            .start_ticks
            .unwrap();
        std::fs::write(
            directory.join("cgroup.procs"),
            format!("{process} {started}\n"),
        )
        .unwrap();
        std::fs::write(directory.join("cpu.max"), "max 100000").unwrap();
        Place::Cgroup(path.to_owned())
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if self.running.is_some() {
            self.stop();
        }
    }
}

/// A process that lives until its input ends.
struct Cat(Child);

impl Cat {
    fn new() -> Self {
        let child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn();
        Self(child.unwrap())
    }
}

impl Drop for Cat {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

fn stream(name: &str) -> Application {
    Application {
        name: name.to_owned(),
        slo: Slo::BandwidthBytesPerS(1_000_000_000),
        priority: 1,
        ..redis()
    }
}

/// The variable with the socket for [`container`].
const SOCKET: &str = "ISOLANE_TEST_MEM_SOCKET";

/// Not a test: the body of a process in a container. It prints the answers to a look and to changes.
#[test]
fn container() {
    let Some(socket) = std::env::var_os(SOCKET) else {
        return;
    };
    let ask = |request: Request| {
        let mut client = Client::connect(socket.as_ref()).unwrap();
        println!(
            "said: {}",
            serde_json::to_string(&client.ask(&request).unwrap()).unwrap()
        );
    };
    let submission = Submission {
        application: stream("thief"),
        place: Place::Caller,
    };
    ask(Request::Status);
    ask(Request::Submit(submission));
    ask(Request::Remove(Name {
        name: "me".to_owned(),
    }));
}

/// The whole directory is mounted into the container, whose root has the mode's permission.
#[test]
fn a_containers_root_looks_and_changes_nothing() {
    let bench = Bench::new();
    let pid = ["--pid", "--fork"];
    let mut containers = vec![[&pid[..], &["--user", "--map-root-user"]].concat()];
    if rustix::process::geteuid().is_root() {
        containers.push(pid.to_vec());
    }
    for options in containers {
        let cat = Cat::new();
        let place = bench.foreign("/kube/me", cat.0.id());
        let admitted = bench.ask(&Request::Submit(Submission {
            application: stream("me"),
            place,
        }));
        assert!(matches!(admitted, Answer::Admitted(_)), "{admitted:?}");
        let output = Command::new("unshare")
            .args(&options)
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "service::tests::container", "--nocapture"])
            .env(SOCKET, bench.settings().socket)
            .output();
        let output = output.map_or_else(
            |error| error.to_string(),
            |output| String::from_utf8_lossy(&output.stdout).into_owned(),
        );
        let said = output.lines().filter_map(|line| line.split_once("said: "));
        let said: Vec<Answer> = said
            .map(|(_, answer)| serde_json::from_str(answer).unwrap())
            .collect();
        let [look, changes @ ..] = &said[..] else {
            skip(format_args!("no namespaces here ({options:?}): {output}"));
            continue;
        };
        assert!(matches!(look, Answer::Status(_)), "{look:?}");
        assert_eq!(changes.len(), 2);
        for change in changes {
            let Answer::Failed(failure) = change else {
                panic!("{options:?}: {change:?}");
            };
            assert_eq!(failure.code, FailureCode::NoAuthority);
            assert!(failure.message.contains("namespace"), "{failure}");
        }
        let names = |status: Status| status.applications.into_iter().map(|one| one.name);
        assert!(names(bench.status()).eq(["me"]));
        bench.ask(&Request::Remove(Name {
            name: "me".to_owned(),
        }));
    }
}

#[test]
fn an_application_comes_is_shown_and_goes_with_its_process() {
    let mut bench = Bench::new();
    let cat = Cat::new();
    let place = bench.foreign("/kube/redis", cat.0.id());
    let answer = bench.ask(&Request::Submit(Submission {
        application: redis(),
        place,
    }));
    assert!(
        matches!(&answer, Answer::Admitted(admission) if admission.cgroup == "/kube/redis"),
        "{answer:?}"
    );
    let status = bench.until(|status| status.applications[0].latency_ns.is_some());
    let shown = &status.applications[0];
    assert_eq!(shown.latency_ns.as_ref().unwrap().source, "model");
    assert!(status.tiers.len() == 2 && status.backend == "fake" && shown.local_bytes() > 0);
    std::fs::remove_dir_all(bench.directory.path().join("cgroup/kube/redis")).unwrap();
    bench.until(|status| status.applications.is_empty());
    assert_eq!(bench.stop(), Ended::Stopped);
    assert!(!bench.settings().socket.exists());
}

#[test]
fn an_applicant_is_put_into_a_cgroup_that_is_removed_with_it() {
    let mut bench = Bench::new();
    // This test is the caller: its own process enters.
    let answer = bench.ask(&Request::Submit(Submission {
        application: stream("me"),
        place: Place::Caller,
    }));
    assert!(matches!(answer, Answer::Admitted(_)), "{answer:?}");
    let group = bench.directory.path().join("cgroup/isolane-mem/me");
    let members = std::fs::read_to_string(group.join("cgroup.procs")).unwrap();
    assert!(members.starts_with(&format!("{} ", std::process::id())));
    // After a restart of the service the application is under control again: the journal names it.
    bench.stop();
    assert_eq!(
        std::fs::read_to_string(group.join("cpu.max")).unwrap(),
        "max 100000"
    );
    bench.start();
    assert_eq!(bench.status().applications[0].name, "me");
    let removed = bench.ask(&Request::Remove(Name {
        name: "me".to_owned(),
    }));
    assert!(matches!(removed, Answer::Removed(_)));
    // Its processes live on in the cgroup, which goes with them.
    assert!(group.exists());
    std::fs::write(group.join("cgroup.procs"), "").unwrap();
    bench.until(|status| {
        status
            .problems
            .iter()
            .all(|problem| !problem.starts_with("me "))
    });
    assert!(!group.exists());
}

#[test]
fn an_invalid_request_gets_an_error_and_harms_no_other() {
    let bench = Bench::new();
    let mut stream = bench.raw();
    stream.write_all(b"hello\n{\"version\":9}\n").unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("no_request"));
    assert!(lines.next().unwrap().unwrap().contains("form 9"));
    // A line without an end is given up, with a last word.
    let mut endless = bench.raw();
    let _ = endless.write_all(&vec![b'x'; 80 << 10]);
    let mut lines = BufReader::new(endless).lines();
    assert!(
        lines
            .next()
            .unwrap()
            .unwrap()
            .contains("a line of more than 65536 bytes")
    );
    assert!(lines.next().is_none());
    assert!(bench.status().steps > 0);
}

#[test]
fn many_requests_at_once_are_answered_in_turn() {
    let bench = Bench::new();
    let mut stream = bench.raw();
    let request = format!("{{\"version\":{VERSION},\"say\":\"metrics\"}}\n");
    stream.write_all(request.repeat(50).as_bytes()).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let answers: Vec<String> = BufReader::new(stream).lines().map(Result::unwrap).collect();
    assert_eq!(answers.len(), 50);
    assert!(
        answers
            .iter()
            .all(|answer| answer.contains("isolane_memory_steps_total"))
    );
}

#[test]
fn silent_connections_exclude_no_client_and_end_no_request() {
    let bench = Bench::new();
    let status = format!("{{\"version\":{VERSION},\"say\":\"status\"}}\n");
    let ask = |stream: &mut UnixStream| {
        stream.write_all(status.as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        let answer = crate::protocol::decode::<Answer>(line.trim_end().as_bytes()).unwrap();
        assert!(matches!(answer, Answer::Status(_)), "{answer:?}");
    };
    let mut watcher = bench.raw();
    let mut silent = Vec::new();
    for _ in 0..4 {
        ask(&mut watcher);
        let more = socket::CONNECTIONS_MAX - 1;
        silent.extend((0..more).map(|_| bench.raw()));
        ask(&mut bench.raw());
    }
    drop(silent);
}

#[test]
fn a_second_service_is_refused_and_a_dead_ones_socket_replaced() {
    let bench = Bench::new();
    let error = open(&bench.settings()).err().unwrap().to_string();
    assert!(
        error.contains("another memory service runs here"),
        "{error}"
    );
    let other = tempfile::tempdir().unwrap();
    let settings = Settings::fake(other.path());
    drop(std::os::unix::net::UnixListener::bind(&settings.socket).unwrap());
    open(&settings).unwrap();
    std::fs::write(&settings.socket, "a file").unwrap();
    assert!(
        open(&settings)
            .err()
            .unwrap()
            .to_string()
            .contains("cannot listen at")
    );
}

/// Random bytes in random pieces, some of them nearly requests: the service answers others throughout.
#[test]
fn noise_does_not_stop_the_service() {
    let bench = Bench::new();
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let good = encode(&Request::Submit(Submission {
        application: redis(),
        place: Place::Cgroup("/x".into()),
    }));
    for _ in 0..200 {
        let mut stream = bench.raw();
        for _ in 0..next() % 4 {
            let mut bytes = good.clone();
            for _ in 0..next() % 3 {
                let at = usize::try_from(next()).unwrap() % bytes.len();
                bytes[at] = u8::try_from(next() & 0xff).unwrap();
            }
            let cut = usize::try_from(next()).unwrap() % (bytes.len() + 1);
            let _ = stream.write_all(&bytes[..cut]);
        }
    }
    assert!(bench.status().applications.is_empty());
}
