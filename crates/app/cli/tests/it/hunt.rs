//! `isolane hunt` as a user runs it: mistakes, the same result for any number of workers, going on after a kill, and
//! scenarios that show what was found. Simulated devices only, few queue pairs, so that an experiment takes milliseconds.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn isolane(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_isolane"));
    command.args(arguments).output().expect("the binary runs")
}

pub(crate) fn check(arguments: &[&str], code: i32) -> (String, String) {
    let output = isolane(arguments);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is text");
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    assert_eq!(
        output.status.code(),
        Some(code),
        "{arguments:?}\n{stdout}\n{stderr}"
    );
    (stdout, stderr)
}

/// A file that allows small workloads only, across sockets or not.
pub(crate) fn restriction(directory: &Path) -> String {
    let path = directory.join("app.toml");
    let text = "queue_pairs = [1, 16]\nregions = [16, 1024]\ndepth = [16, 128]\npost_list = [1, 16]\nrequests = 1\n";
    fs::write(&path, text).expect("the directory is writable");
    path.to_str().expect("the path is text").to_owned()
}

/// A hunt in the space that `file` restricts, with its report in `out`.
pub(crate) fn restricted<'a>(file: &'a str, out: &'a str) -> [&'a str; 7] {
    let target = "sim:cx6-200g-roce";
    [
        "hunt",
        "--target",
        target,
        "--restrict",
        file,
        "--report",
        out,
    ]
}

fn hunt(directory: &Path, name: &str, more: &[&str]) -> String {
    let out = directory.join(name);
    let file = restriction(directory);
    let start = restricted(&file, out.to_str().expect("the path is text"));
    check(&[&start[..], &["--json"], more].concat(), 0).0
}

#[test]
fn workers_do_not_matter_a_larger_budget_goes_on_and_scenarios_show_what_was_found() {
    let directory = tempfile::tempdir().unwrap();
    let whole = hunt(
        directory.path(),
        "whole",
        &["--budget", "160", "--jobs", "1"],
    );
    let part = hunt(directory.path(), "part", &["--budget", "60", "--jobs", "3"]);
    assert_ne!(whole, part);
    let resumed = hunt(
        directory.path(),
        "part",
        &["--budget", "160", "--jobs", "3", "--resume"],
    );
    assert_eq!(whole, resumed);
    let result: serde_json::Value = serde_json::from_str(&whole).unwrap();
    assert_eq!(result["target"], "sim:cx6-200g-roce");
    let anomalies = result["anomalies"].as_array().unwrap();
    assert!(!anomalies.is_empty(), "{whole}");
    let kept = fs::read_to_string(directory.path().join("whole/hunt.json")).unwrap();
    assert_eq!(kept.trim(), whole.trim());
    for anomaly in anomalies {
        let file = format!("whole/anomaly-{}.toml", anomaly["number"]);
        let file = directory.path().join(file);
        check(&["sim", file.to_str().unwrap(), "--json"], 0);
    }
}

#[test]
fn scenarios_of_two_kinds_of_traffic_have_a_tenant_for_each() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("two.toml");
    let text = "second = [\"rc-read\", \"ud-send\"]\nsecond_queue_pairs = [1, 16]\nqueue_pairs = [1, 16]\n\
                regions = [16, 1024]\ndepth = [16, 128]\nsecond_depth = [16, 128]\n";
    fs::write(&file, text).expect("the directory is writable");
    let out = directory.path().join("two");
    let start = restricted(file.to_str().unwrap(), out.to_str().unwrap());
    let (json, _) = check(&[&start[..], &["--json", "--budget", "40"]].concat(), 0);
    let result: serde_json::Value = serde_json::from_str(&json).unwrap();
    let services = [2, 5].map(serde_json::Value::from);
    let journal = fs::read_to_string(out.join("hunt.jsonl")).unwrap();
    let lines = journal
        .lines()
        .map(serde_json::from_str::<serde_json::Value>);
    let lines = lines.map(|line| line.expect("each line is JSON"));
    let points: Vec<serde_json::Value> = lines
        .map(|line| line["experiment"][0].clone())
        .filter(|point| !point.is_null())
        .collect();
    assert!(points.len() >= 40, "{journal}");
    for point in &points {
        assert!(services.contains(&point["second"]["service"]), "{point}");
    }
    for anomaly in result["anomalies"].as_array().unwrap() {
        let file = out.join(format!("anomaly-{}.toml", anomaly["number"]));
        let (run, _) = check(&["sim", file.to_str().unwrap(), "--json"], 0);
        let run: serde_json::Value = serde_json::from_str(&run).unwrap();
        assert_eq!(run["tenants"].as_array().unwrap().len(), 2, "{run}");
    }
}

