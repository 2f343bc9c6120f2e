//! Identification of hidden devices, and the text that it writes.

use super::bench::trial;
use super::*;
use expect_test::{Expect, expect};
use isolane_rdma_scenario::library::Library;
use isolane_study_testbed_simulator::SimTestbed;

fn profile(name: &str) -> Profile {
    let library = Library::embedded();
    library.profile(name).expect("a shipped profile").clone()
}

#[test]
fn known_parameters_of_hidden_devices_are_within_15_percent() {
    let start = profile("cx5-100g-roce");
    let (mut known, mut right) = (0, 0);
    for number in 1..=2 {
        let trial = trial(&start, number, &SimTestbed).expect("hidden devices run");
        let score = trial.score();
        known += score.0;
        right += score.1;
    }
    assert!(known >= 12, "only {known} parameters are known");
    assert!(right * 10 >= known * 9, "{right} of {known} are right");
}

fn found(low: Option<f64>, high: Option<f64>) -> Found {
    Found {
        section: "cache",
        name: "miss_ns",
        value: 100.0,
        low,
        high,
        measured: 2.0,
        modelled: 2.0,
    }
}

#[test]
fn a_value_without_an_end_is_not_known() {
    assert!(found(Some(99.0), Some(104.0)).known());
    assert!(!found(None, Some(104.0)).known());
    assert!(!found(Some(60.0), Some(104.0)).known());
    let disagrees = Found {
        modelled: 3.0,
        ..found(Some(99.0), Some(104.0))
    };
    assert!(!disagrees.known());
}

#[test]
fn only_known_values_reach_the_profile() {
    check(
        found(Some(99.0), Some(104.0)),
        expect![[r#"
            [cache]
            miss_ns = { value = 100, kind = "calibrated", source = "measured by calibrate --identify: 99 to 104" }
        "#]],
    );
    check(
        found(None, Some(104.0)),
        expect![[r#"
            [cache]
            miss_ns = { value = 7, kind = "published", source = "old" }
        "#]],
    );
}

fn check(found: Found, expected: Expect) {
    let identified = Identified {
        start: "s".to_owned(),
        parameters: vec![found],
        together: TOGETHER,
        device_runs: 0,
        model_runs: 0,
    };
    let text = "[cache]\nmiss_ns = { value = 7, kind = \"published\", source = \"old\" }\n";
    expected.assert_eq(&identified.write_into(text).expect("the line is there"));
}
