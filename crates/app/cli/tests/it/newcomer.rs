//! What a hurried newcomer does wrong, and what the binary says to it: one line with object, value, what is allowed and what
//! to do.
#![allow(clippy::unwrap_used)]

use crate::support::{check, command, has_all, refuses};
use std::fs;
use std::path::Path;
use std::process::Stdio;

/// A file of the repository.
pub(crate) fn file(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    root.join(path).to_str().unwrap().to_owned()
}

fn rdma() -> String {
    file("scenarios/justitia/latency-vs-bulk.toml")
}

#[test]
fn a_policy_of_another_kind_of_scenario_is_named_with_its_kind() {
    let network = file("scenarios/aequitas/slo-compliance.toml");
    refuses(
        &["sim", &rdma(), "--policy", "aequitas"],
        &[
            "--policy aequitas",
            "runs on networks ([fabric])",
            "justitia",
        ],
    );
    refuses(
        &["sim", &network, "--policies", "none,justitia"],
        &[
            "--policies justitia",
            "runs on RDMA hosts",
            "aequitas, aequitas-2, spq",
        ],
    );
    refuses(
        &["sim", &rdma(), "--policy", "tpp"],
        &["--policy tpp", "runs on tiered memory ([memory])"],
    );
    refuses(
        &["audit", "--policies", "none,aequitas"],
        &["policy aequitas: runs on networks ([fabric])"],
    );
}

#[test]
fn numbers_name_the_option_the_value_and_the_range() {
    let rdma = rdma();
    refuses(
        &["sim", &rdma, "--seed", "abc"],
        &[
            "--seed abc: must be a whole number from 0 to",
            "like 7",
            "`isolane sim --help`",
        ],
    );
    refuses(
        &["audit", "--seeds", "0"],
        &["--seeds 0: must be a whole number from 1 to 1000"],
    );
    refuses(
        &["audit", "--alpha", "1.5"],
        &["--alpha 1.5: must be a number from 0 to 1, like 0.25"],
    );
    refuses(
        &["audit", "--duration", "5"],
        &["--duration 5: must be a number and a unit"],
    );
}

#[test]
fn every_error_has_the_same_form() {
    let rdma = rdma();
    let titan = file("scenarios/titan/3-flows.toml");
    for (words, parts) in [
        (
            &["pipeline", "run"][..],
            &["isolane: pipeline: isolane has no such command; must be one of "][..],
        ),
        (
            &["zzzzz"],
            &[
                "isolane: zzzzz: isolane has no such command; must be one of ",
                "audit",
            ],
        ),
        (
            &["help", "sim"],
            &["isolane: help: is no command; use isolane sim --help"],
        ),
        (
            &["hunt", "--target", "sim:cx5-100g-roce", "days"],
            &["isolane: days: isolane hunt has no such command"],
        ),
        (
            &["recommend", &titan],
            &[
                "makes this the scenario of Ethernet NICs",
                "run it with isolane sim",
            ],
        ),
        (
            &["simm", "x"],
            &["isolane: simm: isolane has no such command; did you mean sim?"],
        ),
        (
            &["tenants.toml", "recommend"],
            &[
                "isolane: tenants.toml: stands before the command; write isolane recommend tenants.toml",
            ],
        ),
        (
            &["mem", "try", "--length", "1us"],
            &["--length 1us: must be at least 1s"],
        ),
        (
            &["mem", "run", "--slo-latency", "-160ns", "--", "true"],
            &["--slo-latency -160ns: must be"],
        ),
        (&["sim"], &["isolane: isolane sim needs SCENARIO"]),
        (
            &["sim", &rdma, "--polcy", "none"],
            &["isolane: --polcy: isolane sim has no such option; did you mean --policy?"],
        ),
        (
            &["sim", &rdma, "--policy"],
            &["isolane: --policy: a value is missing; give one of none,"],
        ),
        (
            &["hunt", "--target", "sim:cx5-100g-roce", "--out", "x"],
            &["isolane: --out: isolane hunt has no such option; did you mean --report?"],
        ),
        (
            &["sim", &rdma, "--seed", "1", "--seed", "2"],
            &["isolane: --seed: is given twice"],
        ),
        (
            &["audit", "--quick", "--victims", "lat*"],
            &["isolane: --quick", "--victims", "do not go together"],
        ),
        (
            &["audit", "--target", "sim:cx6-200g-roce"],
            &["--target sim, and --profile cx6-200g-roce is its device"],
        ),
        (
            &["hunt", "--target", "sim:cx5-100g-roce", "--searcher", "x"],
            &["isolane: --searcher x: must be one of anneal"],
        ),
        (
            &["sim", "none.toml"],
            &[
                "isolane: cannot read none.toml",
                "give the path of a file that exists",
            ],
        ),
    ] {
        refuses(words, parts);
    }
}

