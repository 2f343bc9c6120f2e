//! The page of a network shows what its runs say, once per run, and escapes what it is given.

use super::page;
use crate::synthetic_fabric::{result, scenario};

#[test]
fn a_run_shows_classes_objectives_series_and_ports() {
    let remarks = [vec!["high meets its objective".to_owned()]];
    let page = page(&[scenario()], &[result("aequitas")], &remarks);
    for expected in [
        "high meets its objective",
        "switch-&gt;host2",
        "dropped: buffer-full",
        "class=\"bound\"",
        "p99 latency, µs",
        "goodput, Gb/s",
        "admit_probability_mean",
        "Goodput over time, of pairs",
    ] {
        assert!(page.contains(expected), "{expected}");
    }
    assert!(!page.contains("Side by side") && !page.contains("3-node <b>"));
}

#[test]
fn several_runs_are_side_by_side_on_equal_axes() {
    let scenarios = [scenario(), scenario()];
    let results = [result("none"), result("aequitas")];
    let first = page(&scenarios, &results, &[]);
    assert!(first.contains("Side by side") && first.contains("Classes under none"));
    assert_eq!(first, page(&scenarios, &results, &[]));
}

#[test]
fn a_run_without_admission_control_and_transport_says_so() {
    let mut plain = result("none");
    plain.transport = "none".to_owned();
    let page = page(&[scenario()], &[plain], &[]);
    assert!(page.contains("measured, without admission control."));
    assert!(page.contains(" Gb/s links"));
}

#[test]
fn no_runs_give_a_page_that_states_it() {
    assert!(page(&[], &[], &[]).contains("nothing to report"));
}
