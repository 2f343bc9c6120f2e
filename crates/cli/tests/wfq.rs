//! `isolane wfq` from the command line: what it prints, and what it refuses.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::process::Command;

fn check(arguments: &[&str], code: i32) -> (String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_isolane"))
        .args(["wfq", "delay"])
        .args(arguments)
        .output()
        .unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?} {stderr}");
    (stdout, stderr)
}

#[test]
fn the_appendix_example_comes_out_as_json() {
    let (stdout, _) = check(&["--phi", "4", "--rho", "2", "--mu", "0.8", "--json"], 0);
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
    let (stdout, _) = check(
        &["--weights", "8:4:1", "--rest", "2:1", "--period-us", "100"],
        0,
    );
    assert!(stdout.contains("delay of 2, us"), "{stdout}");
    assert!(stdout.contains("Class 1 is admitted at least"), "{stdout}");
}

#[test]
fn what_cannot_be_computed_is_refused_with_the_arithmetic() {
    for (arguments, part) in [
        (&["--phi", "0"][..], "weight 0 of class 0"),
        (&["--phi", "4", "--mu", "1.2"], "load 1.2"),
        (&["--phi", "4", "--mu", "-1"], "load -1"),
        (&["--phi", "4", "--rho", "0.9"], "burst 0.9"),
        (&["--phi", "4", "--share", "1.5"], "--share 1.5"),
        (&["--weights", "8:x:1"], "\"x\" is not a number"),
        (
            &["--weights", "8:4:1", "--rest", "1"],
            "1 parts for 2 classes",
        ),
        (&["--weights", "8:4:1", "--rest", "0:0"], "no traffic"),
        (&["--weights", "4"], "one class"),
    ] {
        let (stdout, stderr) = check(arguments, 2);
        assert_eq!(stdout, "");
        assert!(stderr.contains(part), "{part:?} is not in {stderr}");
    }
}
