//! Attackers of a victim: what counts, that scenarios reproduce it, and that husky's categories come out untold.

use super::*;
use crate::bench::{Bench, BenchOptions, Budget};
use crate::counters::{self, DIAGNOSTIC};
use crate::experiment::{Target, tests::Uneven};
use crate::hunt::{HuntResult, Settings, hunt};
use crate::rule::Rule;
use crate::space::convert::Times;
use crate::space::tests::{plain, profile};
use crate::space::{Feature, Space};
use isolane_common_quantities::rng::Stream;
use isolane_common_quantities::units::Duration;
use isolane_rdma_scenario::library::Library;
use isolane_rdma_scenario::model::{PolicySpec, Scenario};
use isolane_rdma_scenario::profile::Profile;
use isolane_study_testbed::Testbed;
use isolane_study_testbed_simulator::SimTestbed;
use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;

/// The victim of the documents.
const SMALL_WRITE: &str = include_str!("../../../../../scenarios/victims/small-write.toml");
/// The same with large messages, which lose to what small ones do not notice.
const BULK: &str = include_str!("../../../../../scenarios/victims/bulk-write.toml");

/// One whose requests spread over many regions, so that it needs the translation cache.
const MANY_REGIONS: &str = include_str!("../../../../../scenarios/victims/many-regions.toml");

static NEVER: AtomicBool = AtomicBool::new(false);

fn victim(text: &str) -> Scenario {
    isolane_rdma_scenario::parse(text, "victim.toml", &Library::embedded()).expect("it is valid")
}

fn options<'a>(profile: &'a Profile, text: &str, policy: &str) -> SiegeOptions<'a> {
    SiegeOptions {
        testbed: &SimTestbed,
        profile,
        victim: victim(text).tenants.swap_remove(0),
        policy: PolicySpec {
            name: policy.to_owned(),
            parameters: BTreeMap::new(),
        },
        alpha: 0.25,
        beyond: false,
        times: Siege::SIMULATED,
        is_noisy: false,
    }
}

fn hunted(
    profile: &Profile,
    text: &str,
    policy: &str,
    quota: &str,
    experiments: u64,
) -> HuntResult {
    let siege = Siege::lay(options(profile, text, policy), 1, None).unwrap();
    let rule = Rule::Victim(Box::new(siege.owed().clone()));
    let mut bench = Bench::new(
        &siege,
        rule,
        None,
        BTreeMap::new(),
        BenchOptions {
            seed: 1,
            parallel: 2,
            budget: Budget::Experiments(experiments),
            cancel: &NEVER,
            on_progress: Box::new(|_| {}),
        },
    );
    let known: Vec<String> = [RETAINED]
        .iter()
        .chain(DIAGNOSTIC.iter().map(|names| &names[0]))
        .map(|name| (*name).to_owned())
        .collect();
    let settings = Settings {
        seed: 1,
        searcher: "factors".to_owned(),
        counters: counters::choose(&known, "sim", &known).unwrap(),
        reduces: true,
        stages: crate::search::Stages::default(),
        tests: true,
    };
    let space = Space::attackers(profile)
        .restricted(quota, "quota")
        .unwrap();
    hunt(&mut bench, &space, &settings).unwrap()
}

fn columns(result: &HuntResult) -> BTreeSet<Column> {
    let harms = result.anomalies.iter().filter_map(|one| one.harm.as_ref());
    harms.filter_map(|harm| harm.column).collect()
}

#[test]
fn an_attack_beyond_the_guarantee_counts_only_on_request() {
    let profile = profile("cx5-100g-roce");
    let bulk = Point {
        queue_pairs: 64,
        requests: vec![vec![1 << 20]],
        region_bytes: 1 << 20,
        ..plain()
    };
    for beyond in [false, true] {
        let options = SiegeOptions {
            beyond,
            ..options(&profile, BULK, "none")
        };
        let siege = Siege::lay(options, 1, None).unwrap();
        let measured = siege.measure(&bulk, 3).unwrap();
        let judgement = siege.owed().judge(&measured);
        assert!(judgement.link_share > Some(0.6), "{judgement:?}");
        assert!(judgement.retained < Some(0.5), "{judgement:?}");
        assert_eq!(judgement.symptom.is_some(), beyond, "{judgement:?}");
        assert_eq!(measured, siege.measure(&bulk, 3).unwrap());
    }
}

/// The victim gets 75 % of what it gets beside the same neighbour on the simulator, and all of it in three of four quarters.
#[test]
fn a_real_run_that_did_not_settle_is_an_attack_only_where_its_best_quarter_shows_one() {
    let profile = profile("cx5-100g-roce");
    let simulated = Siege::lay(options(&profile, SMALL_WRITE, "none"), 1, None).unwrap();
    let beside = simulated.measure(&plain(), 3).unwrap().beside.unwrap();
    let owed = simulated.owed();
    let expected = owed
        .predicate
        .expected(owed.judged, &owed.alone, &beside.victim);
    let expected = expected.unwrap();
    let got = isolane_study_audit::predicate::value(expected.metric, &beside.victim).unwrap();
    // The bound is so much of what the victim gets beside the neighbour.
    let judged = |part: f64, is_noisy: bool| {
        let whole = expected.bound / (1.0 - owed.predicate.alpha());
        let options = SiegeOptions {
            testbed: &Uneven,
            alpha: 1.0 - part * got / whole,
            beyond: true,
            times: Times {
                warmup: Duration::from_us(200),
                duration: Duration::from_us(400),
            },
            is_noisy,
            ..options(&profile, SMALL_WRITE, "none")
        };
        let alone = simulated.alone().clone();
        let siege = Siege::lay(options, 1, Some(alone)).unwrap();
        let measured = siege.measure(&plain(), 3).unwrap();
        let times = (measured.settled_after_us, measured.measured_us);
        assert_eq!(times, (Some(200.0), Some(1_600.0)), "four times as long");
        let judged = siege.owed().judge(&measured);
        (judged.symptom, judged.unsettled)
    };
    let attack = (Some(Symptom::Interference), false);
    assert_eq!(judged(0.9, false), attack);
    assert_eq!(judged(0.9, true), (None, true));
    assert_eq!(judged(1.1, true), attack);
}

