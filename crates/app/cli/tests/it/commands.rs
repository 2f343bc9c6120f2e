//! The binary as a user meets it: exit codes, messages, and documents on stdout.
#![allow(clippy::unwrap_used)]

use crate::support::{check, command, refuses};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

fn json(text: &str) -> Value {
    assert!(text.ends_with('\n'));
    serde_json::from_str(text).unwrap()
}

/// A scenario file with one bulk tenant and `extra` lines.
fn scenario(directory: &Path, extra: &str) -> String {
    let path = directory.join("two.toml");
    let text = format!(
        "profile = \"cx5-100g-roce\"\nduration = \"200us\"\nwarmup = \"50us\"\n{extra}\n\
         [[tenant]]\nname = \"cache\"\nperftest = \"ib_write_lat -s 16\"\n\
         [[tenant]]\nname = \"backup\"\nperftest = \"ib_write_bw -s 1048576 -q 4\"\n"
    );
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn signs_and_holes_in_lists_are_named_with_option_value_and_remedy() {
    refuses(
        &["net", "delay", "--weights", "-1:2"],
        &["--weights -1:2: must not be negative", "W:W:..."],
    );
    refuses(
        &["sim", "x.toml", "--duration", "-3ms"],
        &["--duration -3ms", "isolane sim --help"],
    );
    for (list, words) in [
        ("--policies", &["sim", "x.toml", "--policies", ","][..]),
        ("--policies", &["audit", "--policies=none,"]),
        ("--flows", &["nic", "study", "--flows", "3,,6"]),
    ] {
        refuses(words, &[list, "a name is missing"]);
    }
}

#[test]
fn tenants_of_ones_own_are_explained_with_a_scenario() {
    let directory = tempfile::tempdir().unwrap();
    let file = scenario(directory.path(), "");
    refuses(
        &["explain", "cache", "backup"],
        &["\"cache\"", "--scenario FILE"],
    );
    refuses(
        &["explain", "--scenario", &file, "--victim", "cahce"],
        &["nearest: cache", "the scenario has cache, backup"],
    );
}

#[test]
fn sim_prints_a_line_per_tenant_and_the_counters() {
    let directory = tempfile::tempdir().unwrap();
    let file = scenario(directory.path(), "");
    let (stdout, stderr) = check(&["sim", &file], 0);
    for part in [
        "cache",
        "backup",
        "goodput Gb/s",
        "p99.9 us",
        "link_tx_utilisation",
    ] {
        assert!(stdout.contains(part), "{part}\n{stdout}");
    }
    assert_eq!(stderr, "");
}

#[test]
fn sim_json_is_one_document_and_equal_every_time() {
    let directory = tempfile::tempdir().unwrap();
    let file = scenario(directory.path(), "");
    let arguments = ["sim", &file, "--json", "--seed", "7"];
    let (first, _) = check(&arguments, 0);
    let value = json(&first);
    assert_eq!(value["seed"], 7);
    assert_eq!(value["tenants"][1]["name"], "backup");
    assert!(value["tenants"][1]["goodput_gbps"].as_f64().unwrap() > 50.0);
    assert!(value["tenants"][0]["latency_us"]["p999"].is_number());
    // No message of backup ends in some points: they have no percentile.
    let points = value["tenants"][1]["p99_series_us"].as_array().unwrap();
    assert!(points.iter().any(serde_json::Value::is_null));
    assert!(points.iter().all(|point| *point != 0.0));
    assert_eq!(first, check(&arguments, 0).0);
}

#[test]
fn sim_writes_a_report() {
    let directory = tempfile::tempdir().unwrap();
    let file = scenario(directory.path(), "");
    let out = directory.path().join("report");
    let (_, stderr) = check(&["sim", &file, "--report", out.to_str().unwrap()], 0);
    assert!(stderr.contains("report.html"), "{stderr}");
    let html = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(html.contains("backup"));
    json(&fs::read_to_string(out.join("result.json")).unwrap());
}

#[test]
fn sim_compares_policies_in_one_table_one_list_and_one_report() {
    let directory = tempfile::tempdir().unwrap();
    let file = scenario(directory.path(), "");
    let out = directory.path().join("report");
    let both = ["sim", &file, "--policies", "none,justitia"];
    let report = ["--report", out.to_str().unwrap()];
    let (stdout, _) = check(&[&both[..], &report].concat(), 0);
    let rows = stdout.lines().filter(|line| line.starts_with("  backup  "));
    assert_eq!(rows.count(), 2, "{stdout}");
    assert!(stdout.contains("Under pressure (justitia)"), "{stdout}");
    let html = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(html.contains("justitia"));
    let list = json(&fs::read_to_string(out.join("result.json")).unwrap());
    assert_eq!(list[0]["policy"], "none");
    assert_eq!(list[1]["policy"], "justitia");
    let target = ["--set", "target_us=5", "--json"];
    let set = json(&check(&[&both[..], &target].concat(), 0).0);
    assert_eq!(set[1]["policy_state"]["host_a.target_us"], 5.0);
    refuses(&["sim", &file, "--policies", "none,none"], &["twice"]);
    check(&["sim", &file, "--policies", "none", "--policy", "none"], 2);
}

#[test]
fn sim_says_in_words_what_was_under_pressure_and_which_figures_are_weak() {
    let directory = tempfile::tempdir().unwrap();
    let file = scenario(
        directory.path(),
        "[[tenant]]\nname = \"starved\"\n\
         engine = \"RdmaEngine --qp_num=16 --recv_batch=0 --qp_type=4 --request=s_1_1024\"",
    );
    let (short, _) = check(&["sim", &file], 0);
    for part in [
        "Under pressure\n  host B: receive units stalled",
        "starved: no goodput; its receiver on host B posts no receive back",
        "backup: latency not steady after 200us",
    ] {
        assert!(short.contains(part), "{part}\n{short}");
    }
    assert!(!short.contains("host_a.target_us") && !short.contains("np_cnp_sent"));
    let out = directory.path().join("report");
    let report = ["sim", &file, "--report", out.to_str().unwrap()];
    check(&report, 0);
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    for part in [
        "<p class=\"verdict\">Under none, starved delivers nothing, ",
        "<li>under pressure: host B: receive units stalled",
        "<li>starved: no goodput; its receiver on host B posts no receive back",
        "<li>backup: latency not steady after 200us",
    ] {
        assert!(page.contains(part), "{part}");
    }
    let file = scenario(directory.path(), "");
    let (longer, _) = check(&["sim", &file, "--duration", "1ms", "--json"], 0);
    let longer = json(&longer);
    let steady = |tenant: usize| longer["tenants"][tenant]["latency_us"]["steady"].clone();
    assert_eq!([steady(0), steady(1)], [true, false]);
    let (long, _) = check(&["sim", &file, "-v", "--policy", "justitia"], 0);
    assert!(long.contains("host_a.target_us") && long.contains("np_cnp_sent"));

    // Goodput of few large messages settles before their latency does, and the note says both in one unit.
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../scenarios/justitia/read-vs-write.toml"
    );
    let (settled, _) = check(&["sim", file, "--settle"], 0);
    for part in [
        "settled: measured for ",
        "read: latency not steady after 5ms (completions measured: 16), although its goodput has settled; run at least --duration",
    ] {
        assert!(settled.contains(part), "{part}\n{settled}");
    }
}

