//! Recommendations on a testbed made of formulas: the ranking, the causes of a miss, and the requests that are
//! rejected.
#![allow(clippy::unwrap_used)]

use expect_test::expect;
use isolane_rdma_scenario::library::Library;
use isolane_rdma_scenario::model::{PolicySpec, Scenario};
use isolane_rdma_scenario::profile::Profile;
use isolane_study_recommend::RecommendError;
use isolane_study_recommend::result::{MissCause, Recommendation};
use isolane_study_recommend::run::{Question, run};
use isolane_study_recommend::text::{Style, render};
use isolane_study_results::rdma::{RunResult, Settling, TenantSettling};
use isolane_study_testbed::fake::FakeTestbed;
use isolane_study_testbed::{Testbed, TestbedError};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

const SCENARIO: &str = r#"
profile = "cx5-100g-roce"
duration = "1ms"
[[tenant]]
name = "cache"
perftest = "ib_write_lat -s 64"
slo = { p99_max = "10us" }
[[tenant]]
name = "backup"
perftest = "ib_write_bw -s 1048576"
slo = { goodput_min = "20Gb/s" }
[[tenant]]
name = "storm"
perftest = "ib_write_bw -s 64"
"#;

fn question(text: &str, policies: &[&str]) -> Question {
    let library = Library::embedded();
    let scenario = isolane_rdma_scenario::parse(text, "own.toml", &library).unwrap();
    let spec = |name: &&str| PolicySpec {
        name: (*name).to_owned(),
        parameters: BTreeMap::new(),
    };
    Question {
        cap: None,
        profile: library.profile(&scenario.profile).unwrap().clone(),
        scenario,
        policies: policies.iter().map(spec).collect(),
        left_out: Vec::new(),
        seeds: vec![1, 2, 3],
        rerun: "isolane recommend own.toml".to_owned(),
        advises_not_on_sale: false,
    }
}

fn answer(question: &Question, jobs: usize) -> Result<Recommendation, RecommendError> {
    run(question, &FakeTestbed::default(), jobs, &|_, _| {})
}