#[test]
fn a_word_without_its_option_or_family_gets_it() {
    for (words, parts) in [
        (
            &["audit", "my-tenants.toml"][..],
            &[
                "my-tenants.toml: one word too many",
                "did you mean --scenario my-tenants.toml?",
            ][..],
        ),
        (
            &["claims", "justitia"],
            &["options only; did you mean --only 'justitia/*'?"],
        ),
        (
            &["explain", "my-tenants.toml"],
            &["needs ATTACKER; did you mean --scenario my-tenants.toml?"],
        ),
        (
            &["audit", "cx5-100g-roce"],
            &["did you mean --profile cx5-100g-roce?"],
        ),
        (
            &["hunt", "cx5-100g-roce"],
            &["did you mean --target sim:cx5-100g-roce?"],
        ),
        (
            &["regress", "cx6-200g-roce"],
            &[
                "isolane regress needs --profile-matrix NAME|FILE,... or --bisect",
                "did you mean --profile-matrix cx6-200g-roce?",
            ],
        ),
        (
            &["doctor"],
            &[
                "doctor: isolane has no such command; did you mean isolane rdma doctor or isolane mem doctor?",
            ],
        ),
        (&["profiles"], &["did you mean isolane catalog profiles?"]),
    ] {
        refuses(words, parts);
    }
    // The value of an option is not a word without one.
    let (_, stderr) = check(&["recommend", "--profile", "cx5-100g-roce"], 2);
    assert!(!stderr.contains("did you mean"), "{stderr}");
}

#[test]
fn a_scenario_in_place_of_another_file_is_named() {
    let network = file("scenarios/aequitas/slo-compliance.toml");
    let ours = [
        &network,
        ": is a scenario of a network, and this command takes ",
    ]
    .concat();
    refuses(
        &["net", "plan", &network],
        &[
            &ours,
            "one port with its traffic",
            &format!("isolane sim {network}"),
        ],
    );
    let rdma = rdma();
    let parts = [
        "is a scenario of RDMA hosts",
        "run a scenario with isolane sim",
    ];
    let quota = ["rpc", "quota", "serve", &rdma];
    for words in [
        &["rdma", "plan", &rdma][..],
        &["mem", "plan", &rdma],
        &["mem", "submit", &rdma],
        &["advise", &rdma],
        &["audit", "--profile", &rdma],
        &quota,
    ] {
        refuses(words, &parts);
    }
    let profile = file("profiles/cx5-100g-roce.toml");
    let ours = [&profile, ": is the profile of an RDMA NIC"].concat();
    for words in [
        &["sim", &profile][..],
        &["recommend", &profile],
        &["audit", "--scenario", &profile],
        &["explain", "--scenario", &profile, "--victim", "a"],
    ] {
        refuses(words, &[&ours, "give a profile with --profile"]);
    }
    // Commands without the option do not advise it.
    let others = "sweep,net plan,mem plan,mem submit,rdma plan,rdma pods --dry-run --from";
    for command in others.split(',') {
        let words: Vec<&str> = command.split(' ').chain([&profile[..]]).collect();
        let (_, stderr) = check(&words, 2);
        assert!(stderr.contains(&ours), "{command}: {stderr}");
        assert!(!stderr.contains("--profile"), "{command}: {stderr}");
    }
}

