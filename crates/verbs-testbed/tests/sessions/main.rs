//! Sessions between controllers, agents and workers, with real processes and made-up devices.
//!
//! This program is all three: as `agent --stdio` an agent, as `traffic --worker` a worker that measures nothing and
//! answers by formulas, as `controller` one that is going to be killed. Otherwise it runs the tests named below. No
//! test needs RDMA; devices are directories below `FAKE_ROOT`.
#![allow(clippy::unwrap_used)]

mod worker;

use isolane_host::Root;
use isolane_scenario::library::Library;
use isolane_scenario::model::Scenario;
use isolane_testbed::{Testbed, TestbedError};
use isolane_verbs_testbed::agent::{AgentOptions, serve};
use isolane_verbs_testbed::identity;
use isolane_verbs_testbed::listen::{ListenOptions, Listener};
use isolane_verbs_testbed::message::{Event, Message, Request, VERSION};
use isolane_verbs_testbed::{Reach, VerbsTestbed};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const TESTS: &[(&str, fn(&Place))] = &[
    (
        "a_run_gives_a_result_for_every_tenant",
        a_run_gives_a_result_for_every_tenant,
    ),
    (
        "an_unknown_device_is_named_with_those_there_are",
        an_unknown_device_is_named_with_those_there_are,
    ),
    (
        "a_machine_without_devices_is_told_what_to_do",
        a_machine_without_devices_is_told_what_to_do,
    ),
    (
        "a_killed_worker_is_named_and_nothing_stays",
        a_killed_worker_is_named_and_nothing_stays,
    ),
    (
        "a_worker_without_its_device_fails_for_the_machine",
        a_worker_without_its_device_fails_for_the_machine,
    ),
    (
        "a_worker_that_talks_nonsense_is_quoted",
        a_worker_that_talks_nonsense_is_quoted,
    ),
    (
        "the_user_stops_a_run_and_nothing_stays",
        the_user_stops_a_run_and_nothing_stays,
    ),
    (
        "a_killed_controller_takes_everything_along",
        a_killed_controller_takes_everything_along,
    ),
    (
        "a_killed_agent_is_named_and_nothing_stays",
        a_killed_agent_is_named_and_nothing_stays,
    ),
    (
        "ssh_is_asked_for_the_other_machine",
        ssh_is_asked_for_the_other_machine,
    ),
    ("a_failing_ssh_says_why", a_failing_ssh_says_why),
    (
        "agents_over_tls_run_scenarios",
        agents_over_tls_run_scenarios,
    ),
    ("strangers_are_refused", strangers_are_refused),
    ("an_agent_ends_on_nonsense", an_agent_ends_on_nonsense),
    (
        "an_agent_ends_with_its_lifetime",
        an_agent_ends_with_its_lifetime,
    ),
    (
        "policies_that_need_other_means_are_refused",
        policies_that_need_other_means_are_refused,
    ),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("agent") => agent(),
        Some("traffic") => worker::run(),
        Some("controller") => controller(),
        _ => tests(&arguments),
    }
}

fn tests(arguments: &[String]) -> ExitCode {
    if arguments.iter().any(|argument| argument == "--list") {
        for (name, _) in TESTS {
            println!("{name}: test");
        }
        return ExitCode::SUCCESS;
    }
    let wanted: Vec<&String> = arguments.iter().filter(|a| !a.starts_with('-')).collect();
    let mut failed = 0;
    let chosen = |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(*part));
    for (name, test) in TESTS.iter().filter(|(name, _)| chosen(name)) {
        let place = Place::new();
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(&place)));
        println!(
            "test {name} ... {}",
            if ended.is_ok() { "ok" } else { "FAILED" }
        );
        failed += usize::from(ended.is_err());
    }
    match failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(101),
    }
}

fn agent() -> ExitCode {
    let mut options = AgentOptions::of(std::env::current_exe().unwrap());
    options.root = Root::at(std::env::var_os("FAKE_ROOT").unwrap());
    note_process("agent");
    match serve(std::io::stdin(), std::io::stdout(), &options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(3)
        }
    }
}

