//! Verdicts do not depend on how long a run is, or on its seed.
//!
//! Method: the catalogue's audit, and again with every time doubled and other seeds (`isolane audit --check-settling`).
//! The first test takes pairs whose verdict a fixed time of a millisecond gets wrong. The second takes
//! any: `VICTIMS` and `ATTACKERS` are globs.
#![allow(clippy::unwrap_used)]

mod support;

use isolane_common_quantities::units::Duration;
use isolane_rdma_scenario::library::Library;
use isolane_study_audit::cell::Verdict;
use isolane_study_audit::matrix::AuditResult;
use isolane_study_audit::plan::{CAP, LEAST, Plan};
use isolane_study_audit::run::{RunOptions, run};
use isolane_study_audit::select::Selection;
use isolane_study_audit::stability::{compare, doubled};
use isolane_study_testbed_simulator::SimTestbed;
use std::sync::atomic::AtomicBool;

fn plan(victims: Option<String>, attackers: Option<String>, policies: &[&str]) -> Plan {
    let library = Library::embedded();
    let profile = library.profile("cx5-100g-roce").unwrap().clone();
    let selection = Selection {
        victims,
        attackers,
        quick: false,
    };
    Plan {
        duration: LEAST,
        cap: Some(CAP),
        ..support::plan(profile, &selection, policies)
    }
}

fn audit(plan: &Plan) -> AuditResult {
    let options = RunOptions {
        jobs: 2,
        cancel: &AtomicBool::new(false),
        journal: None,
        build: "",
        resume: false,
        on_resume: &mut |_| {},
        on_progress: &mut |_| {},
    };
    run(plan, &SimTestbed, options).unwrap()
}

fn pair(victim: &str, attacker: &str, policy: &str) -> Plan {
    plan(
        Some(victim.to_owned()),
        Some(attacker.to_owned()),
        &[policy],
    )
}

#[test]
fn doubled_times_and_other_seeds_change_no_verdict_of_the_hard_pairs() {
    for (victim, attacker, policy) in [
        ("large_bw_ib_write_bw", "PCIe-size_w_1_257", "justitia"),
        ("lat_ib_write_16", "Cache-QPC_ib_write_bw", "none"),
        ("te_many_qp_r_1_512", "PU-RNR_UC-RNR", "none"),
    ] {
        let plan = pair(victim, attacker, policy);
        let (first, second) = (audit(&plan), audit(&doubled(&plan)));
        let stability = compare(&first, &second);
        assert!(stability.is_enough(), "{}", stability.render());
        assert_eq!(stability.not_settled, [0, 0], "{:?}", first.cells[0]);
    }
}

#[test]
fn a_large_victim_that_lives_on_saved_tokens_is_broken() {
    let result = audit(&pair(
        "large_bw_ib_write_bw",
        "PCIe-size_w_1_257",
        "justitia",
    ));
    assert_eq!(
        result.cells[0].verdict,
        Verdict::Violation,
        "{:?}",
        result.cells[0].why
    );
}

/// The attacker posts 25 MB at once. Until the NIC has sent them, for 3.6 ms, a victim's p99 is eight times what it is later.
#[test]
fn a_latency_victim_is_judged_after_the_attacker_s_first_posting() {
    let mut plan = pair("lat_ib_write_16", "PCIe-size_w_1_257", "justitia");
    plan.seeds = vec![1];
    let early = audit(&plan);
    plan.warmup = Duration::from_ms(30);
    plan.cap = Some(Duration::from_ms(60));
    let late = audit(&plan);
    let both = [&early, &late].map(|result| (result.cells[0].verdict, &result.cells[0].why));
    assert_eq!(both[0].0, Verdict::Pass, "{both:?}");
    assert_eq!(both[1].0, Verdict::Pass, "{both:?}");
}

#[test]
fn a_policy_s_verdicts_do_not_depend_on_which_others_are_requested() {
    let alone = audit(&pair("small_tput_ib_write_bw", "PCIe-size_w_1_257", "none"));
    let policies = ["none", "hw-priority"];
    let victim = Some("small_tput_ib_write_bw".to_owned());
    let both = audit(&plan(
        victim,
        Some("PCIe-size_w_1_257".to_owned()),
        &policies,
    ));
    assert_eq!(alone.cells[0], both.cells[0]);
}

#[test]
#[ignore = "takes minutes; VICTIMS and ATTACKERS are globs, and the full matrix is the default"]
fn doubled_times_and_other_seeds_change_at_most_one_verdict_in_a_hundred() {
    let glob = |name: &str| std::env::var(name).ok();
    let mut plan = plan(glob("VICTIMS"), glob("ATTACKERS"), &["none", "justitia"]);
    if let Some(seeds) = glob("SEEDS") {
        plan.seeds = (1..=seeds.parse().unwrap()).collect();
    }
    let first = audit(&plan);
    if let Some(path) = glob("AUDIT_OUT") {
        std::fs::write(path, serde_json::to_vec(&first).unwrap()).unwrap();
    }
    let stability = compare(&first, &audit(&doubled(&plan)));
    println!("{}", stability.render());
    assert!(stability.is_enough(), "{}", stability.render());
}
