//! The runner against a testbed made of formulas: order, workers, interruption and resumption never show.
#![allow(clippy::unwrap_used)]

mod support;

use isolane_common_quantities::units::Duration;
use isolane_rdma_scenario::catalogue::Catalogue;
use isolane_rdma_scenario::library::Library;
use isolane_rdma_scenario::model::{PolicySpec, Scenario};
use isolane_rdma_scenario::profile::Profile;
use isolane_study_audit::AuditError;
use isolane_study_audit::cell::{JudgedMetric, Verdict, VictimKind};
use isolane_study_audit::journal::JOURNAL_NAME;
use isolane_study_audit::matrix::AuditResult;
use isolane_study_audit::plan::{DURATION, Plan};
use isolane_study_audit::predicate::Predicate;
use isolane_study_audit::run::{Reused, RunOptions, run};
use isolane_study_audit::select::Selection;
use isolane_study_audit::table::Style;
use isolane_study_audit::tenants::{self, ALL_OTHERS};
use isolane_study_audit::{junit, table};
use isolane_study_results::rdma::RunResult;
use isolane_study_testbed::fake::FakeTestbed;
use isolane_study_testbed::{Testbed, TestbedError};
use isolane_study_testbed_simulator::SimTestbed;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const VICTIMS: &str = "large_bw_ib_write_bw,small_tput_ib_write_bw,lat_ib_write_16";
const ATTACKERS: &str = "BW-1MB_ib_write_bw,PU-RNR_UC-RNR,PU-request_faa_forward";

fn profile() -> Profile {
    let library = Library::embedded();
    library.profile("cx5-100g-roce").unwrap().clone()
}

fn plan(profile: Profile, victims: &str, attackers: &str) -> Plan {
    let selection = Selection {
        victims: Some(victims.to_owned()),
        attackers: Some(attackers.to_owned()),
        quick: false,
    };
    support::plan(profile, &selection, &["none", "justitia"])
}

fn small() -> Plan {
    plan(profile(), VICTIMS, ATTACKERS)
}

/// Runs with `jobs` workers, stopping once `limit` runs are done.
fn audit(
    plan: &Plan,
    jobs: usize,
    journal: Option<&Path>,
    resume: bool,
    limit: u64,
) -> Result<AuditResult, AuditError> {
    let cancel = AtomicBool::new(false);
    let mut on_progress = |progress: isolane_study_audit::matrix::Progress| {
        if progress.runs_done >= limit {
            cancel.store(true, Ordering::Relaxed);
        }
    };
    let options = RunOptions {
        jobs,
        cancel: &cancel,
        journal,
        build: "test",
        resume,
        on_resume: &mut |_| {},
        on_progress: &mut on_progress,
    };
    run(plan, &FakeTestbed::default(), options)
}

fn json(result: &AuditResult) -> String {
    serde_json::to_string(result).unwrap()
}

#[test]
fn the_number_of_workers_does_not_show() {
    let one = json(&audit(&small(), 1, None, false, u64::MAX).unwrap());
    for jobs in [2, 7] {
        assert_eq!(
            one,
            json(&audit(&small(), jobs, None, false, u64::MAX).unwrap())
        );
    }
}

/// Counts the runs of the simulator, which says which runs are equal unless it is `mute`.
struct Counted {
    mute: bool,
    runs: AtomicUsize,
}

impl Testbed for Counted {
    fn name(&self) -> &str {
        "counted"
    }

    fn essence(&self, scenario: &Scenario) -> Option<Scenario> {
        (!self.mute).then(|| SimTestbed.essence(scenario))?
    }

    fn run(&self, scenario: &Scenario, profile: &Profile) -> Result<RunResult, TestbedError> {
        self.runs.fetch_add(1, Ordering::Relaxed);
        SimTestbed.run(scenario, profile)
    }
}

/// The runs done, and the result as JSON.
fn counted(plan: &Plan, mute: bool) -> (usize, String) {
    let testbed = Counted {
        mute,
        runs: AtomicUsize::new(0),
    };
    let options = RunOptions {
        jobs: 2,
        cancel: &AtomicBool::new(false),
        journal: None,
        build: "test",
        resume: false,
        on_resume: &mut |_| {},
        on_progress: &mut |_| {},
    };
    let result = run(plan, &testbed, options).unwrap();
    (testbed.runs.into_inner(), json(&result))
}

