//! `isolane rdma emulate` as a user meets it. Programs that use the devices are in the tests of `rdma/emulator`.
#![allow(clippy::unwrap_used)]

use crate::support::text;
use isolane_common_linux::Root;
use isolane_rdma_inventory::counters::{Driver, Extra, Source, map, read};
use isolane_study_hunt::counters::choose;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

/// Runs in `directory`, with an empty file as the library, which no program here loads.
fn run(directory: &Path, arguments: &[&str]) -> Output {
    let library = directory.join("library");
    std::fs::write(&library, "").unwrap();
    run_with(&library, directory, arguments)
}

fn run_with(library: &Path, directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_isolane"));
    command.args(["rdma", "emulate"]).args(arguments);
    command.env("ISOLANE_IBVERBS", library);
    command.env("LD_LIBRARY_PATH", "/nonexistent");
    command.env("TMPDIR", directory).current_dir(directory);
    command.output().unwrap()
}

#[test]
fn the_program_finds_library_and_broker_and_nothing_stays() {
    let directory = tempfile::tempdir().unwrap();
    let script = "test -S $ISOLANE_EMULATE && test -e ${LD_LIBRARY_PATH%:/nonexistent}/libibverbs.so.1 && \
                  test -e ${LD_LIBRARY_PATH%:/nonexistent}/librdmacm.so.1 && \
                  stat -c %a ${ISOLANE_EMULATE%/*} && echo $ISOLANE_EMULATE_HOST && exit 42";
    let arguments = ["cx6-200g-roce", "--host", "1", "--", "sh", "-c", script];
    let output = run(directory.path(), &arguments);
    assert_eq!(output.status.code(), Some(42), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "700\n1\n");
    assert_eq!(text(&output.stderr), "");
    let names = std::fs::read_dir(directory.path()).unwrap();
    assert_eq!(names.count(), 1, "the library alone");
}

#[test]
fn the_library_of_device_files_is_preloaded_where_it_is() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("isolane-device-files"), "").unwrap();
    // The loader complains of an empty file, and the program runs.
    let script = "test -e \"$LD_PRELOAD\" && echo ${LD_PRELOAD##*/}";
    let output = run(
        directory.path(),
        &["cx5-100g-roce", "--", "sh", "-c", script],
    );
    assert_eq!(
        text(&output.stdout),
        "libisolane_device_files.so\n",
        "{}",
        text(&output.stderr)
    );
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
}

#[test]
fn the_end_of_the_program_is_the_end_of_the_command() {
    let directory = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| run(directory.path(), arguments).status.code();
    assert_eq!(
        run(&["cx5-100g-roce", "--", "sh", "-c", "kill -9 $$"]),
        Some(137)
    );
    assert_eq!(
        run(&["cx5-100g-roce", "--", "no-such-program-here"]),
        Some(127)
    );
    assert_eq!(run(&["cx5-100g-roce", "--", "./library"]), Some(126));
}

#[test]
fn programs_join_by_the_directory() {
    let directory = tempfile::tempdir().unwrap();
    let isolane = env!("CARGO_BIN_EXE_isolane");
    let join = format!(
        "{isolane} rdma emulate --join nics --host 0 -- sh -c 'echo $ISOLANE_EMULATE_HOST'"
    );
    let arguments = [
        "cx5-100g-roce",
        "--directory",
        "nics",
        "--summary",
        "--",
        "sh",
        "-c",
        &join,
    ];
    let output = run(directory.path(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(
        text(&output.stdout),
        "0\n0 messages, 0 bytes in all\n\
         rnic0: 0 bytes sent, 0 bytes received, headers included\n\
         rnic1: 0 bytes sent, 0 bytes received, headers included\n"
    );
}

#[test]
fn watch_and_doctor_see_the_emulated_devices_of_the_host() {
    let directory = tempfile::tempdir().unwrap();
    let isolane = env!("CARGO_BIN_EXE_isolane");
    let watch = format!("{isolane} rdma watch --interval 100ms --count 1 --json");
    let run = |options: &[&str], script: &str| {
        let program = ["--", "sh", "-c", script];
        let first = ["cx5-100g-roce", "--dilation", "1000"];
        let output = run(directory.path(), &[&first, options, &program].concat());
        serde_json::from_slice::<Value>(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)))
    };
    let view = run(&["--host", "1"], &watch);
    let ports = view["ports"].as_array().unwrap();
    assert_eq!(ports.len(), 1, "{view}");
    assert_eq!(
        (&ports[0]["device"], &ports[0]["driver"]),
        (&json!("rnic1"), &json!("emulated"))
    );
    assert_eq!(
        (&ports[0]["rate_gbps"], &ports[0]["sent_gbps"]),
        (&json!(0.1), &json!(0.0))
    );
    assert_eq!(
        (&view["users"], &view["users_unknown"]),
        (&json!([]), &Value::Null)
    );
    assert_eq!(run(&[], &watch)["ports"].as_array().unwrap().len(), 2);

    let found = run(&[], &format!("{isolane} rdma doctor --json"));
    let of = |name: &str| {
        let checks = found["checks"].as_array().unwrap().iter();
        let of_device = checks.filter(|check| check["device"] == "rnic0" && check["name"] == name);
        of_device
            .map(|check| check["verdict"].clone())
            .collect::<Vec<_>>()
    };
    for name in ["device file", "provider", "link", "rate", "GID", "users"] {
        assert_eq!(of(name), [json!("ok")], "{name}: {found}");
    }
}