#[test]
fn mistakes_are_named_and_leave_no_journal() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("hunt");
    let refuses = |more: &[&str], part: &str| {
        let start = ["hunt", "--report", out.to_str().unwrap(), "--budget", "5"];
        let target: &[&str] = match more.contains(&"--target") {
            true => &[],
            false => &["--target", "sim:cx5-100g-roce"],
        };
        let (_, stderr) = check(&[&start[..], target, more].concat(), 2);
        assert!(stderr.contains(part), "{more:?}: {stderr}");
        assert!(!out.join("hunt.jsonl").exists(), "{more:?}");
    };
    refuses(
        &["--target", "sim:cx5-100g-roc"],
        "did you mean cx5-100g-roce",
    );
    refuses(&["--target", "cx5-100g-roce"], "must be sim:");
    refuses(&["--target", "verbs:"], "verbs:");
    refuses(&["--policy", "sriov"], "--victim");
    refuses(
        &["--counters", "icm_cache_mis"],
        "did you mean icm_cache_miss",
    );
    refuses(&["--searcher", "magic"], "anneal");
    refuses(&["--kinds", "3"], "--kinds");
    refuses(&["--kinds", "2", "--victim", "v.toml"], "--victim");
    refuses(&["--resume"], "(os error 2); a hunt without --resume");
    let file = directory.path().join("empty.toml");
    fs::write(&file, "post_list = 64\ndepth = 16\n").unwrap();
    refuses(
        &["--restrict", file.to_str().unwrap()],
        "search space is empty",
    );
    fs::write(&file, "\nqueue_pair = 64\n").unwrap();
    refuses(
        &["--restrict", file.to_str().unwrap()],
        "empty.toml:2: unknown key queue_pair; did you mean queue_pairs?",
    );
    for (text, part) in [
        ("queue_pairs = [64, 16]\n", "empty.toml:1"),
        ("sizes = [\"64KiB\", \"64B\"]\n", "empty.toml:1"),
        ("queue_pairs = 0\n", "empty.toml:1"),
        (
            "service = \"ud-send\"\nsmallest = \"64KiB\"\n",
            "search space is empty",
        ),
    ] {
        fs::write(&file, text).unwrap();
        refuses(&["--restrict", file.to_str().unwrap()], part);
    }
    refuses(&["--target", "verbs:r0,r1", "--executor", "ray"], "verbs:");
    for budget in ["0", "0h", "-3", "10 parsecs"] {
        let start = ["hunt", "--target", "sim:cx5-100g-roce"];
        let (_, stderr) = check(&[&start[..], &["--budget", budget]].concat(), 2);
        assert!(stderr.contains("--budget"), "{budget}: {stderr}");
    }
}

/// Arguments of a small hunt in the directory `name`.
fn small(directory: &Path, name: &str) -> Vec<String> {
    let out = directory.join(name);
    let words = [
        "hunt",
        "--target",
        "sim:cx6-200g-roce",
        "--json",
        "--budget",
        "120",
        "--restrict",
        &restriction(directory),
        "--report",
        out.to_str().expect("the path is text"),
    ];
    words.map(str::to_owned).to_vec()
}