#[test]
fn sim_reads_a_scenario_from_stdin() {
    let directory = tempfile::tempdir().unwrap();
    let file = scenario(directory.path(), "");
    let piped = |file: &str| {
        command(&["sim", "-", "--json"])
            .stdin(fs::File::open(file).unwrap())
            .output()
            .unwrap()
    };
    let output = piped(&file);
    assert_eq!(output.status.code(), Some(0));
    let value = json(&String::from_utf8(output.stdout).unwrap());
    assert_eq!(value["scenario"], "stdin");
    let output = piped(&scenario(directory.path(), "durration = \"5ms\""));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("stdin:4"), "{stderr}");
}

#[test]
fn sim_refuses_what_it_cannot_do_and_says_what_would_be_right() {
    let directory = tempfile::tempdir().unwrap();
    let file = scenario(directory.path(), "");
    refuses(&["sim", "missing.toml"], &["missing.toml", "cannot read"]);
    refuses(
        &["sim", &file, "--policy", "justicia"],
        &["did you mean justitia?"],
    );
    refuses(
        &["sim", &file, "--profile", "cx5-100g-rose"],
        &["did you mean cx5-100g-roce?"],
    );
    refuses(
        &["sim", &file, "--profile", "none/here.toml"],
        &["none/here.toml"],
    );
    refuses(
        &["sim", &file, "--set", "target_us=3"],
        &["policy none has no parameter target_us"],
    );
    refuses(
        &[
            "sim",
            &file,
            "--policy",
            "justitia",
            "--set",
            "target_us=-1",
        ],
        &["target_us must be a number"],
    );
    let broken = scenario(directory.path(), "durration = \"5ms\"");
    refuses(
        &["sim", &broken],
        &["two.toml:4", "durration", "did you mean duration?"],
    );
}