/// Goal: no counter's file that no tool reads, no counter of the device's map without a file, no two mixed up. Method: a copy
/// of the broker's files, each with a value of its own.
#[test]
fn the_tools_read_every_counter_of_an_emulated_device() {
    let directory = tempfile::tempdir().unwrap();
    let script = "cp -r \"$ISOLANE_EMULATE_ROOT\" copy";
    let output = run(
        directory.path(),
        &["cx5-100g-roce", "--", "sh", "-c", script],
    );
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let root = Root::at(directory.path().join("copy"));
    let mut files = BTreeMap::new();
    for folder in ["counters", "hw_counters"] {
        let folder = format!("/sys/class/infiniband/rnic0/ports/1/{folder}");
        for name in root.list(&folder) {
            let value = 1_000 + files.len() as u64;
            let file = root.path(&format!("{folder}/{name}"));
            std::fs::write(file, format!("{value}\n")).unwrap();
            files.insert(value, name);
        }
    }
    let driver = Driver::of(&root, "rnic0");
    assert_eq!(driver, Driver::Emulated);
    let found = read(&root, "rnic0", 1, &Extra::default(), 0).values;
    for entry in map::entries(&driver) {
        let value = found.get(&entry.counter);
        let file = value.and_then(|one| files.remove(&(one.value / u64::from(entry.factor))));
        // Port counters and those of a network device are any device's, so that a device may lack some.
        let own = entry.source == Source::Hardware;
        let is_its = file.map_or(!own, |name| entry.names.contains(&name.as_str()));
        assert!(is_its, "{}: {value:?}", entry.counter);
    }
    assert_eq!(files, BTreeMap::new(), "files that no tool reads");

    let known: Vec<String> = found.keys().map(ToString::to_string).collect();
    let groups = ["perf", "diag"].map(str::to_owned);
    let followed = choose(&groups, "emulated", &known).unwrap();
    let followed: Vec<&str> = followed.iter().map(|one| one.name.as_str()).collect();
    let misses = ["context", "translation", "protection", "receive"];
    let misses = misses.map(|what| format!("{what}_misses"));
    assert_eq!(followed[..2], ["rx_bytes", "rx_packets"]);
    assert_eq!(followed[2..], misses);
}

#[test]
fn wrong_usage_is_named_with_what_is_allowed() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    let check = |arguments: &str, code: i32, part: &str| {
        let words: Vec<&str> = arguments.split(' ').collect();
        let output = run(place, &words);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments}: {stderr}");
        assert!(stderr.contains(part), "{arguments}: {stderr}");
    };
    check("cx5-100g-roc -- true", 2, "cx5-100g-roce");
    check("-- true", 2, "PROFILE");
    check(
        "cx5-100g-roce --host 2 -- true",
        2,
        "--host 2: there are 2 hosts",
    );
    check("cx5-100g-roce --hosts 41 -- true", 2, "from 1 to 40");
    check("cx5-100g-roce --dilation 0 -- true", 2, "from 1 to 1000000");
    check(
        "--join nowhere -- true",
        2,
        "no emulator runs in this directory",
    );
    check("--join nowhere", 2, "needs PROGRAM");
    check(
        "cx5-100g-roce true",
        2,
        "true: one word too many; write -- before PROGRAM",
    );
    check("cx5-100g-roce --directory . -- true", 2, "does not exist");
}

#[test]
fn a_missing_library_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let arguments = ["cx5-100g-roce", "--", "true"];
    let output = run_with(
        Path::new("/nonexistent/library"),
        directory.path(),
        &arguments,
    );
    assert_eq!(output.status.code(), Some(3));
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("/nonexistent/library is not there; correct or unset ISOLANE_IBVERBS"),
        "{stderr}"
    );
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}
