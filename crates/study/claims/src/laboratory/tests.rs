//! Arithmetic claims need no run: on the embedded profiles they hold at all times, or say why they cannot.

use super::*;
use crate::claim::ClaimKind;
use isolane_study_testbed_simulator::SimTestbed;

#[test]
fn arithmetic_without_runs_holds_or_says_why_not() {
    let library = Library::embedded();
    let laboratory = Laboratory {
        library: &library,
        testbed: &SimTestbed,
    };
    let claims = crate::embedded_claims().unwrap();
    let arithmetic: Vec<_> = claims
        .iter()
        .filter(|claim| {
            claim.kind == ClaimKind::Arithmetic
                && claim.runs.is_empty()
                && claim.miss_reason.is_none()
        })
        .collect();
    assert!(arithmetic.len() >= 10);
    let files = crate::embedded_scenarios();
    let reports = crate::plan::check(&arithmetic, &files, &laboratory, &|_, _| {});
    let missed: Vec<_> = reports
        .iter()
        .filter(|report| report.within != Some(true))
        .cloned()
        .collect();
    assert!(missed.is_empty(), "{}", crate::report::table(&missed, None));
}

#[test]
fn unknown_profiles_and_parameters_are_named() {
    let library = Library::embedded();
    let laboratory = Laboratory {
        library: &library,
        testbed: &SimTestbed,
    };
    let error = |profile, section, name| laboratory.parameter(profile, section, name).unwrap_err();
    assert!(error("cx5-100g-rice", "link", "rate_gbps").contains("cx5-100g-roce"));
    assert!(error("cx5-100g-roce", "lnk", "rate_gbps").contains("did you mean \"link\"?"));
    assert!(error("cx5-100g-roce", "link", "rate_gbs").contains("did you mean \"rate_gbps\"?"));
}