#[test]
fn a_hunt_killed_in_the_middle_goes_on_to_the_same_result() {
    let directory = tempfile::tempdir().unwrap();
    let whole = hunt(directory.path(), "whole", &["--budget", "120"]);
    let words = small(directory.path(), "killed");
    let journal = directory.path().join("killed/hunt.jsonl");
    let lines = || fs::read_to_string(&journal).map_or(0, |text| text.lines().count());
    for more in [20, 60] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_isolane"));
        command.args(&words);
        if more > 20 {
            command.arg("--resume");
        }
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut child = child.expect("the binary runs");
        // Where the hunt is faster than we look, the rest is resumed from nothing: that is no less a test of the result.
        while lines() < more && child.try_wait().expect("it is ours").is_none() {
            std::thread::yield_now();
        }
        child.kill().expect("it is ours");
        child.wait().expect("it is ours");
        assert!(lines() >= more, "{} of {more} lines", lines());
    }
    let resumed = hunt(directory.path(), "killed", &["--budget", "120", "--resume"]);
    assert_eq!(resumed, whole);
}

#[test]
fn advice_says_what_a_hunt_has_not_found_yet() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("hunt");
    let app = restriction(directory.path());
    let words = ["advise", &app, "--anomalies", out.to_str().unwrap()];
    // No more than the random points that every hunt begins with.
    hunt(directory.path(), "hunt", &["--budget", "1s"]);
    let result = out.join("hunt.json");
    let text = fs::read_to_string(&result).unwrap();
    let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["spent"]["experiments"], 10);
    value["anomalies"] = serde_json::json!([]);
    value["ended"] = "unfinished".into();
    fs::write(&result, value.to_string()).unwrap();
    let (stdout, _) = check(&words, 0);
    assert!(
        stdout.contains("unfinished hunt") && stdout.contains("after 10 experiments"),
        "{stdout}"
    );
    assert!(stdout.contains("no conditions are known yet"), "{stdout}");
    // The result may be named itself.
    let named = ["advise", &app, "--anomalies", result.to_str().unwrap()];
    assert_eq!(check(&named, 0).0, stdout);
    fs::remove_file(&result).unwrap();
    let (_, stderr) = check(&named, 2);
    assert!(stderr.contains("hunt.json"), "{stderr}");
    let (_, stderr) = check(&words, 2);
    assert!(
        stderr.contains("found nothing yet") && stderr.contains("--resume"),
        "{stderr}"
    );
}

#[test]
fn fix_names_changes_of_workload_and_device_that_end_an_anomaly() {
    let directory = tempfile::tempdir().unwrap();
    let found = hunt(directory.path(), "hunt", &["--budget", "60"]);
    let out = directory.path().join("hunt");
    let out = out.to_str().unwrap();
    let fix = |number: &str| isolane(&["fix", out, "--anomaly", number, "--json"]).stdout;
    let ends = |fix: &serde_json::Value, list: &str, key: &str, value: &str| {
        let mut all = fix[list].as_array().unwrap().iter();
        all.any(|one| one[key] == value && one["after"]["symptom"].is_null())
    };
    let found: serde_json::Value = serde_json::from_str(&found).unwrap();
    let mut numbers = found["anomalies"].as_array().unwrap().iter();
    // The hunt found memory at the other socket.
    let of_sockets = numbers.find_map(|one| {
        let number = one["number"].to_string();
        let json = fix(&number);
        let changes = serde_json::from_slice(&json).unwrap();
        let ended = ends(&changes, "changes", "feature", "memory_a")
            && ends(&changes, "device", "mechanism", "remote-socket");
        ended.then_some((number, json))
    });
    let (number, json) = of_sockets.expect("an anomaly ends with memory at the own socket");
    assert_eq!(
        fix(&number),
        json,
        "the same experiments give the same bytes"
    );
    let (_, stderr) = check(&["fix", out, "--anomaly", "99"], 2);
    assert!(stderr.contains("--anomaly 99"), "{stderr}");
}