#[test]
fn usage_mistakes_end_with_2() {
    check(&["audit", "--alpha", "1.5"], 2);
    check(&["audit", "--seeds", "0"], 2);
    check(&["audit", "--duration", "5"], 2);
    check(&["frobnicate"], 2);
}

/// A small audit into `out`.
fn small<'a>(out: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let fixed = [
        "audit",
        "--policies",
        "none",
        "--seeds",
        "2",
        "--duration",
        "100us",
        "--warmup",
        "20us",
        "--victims",
        "large_bw_ib_write_bw,lat_ib_write_16",
        "--attackers",
        "BW-1MB_ib_write_bw,PU-RNR_RC*",
        "--report",
        out,
    ];
    [&fixed, more].concat()
}

#[test]
fn audit_writes_its_forms_and_repeats_to_the_byte() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("first");
    let out = out.to_str().unwrap();
    let (text, stderr) = check(&small(out, &[]), 0);
    assert!(text.contains("policy none on cx5-100g-roce"), "{text}");
    assert!(text.contains("worst victim"), "{text}");
    assert!(stderr.contains("audit.json"), "{stderr}");
    let file = fs::read_to_string(Path::new(out).join("audit.json")).unwrap();
    let value = json(&file);
    assert_eq!(value["progress"]["partial"], false);
    assert_eq!(value["cells"].as_array().unwrap().len(), 2 * 3);
    assert!(
        fs::read_to_string(Path::new(out).join("audit.xml"))
            .unwrap()
            .contains("<testsuite ")
    );
    let html = fs::read_to_string(Path::new(out).join("report.html")).unwrap();
    assert!(html.contains("large_bw_ib_write_bw"));
    for jobs in ["1", "3"] {
        let (stdout, _) = check(&small(out, &["--json", "--jobs", jobs]), 0);
        assert_eq!(stdout, file, "--jobs {jobs}");
    }
    let (resumed, _) = check(&small(out, &["--json", "--resume"]), 0);
    assert_eq!(resumed, file);
}

#[test]
fn audit_can_fail_on_violation() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().to_str().unwrap();
    check(&small(out, &["--fail-on-violation"]), 1);
}

/// Goal: applications are audited when named, the same way twice, and `explain` says why it does not follow them.
#[test]
fn applications_are_audited_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().to_str().unwrap();
    let audit = [
        "audit",
        "--victims",
        "app_redis",
        "--attackers",
        "PU-RNR_UC-RNR",
        "--policies",
        "none",
        "--seeds",
        "1",
        "--report",
        out,
        "--json",
    ];
    let (first, _) = check(&audit, 0);
    assert_eq!(first, check(&audit, 0).0);
    let result = json(&first);
    assert_eq!(result["victims"][0]["kind"], "application");
    let operations = &result["solo"][0]["median"];
    assert!(operations["operations_per_s"].as_f64().unwrap() > 0.0);
    assert!(operations["operation_p99_us"].as_f64().unwrap() > 0.0);
    let violated = result["cells"][0]["verdict"] == "violation";
    let mut failing = audit.to_vec();
    failing.push("--fail-on-violation");
    check(&failing, i32::from(violated));
    for victim in ["app_redis", "app_dare"] {
        refuses(
            &["explain", victim, "PU-RNR_UC-RNR"],
            &[victim, "application"],
        );
    }
}

