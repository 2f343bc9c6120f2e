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

#[test]
fn a_device_in_software_is_found_on_a_processor_ten_times_faster() {
    let start = profile("soft-roce");
    let hidden = [
        (("processing", "write_ns"), 7_100.0),
        (("processing", "send_ns"), 8_400.0),
        (("processing", "read_ns"), 9_700.0),
        (("processing", "respond_fetch_add_ns"), 7_900.0),
        (("processing", "respond_compare_swap_ns"), 8_800.0),
        (("microarchitecture", "copy_gbps"), 15.0),
        (("processing", "packet_ns"), 2_300.0),
        (("link", "propagation_ns"), 900.0),
    ];
    let mut device = start.clone();
    for (parameter, value) in hidden {
        solve::set(&mut device, parameter, value);
    }
    let device = bench::Hidden::new(device, &SimTestbed);
    let found = identify(&start, &device, &SimTestbed, &|_, _| {}).expect("it runs");
    for (found, (parameter, truth)) in found.parameters.iter().zip(hidden) {
        assert_eq!((found.section, found.name), parameter);
        assert!(found.known(), "{found:?}");
        let off = (found.value / truth - 1.0).abs();
        assert!(off <= KNOWN_WITHIN, "{truth}: {found:?}");
    }
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
        together: &[],
        device_runs: 0,
        model_runs: 0,
    };
    let text = "[cache]\nmiss_ns = { value = 7, kind = \"published\", source = \"old\" }\n";
    expected.assert_eq(&identified.write_into(text).expect("the line is there"));
}