#[test]
fn a_file_of_another_kind_is_named_with_the_command_that_takes_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let written = |name: &str, content: &[u8]| {
        let path = directory.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (result, _) = check(&["net", "plan", &file("examples/slo.toml"), "--json"], 0);
    let found = [
        (
            file("examples/slo.toml"),
            "a port with its traffic",
            "isolane net plan ",
        ),
        (
            file("examples/quota.toml"),
            "the settings of a quota server",
            "isolane rpc quota serve ",
        ),
        (
            file("examples/rpc.toml"),
            "the settings of the admission",
            "isolane rpc enforce ",
        ),
        (
            file("examples/mem-app.toml"),
            "an application with an objective",
            "isolane mem submit ",
        ),
        (
            file("examples/traffic.yaml"),
            "an ML query",
            "isolane edge plan ",
        ),
        (
            file("examples/tiers.yaml"),
            "a file of tiers and links",
            "--infra ",
        ),
        (
            file("examples/hardware/rxe.json"),
            "a list of devices",
            "--devices ",
        ),
        (
            written("run.json", br#"{"version":1,"seed":1}"#),
            "the result of a run",
            "made from",
        ),
        (
            written("plan.json", result.as_bytes()),
            "JSON of an unknown kind",
            "",
        ),
        (written("empty.toml", b"\n"), "empty", ""),
        (written("x.toml", b"\xff\x00"), "binary data", ""),
        (
            directory.path().to_str().unwrap().to_owned(),
            "a directory",
            "give a file in it",
        ),
    ];
    for (path, kind, command) in &found {
        let is = format!("{path}: is {kind}");
        refuses(
            &["sim", path],
            &[&is, "this command takes a scenario (TOML", command],
        );
        if !kind.starts_with("an application") {
            refuses(
                &["mem", "plan", path],
                &[&is, "this command takes one application"],
            );
        }
    }
    for (path, _, _) in &found[..5] {
        refuses(
            &["advise", path],
            &[&format!("{path}: is "), "what an application may request"],
        );
    }
}

#[test]
fn what_is_needed_is_named_with_its_kind() {
    let root = file("");
    for (words, parts) in [
        (
            &["fix", &root][..],
            &["has no hunt.json; give the directory of `isolane hunt --report`"][..],
        ),
        (
            &["completions"],
            &["isolane completions needs SHELL, one of bash, elvish, fish, powershell, zsh"],
        ),
        (
            &["nic", "soft", "--rate", "10Gb/s"],
            &[
                "--rate 10Gb/s: must be a number from 0.01 to 100 of Gb/s, without the unit, like 10",
            ],
        ),
    ] {
        refuses(words, parts);
    }
}

#[test]
fn a_victim_and_an_attacker_that_are_exchanged_are_put_right() {
    let (victim, attacker) = ("lat_ib_write_16", "BW-1MB_ib_write_bw");
    refuses(
        &["explain", attacker, victim, "--policy", "justitia"],
        &[
            "VICTIM BW-1MB_ib_write_bw: is an attacker",
            "ATTACKER lat_ib_write_16 is a victim",
            "isolane explain lat_ib_write_16 BW-1MB_ib_write_bw --policy justitia",
        ],
    );
    refuses(
        &["explain", victim, victim],
        &[
            "ATTACKER lat_ib_write_16: is a victim",
            "isolane explain lat_ib_write_16 ATTACKER",
        ],
    );
    refuses(
        &["explain", attacker, attacker],
        &[
            "VICTIM BW-1MB_ib_write_bw: is an attacker",
            "isolane catalog workloads",
        ],
    );
}

#[test]
fn a_hunt_without_a_device_lists_the_devices() {
    refuses(
        &["hunt"],
        &["--target sim:PROFILE", "cx5-100g-roce", "--victim FILE"],
    );
}

#[test]
fn an_unknown_device_gets_the_nearest_relative_and_the_way_to_add_one() {
    for words in [
        &["catalog", "profiles", "cx7-400g"][..],
        &["audit", "--profile", "cx7-400g"],
        &["hunt", "--target", "sim:cx7-400g"],
    ] {
        let parts = [
            "nearest in generation and rate is cx6-200g-roce",
            "adding-a-profile.md",
        ];
        refuses(words, &parts);
    }
}

#[test]
fn a_hunt_that_ended_early_has_no_rows_of_question_marks() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().to_str().unwrap();
    let target = "sim:cx6-200g-roce";
    let hunt = [
        "hunt", "--target", target, "--budget", "10", "--report", out,
    ];
    let (text, _) = check(&hunt, 0);
    assert!(!text.lines().any(|line| line.contains(" ?  ?")), "{text}");
}

