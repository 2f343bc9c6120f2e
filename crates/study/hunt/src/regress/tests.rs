//! Suites, comparisons, bisections and bundles on simulated devices.

use super::bisect::bisect;
use super::bundle::bundle;
use super::compare::compare;
use super::*;
use crate::space::tests::profile;
use expect_test::expect;
use isolane_study_testbed_simulator::SimTestbed;

/// The published reproducers with these names.
fn corpus(names: &[&str]) -> Vec<Reproducer> {
    let all = published(&profile("cx6-200g-roce")).into_iter();
    all.filter(|one| names.contains(&one.name.as_str()))
        .collect()
}

/// The device with its path to the other socket so many times as wide.
fn wider(factor: f64) -> Profile {
    let mut profile = profile("cx6-200g-roce");
    let section = profile.section_mut("microarchitecture");
    let parameter = section.and_then(|section| section.get_mut("remote_socket_gbps"));
    parameter.expect("the profile has it").value *= factor;
    profile
}

#[test]
fn a_trigger_with_one_condition_broken_is_another_workload_and_sound() {
    let profile = profile("cx6-200g-roce");
    let (whole, parts) = (published(&profile), broken(&profile));
    for part in &parts {
        let (trigger, _) = part.name.split_once("-without-").unwrap();
        let trigger = whole.iter().find(|one| one.name == trigger).unwrap();
        assert!(part.point != trigger.point, "{}", part.name);
    }
    let of = |name: &str| {
        let mut all = whole.iter().chain(&parts);
        all.find(|one| one.name == name).unwrap().clone()
    };
    let corpus = ["collie#3", "collie#3-without-mtu", "collie#3-without-size"].map(of);
    let state = State::simulated(&SimTestbed, "cx6", &profile);
    expect![[r#"
        reproducer             symptom       cx6
        collie#3               pause frames  shows
        collie#3-without-mtu   pause frames  sound
        collie#3-without-size  pause frames  sound
    "#]]
    .assert_eq(&regress(&[state], &corpus, 1).unwrap().text());
}

#[test]
fn a_wider_path_to_the_other_socket_ends_one_anomaly_and_the_way_back_is_a_regression() {
    let (wide, now) = (wider(10.0), wider(1.0));
    let states = [
        State::simulated(&SimTestbed, "wider", &wide),
        State::simulated(&SimTestbed, "now", &now),
    ];
    let result = regress(&states, &corpus(&["collie#3", "collie#11"]), 2).unwrap();
    expect![[r#"
        reproducer  symptom       wider  now
        collie#3    pause frames  shows  shows
        collie#11   pause frames  sound  shows
        1 regression: collie#11
    "#]]
    .assert_eq(&result.text());
    expect![[r#"
        <?xml version="1.0" encoding="UTF-8"?>
        <testsuites name="isolane regress">
          <testsuite name="wider" tests="2" failures="1" skipped="0" errors="0">
            <properties>
              <property name="microarchitecture.remote_socket_gbps" value="3400"/>
            </properties>
            <testcase classname="isolane.regress.wider" name="collie#3">
              <failure message="pause frames in every run">pause frames in every run</failure>
            </testcase>
            <testcase classname="isolane.regress.wider" name="collie#11"/>
          </testsuite>
          <testsuite name="now" tests="2" failures="2" skipped="0" errors="0">
            <properties>
              <property name="microarchitecture.remote_socket_gbps" value="340"/>
            </properties>
            <testcase classname="isolane.regress.now" name="collie#3">
              <failure message="pause frames in every run">pause frames in every run</failure>
            </testcase>
            <testcase classname="isolane.regress.now" name="collie#11">
              <failure message="pause frames in every run">pause frames in every run</failure>
            </testcase>
          </testsuite>
        </testsuites>
    "#]]
    .assert_eq(&result.junit());
    let comparison = compare(&result.suites[0], &result.suites[1]);
    expect![[r#"
        microarchitecture.remote_socket_gbps: 3400 -> 340

        reproducer  before  after
        collie#3    shows   shows
        collie#11   sound   shows
        regressions: collie#11
    "#]]
    .assert_eq(&comparison.text());
    assert_eq!(comparison.regressions, ["collie#11"]);
    let back = compare(&result.suites[1], &result.suites[0]);
    assert_eq!(back.repaired, ["collie#11"]);
    assert_eq!(
        (comparison.answer(), back.answer()),
        (Some(true), Some(false))
    );
}

/// A suite of reproducers named by their place, with these verdicts.
fn suite_of(verdicts: &[Verdict]) -> Suite {
    let profile = wider(1.0);
    let state = State::simulated(&SimTestbed, "now", &profile);
    let mut suite = state.suite(&corpus(&["collie#11"]), 1..=1).unwrap();
    let case = suite.cases.remove(0);
    suite
        .cases
        .extend(verdicts.iter().enumerate().map(|(place, verdict)| Case {
            name: place.to_string(),
            verdict: *verdict,
            ..case.clone()
        }));
    suite
}

#[test]
fn what_was_sound_and_is_not_any_longer_is_a_regression_and_what_was_not_judged_is_no_answer() {
    use Verdict::{Impossible, Shows, Sound, Unsteady};
    let sound = suite_of(&[Sound, Sound]);
    for (after, answer) in [
        (&[Sound, Sound][..], Some(false)),
        (&[Sound, Unsteady], Some(true)),
        (&[Shows, Impossible], Some(true)),
        (&[Sound, Impossible], None),
        (&[Impossible, Impossible], None),
        (&[], None),
    ] {
        let found = compare(&sound, &suite_of(after));
        assert_eq!(found.answer(), answer, "{after:?}: {found:?}");
    }
    let text = compare(&sound, &suite_of(&[Sound])).text();
    assert!(
        text.contains("no regressions among 1 of 2 reproducers"),
        "{text}"
    );
}

#[test]
fn bisection_names_the_version_and_its_setting_in_few_steps() {
    let profiles: Vec<Profile> = (0..9)
        .map(|index| wider(if index < 6 { 10.0 } else { 1.0 }))
        .collect();
    let names: Vec<String> = (0..9).map(|index| format!("v{index}")).collect();
    let states: Vec<State<'_>> = names
        .iter()
        .zip(&profiles)
        .map(|(name, profile)| State::simulated(&SimTestbed, name, profile))
        .collect();
    let found = bisect(&states, &corpus(&["collie#3", "collie#11"]), 1).unwrap();
    expect![[r#"
        between v5 and v6
          collie#11 (pause frames) shows since v6 (3 steps)
          microarchitecture.remote_socket_gbps: 3400 -> 340
        on the first and the last version: collie#3
        9 versions, 7 runs of reproducers
    "#]]
    .assert_eq(&found.text());
    // Nine versions have eight gaps.
    assert_eq!(found.turns[0].steps, 3);
}

#[test]
fn a_bundle_has_conditions_versions_repeats_and_scripts() {
    let device = wider(1.0);
    let state = State::simulated(&SimTestbed, "cx6-200g-roce", &device);
    let corpus = corpus(&["collie#4", "collie#11"]);
    let record = regress(std::slice::from_ref(&state), &corpus, 1).unwrap();
    let files = bundle(&state, &corpus, &record.suites[0], &record, 1..=1).unwrap();
    let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    expect![[r#"
        collie-4/scenario.toml
        collie-11/scenario.toml
        collie-11/perftest.sh
        README.md
        record.json"#]]
    .assert_eq(&paths.join("\n"));
    let page = files.iter().find(|file| file.path == "README.md");
    let page = &page.expect("a bundle has a page").text;
    let shown: Vec<&str> = page
        .lines()
        .filter(|line| !line.starts_with("| ") || line.starts_with("| 1 |"))
        .filter(|line| !line.is_empty())
        .collect();
    expect![[r#"
        # RDMA anomalies on cx6-200g-roce
        2 of 2 reproducers show their symptom in every run. `NAME/scenario.toml` runs with `isolane sim`, `NAME/perftest.sh` with perftest 4.5. `record.json` has every run; `isolane regress --compare` compares it with another.
        |---|---|
        ## collie#4
        - symptom: pause frames
        - workload: direction=bidirectional memory_a=local memory_b=local regions=80 region_bytes=64KiB service=rc-read queue_pairs=80 mtu=4KiB post_list=128 depth=128 pattern=[32B+32B+32B+32B]
        - conditions: not tested on this device
        - perftest: no: perftest posts requests of one scatter-gather element only
        |---|---|---|---|---|
        | 1 | 57.4 % | 12.8 % | 14.3 % | 4.2 % |
        |---|---|
        ## collie#11
        - symptom: pause frames
        - workload: direction=bidirectional memory_a=local memory_b=remote-socket regions=32 region_bytes=4MiB service=rc-write queue_pairs=1 mtu=4KiB post_list=16 depth=128 pattern=[256KiB]
        - conditions: not tested on this device
        - perftest: shows with regions 1 instead of 32 and region_bytes 512KiB instead of 4MiB
        |---|---|---|---|---|
        | 1 | 3.5 % | 72.5 % | 2.8 % | 10.8 % |
        |---|---|"#]].assert_eq(&shown.join("\n"));
    for file in &files {
        if file.path.ends_with(".toml") {
            let library = isolane_rdma_scenario::library::Library::embedded();
            isolane_rdma_scenario::parse(&file.text, &file.path, &library).unwrap();
        }
    }
}