/// Leaves a file with the number of this process, so that tests can see whether it is gone.
fn note_process(role: &str) {
    let directory = PathBuf::from(std::env::var_os("FAKE_PROCESSES").unwrap());
    let number = std::process::id();
    fs::write(directory.join(format!("{role}-{number}")), "").unwrap();
}

fn controller() -> ExitCode {
    let place = Place {
        directory: None,
        root: PathBuf::from(std::env::var_os("FAKE_PLACE").unwrap()),
    };
    let result = place.run("verbs:fake0,fake1", "patient", "none");
    println!("{result:?}");
    ExitCode::FAILURE
}

/// Directories of one test.
struct Place {
    directory: Option<tempfile::TempDir>,
    root: PathBuf,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().to_owned();
        fs::create_dir_all(root.join("processes")).unwrap();
        for device in ["fake0", "fake1"] {
            let counters = root.join(format!(
                "tree/sys/class/infiniband/{device}/ports/1/counters"
            ));
            fs::create_dir_all(counters).unwrap();
        }
        Self {
            directory: Some(directory),
            root,
        }
    }

    /// A script that stands for a program, with this test's environment.
    fn script(&self, name: &str, body: &str) -> PathBuf {
        let path = self.root.join(name);
        let ours = std::env::current_exe().unwrap();
        let text = format!(
            "#!/bin/sh\nexport FAKE_ROOT='{root}/tree' FAKE_PROCESSES='{root}/processes'\nPROGRAM='{}'\n{body}\n",
            ours.display(),
            root = self.root.display(),
        );
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn program(&self) -> PathBuf {
        self.script("isolane", "exec \"$PROGRAM\" \"$@\"")
    }

    fn testbed(
        &self,
        target: &str,
        reach: impl FnOnce(&mut Reach),
    ) -> (VerbsTestbed, Arc<AtomicBool>) {
        let mut ours = Reach::of(self.program());
        reach(&mut ours);
        let cancel = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&cancel);
        let testbed = VerbsTestbed::new(target.parse().unwrap(), ours, flag, Box::new(|_| {}));
        (testbed, cancel)
    }

    fn run(
        &self,
        target: &str,
        tenant: &str,
        policy: &str,
    ) -> Result<isolane_scenario::measure::RunResult, TestbedError> {
        let (testbed, _) = self.testbed(target, |_| {});
        run(&testbed, tenant, policy)
    }

    /// The processes that were there, by role, with those that still are.
    fn processes(&self, role: &str) -> (usize, usize) {
        let mut all = (0, 0);
        for entry in fs::read_dir(self.root.join("processes")).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if let Some(number) = name.strip_prefix(&format!("{role}-")) {
                all.0 += 1;
                let state = fs::read_to_string(format!("/proc/{number}/stat"));
                // A zombie waits for its parent, which has died or will look soon.
                all.1 += usize::from(state.is_ok_and(|state| !state.contains(") Z ")));
            }
        }
        all
    }

    /// Waits until every process that ever was has gone.
    fn all_gone(&self) {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let (agents, workers) = (self.processes("agent"), self.processes("worker"));
            assert!(agents.0 > 0, "no agent was ever started");
            if agents.1 + workers.1 == 0 {
                return;
            }
            assert!(
                Instant::now() < until,
                "left behind: {agents:?} {workers:?}"
            );
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until `count` workers run.
    fn workers_run(&self, count: usize) {
        let until = Instant::now() + Duration::from_secs(20);
        while self.processes("worker").1 < count {
            assert!(Instant::now() < until, "workers do not start");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

fn scenario(tenant: &str, policy: &str) -> Scenario {
    let text = format!(
        "name = \"two\"\nprofile = \"cx5-100g-roce\"\nwarmup = \"10ms\"\nduration = \"40ms\"\nsample_interval = \"10ms\"\n\
         [policy]\nname = \"{policy}\"\n\
         [[tenant]]\nname = \"{tenant}\"\nclass = \"bandwidth\"\n[[tenant.traffic]]\nverb = \"write\"\nsize = \"64KiB\"\n\
         [[tenant]]\nname = \"other\"\nclass = \"bandwidth\"\n[[tenant.traffic]]\nverb = \"write\"\nsize = \"64KiB\"\n"
    );
    isolane_scenario::parse(&text, "two.toml", &Library::embedded()).unwrap()
}

fn run(
    testbed: &VerbsTestbed,
    tenant: &str,
    policy: &str,
) -> Result<isolane_scenario::measure::RunResult, TestbedError> {
    let scenario = scenario(tenant, policy);
    let library = Library::embedded();
    testbed.run(&scenario, library.profile("cx5-100g-roce").unwrap())
}

/// The message of a failure, which has to contain each of `parts`.
fn message(error: &TestbedError, parts: &[&str]) -> String {
    let text = error.to_string();
    assert!(!text.contains('\n'), "{text}");
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
    text
}

fn a_run_gives_a_result_for_every_tenant(place: &Place) {
    let (testbed, _) = place.testbed("verbs:fake0,fake1", |_| {});
    for _ in 0..2 {
        let result = run(&testbed, "quick", "none").unwrap();
        assert_eq!(result.testbed, "verbs:fake0,fake1");
        assert_eq!(result.profile, "fake0,fake1 (profile not applied)");
        let names: Vec<&str> = result.tenants.iter().map(|t| t.name.as_str()).collect();
        assert_eq!(names, ["quick", "other"]);
        for tenant in &result.tenants {
            assert!(
                (tenant.goodput_gbps - worker::GBPS).abs() < 0.01,
                "{}",
                tenant.goodput_gbps
            );
            assert!(tenant.latency_us.is_some());
            assert_eq!(tenant.goodput_series_gbps.len(), 4);
        }
        assert!(result.policy_state["device.goodput_gbps"] > 0.0);
    }
    // One agent for both devices and both runs; calibration and runs of their own workers.
    assert_eq!(place.processes("agent"), (1, 1));
    assert_eq!(place.processes("worker"), (3 * 2 + 2 * 4, 0));
    drop(testbed);
    place.all_gone();
}

fn an_unknown_device_is_named_with_those_there_are(place: &Place) {
    let error = place
        .run("verbs:fake0,mlx5_7", "quick", "none")
        .unwrap_err();
    message(&error, &["this machine", "\"mlx5_7\"", "fake0, fake1"]);
    assert!(matches!(error, TestbedError::Declined { .. }));
    place.all_gone();
}

fn a_machine_without_devices_is_told_what_to_do(place: &Place) {
    fs::remove_dir_all(place.root.join("tree/sys/class/infiniband")).unwrap();
    let error = place.run("verbs:r0,r1", "quick", "none").unwrap_err();
    message(&error, &["no RDMA device", "isolane doctor", "rdma_rxe"]);
    assert!(matches!(error, TestbedError::Unavailable { .. }));
    place.all_gone();
}

fn a_killed_worker_is_named_and_nothing_stays(place: &Place) {
    let (testbed, _) = place.testbed("verbs:fake0,fake1", |_| {});
    let error = run(&testbed, "dies", "none").unwrap_err();
    message(
        &error,
        &[
            "\"dies\"",
            "host A (fake0 of this machine)",
            "signal 9",
            "last words",
        ],
    );
    assert!(matches!(error, TestbedError::Failed { .. }));
    assert_eq!(place.processes("worker").1, 0);
    // The testbed is as good as new.
    assert!(run(&testbed, "quick", "none").is_ok());
    drop(testbed);
    place.all_gone();
}

fn a_worker_without_its_device_fails_for_the_machine(place: &Place) {
    let error = place
        .run("verbs:fake0,fake1", "locked", "none")
        .unwrap_err();
    message(&error, &["\"locked\"", "cannot lock memory"]);
    assert!(matches!(error, TestbedError::Unavailable { .. }));
    place.all_gone();
}

fn a_worker_that_talks_nonsense_is_quoted(place: &Place) {
    let error = place
        .run("verbs:fake0,fake1", "babbles", "none")
        .unwrap_err();
    message(&error, &["\"babbles\"", "hello world"]);
    place.all_gone();
}

fn the_user_stops_a_run_and_nothing_stays(place: &Place) {
    let (testbed, cancel) = place.testbed("verbs:fake0,fake1", |_| {});
    testbed.calibration().unwrap();
    thread::scope(|scope| {
        let running = scope.spawn(|| run(&testbed, "patient", "none"));
        place.workers_run(4);
        cancel.store(true, Ordering::Relaxed);
        assert_eq!(running.join().unwrap(), Err(TestbedError::Interrupted));
    });
    place.all_gone();
}

fn a_killed_controller_takes_everything_along(place: &Place) {
    let mut controller = Command::new(std::env::current_exe().unwrap())
        .arg("controller")
        .env("FAKE_PLACE", &place.root)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let until = Instant::now() + Duration::from_secs(30);
    // Calibration's six, then four patient ones.
    while place.processes("worker").0 < 10 {
        assert!(Instant::now() < until, "workers do not start");
        thread::sleep(Duration::from_millis(10));
    }
    controller.kill().unwrap();
    controller.wait().unwrap();
    place.all_gone();
}

fn a_killed_agent_is_named_and_nothing_stays(place: &Place) {
    let (testbed, _) = place.testbed("verbs:fake0,fake1", |_| {});
    testbed.calibration().unwrap();
    thread::scope(|scope| {
        let running = scope.spawn(|| run(&testbed, "patient", "none"));
        place.workers_run(4);
        let agents = fs::read_dir(place.root.join("processes")).unwrap();
        for entry in agents {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if let Some(number) = name.strip_prefix("agent-") {
                let pid = rustix::process::Pid::from_raw(number.parse().unwrap()).unwrap();
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            }
        }
        let error = running.join().unwrap().unwrap_err();
        message(&error, &["agent on this machine", "signal 9"]);
    });
    // Workers end when their input closes.
    place.all_gone();
}

/// A program that is called as ssh is and runs the command here.
fn fake_ssh(place: &Place) -> PathBuf {
    let body = "echo \"$@\" >> \"$FAKE_PROCESSES/../ssh.log\"\n\
                while [ \"$1\" != -- ]; do shift; done; shift\n\
                host=$1; shift\n[ \"$1\" = isolane ] && shift\n\
                echo \"Welcome to $host\"\nexec \"$PROGRAM\" \"$@\"";
    place.script("ssh", body)
}

fn ssh_is_asked_for_the_other_machine(place: &Place) {
    let ssh = fake_ssh(place);
    let (testbed, _) = place.testbed("verbs:lab@nodea:fake0,nodeb:fake1", |reach| {
        reach.ssh = ssh.into();
    });
    let result = run(&testbed, "quick", "none").unwrap();
    assert_eq!(result.testbed, "verbs:lab@nodea:fake0,nodeb:fake1");
    let log = fs::read_to_string(place.root.join("ssh.log")).unwrap();
    for host in ["lab@nodea", "nodeb"] {
        let call = format!("-T -o BatchMode=yes -- {host} isolane agent --stdio");
        assert!(log.lines().any(|line| line == call), "{log}");
    }
    assert_eq!(place.processes("agent"), (2, 2));
    drop(testbed);
    place.all_gone();
}

fn a_failing_ssh_says_why(place: &Place) {
    let ssh = place.script(
        "ssh",
        "echo 'lab@nodea: Permission denied (publickey).' >&2; exit 255",
    );
    let (testbed, _) = place.testbed("verbs:nodea:fake0,nodeb:fake1", |reach| {
        reach.ssh = ssh.into()
    });
    let error = run(&testbed, "quick", "none").unwrap_err();
    message(
        &error,
        &["node", "exit code 255", "Permission denied (publickey)"],
    );
    assert!(matches!(error, TestbedError::Unavailable { .. }));
    let (testbed, _) = place.testbed("verbs:nodea:fake0,fake1", |reach| {
        reach.ssh = place.root.join("no-such-ssh").into();
    });
    message(
        &run(&testbed, "quick", "none").unwrap_err(),
        &["no-such-ssh"],
    );
}

/// An agent on a port of the loopback interface, and its certificates' parent.
fn listening(place: &Place, directory: &Path) -> u16 {
    let names = ["127.0.0.1", "controller", "elsewhere"].map(str::to_owned);
    identity::create(directory, &names).unwrap();
    let listener = Listener::bind(ListenOptions {
        address: "127.0.0.1:0".to_owned(),
        identity: directory.join("127.0.0.1"),
        sessions: 2,
        program: place.program(),
        arguments: vec!["agent".to_owned(), "--stdio".to_owned()],
    })
    .unwrap();
    let port = listener.address().unwrap().port();
    // It serves until the program ends.
    thread::spawn(move || listener.serve(&|_| {}));
    port
}

fn agents_over_tls_run_scenarios(place: &Place) {
    let directory = place.root.join("certificates");
    let port = listening(place, &directory);
    let target = format!("verbs:127.0.0.1:{port}:fake0,127.0.0.1:{port}:fake1");
    let (testbed, _) = place.testbed(&target, |reach| {
        reach.identity = Some(directory.join("controller"));
    });
    let result = run(&testbed, "quick", "none").unwrap();
    assert_eq!(result.tenants.len(), 2);
    assert_eq!(place.processes("agent"), (1, 1));
    drop(testbed);
    place.all_gone();
}

fn strangers_are_refused(place: &Place) {
    let directory = place.root.join("certificates");
    let port = listening(place, &directory);
    let target = format!("verbs:127.0.0.1:{port}:fake0,127.0.0.1:{port}:fake1");
    let foreign = place.root.join("foreign");
    identity::create(&foreign, &["controller".to_owned()]).unwrap();
    // A stranger's certificate: neither side trusts the other.
    let (testbed, _) = place.testbed(&target, |reach| {
        reach.identity = Some(foreign.join("controller"));
    });
    message(
        &run(&testbed, "quick", "none").unwrap_err(),
        &["127.0.0.1", "ertificate"],
    );
    // Certificates of the authority with a stranger's key in between: the agent refuses.
    let forged = place.root.join("forged");
    fs::create_dir(&forged).unwrap();
    fs::copy(
        directory.join("controller/authority.pem"),
        forged.join("authority.pem"),
    )
    .unwrap();
    for file in ["certificate.pem", "key.pem"] {
        fs::copy(foreign.join("controller").join(file), forged.join(file)).unwrap();
    }
    let (testbed, _) = place.testbed(&target, |reach| reach.identity = Some(forged));
    message(
        &run(&testbed, "quick", "none").unwrap_err(),
        &["127.0.0.1", "not of its authority"],
    );
    // An agent that shows another machine's certificate.
    let listener = Listener::bind(ListenOptions {
        address: "127.0.0.1:0".to_owned(),
        identity: directory.join("elsewhere"),
        sessions: 1,
        program: place.program(),
        arguments: vec!["agent".to_owned(), "--stdio".to_owned()],
    })
    .unwrap();
    let other = listener.address().unwrap().port();
    thread::spawn(move || listener.serve(&|_| {}));
    let target = format!("verbs:127.0.0.1:{other}:fake0,127.0.0.1:{other}:fake1");
    let (testbed, _) = place.testbed(&target, |reach| {
        reach.identity = Some(directory.join("controller"));
    });
    message(
        &run(&testbed, "quick", "none").unwrap_err(),
        &["127.0.0.1", "ertificate"],
    );
    // Plain bytes are no handshake, and no session begins.
    let mut plain = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let hello = Request::Hello {
        version: VERSION,
        program: "x".to_owned(),
    };
    plain.write_all(hello.encode().as_bytes()).unwrap();
    let mut answer = Vec::new();
    // Reset or closed: either is a refusal.
    let _ = plain.read_to_end(&mut answer);
    assert!(!String::from_utf8_lossy(&answer).contains("welcome"));
    assert_eq!(place.processes("agent"), (0, 0));
}

/// A session within this process; returns what the agent says and how it ended.
fn session(
    place: &Place,
    lines: &[String],
    lifetime: Duration,
) -> (Vec<Event>, Result<(), String>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut options = AgentOptions::of(place.program());
    options.root = Root::at(place.root.join("tree"));
    options.lifetime = lifetime;
    let served = thread::spawn(move || {
        let output = theirs.try_clone().unwrap();
        let result = serve(theirs.try_clone().unwrap(), output, &options);
        let _ = theirs.shutdown(std::net::Shutdown::Both);
        result.map_err(|error| error.to_string())
    });
    let mut writer = ours.try_clone().unwrap();
    for line in lines {
        // It may have closed the stream at an earlier line.
        let _ = writer.write_all(line.as_bytes());
    }
    let events = BufReader::new(ours).lines().map_while(Result::ok);
    let events = events.map(|line| Event::decode(&line).unwrap()).collect();
    (events, served.join().unwrap())
}

fn an_agent_ends_on_nonsense(place: &Place) {
    let hello = |version| {
        Request::Hello {
            version,
            program: "x".to_owned(),
        }
        .encode()
    };
    let lifetime = Duration::from_secs(60);
    for (lines, part) in [
        (vec!["\u{0}\u{1}garbage\n".to_owned()], "no message"),
        (vec![Request::Clear.encode()], "hello"),
        (vec![hello(VERSION + 1)], "version"),
        (
            vec![
                hello(VERSION),
                "{\"kind\":\"run\",\"command\":\"sh\"}\n".to_owned(),
            ],
            "no message",
        ),
    ] {
        let (events, result) = session(place, &lines, lifetime);
        let reason = result.unwrap_err();
        assert!(reason.contains(part), "{reason}");
        assert!(
            matches!(events.last(), Some(Event::Failed { .. })),
            "{events:?}"
        );
    }
    // One number for two workers is a failed request, not the end.
    let spawn = Request::Spawn { worker: 5 }.encode();
    let lines = [
        hello(VERSION),
        spawn.clone(),
        spawn,
        "nonsense\n".to_owned(),
    ];
    let (events, _) = session(place, &lines, lifetime);
    let twice = events
        .iter()
        .any(|event| matches!(event, Event::Failed { reason } if reason.contains("runs already")));
    assert!(twice, "{events:?}");
    assert_eq!(place.processes("worker").1, 0);
}

fn an_agent_ends_with_its_lifetime(place: &Place) {
    let hello = Request::Hello {
        version: VERSION,
        program: "x".to_owned(),
    };
    let lines = [hello.encode(), Request::Spawn { worker: 1 }.encode()];
    let (events, result) = session(place, &lines, Duration::from_millis(300));
    assert!(result.unwrap_err().contains("--lifetime"));
    assert!(
        events
            .iter()
            .any(|event| matches!(event, Event::Ended { worker: 1, .. }))
    );
    assert_eq!(place.processes("worker").1, 0);
}

fn policies_that_need_other_means_are_refused(place: &Place) {
    for (policy, part) in [
        ("hw-tc", "traffic classes"),
        ("harmonic", "isolane enforce"),
        ("palos", "--target sim"),
    ] {
        let error = place.run("verbs:fake0,fake1", "quick", policy).unwrap_err();
        message(&error, &["two", policy, part]);
        assert!(matches!(error, TestbedError::Declined { .. }));
    }
    assert!(place.directory.is_some());
}