#[test]
fn planted_devices_give_recall_and_precision_and_the_same_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let bench = |name: &str| {
        let out = directory.path().join(name);
        let words = [
            "hunt",
            "bench",
            "--planted",
            "2",
            "--planted-from",
            "1001",
            "--searchers",
            "factors,factors:no-feedback",
            "--budget",
            "100",
            "--report",
            out.to_str().unwrap(),
        ];
        check(&words, 0).0
    };
    let text = bench("one");
    assert_eq!(text, bench("two"));
    assert!(text.contains("planted devices 1001 to 1002"), "{text}");
    assert!(
        text.contains("recall") && text.contains("precision"),
        "{text}"
    );
    let wrong = ["hunt", "bench", "--searchers", "factors:no-luck"];
    let (_, stderr) = check(&wrong, 2);
    assert!(stderr.contains("no-isolation"), "{stderr}");
}

#[test]
fn places_that_cannot_be_written_are_named_before_anything_runs() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "kept").unwrap();
    let below = file.join("below");
    let (file, below) = (file.to_str().unwrap(), below.to_str().unwrap());
    let scenario = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../scenarios/victims/small-write.toml"
    );
    let target = "sim:cx6-200g-roce";
    let own = directory.path().to_str().unwrap();
    let matrix = ["regress", "--profile-matrix", "cx6-200g-roce"];
    let a_file = format!("isolane: {file} is a file, and a directory is needed; name a directory");
    let no_place = format!("isolane: cannot make the directory {below}: {file} is a file; choose");
    let a_directory =
        format!("isolane: {own} is a directory, and a file is needed; name a file in it");
    for (words, wanted) in [
        (&["hunt", "--target", target, "--report", file][..], &a_file),
        (&["hunt", "--target", target, "--report", below], &no_place),
        (
            &["hunt", "bench", "--target", target, "--report", below],
            &no_place,
        ),
        (&["sim", scenario, "--report", file], &a_file),
        (&["recommend", scenario, "--report", file], &a_file),
        (
            &["explain", "data-write", "small-write", "--report", below],
            &no_place,
        ),
        (&["claims", "--only", "collie/*", "--report", file], &a_file),
        (
            &["claims", "--only", "collie/*", "--markdown", own],
            &a_directory,
        ),
        (&["audit", "--quick", "--report", file], &a_file),
        (
            &["audit", "--quick", "--junit", below, "--report", own],
            &a_file,
        ),
        (&[&matrix[..], &["--junit", own]].concat(), &a_directory),
        (&[&matrix[..], &["--record", own]].concat(), &a_directory),
        (&[&matrix[..], &["--bundle", file]].concat(), &a_file),
    ] {
        let (stdout, stderr) = check(words, 2);
        assert!(stdout.is_empty(), "{words:?}: {stdout}");
        assert!(stderr.starts_with(wanted), "{words:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{words:?}: {stderr}");
    }
    // The kernel makes no directory there, also not for root. The command line is right, so the exit code is not 2.
    let (_, stderr) = check(&["sim", scenario, "--report", "/proc/isolane"], 3);
    assert!(stderr.contains("choose another"), "{stderr}");
    assert_eq!(fs::read_to_string(file).unwrap(), "kept");
}

#[test]
fn other_processes_find_the_same_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let whole = hunt(directory.path(), "whole", &["--budget", "60"]);
    let more = ["--budget", "60", "--executor", "processes", "--jobs", "3"];
    assert_eq!(hunt(directory.path(), "processes", &more), whole);
}