/// Under `none` a storm leaves its neighbours a tenth; under every other policy three share evenly.
#[test]
fn policies_are_ranked_and_misses_have_a_cause() {
    let found = answer(&question(SCENARIO, &["none", "justitia"]), 2).unwrap();
    expect![[r#"
        justitia meets all 2 objectives and uses 41 % of the RDMA NIC for 0.00 cores.
        own on cx5-100g-roce, 3 seeds

          A  cache: p99 at most 10.0 us
          B  backup: goodput at least 20.0 Gb/s

          policy    met  used  cores  A          B
          justitia  2/2  41 %  0      ✓ 5.99 us  ✓ 33.4 Gb/s
          none      0/2  15 %  0      ✗ 20.0 us  ✗ 10.0 Gb/s

        What each policy cannot protect against
          justitia
            nothing that these tenants do to each other
          none
            does not protect cache (p99 at most 10.0 us, got 20.0 us, 2.00 times) from storm: host B's receive units were stalled 99 % of the time by receiver-not-ready errors (victim alone: 0 %)
            does not protect backup (goodput at least 20.0 Gb/s, got 10.0 Gb/s) from storm: host B's receive units were stalled 99 % of the time by receiver-not-ready errors (victim alone: 0 %)
    "#]].assert_eq(&render(&found, Style::default()));
    let none = &found.policies[1];
    assert_eq!(none.misses[0].cause, MissCause::Tenants);
    assert_eq!(none.misses[0].attackers, ["storm"]);
    let exhausted = none.misses[0].exhausted.as_ref().unwrap();
    assert_eq!(exhausted.counter, "rnr_stall_ratio");
}

#[test]
fn the_number_of_workers_does_not_show() {
    let question = question(SCENARIO, &["none", "justitia", "lite"]);
    assert_eq!(answer(&question, 1).unwrap(), answer(&question, 5).unwrap());
}

#[test]
fn a_miss_alone_has_no_other_tenant_as_its_cause() {
    let text = SCENARIO.replace("10us", "1us");
    let found = answer(&question(&text, &["none"]), 2).unwrap();
    let cache = &found.policies[0].misses[0];
    assert_eq!((cache.cause, cache.attackers.len()), (MissCause::Device, 0));
    assert!(
        cache.words.contains("even when it is alone"),
        "{}",
        cache.words
    );
}

#[test]
fn two_tenants_cause_each_others_miss_without_further_runs() {
    let text = SCENARIO.replace("storm", "x");
    let (two, _) = text.rsplit_once("[[tenant]]").unwrap();
    let two = two
        .replace("\"cache\"", "\"kv\"")
        .replace("\"backup\"", "\"storm\"");
    let runs = AtomicU64::new(0);
    let question = question(&two, &["none"]);
    let count = |done, _| runs.store(done, Ordering::Relaxed);
    let found = run(&question, &FakeTestbed::default(), 1, &count).unwrap();
    let kv = &found.policies[0].misses[0];
    assert_eq!(
        (kv.cause, &kv.attackers[..]),
        (MissCause::Tenants, &["storm".to_owned()][..])
    );
    // Three seeds together, and each of the two alone.
    assert!(runs.load(Ordering::Relaxed) <= 5);
}

/// The scenario without what its tenants need.
fn without_needs() -> String {
    let lines = SCENARIO.lines().filter(|line| !line.starts_with("slo"));
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn needs_that_no_tenant_states_are_derived_from_what_each_gets_alone() {
    let found = answer(&question(&without_needs(), &["justitia"]), 1).unwrap();
    assert!(found.tenants.iter().all(|tenant| tenant.derived));
    let text = render(&found, Style::default());
    let legend = "  A  cache: p99 at most 4.00 us\n  B  backup: goodput at least 25.0 Gb/s\n  \
                  C  storm: messages at least 7.51 M/s\n";
    assert!(text.contains(legend), "{text}");
    assert!(
        text.contains("  cache: slo = { p99_max = \"4us\" }\n"),
        "{text}"
    );
}

#[test]
fn hardware_that_is_not_on_sale_is_last_and_is_recommended_on_request_only() {
    let mut question = question(SCENARIO, &["isolane", "none", "justitia"]);
    let found = answer(&question, 1).unwrap();
    let order: Vec<&str> = found
        .policies
        .iter()
        .map(|one| one.policy.as_str())
        .collect();
    assert_eq!(order, ["justitia", "none", "isolane"]);
    assert!(
        found.advice.starts_with("justitia meets all 2"),
        "{}",
        found.advice
    );
    assert!(!found.advice.contains("isolane"), "{}", found.advice);
    let text = render(&found, Style::default());
    assert!(
        text.contains("isolane *") && text.contains("* needs hardware"),
        "{text}"
    );
    question.advises_not_on_sale = true;
    let asked = answer(&question, 1).unwrap();
    assert!(asked.advice.contains("isolane"), "{}", asked.advice);
}

/// A testbed where nothing completes.
struct Idle;

impl Testbed for Idle {
    fn name(&self) -> &'static str {
        "idle"
    }

    fn run(&self, scenario: &Scenario, profile: &Profile) -> Result<RunResult, TestbedError> {
        let mut result = FakeTestbed::default().run(scenario, profile)?;
        for tenant in &mut result.tenants {
            tenant.goodput_gbps = 0.0;
            tenant.message_rate_per_s = 0.0;
            tenant.latency_us = None;
        }
        Ok(result)
    }
}

#[test]
fn tenants_that_need_and_complete_nothing_are_an_error_with_an_example() {
    let question = question(&without_needs(), &["none"]);
    let error = run(&question, &Idle, 1, &|_, _| {})
        .unwrap_err()
        .to_string();
    assert!(error.contains("slo = { p99_max = \"10us\" }"), "{error}");
}

/// A testbed where the tenant `backup` does not settle.
struct Restless;

impl Testbed for Restless {
    fn name(&self) -> &'static str {
        "restless"
    }

    fn run(&self, scenario: &Scenario, profile: &Profile) -> Result<RunResult, TestbedError> {
        let mut result = FakeTestbed::default().run(scenario, profile)?;
        let tenants = result.tenants.iter().map(|tenant| TenantSettling {
            settled: tenant.name != "backup",
            on_the_edge: false,
            samples: 1000,
            p99_low_us: None,
            p99_high_us: None,
        });
        result.settling = Some(Settling {
            settled: false,
            settled_after_us: 0.0,
            measured_us: 1000.0,
            cap_us: 1000.0,
            tenants: tenants.collect(),
        });
        Ok(result)
    }
}

#[test]
fn an_objective_whose_runs_do_not_settle_has_no_verdict_and_no_cause() {
    let question = question(SCENARIO, &["none", "justitia"]);
    let found = run(&question, &Restless, 1, &|_, _| {}).unwrap();
    for policy in &found.policies {
        assert!(policy.misses.iter().all(|miss| miss.tenant != "backup"));
    }
    let text = render(&found, Style::default());
    assert!(
        text.contains(
            "no verdict on backup (goodput at least 20.0 Gb/s, got 33.4 Gb/s): the runs did not settle"
        ),
        "{text}"
    );
}

/// A testbed that knows one policy only.
struct Narrow;

impl Testbed for Narrow {
    fn name(&self) -> &'static str {
        "narrow"
    }

    fn run(&self, scenario: &Scenario, profile: &Profile) -> Result<RunResult, TestbedError> {
        if scenario.policy.name == "none" {
            return FakeTestbed::default().run(scenario, profile);
        }
        Err(TestbedError::Unsupported {
            scenario: scenario.name.clone(),
            profile: profile.name.clone(),
            reason: "the tenants are too many".to_owned(),
        })
    }
}

#[test]
fn a_policy_that_does_not_fit_is_listed_with_its_reason() {
    let found = run(
        &question(SCENARIO, &["none", "lite"]),
        &Narrow,
        2,
        &|_, _| {},
    )
    .unwrap();
    assert_eq!(found.policies.len(), 1);
    assert_eq!(found.left_out.len(), 1);
    assert_eq!(found.left_out[0].policy, "lite");
    assert_eq!(found.left_out[0].reason, "the tenants are too many");
    let error = run(&question(SCENARIO, &["lite"]), &Narrow, 2, &|_, _| {}).unwrap_err();
    assert!(error.to_string().contains("too many"), "{error}");
}

#[test]
fn an_answer_survives_json_and_matches_its_schema() {
    let found = answer(&question(SCENARIO, &["none", "justitia"]), 2).unwrap();
    let value = serde_json::to_value(&found).unwrap();
    let back: Recommendation = serde_json::from_value(value.clone()).unwrap();
    assert_eq!(back, found);
    let schema = schemars::schema_for!(Recommendation).to_value();
    for name in schema["required"].as_array().unwrap() {
        assert!(value.get(name.as_str().unwrap()).is_some(), "{name}");
    }
}