#[test]
fn audit_refuses_bad_selections() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().to_str().unwrap();
    refuses(
        &["audit", "--victims", "large_bw_ib_writ_bw", "--report", out],
        &["no victim matches", "nearest: large_bw_ib_write_bw"],
    );
    refuses(
        &["audit", "--attackers", "nothing*", "--report", out],
        &["no attacker matches"],
    );
    refuses(
        &["audit", "--policies", "none,none", "--report", out],
        &["none twice"],
    );
    refuses(
        &["claims", "--sceonds", "3"],
        &["isolane: --sceonds: isolane claims has no such option (`"],
    );
    refuses(
        &["audit", "--policies", "plaos", "--report", out],
        &["policy plaos", "did you mean palos?"],
    );
    fs::write(Path::new(out).join("journal.jsonl"), "not a journal\n").unwrap();
    refuses(
        &small(out, &["--resume"]),
        &["damaged at line 1", "without --resume"],
    );
}

#[test]
fn audit_with_a_file_in_place_of_a_directory_ends_with_2() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let out = file.join("below");
    let (_, stderr) = check(&small(out.to_str().unwrap(), &[]), 2);
    assert!(stderr.contains("cannot make the directory"), "{stderr}");
}

/// Goal: the results of a terminated audit are stored and readable, and the audit can resume. Method: wait until the
/// journal holds a few runs, terminate, resume, and compare with an audit that was never stopped.
#[test]
#[cfg(unix)]
fn a_terminated_audit_leaves_a_readable_part_and_resumes() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("stopped");
    let out = out.to_str().unwrap();
    let arguments = |more: &[&'static str]| -> Vec<String> {
        let fixed = [
            "audit",
            "--policies",
            "none",
            "--victims",
            "large_bw_ib_write_bw,small_tput_ib_send_bw",
            "--attackers",
            "BW-1MB_ib_write_bw,Cache-ctrl_num*",
            "--seeds",
            "2",
            "--duration",
            "300us",
            "--jobs",
            "1",
            "--report",
            out,
        ];
        let more = more.iter().copied();
        fixed.into_iter().chain(more).map(str::to_owned).collect()
    };
    let words = arguments(&[]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut child = command(&words)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let journal = Path::new(out).join("journal.jsonl");
    let runs = || fs::read_to_string(&journal).map_or(0, |text| text.lines().count());
    while runs() < 8 && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    let terminated = Command::new("kill").arg(child.id().to_string()).status();
    assert!(
        terminated.unwrap().success(),
        "the audit ended before it was stopped"
    );
    let ended = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(130), "{stderr}");
    assert!(stderr.contains("--resume"), "{stderr}");
    let part = json(&fs::read_to_string(Path::new(out).join("audit.json")).unwrap());
    assert_eq!(part["progress"]["partial"], true);
    assert!(part["cells"].as_array().unwrap().len() < 2 * 5);

    let resumed = arguments(&["--resume", "--json"]);
    let resumed: Vec<&str> = resumed.iter().map(String::as_str).collect();
    let (resumed, _) = check(&resumed, 0);
    let whole = arguments(&["--json"]);
    let whole: Vec<&str> = whole.iter().map(String::as_str).collect();
    assert_eq!(resumed, check(&whole, 0).0);
}

#[test]
fn explain_gives_a_chain_and_repeats_it_to_the_byte() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("explain");
    let arguments = [
        "explain",
        "lat_ib_write_16",
        "BW-1MB_ib_write_bw",
        "--duration",
        "600us",
        "--json",
        "--report",
        out.to_str().unwrap(),
    ];
    let (first, _) = check(&arguments, 0);
    let story = json(&first);
    assert_eq!(story["victim"], "lat_ib_write_16");
    assert_eq!(story["loss"]["hurt"], true);
    assert_eq!(story["chain"][0]["role"], "cause");
    assert!(story["causes"][0]["added_us"].as_f64().unwrap() > 0.0);
    let file = fs::read_to_string(out.join("explain.json")).unwrap();
    assert_eq!(json(&file), story);
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("lat_ib_write_16"));
    let (second, _) = check(&arguments, 0);
    assert_eq!(first, second);

    let words: Vec<&str> = arguments.into_iter().filter(|&w| w != "--json").collect();
    let (text, _) = check(&words, 0);
    assert!(text.contains("Chain of causes"), "{text}");
}

