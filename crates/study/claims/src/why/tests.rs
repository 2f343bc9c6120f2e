//! Reasons against a world whose only run is a formula's: what is confirmed, what is refuted, what is refused.

use super::*;
use crate::expression::tests::NoWorld;
use crate::plan::{self, ScenarioFiles};
use expect_test::{Expect, expect};

const HEAD: &str = "id = \"x\"\nsystem = \"husky\"\npaper = \"p\"\nstatement = \"s\"\nkind = \"prediction\"\nunit = \"count\"\n";

fn claim(rest: &str) -> Result<Claim, String> {
    Claim::parse(&format!("{HEAD}{rest}"), "claims/husky/x.toml").map_err(|error| error.to_string())
}

fn shown(rest: &str) -> String {
    let claim = claim(rest).unwrap();
    text(&check(&[&claim], run))
}

fn run(claims: &[&Claim]) -> Vec<ClaimReport> {
    plan::check(claims, &ScenarioFiles::new(), &NoWorld, &|_, _| {})
}

fn refused(rest: &str, expected: Expect) {
    expected.assert_eq(&claim(rest).unwrap_err());
}

const MISS: &str = "published = 3\nmetric = \"2\"\n";

#[test]
fn a_reason_is_confirmed_or_refuted_by_its_change() {
    let with = |metric: &str| {
        shown(&format!(
            "{MISS}miss_reason = \"One is left out.\"\n[check]\nmetric = \"{metric}\"\n"
        ))
    };
    expect![[r#"
        husky/x: 2, published 3; with the change 3: confirmed
            One is left out.
        1 miss: 1 confirmed, 0 refuted, 0 of unknown cause
        husky/x: 2, published 3; with the change 4: refuted
            One is left out.
        1 miss: 0 confirmed, 1 refuted, 0 of unknown cause
    "#]]
    .assert_eq(&(with("2 + 1") + &with("2 + 2")));
}

#[test]
fn a_miss_without_a_check_has_no_known_cause() {
    let text = shown(MISS) + &shown(&format!("{MISS}miss_reason = \"Perhaps.\"\n"));
    expect![[r#"
        husky/x: 2, published 3
            Cause unknown.
        1 miss: 0 confirmed, 0 refuted, 1 of unknown cause
        husky/x: 2, published 3
            Cause unknown. Not checked: Perhaps.
        1 miss: 0 confirmed, 0 refuted, 1 of unknown cause
    "#]]
    .assert_eq(&text);
}

#[test]
fn a_claim_that_holds_needs_no_reason() {
    let text = shown("published = 2\nmetric = \"2\"\n");
    expect![[r#"
        0 misses: 0 confirmed, 0 refuted, 0 of unknown cause
    "#]]
    .assert_eq(&text);
}

#[test]
fn a_check_needs_a_reason_a_change_and_runs_that_exist() {
    refused(
        &format!("{MISS}[check]\nmetric = \"3\"\n"),
        expect!["claims/husky/x.toml:9: check: say in miss_reason what it checks"],
    );
    refused(
        &format!("{MISS}miss_reason = \"r\"\n[check]\n"),
        expect!["claims/husky/x.toml:10: check: give a change, a metric or seeds"],
    );
    refused(
        &format!("{MISS}miss_reason = \"r\"\n[[check.change]]\npolicy = \"none\"\n"),
        expect![[r#"claims/husky/x.toml:10: check: no run has the label "*""#]],
    );
}

#[test]
fn a_change_reaches_the_runs_that_its_glob_names() {
    let rest = "published = 1\nmetric = \"a1:nic.cpu_percent + b1:nic.cpu_percent\"\nmiss_reason = \"r\"\n\
        [[run]]\nlabel = \"a1\"\nnic = { config = \"C6\", flows = 3 }\n\
        [[run]]\nlabel = \"b1\"\nnic = { config = \"C6\", flows = 3 }\n\
        [[check.change]]\nruns = \"a*\"\nnic = { pings = false }\ndevice = { \"cost.ack_ns\" = 1 }\n";
    let claim = claim(rest).unwrap();
    let changed = claim.check.as_ref().unwrap().apply(&claim).unwrap();
    let pings = |at: usize| changed.runs[at].nic.as_ref().unwrap().pings;
    assert_eq!((pings(0), pings(1)), (Some(false), None));
    assert!(!changed.runs[0].device.is_empty() && changed.runs[1].device.is_empty());
}

#[test]
fn a_claim_whose_premise_does_not_hold_is_a_miss() {
    let report = |premise: &str| {
        let claim = claim(&format!(
            "at_least = 1\nmetric = \"2\"\npremise = \"{premise}\"\n"
        ));
        let reports = run(&[&claim.unwrap()]);
        (reports[0].within, reports[0].reason.clone())
    };
    assert_eq!(report("1 < 2"), (Some(true), None));
    let vacuous = "Says nothing: 2 < 1 does not hold.".to_owned();
    assert_eq!(report("2 < 1"), (Some(false), Some(vacuous)));
    refused(
        "at_least = 1\nmetric = \"2\"\npremise = \"1\"\n",
        expect!["claims/husky/x.toml:9: premise: must be a comparison"],
    );
}
