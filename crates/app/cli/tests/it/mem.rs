//! `isolane mem` as a user types it, against the service on a made-up machine, and on this one where it says why not.

use isolane_memory_service::service::settings::Settings;
use isolane_memory_service::service::{self, Ended};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output};
use std::thread::JoinHandle;
use std::time::Duration;

/// A service on a thread.
struct Bench {
    directory: tempfile::TempDir,
    running: Option<(UnixStream, JoinHandle<Ended>)>,
}

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("the fixture works");
        let service = service::open(&Settings::fake(directory.path())).expect("the fixture works");
        let (stop, stopper) = UnixStream::pair().expect("the fixture works");
        let stop: OwnedFd = stop.into();
        let thread = std::thread::spawn(move || service.run(&stop));
        Self {
            directory,
            running: Some((stopper, thread)),
        }
    }

    fn isolane(&self, arguments: &[&str]) -> Output {
        command(self.directory.path(), arguments)
            .output()
            .expect("the fixture works")
    }

    fn file(&self, name: &str, text: &str) {
        std::fs::write(self.directory.path().join(name), text).expect("the fixture works");
    }

    fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let output = self.isolane(arguments);
        assert!(output.status.success(), "{}", said(&output));
        serde_json::from_slice(&output.stdout).expect("the fixture works")
    }

    /// Asks until the applications are as wanted: the service has its own clock.
    fn until(&self, names: &[&str]) {
        for _ in 0..2_400 {
            let status = self.json(&["mem", "status", "--json"]);
            let all = status["applications"]
                .as_array()
                .expect("the fixture works");
            let found: Vec<&str> = all
                .iter()
                .map(|app| app["name"].as_str().expect("the fixture works"))
                .collect();
            if found == names {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("never {names:?}");
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if let Some((mut stopper, thread)) = self.running.take() {
            stopper.write_all(b"x").expect("the fixture works");
            thread.join().expect("the fixture works");
        }
    }
}

fn command(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_isolane"));
    command
        .args(arguments)
        .current_dir(directory)
        .env("ISOLANE_MEM_SOCKET", directory.join("mem.sock"));
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The words of a command line without quotes.
fn split(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

fn stdout_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

const APP: &str = "name = \"sleeper\"\ntype = \"ls\"\nslo_latency = \"160ns\"\npriority = 2\nmemory = \"20MiB\"\n";

#[test]
fn a_command_runs_under_control_with_its_own_exit_code() {
    let bench = Bench::new();
    let output = bench.isolane(&[
        "mem",
        "run",
        "--slo-latency",
        "160ns",
        "--priority",
        "3",
        "--",
        "sh",
        "-c",
        "exit 7",
    ]);
    assert_eq!(output.status.code(), Some(7), "{}", said(&output));
    assert!(
        said(&output).contains("sh: under control in /isolane-mem/sh"),
        "{}",
        said(&output)
    );
    bench.until(&[]);
    let missing = bench.isolane(&split(
        "mem run --slo-latency 160ns --priority 3 -- no-such-program",
    ));
    assert_eq!(missing.status.code(), Some(127));
}

#[test]
fn a_file_with_a_command_starts_it_and_status_top_plan_and_remove_know_it() {
    let bench = Bench::new();
    bench.file("app.toml", &format!("{APP}command = [\"sleep\", \"60\"]\n"));
    let output = bench.isolane(&["mem", "submit", "app.toml"]);
    assert!(output.status.success(), "{}", said(&output));
    let words = stdout_of(&output);
    assert!(
        words.starts_with("sleeper: under control in /isolane-mem/sleeper"),
        "{words}"
    );
    let process = words
        .trim()
        .rsplit(' ')
        .next()
        .expect("the fixture works")
        .to_owned();
    bench.until(&["sleeper"]);
    let text = stdout_of(&bench.isolane(&["mem", "status"]));
    assert!(
        text.contains("sleeper") && text.contains("160ns") && text.contains("made up"),
        "{text}"
    );
    let text = stdout_of(&bench.isolane(&["mem", "top", "--once"]));
    assert!(text.contains("sleeper"), "{text}");
    let text = stdout_of(&bench.isolane(&["mem", "status", "--openmetrics"]));
    assert!(
        text.contains("application=\"sleeper\"") && text.ends_with("# EOF\n"),
        "{text}"
    );

    let same = bench.isolane(&["mem", "plan", "--slo-latency", "160ns", "--priority", "2"]);
    assert_eq!(same.status.code(), Some(1), "{}", said(&same));
    assert!(
        stdout_of(&same).contains("priority 2 of planned is that of sleeper"),
        "{}",
        stdout_of(&same)
    );
    let other = bench.isolane(&split(
        "mem plan --slo-latency 160ns --priority 1 --memory 10MiB",
    ));
    assert_eq!(
        other.status.code(),
        Some(0),
        "{}{}",
        stdout_of(&other),
        said(&other)
    );

    let again = bench.isolane(&["mem", "submit", "app.toml"]);
    assert_eq!(again.status.code(), Some(2), "{}", said(&again));
    assert!(
        said(&again).contains("sleeper is under control already"),
        "{}",
        said(&again)
    );
    let removed = bench.isolane(&["mem", "remove", "sleeper"]);
    assert_eq!(removed.status.code(), Some(0), "{}", said(&removed));
    bench.until(&[]);
    assert!(
        Path::new(&format!("/proc/{process}")).exists(),
        "it keeps running"
    );
    assert!(
        Command::new("kill")
            .arg(&process)
            .status()
            .expect("the fixture works")
            .success()
    );
}

#[test]
fn mistakes_end_with_two_and_say_what_is_allowed() {
    let bench = Bench::new();
    let check = |arguments: &str, expected: &str| {
        let output = bench.isolane(&split(arguments));
        assert_eq!(
            output.status.code(),
            Some(2),
            "{arguments}: {}",
            said(&output)
        );
        assert!(
            said(&output).contains(expected),
            "{arguments}: {}",
            said(&output)
        );
    };
    let run = |more: &str| format!("mem run {more} -- true");
    check(&run("--slo-latency 160"), "has no unit");
    check(&run("--slo-latency 160ns"), "--priority is missing");
    check(&run("--slo-bandwidth 40Gb/s --priority 1"), "is in bits");
    check(&run("--priority 1"), "an objective is missing");
    check(&run("--type ls --priority 1"), "needs --slo-latency");
    check(
        &run("--slo-latency 160ns --priority 1 --local-max 25%"),
        "say how much that is",
    );
    check(
        &run("--slo-latency 160ns --priority 1 --local-max 5GiB"),
        "5 GiB of tier 0 is more than there is: it has 256 MiB",
    );
    check(
        &run("--slo-latency 160ns --priority 1 --far-tiers 3"),
        "tier 3 does not exist",
    );
    check(&run("--slo-latency 160ns --priority 0x3"), "--priority");
    check(
        &run("--slo-latency 160ns --priority 1 --memory 5GB/s"),
        "--memory",
    );
    check("mem plan app.toml --memory 5GiB", "leave the options out");
    check(
        "mem plan --memory 5GiB --priority 1",
        "an objective is missing",
    );
    check("mem bench latency --cores 2", "drop the option");
    check("mem bench bandwidth --region 1GiB", "drop the option");
    check("mem bench --region 4KiB", "fits into caches");
    check(
        "mem bench bandwidth --stream-region 0",
        "must be 1MiB at least",
    );
    // Before any of it is written: the test would not end.
    check("mem bench --region 900TiB", "900 TiB of memory are wanted");
    check(&run("--slo-latency 160 --priority 1"), "like \"160ns\"");
    check(
        &run("--slo-latency 160ns --priority -1"),
        "must be 0 to 1000000",
    );
    check(
        "mem measure-machine --repeats 99 --length 100s",
        "more than an hour",
    );
    check("mem extender --listen localhost", "127.0.0.1:9494");
    check(
        "mem measure --type best-effort -- true",
        "best effort needs no measurement",
    );
    check(
        "mem measure --memory-low 1GiB -- true",
        "--memory-low has no effect on a measurement",
    );
    check("mem remove nobody", "no application is under control");
    check("mem submit nowhere.toml", "nowhere.toml");
    bench.file("bad.toml", &APP.replace("priority", "prio"));
    check(
        "mem submit bad.toml",
        "bad.toml:4: unknown key prio; did you mean priority?",
    );
    bench.file("placeless.toml", APP);
    check("mem submit placeless.toml", "say where the application is");
    bench.file("gone.toml", &format!("{APP}cgroup = \"/kube/gone\"\n"));
    check("mem submit gone.toml", "/kube/gone");
    check(
        "mem submit --require gone.toml",
        "--require is for files with a command",
    );
}

#[test]
fn a_used_priority_is_refused_with_one_that_is_free() {
    let bench = Bench::new();
    bench.file("app.toml", &format!("{APP}command = [\"sleep\", \"60\"]\n"));
    // With --require, which must not wait for the command's end.
    let output = bench.isolane(&["mem", "submit", "--require", "app.toml"]);
    assert!(output.status.success(), "{}", said(&output));
    let words = stdout_of(&output);
    assert!(words.starts_with("sleeper: under control"), "{words}");
    let process = words
        .trim()
        .rsplit(' ')
        .next()
        .unwrap_or_default()
        .to_owned();
    let same = bench.isolane(&split("mem run --slo-latency 160ns --priority 2 -- true"));
    assert_eq!(same.status.code(), Some(2), "{}", said(&same));
    let expected = "priority 2 of true is that of sleeper; priorities are unique: 3 is free";
    assert!(said(&same).contains(expected), "{}", said(&same));
    let ended = Command::new("kill").arg(&process).status();
    assert!(ended.is_ok_and(|status| status.success()), "{words}");
    bench.until(&[]);
}

#[test]
fn an_objective_better_than_the_hardware_names_the_best_that_was_measured() {
    let bench = Bench::new();
    let check = |options: &[&str], expected: &str| {
        let words = [&["mem", "run", "--priority", "1"], options, &["--", "true"]].concat();
        let output = bench.isolane(&words);
        assert_eq!(output.status.code(), Some(3), "{}", said(&output));
        assert!(said(&output).contains(expected), "{}", said(&output));
        assert_eq!(said(&output).lines().count(), 1, "{}", said(&output));
    };
    check(
        &["--slo-latency", "50ns"],
        "latency 50ns is better than latency 100ns, the best value measured on this machine",
    );
    check(
        &["--slo-bandwidth", "90GB/s"],
        "bandwidth 90 GB/s is better than bandwidth 40 GB/s, the best value measured on this machine",
    );
    bench.until(&[]);
}

#[test]
fn a_pod_is_read_from_its_annotations() {
    let bench = Bench::new();
    bench.file(
        "pod.json",
        r#"{"kind":"Pod","metadata":{"name":"redis-0","uid":"a1b2","annotations":{
            "isolane.dev/type":"ls","isolane.dev/slo":"160ns","isolane.dev/priority":"3"}}}"#,
    );
    let plan = bench.json(&["mem", "submit", "--pod", "pod.json", "--dry-run", "--json"]);
    assert_eq!(plan["application"]["slo"]["latency_ps"], 160_000);
    assert_eq!(plan["place"]["pod"], "a1b2");
}

