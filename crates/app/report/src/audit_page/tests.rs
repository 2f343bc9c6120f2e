//! What the audit's page says, shown on made-up results; how it behaves is tested in a browser.

use super::*;
use expect_test::expect;
use isolane_study_audit::cell::VictimKind;
use proptest::prelude::*;

use crate::synthetic::{FULL, Size, audit, run};

const SMALL: Size = Size {
    victims: 3,
    attackers: 5,
    seeds: 2,
};

#[test]
fn the_verdict_is_said_in_words() {
    let result = audit(SMALL);
    let view = View::new(&result);
    expect!["5 of 15 pairs break isolation under none and 1 of 15 under justitia."]
        .assert_eq(&summary::sentence(&view));
    let page = crate::audit(&result);
    assert!(page.contains("pairs break isolation"));
    assert!(page.contains("Worst victim"));
}

#[test]
fn a_cell_s_colour_follows_what_was_achieved() {
    let result = audit(SMALL);
    let mut cell = result.cells[0].clone();
    let mut table = String::new();
    for (verdict, measured) in [
        (Verdict::Violation, 0.0),
        (Verdict::Violation, 12.0),
        (Verdict::Violation, 30.0),
        (Verdict::Violation, 74.0),
        (Verdict::Violation, 99.0),
        (Verdict::Violation, 101.0),
        (Verdict::Pass, 99.0),
        (Verdict::Pass, 100.0),
        (Verdict::Pass, 160.0),
    ] {
        cell.verdict = verdict;
        cell.measured = Some(measured);
        let expected = cell.expected.as_mut().expect("a made-up cell is judged");
        (expected.metric, expected.bound) = (JudgedMetric::GoodputGbps, 100.0);
        table.push_str(&format!(
            "{verdict:?} {measured} of 100: {}\n",
            class(Some(&cell))
        ));
    }
    expect![[r#"
        Violation 0 of 100: v0
        Violation 12 of 100: v1
        Violation 30 of 100: v2
        Violation 74 of 100: v3
        Violation 99 of 100: v4
        Violation 101 of 100: v4
        Pass 99 of 100: v5
        Pass 100 of 100: v5
        Pass 160 of 100: v6
    "#]]
    .assert_eq(&table);
    assert_eq!(class(None), "un");
}

#[test]
fn latency_twice_the_bound_achieves_half() {
    let result = audit(SMALL);
    let latency = result
        .victims
        .iter()
        .find(|victim| victim.kind == VictimKind::Latency);
    let latency = &latency.expect("the small audit has latency victims").name;
    let mut cell = result
        .cells
        .iter()
        .find(|cell| cell.victim == *latency)
        .cloned()
        .expect("every pair has a cell");
    cell.expected
        .as_mut()
        .expect("a made-up cell is judged")
        .bound = 5.0;
    cell.measured = Some(10.0);
    assert_eq!(achieved(&cell), Some(0.5));
    cell.measured = None;
    assert_eq!(achieved(&cell), Some(0.0));
}

#[test]
fn attackers_group_by_the_resource_they_go_for() {
    let result = audit(FULL);
    expect![[r#"
        Bandwidth
        PCIe
        Processing units, errors on RC
        Processing units, errors on UC and UD
        Processing units, data verbs
        Caches, data verbs
        Caches, control verbs"#]]
    .assert_eq(&View::new(&result).groups().join("\n"));
}

#[test]
fn the_full_audit_stays_small() {
    let page = crate::audit(&audit(FULL));
    assert!(page.len() < 6_000_000, "{} bytes", page.len());
}

#[test]
fn a_partial_audit_is_marked_and_leaves_blanks() {
    let mut result = audit(SMALL);
    result.cells.truncate(4);
    result.progress.partial = true;
    result.progress.runs_done = 8;
    let page = crate::audit(&result);
    assert!(page.contains("<b>Partial:</b> 8 of 60 runs are done"));
    assert!(page.contains("<td class=un>"));
}

#[test]
fn an_empty_audit_still_gives_a_page() {
    let mut result = audit(SMALL);
    result.cells.clear();
    result.victims.clear();
    result.attackers.clear();
    result.summaries.clear();
    result.solo.clear();
    assert!(crate::audit(&result).contains("0</b> of 0 pairs break isolation"));
}

#[test]
fn equal_results_give_equal_bytes() {
    assert_eq!(crate::audit(&audit(SMALL)), crate::audit(&audit(SMALL)));
}

#[test]
fn pages_name_no_other_file_and_no_address() {
    for page in [
        crate::audit(&audit(SMALL)),
        crate::run(&run("justitia"), &[]),
    ] {
        let page = page.replace("http://www.w3.org/2000/svg", "");
        for outside in ["http://", "https://", "src=\"", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}

proptest! {
    #[test]
    fn no_name_breaks_out_of_the_page(name in ".*(</script>|<b>|\"|'|&|<!--|javascript:).*") {
        let mut result = audit(SMALL);
        let hostile = |text: &mut String| *text = name.clone();
        hostile(&mut result.profile);
        hostile(&mut result.rerun);
        hostile(&mut result.victims[0].category);
        hostile(&mut result.attackers[0].resource);
        hostile(&mut result.attackers[0].category);
        for cell in &mut result.cells {
            if cell.victim == result.victims[1].name {
                hostile(&mut cell.victim);
            }
            hostile(&mut cell.why);
            hostile(&mut cell.exhausted.as_mut().expect("made-up cells have it").resource);
        }
        hostile(&mut result.victims[1].name);
        let plain = crate::audit(&audit(SMALL));
        let page = crate::audit(&result);
        let count = |page: &str, what: &str| page.to_lowercase().matches(what).count();
        for what in ["<script", "</script", "<b onclick", "<!--"] {
            prop_assert_eq!(count(&page, what), count(&plain, what), "{}", what);
        }
    }
}

#[test]
fn many_policies_are_compared_in_a_table_in_place_of_cards() {
    let mut many = crate::synthetic::audit_under(SMALL, &["none", "justitia", "lite", "sriov"]);
    many.policies_left_out
        .push(isolane_study_audit::matrix::LeftOut {
            policy: "harmonic".to_owned(),
            reason: "no <notifications>".to_owned(),
        });
    let page = crate::audit(&many);
    assert!(page.contains("Which isolation should I buy or build?"));
    assert!(page.contains("<dt>harmonic, left out</dt><dd>no &lt;notifications&gt;</dd>"));
    assert!(!page.contains("class=\"card\""), "cards are for few");
    let two = crate::audit(&audit(SMALL));
    assert!(!two.contains("Which isolation should I buy or build?"));
    assert!(two.contains("class=\"card\""));
}

#[test]
fn a_pair_that_did_not_settle_is_neither_kept_nor_broken() {
    let mut result = audit(SMALL);
    let view = View::new(&result);
    let (judged, broken) = view.count(0, |_| true);
    let at = result
        .cells
        .iter()
        .position(|cell| cell.policy == result.policies[0] && cell.verdict == Verdict::Violation);
    result.cells[at.expect("a pair is broken")].verdict = Verdict::NotSettled;
    let view = View::new(&result);
    assert_eq!(view.count(0, |_| true), (judged - 1, broken - 1));
    assert_eq!(view.unsettled(0), 1);
    let page = crate::audit(&result);
    assert!(page.contains("<td class=ns>?"));
    assert!(page.contains("1 pair did not settle and has no verdict."));
    assert!(page.contains("did not settle: no verdict"), "the legend");
    assert!(page.contains("<rect class=\"ns\""), "the small matrix");
}