#[test]
fn every_attack_is_a_valid_scenario_and_its_file_says_the_same() {
    let profile = profile("cx5-100g-roce");
    let space = Space::attackers(&profile);
    let siege = Siege::lay(options(&profile, SMALL_WRITE, "sriov"), 1, None).unwrap();
    let mut stream = Stream::named(4, "test");
    let (mut controls, mut errors, mut atomics) = (0, 0, 0);
    for _ in 0..60 {
        let point = space.draw(&mut stream).unwrap();
        assert_eq!(space.check(&point), Ok(()));
        let next = space.mutate(&point, &mut stream).unwrap();
        assert_eq!(space.check(&next), Ok(()));
        controls += u32::from(point.control != 0);
        errors += u32::from(point.receives == crate::space::point::NEVER);
        atomics += u32::from(point.service == crate::space::point::ATOMIC);
        let text = siege
            .scenario_text(&point, SMALL_WRITE, ("a", "b"), 3)
            .unwrap();
        let read = isolane_rdma_scenario::parse(&text, "a.toml", &Library::embedded());
        let read = read.unwrap_or_else(|error| panic!("{error}\n{text}"));
        let expected = crate::space::convert::tenant(&point, "attacker");
        assert_eq!(read.tenants[1].workloads, expected.workloads, "{text}");
        assert_eq!(
            (read.policy.name.as_str(), read.tenants.len()),
            ("sriov", 2)
        );
    }
    assert!(
        controls > 10 && errors > 1 && atomics > 0,
        "{controls} {errors} {atomics}"
    );
}

#[test]
fn a_scenario_of_an_attack_hurts_the_victim_as_the_hunt_said() {
    let profile = profile("cx5-100g-roce");
    let siege = Siege::lay(options(&profile, SMALL_WRITE, "none"), 1, None).unwrap();
    let starved = Feature::Service.set(&plain(), 1);
    let starved = Feature::Receives.set(&starved, crate::space::point::NEVER);
    let measured = siege.measure(&starved, 5).unwrap();
    let harm = Harm::of(siege.owed(), &starved, &measured).unwrap();
    assert_eq!(harm.column, Some(Column::PuErrorRc));
    assert!(harm.retained < 0.5, "{harm:?}");
    let text = siege
        .scenario_text(&starved, SMALL_WRITE, ("a", "b"), 5)
        .unwrap();
    let scenario = isolane_rdma_scenario::parse(&text, "a.toml", &Library::embedded()).unwrap();
    let result = SimTestbed.run(&scenario, &profile).unwrap();
    let got = Metrics::from(&result.tenants[0]);
    let kept = got.message_rate_per_s / siege.alone().metrics.message_rate_per_s;
    assert!((kept - harm.retained).abs() < 0.2, "{kept} {harm:?}");
}

#[test]
#[ignore = "prints what a hunt of each victim finds, for those who change the search"]
fn attacks_of_every_victim() {
    let profile = profile("cx5-100g-roce");
    for (text, policy, quota) in [
        (SMALL_WRITE, "none", FEW),
        (BULK, "none", FEW),
        (MANY_REGIONS, "none", ""),
        (SMALL_WRITE, "none", MORE_PREVENTED),
        (SMALL_WRITE, "sriov", MORE_PREVENTED),
    ] {
        let result = hunted(&profile, text, policy, quota, 500);
        let space = Space::attackers(&profile);
        println!(
            "{}\n{:?}",
            crate::table::render(&result, &space, None),
            columns(&result)
        );
    }
}

/// What a quota of few queue pairs and regions leaves to an attacker.
const FEW: &str = "queue_pairs = [1, 64]\nregions = [1, 64]\n";
/// The same with little memory, and without what a host can refuse by itself: control verbs, SENDs without receives, traffic
/// that stays inside.
const MORE_PREVENTED: &str = concat!(
    "queue_pairs = [1, 64]\nregions = [1, 64]\nregion_bytes = [\"4KiB\", \"64KiB\"]\ncontrol = \"none\"\n",
    "receives = \"posted\"\ndirection = [\"one-way\", \"bidirectional\", \"backward\"]\n",
);

#[test]
fn huskys_six_categories_are_found_by_one_hunt_without_labels() {
    let profile = profile("cx5-100g-roce");
    let result = hunted(&profile, SMALL_WRITE, "none", "", 825);
    let found = columns(&result);
    let six = [
        Column::PuData,
        Column::PuErrorRc,
        Column::PuErrorUnreliable,
        Column::CacheControl,
        Column::CacheData,
        Column::PcieData,
    ];
    let missing: Vec<Column> = six
        .into_iter()
        .filter(|column| !found.contains(column))
        .collect();
    assert!(missing.is_empty(), "{missing:?} of {found:?}");
}