#[test]
fn without_a_service_the_machine_is_what_is_missing() {
    let directory = tempfile::tempdir().expect("the fixture works");
    for arguments in [
        &["mem", "status"][..],
        &[
            "mem",
            "run",
            "--slo-latency",
            "160ns",
            "--priority",
            "1",
            "--",
            "true",
        ],
    ] {
        let output = command(directory.path(), arguments)
            .output()
            .expect("the fixture works");
        assert_eq!(output.status.code(), Some(3), "{}", said(&output));
        assert!(
            said(&output).contains("start one with isolaned --mem"),
            "{}",
            said(&output)
        );
    }
}

/// Commands that need tiers report missing tiers. Skipped on a machine that has two.
#[test]
fn without_tiers_the_machine_is_what_is_missing() {
    let tiers =
        isolane_memory_service::tiers::Tiers::read(&isolane_memory_service::MemoryHost::machine());
    if tiers.len() > 1 {
        isolane_common_linux::skip::does_not_apply(format_args!(
            "this machine has {} memory tiers",
            tiers.len()
        ));
        return;
    }
    let directory = tempfile::tempdir().expect("the fixture works");
    for arguments in [
        &["mem", "measure-machine"][..],
        &["mem", "measure", "--slo-latency", "160ns", "--", "true"],
        &["mem", "doctor"],
    ] {
        let output = command(directory.path(), arguments)
            .output()
            .expect("the fixture works");
        assert_eq!(
            output.status.code(),
            Some(3),
            "{arguments:?}: {}",
            said(&output)
        );
        let words = stdout_of(&output) + &said(&output);
        assert!(words.contains("tier"), "{arguments:?}: {words}");
    }
}

/// A user without permission to open the service's socket gets an error that says what to do. Needs root to become
/// another user.
#[test]
fn without_privilege_the_group_is_named() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65_534;
    let bench = Bench::new();
    let open = std::fs::Permissions::from_mode(0o755);
    let opened = std::fs::set_permissions(bench.directory.path(), open);
    opened.expect("the fixture works");
    let output = command(bench.directory.path(), &["mem", "status"])
        .uid(NOBODY)
        .gid(NOBODY)
        .output();
    let Ok(output) = output else {
        println!("skip: only root can become another user, who can start this program");
        return;
    };
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert!(
        said(&output).contains("may not be opened: run as root, or join the service's group"),
        "{}",
        said(&output)
    );
}