#[test]
fn attackers_that_the_model_cannot_tell_apart_run_once() {
    // All that the first two differ in is the number of protection domains.
    let attackers = "Cache-ctrl_num_sender,Cache-ctrl_num_pd_sender,Cache-ctrl_num_receiver";
    let mut plan = plan(profile(), "lat_ib_write_16,lat_ib_read_16", attackers);
    plan.duration = Duration::from_us(100);
    let (all, expected) = counted(&plan, true);
    let (fewer, got) = counted(&plan, false);
    // Of two policies, two victims and three seeds.
    assert_eq!((all, all - fewer), (plan.runs().len(), 12));
    assert_eq!(got, expected);
}

#[test]
fn a_resumed_audit_equals_an_uninterrupted_one() {
    let directory = tempfile::tempdir().unwrap();
    let journal = directory.path().join(JOURNAL_NAME);
    let whole = audit(&small(), 2, None, false, u64::MAX).unwrap();
    let partial = audit(&small(), 2, Some(&journal), false, 20).unwrap();
    assert!(partial.progress.partial);
    assert!(partial.progress.runs_done < whole.progress.runs_total);
    // Workers finish what they have begun, so how far a cancelled audit came is known only afterwards.
    let further = partial.progress.runs_done + 1;
    let again = audit(&small(), 2, Some(&journal), true, further).unwrap();
    assert!(again.progress.runs_done >= further);
    let resumed = audit(&small(), 2, Some(&journal), true, u64::MAX).unwrap();
    assert_eq!(json(&whole), json(&resumed));
}

#[test]
fn a_partial_result_holds_whole_cells_only() {
    // 18 solo runs, then cells of two policies with three seeds each: 25 runs hold two cells and a bit.
    let partial = audit(&small(), 1, None, false, 25).unwrap();
    assert!(partial.progress.partial);
    assert!(!partial.cells.is_empty());
    assert!(partial.cells.iter().all(|cell| cell.runs.len() == 3));
    assert_eq!(partial.policies.len(), 2);
}

#[test]
fn a_journal_serves_a_larger_audit() {
    let directory = tempfile::tempdir().unwrap();
    let journal = directory.path().join(JOURNAL_NAME);
    let narrow = plan(profile(), VICTIMS, "BW-1MB_ib_write_bw");
    audit(&narrow, 2, Some(&journal), false, u64::MAX).unwrap();
    let (mut first, mut reused) = (None, None);
    let cancel = AtomicBool::new(false);
    let options = RunOptions {
        jobs: 2,
        cancel: &cancel,
        journal: Some(&journal),
        build: "test",
        resume: true,
        on_resume: &mut |found| reused = Some(found),
        on_progress: &mut |progress| {
            first.get_or_insert(progress.runs_done);
        },
    };
    let wide = run(&small(), &FakeTestbed::default(), options).unwrap();
    assert_eq!(first, Some(narrow.runs().len() as u64));
    let expected = Reused {
        journal_found: true,
        runs: narrow.runs().len() as u64,
        runs_total: small().runs().len() as u64,
    };
    assert_eq!(reused, Some(expected));
    let fresh = audit(&small(), 2, None, false, u64::MAX).unwrap();
    assert_eq!(json(&wide), json(&fresh));
}

#[test]
fn another_question_is_not_answered_from_the_journal() {
    let directory = tempfile::tempdir().unwrap();
    let journal = directory.path().join(JOURNAL_NAME);
    audit(&small(), 2, Some(&journal), false, u64::MAX).unwrap();
    let mut longer = small();
    longer.duration = DURATION * 2;
    let refused = audit(&longer, 1, Some(&journal), true, 0).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("of another audit (isolane audit)"),
        "{refused}"
    );
}

#[test]
fn a_device_without_atomics_skips_them_with_the_reason() {
    let mut device = profile();
    device.atomics = false;
    let result = audit(&plan(device, VICTIMS, ATTACKERS), 2, None, false, u64::MAX).unwrap();
    let cell = result
        .cell("none", "large_bw_ib_write_bw", "PU-request_faa_forward")
        .unwrap();
    assert_eq!(cell.verdict, Verdict::NotApplicable);
    assert!(cell.why.contains("atomic"), "{}", cell.why);
    assert_eq!(result.summaries[0].not_applicable, 3);
    assert!(!result.progress.partial);
}

#[test]
fn a_stalled_receiver_is_named_with_its_number() {
    let result = audit(&small(), 2, None, false, u64::MAX).unwrap();
    let cell = result.cell("none", "large_bw_ib_write_bw", "PU-RNR_UC-RNR");
    let exhausted = cell.unwrap().exhausted.as_ref().unwrap();
    assert_eq!(exhausted.counter, "rnr_stall_ratio");
    assert!(cell.unwrap().why.contains("stalled 99 % of the time"));
}

