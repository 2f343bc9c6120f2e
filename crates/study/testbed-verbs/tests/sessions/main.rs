//! Sessions between controllers, agents and workers, with real processes and made-up devices.
//!
//! This program is all three: as `rdma agent --stdio` an agent, as `rdma traffic --worker` a worker that measures nothing and
//! answers by formulas, as `controller` one that is going to be killed. Otherwise it runs the tests named below. No
//! test needs RDMA; devices are directories below `FAKE_ROOT`.
#![allow(clippy::unwrap_used)]

mod agents;
mod place;
mod worker;

use place::Place;

use isolane_common_linux::Root;
use isolane_rdma_scenario::library::Library;
use isolane_rdma_scenario::model::{Scenario, Traffic};
use isolane_study_testbed::{Testbed, TestbedError};
use isolane_study_testbed_verbs::VerbsTestbed;
use isolane_study_testbed_verbs::agent::{AgentOptions, serve};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

type Test = (&'static str, fn(&Place));

const TESTS: &[Test] = &[
    (
        "a_run_gives_a_result_for_every_tenant",
        a_run_gives_a_result_for_every_tenant,
    ),
    (
        "an_unknown_device_is_named_with_those_there_are",
        an_unknown_device_is_named_with_those_there_are,
    ),
    (
        "memory_of_another_socket_needs_one",
        memory_of_another_socket_needs_one,
    ),
    (
        "a_machine_without_devices_gets_a_remedy",
        a_machine_without_devices_gets_a_remedy,
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
        "ssh_connects_to_the_other_machine",
        ssh_connects_to_the_other_machine,
    ),
    ("a_failing_ssh_says_why", a_failing_ssh_says_why),
    (
        "agents_over_tls_run_scenarios",
        agents::agents_over_tls_run_scenarios,
    ),
    ("strangers_are_refused", agents::strangers_are_refused),
    (
        "an_agent_ends_on_nonsense",
        agents::an_agent_ends_on_nonsense,
    ),
    (
        "an_agent_ends_with_its_lifetime",
        agents::an_agent_ends_with_its_lifetime,
    ),
    (
        "policies_that_need_other_means_are_refused",
        policies_that_need_other_means_are_refused,
    ),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["rdma", "agent", ..] => agent(),
        ["rdma", "traffic", ..] => worker::run(),
        ["controller", ..] => controller(),
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
    let exact = arguments.iter().any(|argument| argument == "--exact");
    let means = |part: &str, name: &str| {
        if exact {
            name == part
        } else {
            name.contains(part)
        }
    };
    let chosen = |name: &str| wanted.is_empty() || wanted.iter().any(|part| means(part, name));
    let (mut passed, mut failed) = (0, 0);
    for (name, test) in TESTS.iter().filter(|(name, _)| chosen(name)) {
        let place = Place::new();
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(&place)));
        let (word, count) = match ended {
            Ok(()) => ("ok", &mut passed),
            Err(_) => ("FAILED", &mut failed),
        };
        *count += 1;
        println!("test {name} ... {word}");
    }
    // The summary line of the standard harness, for programs that add such lines.
    println!(
        "test result: {}. {passed} passed; {failed} failed; 0 ignored; 0 measured; {} filtered out",
        if failed == 0 { "ok" } else { "FAILED" },
        TESTS.len() - passed - failed
    );
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

fn scenario(tenant: &str, policy: &str) -> Scenario {
    let text = format!(
        "name = \"two\"\nprofile = \"cx5-100g-roce\"\nwarmup = \"10ms\"\nduration = \"40ms\"\nsample_interval = \"10ms\"\n\
         [policy]\nname = \"{policy}\"\n\
         [[tenant]]\nname = \"{tenant}\"\nclass = \"bandwidth\"\n[[tenant.traffic]]\nverb = \"write\"\nsize = \"64KiB\"\n\
         [[tenant]]\nname = \"other\"\nclass = \"bandwidth\"\n[[tenant.traffic]]\nverb = \"write\"\nsize = \"64KiB\"\n"
    );
    isolane_rdma_scenario::parse(&text, "two.toml", &Library::embedded()).unwrap()
}

fn run(
    testbed: &VerbsTestbed,
    tenant: &str,
    policy: &str,
) -> Result<isolane_study_results::rdma::RunResult, TestbedError> {
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

/// The agent reports the machine's nodes: one at first, then two for a new session.
fn memory_of_another_socket_needs_one(place: &Place) {
    let far = |memory: &str| {
        let mut tenant = scenario("quick", "none").tenants[0].clone();
        let Traffic::Data(data) = &mut tenant.workloads[0].traffic else {
            panic!("data");
        };
        data.remote_memory = serde_json::from_str(memory).unwrap();
        tenant
    };
    let nodes = |list: &str| {
        for file in ["has_memory", "has_cpu"] {
            let folder = place.root.join("tree/sys/devices/system/node");
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(file), list).unwrap();
        }
    };
    let own = place
        .root
        .join("tree/sys/class/infiniband/fake1/device/numa_node");
    fs::create_dir_all(own.parent().unwrap()).unwrap();
    fs::write(&own, "0\n").unwrap();
    nodes("0\n");
    let (testbed, _) = place.testbed("verbs:fake0,fake1", |_| {});
    assert_eq!(testbed.runs_tenant(&far("\"local\"")), Ok(()));
    let refused = testbed.runs_tenant(&far("\"remote-socket\"")).unwrap_err();
    for part in ["fake1 of this machine", "remote-socket", "node 0 only"] {
        assert!(refused.contains(part), "{part:?} is not in: {refused}");
    }
    let refused = testbed.runs_tenant(&far("\"gpu\"")).unwrap_err();
    assert!(refused.contains("no NVIDIA GPU"), "{refused}");
    drop(testbed);
    nodes("0-1\n");
    let (testbed, _) = place.testbed("verbs:fake0,fake1", |_| {});
    assert_eq!(testbed.runs_tenant(&far("\"remote-socket\"")), Ok(()));
    drop(testbed);
    place.all_gone();
}

fn a_machine_without_devices_gets_a_remedy(place: &Place) {
    fs::remove_dir_all(place.root.join("tree/sys/class/infiniband")).unwrap();
    let error = place.run("verbs:r0,r1", "quick", "none").unwrap_err();
    message(
        &error,
        &["no RDMA device", "isolane rdma doctor", "rdma_rxe"],
    );
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
    let until = Instant::now() + Duration::from_secs(120);
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

fn ssh_connects_to_the_other_machine(place: &Place) {
    let ssh = fake_ssh(place);
    let (testbed, _) = place.testbed("verbs:lab@nodea:fake0,nodeb:fake1", |reach| {
        reach.ssh = ssh.into();
    });
    let result = run(&testbed, "quick", "none").unwrap();
    assert_eq!(result.testbed, "verbs:lab@nodea:fake0,nodeb:fake1");
    let log = fs::read_to_string(place.root.join("ssh.log")).unwrap();
    for host in ["lab@nodea", "nodeb"] {
        let call = format!("-T -o BatchMode=yes -- {host} isolane rdma agent --stdio");
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

fn policies_that_need_other_means_are_refused(place: &Place) {
    for (policy, part) in [
        ("hw-tc", "traffic classes"),
        ("harmonic", "isolane rdma enforce"),
        ("palos", "--target sim"),
    ] {
        let error = place.run("verbs:fake0,fake1", "quick", policy).unwrap_err();
        message(&error, &["two", policy, part]);
        assert!(matches!(error, TestbedError::Declined { .. }));
    }
    assert!(place.directory.is_some());
}
