//! `isolane regress` as a user meets it.
#![allow(clippy::unwrap_used)]

use crate::hunt::check;
use std::fs;

#[test]
fn regress_compares_states_of_a_device_and_writes_junit() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("regress.xml");
    let start = ["regress", "--seeds", "1", "--profile-matrix"];
    let of = |matrix: &str, more: &[&str], code: i32| {
        check(&[&start[..], &[matrix], more].concat(), code)
    };
    let junit = ["--junit", file.to_str().unwrap()];
    // One profile: its published anomalies show.
    let (text, _) = of("cx6-200g-roce", &junit, 1);
    assert!(text.contains("collie#13"), "{text}");
    let xml = fs::read_to_string(&file).unwrap();
    let suite = "<testsuite name=\"cx6-200g-roce\" tests=\"13\" failures=\"13\"";
    assert!(xml.contains(suite), "{xml}");
    // Nothing new shows on a device without their mechanisms, nor on the same one.
    let (text, _) = of("cx6-200g-roce,cx6-200g-roce,cx5-100g-roce", &[], 0);
    assert!(text.ends_with("no regressions\n"), "{text}");
    let (_, stderr) = of("cx5-100g-roce", &[], 2);
    assert!(stderr.contains("no reproducers"), "{stderr}");
}

#[test]
fn regress_records_compares_bisects_watches_and_bundles() {
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    // The next version of the device has a wide path to the other socket.
    let shipped = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../profiles/cx6-200g-roce.toml"
    );
    let text = fs::read_to_string(shipped).unwrap();
    let wide = text.replacen(
        "remote_socket_gbps = { value = 340",
        "remote_socket_gbps = { value = 3400",
        1,
    );
    assert_ne!(text, wide);
    let next = place("next.toml");
    fs::write(&next, wide).unwrap();
    let run = |words: &[&str], code: i32| {
        check(&[&["regress", "--seeds", "1"][..], words].concat(), code).0
    };
    let (old, new, bundle) = (place("old.json"), place("new.json"), place("bundle"));
    let first = [
        "--profile-matrix",
        "cx6-200g-roce",
        "--record",
        &old,
        "--bundle",
        &bundle,
    ];
    run(&first, 1);
    run(&["--profile-matrix", &next, "--record", &new], 1);
    let text = run(&["--compare", &format!("{old},{new}")], 0);
    assert!(
        text.contains("microarchitecture.remote_socket_gbps: 340 -> 3400"),
        "{text}"
    );
    assert!(text.contains("repaired: collie#11"), "{text}");
    let text = run(&["--compare", &format!("{new},{old}")], 1);
    assert!(text.contains("regressions: collie#11"), "{text}");
    let versions = format!("{next},{next},{next},cx6-200g-roce,cx6-200g-roce");
    let text = run(&["--bisect", &versions], 1);
    assert!(
        text.contains("collie#11 (pause frames) shows since cx6-200g-roce (2 steps)"),
        "{text}"
    );
    let canary = place("canary.json");
    for _ in 0..2 {
        let text = run(
            &["--profile-matrix", "cx6-200g-roce", "--canary", &canary],
            0,
        );
        assert!(
            text.contains("no alarm") && text.contains("1000 nights"),
            "{text}"
        );
    }
    for (name, file) in [("README.md", "firmware"), ("record.json", "\"suites\"")] {
        let text = fs::read_to_string(format!("{bundle}/{name}")).unwrap();
        assert!(
            text.contains(file) || text.contains("link.rate_gbps"),
            "{name}: {text}"
        );
    }
    // The bundle's scenario runs as it is.
    check(
        &["sim", &format!("{bundle}/collie-1/scenario.toml"), "--json"],
        0,
    );
    let (_, stderr) = check(&["regress", "--compare", &old], 2);
    assert!(stderr.contains("has 1 file: must be two"), "{stderr}");
    let (_, stderr) = check(&["regress", "--compare", &format!("{canary},{old}")], 2);
    assert!(
        stderr.contains("canary.json: is a file of --canary, and a file that `isolane regress --record FILE` wrote is needed"),
        "{stderr}"
    );
    let cut = directory.path().join("cut.json");
    fs::write(&cut, "{\"version\": 2, \"suites\": [{}]}").unwrap();
    let (_, stderr) = check(
        &["regress", "--compare", &format!("{},{old}", cut.display())],
        2,
    );
    assert!(
        stderr.contains("a changed or cut file of --record (missing field"),
        "{stderr}"
    );
    let (_, stderr) = check(&["regress", "--bisect", "cx4-40g-roce,cx6-200g-roce"], 2);
    assert!(stderr.contains("or begin --bisect with"), "{stderr}");
    let matrix = "cx6-200g-roce,cx5-100g-roce";
    let (_, stderr) = check(
        &["regress", "--profile-matrix", matrix, "--canary", &canary],
        2,
    );
    assert!(stderr.contains("one state of the device"), "{stderr}");
}
