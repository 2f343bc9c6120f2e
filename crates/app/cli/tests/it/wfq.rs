//! `isolane net` from the command line: what it prints, and what it refuses.
#![allow(clippy::unwrap_used)]

use crate::support;
use isolane_common_linux::skip::skip;
use serde_json::Value;
use std::process::Command;

fn delay(arguments: &[&str], code: i32) -> (String, String) {
    check(&[&["delay"], arguments].concat(), code)
}

fn check(arguments: &[&str], code: i32) -> (String, String) {
    support::check(&[&["net"], arguments].concat(), code)
}

#[test]
fn the_appendix_example_comes_out_as_json() {
    let (stdout, _) = delay(&["--phi", "4", "--rho", "2", "--mu", "0.8", "--json"], 0);
    let delays: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(delays["points"].as_array().unwrap().len(), 101);
    for point in delays["points"].as_array().unwrap() {
        let share = point["share"].as_f64().unwrap();
        let delay = point["delay_periods"][0].as_f64().unwrap();
        assert!(
            (delay - (share - 0.4).clamp(0.0, 0.4)).abs() < 1e-9,
            "{point}"
        );
    }
    let end = delays["admissible_share"][0][1].as_f64().unwrap();
    assert!((end - 0.8).abs() < 1e-6, "lemma 1 says 4/5, not {end}");
}

#[test]
fn three_classes_in_microseconds_end_in_sentences() {
    let (stdout, _) = delay(
        &["--weights", "8:4:1", "--rest", "2:1", "--period-us", "100"],
        0,
    );
    assert!(stdout.contains("delay of 2, us"), "{stdout}");
    assert!(stdout.contains("Class 1 is admitted at least"), "{stdout}");
}

#[test]
fn what_cannot_be_computed_is_refused_with_the_arithmetic() {
    for (arguments, part) in [
        (&[][..], "or --weights W:W:..."),
        (&["--phi", "0"], "weight 0 of class 0"),
        (&["--phi", "4", "--mu", "1.2"], "(mu), 1.2 line rates"),
        (&["--phi", "4", "--mu", "-1"], "(mu), -1 line rates"),
        (&["--phi", "4", "--rho", "0.9"], "(rho), 0.9 line rates"),
        (&["--phi", "4", "--share", "1.5"], "--share 1.5"),
        (&["--weights", "8:x:1"], "\"x\" is not a finite number"),
        (&["--weights", "inf:1"], "\"inf\" is not a finite number"),
        (&["--weights", "8:NaN"], "\"NaN\" is not a finite number"),
        (
            &["--weights", "8:4:1", "--rest", "1"],
            "1 parts for 2 classes",
        ),
        (&["--weights", "8:4:1", "--rest", "0:0"], "no traffic"),
        (&["--weights", "4"], "one class"),
        (&["--phi", "-1"], "weight -1 of class 0"),
        (&["--phi", "4Gb"], "must be a plain number"),
        (&["--phi", "4", "--mu", "80%"], "like 0.8 for 80%"),
        (&["--phi", "4", "--share", "-0.5"], "--share -0.5"),
    ] {
        let (stdout, stderr) = delay(arguments, 2);
        assert_eq!(stdout, "");
        assert!(stderr.contains(part), "{part:?} is not in {stderr}");
    }
}

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/slo.toml");

#[test]
fn the_example_is_planned_and_what_does_not_fit_is_said() {
    let (stdout, _) = check(&["plan", EXAMPLE, "--json"], 0);
    let plan: Value = serde_json::from_str(&stdout).unwrap();
    let classes = plan["classes"].as_array().unwrap();
    let sum: f64 = classes
        .iter()
        .map(|class| class["admitted_share"].as_f64().unwrap())
        .sum();
    assert!(
        (sum - 1.0).abs() < 1e-6,
        "all traffic goes somewhere: {sum}"
    );
    for class in &classes[..2] {
        let worst = class["latency_us_max"].as_f64().unwrap();
        assert!(worst <= class["slo_us"].as_f64().unwrap() + 0.01, "{class}");
    }
    let (text, _) = check(&["plan", EXAMPLE], 0);
    let short = classes
        .iter()
        .any(|class| class["admitted_part"].as_f64().unwrap() < 0.999);
    assert_eq!(
        text.contains("Aequitas downgrades the rest"),
        short,
        "{text}"
    );
}

#[test]
fn a_device_name_cannot_smuggle_commands() {
    let (_, stderr) = check(&["plan", EXAMPLE, "--device", "eth0; reboot"], 2);
    assert!(stderr.contains("a network device has a name"), "{stderr}");
}

/// The kernel takes the htb configuration as printed, in a network namespace of its own.
#[test]
fn the_kernel_takes_the_configuration() {
    let (commands, _) = check(&["plan", EXAMPLE, "--emit", "tc-htb", "--device", "v0"], 0);
    let script = format!(
        "set -e\nip link add v0 type veth peer name v1\nip link set v0 up\n{commands}tc class show dev v0\ntc filter show dev v0\n"
    );
    let run = Command::new("unshare")
        .args(["-n", "sh", "-c", &script])
        .output();
    let output = match run {
        Ok(output) => output,
        Err(error) => return skip(format_args!("no unshare here ({error})")),
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    let missing = [
        "Operation not permitted",
        "not found",
        "Unknown device type",
        "qdisc kind is unknown",
    ];
    if !output.status.success() && missing.iter().any(|reason| stderr.contains(reason)) {
        return skip(format_args!(
            "needs root, iproute2 and a kernel with veth and htb ({stderr})"
        ));
    }
    assert!(output.status.success(), "{stderr}\n{script}");
    let shown = String::from_utf8_lossy(&output.stdout);
    for part in [
        "class htb 1:1 ",
        "class htb 1:3 ",
        "match 00b80000/00fc0000",
        // The same byte of IPv6.
        "match 0b800000/0fc00000",
    ] {
        assert!(shown.contains(part), "{part:?} is not in {shown}");
    }
}