#[test]
fn a_journal_of_other_settings_is_refused_and_both_are_named() {
    let directory = tempfile::tempdir().unwrap();
    hunt(directory.path(), "old", &["--budget", "12"]);
    let other = directory.path().join("other.toml");
    fs::write(&other, "# ours\nmtu = 1024\n").unwrap();
    let out = directory.path().join("old");
    let words = [
        "hunt",
        "--target",
        "sim:cx6-200g-roce",
        "--budget",
        "12",
        "--resume",
        "--restrict",
        other.to_str().unwrap(),
        "--report",
        out.to_str().unwrap(),
    ];
    let (_, stderr) = check(&words, 2);
    let asked = "--restrict {mtu = 1024}";
    let found = stderr.matches("--restrict {").count();
    assert!(stderr.contains(asked) && found == 2, "{stderr}");
}

#[test]
fn results_of_another_version_are_refused_with_the_remedy() {
    let directory = tempfile::tempdir().unwrap();
    hunt(directory.path(), "old", &["--budget", "12"]);
    let journal = directory.path().join("old/hunt.jsonl");
    let text = fs::read_to_string(&journal).unwrap();
    let (header, rest) = text.split_once('\n').unwrap();
    let mut header: serde_json::Value = serde_json::from_str(header).unwrap();
    header["version"] = 1.into();
    fs::write(&journal, format!("{header}\n{rest}")).unwrap();
    let words = small(directory.path(), "old");
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (_, stderr) = check(&[&words[..], &["--resume"]].concat(), 2);
    assert!(
        stderr.contains("version 1") && stderr.contains("--report"),
        "{stderr}"
    );
    let result = directory.path().join("old/hunt.json");
    let text = fs::read_to_string(&result).unwrap();
    fs::write(&result, text.replacen("\"version\":", "\"version\":1", 1)).unwrap();
    let out = directory.path().join("old");
    let advise = [
        "advise",
        &restriction(directory.path()),
        "--anomalies",
        out.to_str().unwrap(),
    ];
    let (_, stderr) = check(&advise, 2);
    assert!(stderr.contains("hunt again"), "{stderr}");
}

const VICTIM: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../../scenarios/victims/small-write.toml"
);

#[test]
fn a_victim_s_attackers_are_ranked_and_their_scenarios_hurt_it() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("small.toml");
    fs::write(
        &file,
        "queue_pairs = [1, 16]\nregions = [1, 1024]\ndepth = [1, 64]\n",
    )
    .unwrap();
    let out = directory.path().join("victim");
    let (out, file) = (out.to_str().unwrap(), file.to_str().unwrap());
    let start = [
        "hunt",
        "--victim",
        VICTIM,
        "--policy",
        "none",
        "--restrict",
        file,
        "--json",
        "--report",
        out,
    ];
    let (first, _) = check(&[&start[..], &["--budget", "40"]].concat(), 0);
    let (whole, _) = check(&[&start[..], &["--budget", "220", "--resume"]].concat(), 0);
    assert_ne!(first, whole);
    let result: serde_json::Value = serde_json::from_str(&whole).unwrap();
    assert_eq!(result["victim"]["victim"], "small-write");
    let attacks = result["anomalies"].as_array().unwrap();
    assert!(!attacks.is_empty(), "{whole}");
    for attack in attacks {
        assert_eq!(attack["symptom"], "interference");
        assert!(
            attack["harm"]["retained"].as_f64().unwrap() < 0.75,
            "{attack}"
        );
        let name = format!("{out}/anomaly-{}.toml", attack["number"]);
        let (run, _) = check(&["sim", &name, "--json"], 0);
        let run: serde_json::Value = serde_json::from_str(&run).unwrap();
        assert_eq!(run["tenants"].as_array().unwrap().len(), 2);
    }
    assert!(Path::new(out).join("report.html").exists());
}