#[test]
fn explain_takes_tenants_of_a_scenario() {
    let directory = tempfile::tempdir().unwrap();
    let file = scenario(directory.path(), "");
    let out = directory.path().join("explain");
    let out = out.to_str().unwrap();
    let start = ["explain", "--scenario", &file, "--report", out];
    let command = [&start[..], &["--victim", "cache", "--duration", "600us"]].concat();
    let (text, _) = check(&command, 0);
    assert!(text.contains("backup runs WRITE of 1 MiB"), "{text}");
    refuses(&[&start[..], &["--victim", "cach"]].concat(), &["cache"]);
}

#[test]
fn explain_names_the_nearest_of_a_misspelt_name() {
    let (_, stderr) = check(&["explain", "lat_ib_write_61", "BW-1MB_ib_write_bw"], 2);
    assert!(stderr.contains("lat_ib_write_16"), "{stderr}");
    let (_, stderr) = check(&["explain", "lat_ib_write_16", "BW-1MB_ib_writ_bw"], 2);
    assert!(stderr.contains("BW-1MB_ib_write_bw"), "{stderr}");
}

#[test]
fn profiles_and_workloads_list_and_show() {
    let (text, _) = check(&["catalog", "profiles"], 0);
    assert!(text.contains("cx5-100g-roce"));
    let (text, _) = check(&["catalog", "profiles", "cx5-100g-roce"], 0);
    assert!(
        text.contains("link.rate_gbps") && text.contains("published"),
        "{text}"
    );
    let (text, _) = check(&["catalog", "profiles", "cx5-100g-roce", "--json"], 0);
    assert_eq!(json(&text)["name"], "cx5-100g-roce");
    refuses(
        &["catalog", "profiles", "cx5"],
        &["did you mean cx5-100g-roce?"],
    );
    let (text, _) = check(&["catalog", "workloads", "--json"], 0);
    assert!(json(&text).as_array().unwrap().len() >= 21 + 50);
    let (text, _) = check(&["catalog", "workloads", "attacker/PU-RNR_UC-RNR"], 0);
    assert!(text.contains("command"), "{text}");
    refuses(
        &["catalog", "workloads", "PU-RNR_UC"],
        &["did you mean PU-RNR_UC-RNR?"],
    );
}

#[test]
fn schemas_completions_and_man_pages_are_made() {
    for document in ["scenario", "result", "audit", "recommendation", "doctor"] {
        let (text, _) = check(&["catalog", "schema", document], 0);
        assert!(json(&text)["properties"].is_object(), "{document}");
    }
    let (text, _) = check(&["completions", "bash"], 0);
    assert!(text.contains("none hw-priority lite"));
    assert!(text.contains("cx5-100g-roce"));
    let directory = tempfile::tempdir().unwrap();
    check(&["man", directory.path().to_str().unwrap()], 0);
    assert!(directory.path().join("isolane-audit.1").exists());
}

#[test]
fn help_states_the_exit_codes() {
    let (text, _) = check(&["--help"], 0);
    assert!(text.contains("Exit codes:") && text.contains("130"));
    let readme = include_str!("../../../../../README.md");
    for code in [
        "0 done",
        "1 the answer is no",
        "2 wrong usage",
        "3 the machine",
        "130 interrupted",
    ] {
        assert!(readme.replace('\n', " ").contains(code), "{code}");
    }
    assert!(check(&["--version"], 0).0.starts_with("isolane 0."));
}

/// The reader goes away after the first byte of a document longer than a pipe holds.
#[test]
fn a_closed_pipe_is_no_error() {
    let mut child = command(&["catalog", "schema", "scenario"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(ended.stderr).unwrap(), "");
    assert_eq!(ended.status.code(), Some(0));
}