/// The report of an audit.
fn report(result: &AuditResult) -> String {
    table::render(result, Style::default())
}

fn first_lines(text: &str, count: usize) -> String {
    let lines = text.lines().take(count);
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn the_matrix_in_text() {
    let result = audit(&small(), 2, None, false, u64::MAX).unwrap();
    let text = report(&result);
    let matrix = first_lines(&text, 7);
    expect_test::expect![[r#"
        policy none on cx5-100g-roce
          victim                  BW  PU
                                  1   23
          large_bw_ib_write_bw    ✓   ✗✓
          small_tput_ib_write_bw  ✗   ✗✗
          lat_ib_write_16         ✓~  ✗✓~
          5 of 9 pairs break isolation (BW 1/3, PU 4/6)
    "#]]
    .assert_eq(&matrix);
    let legend: String = text
        .lines()
        .skip_while(|line| !line.starts_with('✓'))
        .map(|line| format!("{line}\n"))
        .collect();
    expect_test::expect![[r#"
        ✓ keeps isolation  ✗ breaks it  ? not settled  – does not apply  ~ near the limit, or the seeds disagree
        attackers, BW: 1 BW-1MB_ib_write_bw
        attackers, PU: 2 PU-RNR_UC-RNR 3 PU-request_faa_forward
    "#]]
    .assert_eq(&legend);
    let coloured = table::render(
        &result,
        Style {
            colour: true,
            ..Style::default()
        },
    );
    assert!(coloured.contains("\x1b[31;1m✗\x1b[0m"));
}

/// Goal: a matrix wider than the terminal continues below with the same marks. Method: both forms, row by row.
#[test]
fn a_matrix_folds_to_the_width_of_the_terminal() {
    let result = audit(&small(), 2, None, false, u64::MAX).unwrap();
    let matrix = |width| -> Vec<String> {
        let style = Style {
            width,
            ..Style::default()
        };
        let text = table::render(&result, style);
        let lines = text
            .lines()
            .take_while(|line| !line.contains("isolation (BW"));
        lines.map(str::to_owned).collect()
    };
    let marks = |lines: &[String], victim: &str| -> String {
        let rows = lines.iter().filter(|line| line.contains(victim));
        let all: String = rows.map(|line| line.replace(victim, "")).collect();
        all.replace(' ', "")
    };
    let (whole, folded) = (matrix(None), matrix(Some(32)));
    assert!(folded.len() > whole.len(), "{folded:#?}");
    let rows = |lines: &[String]| {
        lines
            .iter()
            .filter(|line| line.contains("_ib_"))
            .cloned()
            .collect::<Vec<_>>()
    };
    assert!(
        rows(&folded).iter().all(|line| line.chars().count() <= 32),
        "{folded:#?}"
    );
    assert!(
        rows(&whole).iter().any(|line| line.chars().count() > 32),
        "{whole:#?}"
    );
    for victim in [
        "large_bw_ib_write_bw",
        "small_tput_ib_write_bw",
        "lat_ib_write_16",
    ] {
        assert_eq!(marks(&folded, victim), marks(&whole, victim), "{victim}");
        assert!(marks(&whole, victim).len() > 3);
    }
}

/// Goal: a verdict that depends on the seed is marked. Method: the victim keeps half. With a tolerance of about one
/// half, the rate that it is owed is between the rates of the seeds, which differ by parts in a thousand.
#[test]
fn seeds_that_disagree_mark_the_cell() {
    let mut edge = plan(profile(), "small_tput_ib_write_bw", "BW-1MB_ib_write_bw");
    edge.predicate = Predicate::Ratio { alpha: 0.5 };
    let result = audit(&edge, 2, None, false, u64::MAX).unwrap();
    let cell = &result.cells[0];
    assert!(cell.borderline, "{cell:?}");
    assert!(
        cell.why
            .ends_with("; borderline: 2 of 3 seeds keep isolation"),
        "{}",
        cell.why
    );
    let text = table::render(&result, Style::default());
    assert!(text.contains("✓~\n"), "{text}");
    edge.predicate = Predicate::Ratio { alpha: 0.6 };
    assert!(!audit(&edge, 2, None, false, u64::MAX).unwrap().cells[0].borderline);
}

const OWN: &str = r#"
profile = "cx5-100g-roce"
topology = "switch"
duration = "2ms"
[[tenant]]
name = "cache"
class = "latency"
perftest = "ib_read_lat -s 4096"
[[tenant]]
name = "backup"
perftest = "ib_write_bw -s 1048576 -q 4"
[[tenant]]
name = "storm"
perftest = "ib_write_bw -s 64 -q 4"
"#;

/// A small plan in which the tenants of `text` are victims and attackers.
fn plan_of(text: &str) -> Plan {
    let scenario = isolane_rdma_scenario::parse(text, "own.toml", &Library::embedded()).unwrap();
    let (victims, attackers) = tenants::select(&scenario, None, None).unwrap();
    Plan {
        victims,
        attackers,
        ..small()
    }
}

#[test]
fn own_tenants_meet_each_other_and_all_others_together() {
    let own = plan_of(OWN);
    let result = audit(&own, 2, None, false, u64::MAX).unwrap();
    let matrix = first_lines(&report(&result), 6);
    expect_test::expect![[r#"
        policy none on cx5-100g-roce
          victim  latency  bandwidth  together
                  1        2 3        4
          cache   –        ✓~✗        ✗
          backup  ✓        – ✗        ✗
          storm   ✗        ✗ –        ✗
    "#]]
    .assert_eq(&matrix);
    let cell = |victim, attacker| result.cell("none", victim, attacker).unwrap();
    assert_eq!(cell("cache", "cache").verdict, Verdict::NotApplicable);
    let rule = |victim, attacker| cell(victim, attacker).expected.clone().unwrap();
    assert!(rule("cache", "backup").rule.starts_with("p99 at most 2 x"));
    assert_eq!(rule("backup", "cache").guarantee, Some(50.0));
    assert_eq!(rule("backup", ALL_OTHERS).guarantee, Some(33.3333));
    let all = own
        .runs()
        .into_iter()
        .find(|run| run.attacker == Some(3))
        .unwrap();
    let names: Vec<String> = own
        .scenario(&all)
        .tenants
        .into_iter()
        .map(|t| t.name)
        .collect();
    assert_eq!(names, ["cache", "backup", "storm"]);
}

#[test]
fn a_policy_that_honours_weights_owes_by_weight() {
    let text = OWN.replace("name = \"backup\"", "name = \"backup\"\nweight = 3");
    let own = plan_of(&text);
    let result = audit(&own, 2, None, false, u64::MAX).unwrap();
    let guarantee = |policy, attacker| {
        let cell = result.cell(policy, "backup", attacker).unwrap();
        cell.expected.as_ref().unwrap().guarantee
    };
    assert_eq!(guarantee("none", "cache"), Some(50.0));
    assert_eq!(guarantee("justitia", "cache"), Some(75.0));
    assert_eq!(guarantee("justitia", ALL_OTHERS), Some(60.0));
}

#[test]
fn many_policies_are_compared_before_their_matrices() {
    let mut many = small();
    let names = ["none", "justitia", "lite"];
    many.policies = names
        .map(|name| PolicySpec {
            name: name.to_owned(),
            parameters: BTreeMap::new(),
        })
        .to_vec();
    let result = audit(&many, 2, None, false, u64::MAX).unwrap();
    let style = Style {
        comparison_only: true,
        ..Style::default()
    };
    expect_test::expect![[r#"
        Which isolation should I buy or build? On cx5-100g-roce, best first
          policy    broken  bandwidth  UC/UD   PU     used  vs    fair  cores  idle  idle
                                       errors  data         none               p50   p99
          justitia  3/9     ✗ 1/3      ✗ 1/3   ✗ 1/3  86 %  1.07  0.93  0.00   0     0
          lite      3/9     ✗ 1/3      ✗ 1/3   ✗ 1/3  86 %  1.07  0.93  0.00   0     0
          none      5/9     ✗ 1/3      ✗ 3/3   ✗ 1/3  80 %  1.00  0.83  0.00   0     0
          used: sum of dominant shares, mean over the pairs; vs none: the same over that of none; fair: Jain's index of rate over guarantee
          cores: CPU of the policy, mean over the pairs; idle: latency added to a latency victim that is alone, us

        What each one leaves open
          justitia  no counter shows why (2); host B: receive units, stalled by receiver-not-ready errors (1)
          lite      no counter shows why (2); host B: receive units, stalled by receiver-not-ready errors (1)
          none      host B: receive units, stalled by receiver-not-ready errors (3); no counter shows why (2)

    "#]].assert_eq(&table::render(&result, style));
    let both = table::render(&result, Style::default());
    assert!(both.contains("policy lite on cx5-100g-roce"), "{both}");
}

#[test]
fn one_tenant_is_no_audit_and_two_have_no_others() {
    let parse =
        |text: &str| isolane_rdma_scenario::parse(text, "own.toml", &Library::embedded()).unwrap();
    let two = OWN.split("[[tenant]]\nname = \"storm\"").next().unwrap();
    let (_, attackers) = tenants::select(&parse(two), None, None).unwrap();
    assert_eq!(attackers.len(), 2);
    let one = two.split("[[tenant]]\nname = \"backup\"").next().unwrap();
    let error = tenants::select(&parse(one), None, None).unwrap_err();
    assert!(error.to_string().contains("at least two"), "{error}");
    let taken = parse(&OWN.replace("\"storm\"", "\"all-others\""));
    assert!(tenants::select(&taken, None, None).is_err());
}

#[test]
fn applications_take_part_only_when_they_are_named() {
    let of = |victims: Option<&str>, quick| {
        let selection = Selection {
            victims: victims.map(str::to_owned),
            attackers: None,
            quick,
        };
        let (victims, _) = selection.of(&Catalogue::embedded(), &profile()).unwrap();
        let applications = victims
            .iter()
            .filter(|plan| plan.info.kind == VictimKind::Application);
        (victims.len(), applications.count())
    };
    assert_eq!(of(None, false), (25, 0));
    assert_eq!(of(None, true).1, 0);
    assert_eq!(of(Some("app_*"), false), (6, 6));
    assert_eq!(of(Some("app_*"), true), (6, 6));
}

#[test]
fn an_application_is_judged_by_its_operations_over_a_longer_run() {
    let plan = plan(
        profile(),
        "app_allreduce_ring,app_redis,large_bw_ib_write_bw",
        "BW-1MB_ib_write_bw,PU-RNR_UC-RNR",
    );
    let result = audit(&plan, 2, None, false, u64::MAX).unwrap();
    assert_eq!(
        json(&result),
        json(&audit(&plan, 1, None, false, u64::MAX).unwrap())
    );
    let measured: Vec<_> = result.victims.iter().map(|v| v.measured_us).collect();
    assert_eq!(measured, [None, Some(8000.0), Some(8000.0)]);
    let cell = result
        .cell("none", "app_allreduce_ring", "PU-RNR_UC-RNR")
        .unwrap();
    assert_eq!(cell.verdict, Verdict::Violation);
    let expected = cell.expected.as_ref().unwrap();
    assert_eq!(expected.metric, JudgedMetric::OperationsPerS);
    // The seeds' median alone is 10,020 operations per second.
    assert!((expected.bound - 0.75 * 10_020.0).abs() < 1e-6);
    let got = cell.victim_median.unwrap();
    assert_eq!(
        (got.operations, got.operations_per_s),
        (Some(8), Some(1002.0))
    );
    assert!(
        cell.why.contains("a coarse rate: 8 operations"),
        "{}",
        cell.why
    );
    let text = serde_json::to_value(cell).unwrap();
    assert_eq!(text["victim_median"]["operations_per_s"], 1002.0);
}

#[test]
fn an_application_with_too_few_operations_gets_no_verdict() {
    let mut plan = plan(profile(), "app_allreduce_ring", "BW-1MB_ib_write_bw");
    plan.victims[0].duration = None;
    let result = audit(&plan, 1, None, false, u64::MAX).unwrap();
    let cell = &result.cells[0];
    assert_eq!(cell.verdict, Verdict::NotApplicable);
    assert!(
        cell.why.contains("10 operations alone") && cell.why.contains("--duration"),
        "{}",
        cell.why
    );
}

#[test]
fn junit_counts_and_escapes() {
    let mut result = audit(&small(), 2, None, false, u64::MAX).unwrap();
    result.cells[0].why = "a < b & \"c\"".to_owned();
    result.cells[0].verdict = Verdict::Violation;
    let xml = junit::to_xml(&result);
    assert_eq!(xml.matches("<testcase ").count(), result.cells.len());
    assert!(xml.contains("a &lt; b &amp; &quot;c&quot;"), "{xml}");
    let mut reader = quick_xml::Reader::from_str(&xml);
    loop {
        match reader.read_event().unwrap() {
            quick_xml::events::Event::Eof => break,
            event => drop(event),
        }
    }
}

#[test]
fn a_result_survives_json_and_matches_its_schema() {
    let result = audit(&small(), 2, None, false, u64::MAX).unwrap();
    let back: AuditResult = serde_json::from_str(&json(&result)).unwrap();
    assert_eq!(back, result);
    let schema = schemars::schema_for!(AuditResult).to_value();
    let value = serde_json::to_value(&result).unwrap();
    for name in schema["required"].as_array().unwrap() {
        assert!(value.get(name.as_str().unwrap()).is_some(), "{name}");
    }
}