#[test]
#[cfg(target_os = "linux")]
fn help_that_cannot_be_written_is_an_error() {
    let full = fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    for word in ["--help", "--version"] {
        let output = command(&[word])
            .stdout(full.try_clone().unwrap())
            .output()
            .unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{word}: {stderr}");
        assert!(
            stderr.starts_with("isolane: cannot write to stdout"),
            "{stderr}"
        );
    }
}

/// Goal: a signal ends commands that keep nothing with one line and the code of interrupted programs. Method: wait for the
/// first line of progress, which says that the work has begun, and terminate.
#[test]
#[cfg(unix)]
fn interrupted_commands_say_how_far_they_were_and_write_nothing() {
    use std::io::{BufRead, BufReader};
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let (rdma, mixed) = (rdma(), file("scenarios/recommend/mixed-tenants.toml"));
    let out_words = ["--report", out.to_str().unwrap()];
    let recommend = [
        &[
            "recommend",
            &mixed,
            "--seeds",
            "40",
            "--policies",
            "none,justitia",
            "--progress",
        ][..],
        &out_words,
    ]
    .concat();
    let report = out.to_str().unwrap();
    for words in [
        &[
            "sim",
            &rdma,
            "--duration",
            "200ms",
            "--progress",
            "--report",
            report,
        ][..],
        &recommend,
    ] {
        let mut child = command(words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let first = lines.next().unwrap().unwrap();
        assert!(
            first.starts_with("isolane: ") && first.contains(" done"),
            "{first}"
        );
        let pid = child.id().to_string();
        assert!(
            std::process::Command::new("kill")
                .arg(&pid)
                .status()
                .unwrap()
                .success()
        );
        let rest: Vec<String> = lines.map(Result::unwrap).collect();
        let ended = child.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(130), "{words:?}: {rest:?}");
        let last = rest.last().unwrap();
        has_all(
            last,
            &["isolane: interrupted after ", "nothing was written"],
        );
        assert!(ended.stdout.is_empty() && !out.exists());
    }
}

/// Goal: commands that print no progress end in the same way. Method: wait until the program catches the signal, by what the
/// kernel says of it, and send it; each would work for many seconds.
#[test]
#[cfg(target_os = "linux")]
fn commands_without_progress_end_on_ctrl_c_with_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let page = directory.path().join("CLAIMS.md");
    let (out_word, page_word) = (out.to_str().unwrap(), page.to_str().unwrap());
    for words in [
        &["claims", "--only", "justitia/*", "--markdown", page_word][..],
        &[
            "regress",
            "--profile-matrix",
            "cx6-200g-roce",
            "--seeds",
            "1000",
            "--record",
            page_word,
        ],
        &[
            "explain",
            "lat_ib_write_16",
            "Cache-QPC_ib_write_bw",
            "--duration",
            "400ms",
            "--report",
            out_word,
        ],
        &[
            "mem",
            "bench",
            "together",
            "--region",
            "1MiB",
            "--stream-region",
            "1MiB",
            "--length",
            "60s",
        ],
    ] {
        let mut child = command(words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let status = format!("/proc/{}/status", child.id());
        while !catches_sigint(&fs::read_to_string(&status).unwrap()) {
            assert!(
                child.try_wait().unwrap().is_none(),
                "{words:?} ended by itself"
            );
            std::thread::yield_now();
        }
        let pid = child.id().to_string();
        let kill = std::process::Command::new("kill")
            .args(["-INT", &pid])
            .status();
        assert!(kill.unwrap().success());
        let ended = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(130), "{words:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        has_all(&stderr, &["isolane: interrupted", "nothing was written"]);
        if words[0] == "mem" {
            has_all(&stderr, &["during isolane mem bench together"]);
        }
        assert!(ended.stdout.is_empty() && !out.exists() && !page.exists());
    }
}

/// Whether the mask of caught signals in a process's `status` has SIGINT, signal 2.
#[cfg(target_os = "linux")]
fn catches_sigint(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> 1 & 1 == 1)
}