#[test]
fn victims_that_cannot_be_hunted_for_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("two.toml");
    let tenant = |name: &str| {
        format!("[[tenant]]\nname = \"{name}\"\n[[tenant.traffic]]\nverb = \"write\"\nsize = 64\n")
    };
    fs::write(
        &file,
        format!(
            "profile = \"cx5-100g-roce\"\n{}{}",
            tenant("a"),
            tenant("b")
        ),
    )
    .unwrap();
    let refuses = |more: &[&str], part: &str| {
        let out = directory.path().join("out");
        let start = ["hunt", "--budget", "5", "--report", out.to_str().unwrap()];
        let (_, stderr) = check(&[&start[..], more].concat(), 2);
        assert!(stderr.contains(part), "{more:?}: {stderr}");
    };
    refuses(&["--victim", file.to_str().unwrap()], "has 2 tenants");
    refuses(&["--victim", VICTIM, "--policy", "sriow"], "sriov");
    refuses(&["--victim", VICTIM, "--alpha", "2"], "0 to below 1");
    refuses(&["--victim", "nowhere.toml"], "nowhere.toml");
    refuses(&["--victim", VICTIM, "--latency"], "--latency");
    let app = restriction(directory.path());
    let (_, stderr) = check(&["advise", &app, "--profile", "cx5"], 2);
    assert!(
        stderr.contains("did you mean") && !stderr.contains("sim:cx5"),
        "{stderr}"
    );
}

#[test]
fn hunts_without_a_directory_are_beside_each_other_and_resume() {
    let directory = tempfile::tempdir().unwrap();
    restriction(directory.path());
    let hunt = |more: &[&str]| {
        let start = ["hunt", "--target", "sim:cx6-200g-roce", "--restrict"];
        let mut command = Command::new(env!("CARGO_BIN_EXE_isolane"));
        command.current_dir(directory.path()).args(start);
        command.args(["app.toml", "--json"]).args(more);
        let output = command.output().expect("the binary runs");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{stderr}");
        (output.stdout, stderr)
    };
    let (first, _) = hunt(&["--budget", "12"]);
    let (second, stderr) = hunt(&["--budget", "12"]);
    assert_eq!(first, second);
    assert!(stderr.contains("wrote out/hunt-2/"), "{stderr}");
    let (_, stderr) = hunt(&["--budget", "12", "--seed", "2"]);
    assert!(stderr.contains("wrote out/hunt-3/"), "{stderr}");
    let (_, stderr) = hunt(&["--budget", "14", "--resume"]);
    assert!(stderr.contains("wrote out/hunt-2/"), "{stderr}");
}

#[test]
fn another_hunt_is_not_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    hunt(directory.path(), "hunt", &["--budget", "12"]);
    let out = directory.path().join("hunt");
    let file = restriction(directory.path());
    let start = restricted(&file, out.to_str().unwrap());
    let (_, stderr) = check(&start, 2);
    assert!(stderr.contains("--resume"), "{stderr}");
    let (_, stderr) = check(&[&start[..], &["--resume", "--seed", "2"]].concat(), 2);
    assert!(stderr.contains("--seed 1"), "{stderr}");
    let words = "hunt bench --seeds 1 --budget 10 --searchers random --restrict";
    let mut compare: Vec<&str> = words.split(' ').collect();
    compare.extend([file.as_str(), "--report"]);
    let bench =
        |out: &Path, status| check(&[&compare[..], &[out.to_str().unwrap()]].concat(), status);
    let (_, stderr) = bench(&out, 2);
    assert!(stderr.contains("holds a hunt"), "{stderr}");
    let other = directory.path().join("bench");
    bench(&other, 0);
    let start = [&start[..6], &[other.to_str().unwrap()]].concat();
    let (_, stderr) = check(&start, 2);
    assert!(stderr.contains("holds a comparison"), "{stderr}");
}

#[test]
fn random_points_are_reported_where_no_budget_is_left_to_reduce_them() {
    let directory = tempfile::tempdir().unwrap();
    let target = [
        "hunt",
        "--target",
        "sim:cx6-200g-roce",
        "--budget",
        "10",
        "--report",
    ];
    let (stdout, _) = check(
        &[&target[..], &[directory.path().to_str().unwrap()]].concat(),
        0,
    );
    assert!(
        stdout.contains("not reduced: the hunt ended before"),
        "{stdout}"
    );
}
