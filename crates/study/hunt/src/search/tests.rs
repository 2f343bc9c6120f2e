//! Searchers on a target with known faults: what they find, that a seed decides everything, and that a hunt goes on
//! where a kill left it.

use crate::bench::{Bench, BenchOptions};
use crate::bounds::Bounds;
use crate::experiment::{Lab, Target};
use crate::hunt::{Ended, HuntResult, Settings, hunt, hunt_watched};
use crate::region::Region;
use crate::rule::Rule;
use crate::search::{NAMES, Stages};
use crate::space::{Allowed, Feature, Point, Space};
use crate::state::{Header, JOURNAL_NAME, Journal, Known, Start};
use crate::synthetic::{Synthetic, bench, bounds, counters, fault, five_faults, options, space};
use isolane_common_quantities::rng::Stream;
use isolane_common_quantities::units::Duration;
use isolane_study_testbed_simulator::SimTestbed;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

fn target() -> Synthetic {
    Synthetic {
        faults: five_faults(),
        ..Synthetic::default()
    }
}

fn settings(searcher: &str, seed: u64, target: &Synthetic) -> Settings {
    Settings {
        seed,
        searcher: searcher.to_owned(),
        counters: counters(target),
        reduces: true,
        stages: Stages::default(),
        tests: true,
    }
}

fn run(searcher: &str, seed: u64, experiments: u64, parallel: usize) -> HuntResult {
    let target = target();
    let mut bench = bench(&target, experiments, parallel);
    hunt(&mut bench, &space(), &settings(searcher, seed, &target)).unwrap()
}

/// Faults whose conditions some anomaly names, all of them.
fn recovered(result: &HuntResult) -> Vec<usize> {
    let faults = five_faults();
    let named = |region: &Region, fault: &Region| {
        fault
            .features
            .keys()
            .all(|f| region.features.contains_key(f))
    };
    (0..faults.len())
        .filter(|&index| {
            let sets = result
                .anomalies
                .iter()
                .filter_map(|anomaly| anomaly.set.as_ref());
            let mut same = sets.filter(|set| set.symptom == faults[index].symptom);
            same.any(|set| {
                faults[index].region.has(&set.witness) && named(&set.region, &faults[index].region)
            })
        })
        .collect()
}

#[test]
fn every_searcher_finds_the_easy_faults_and_names_their_conditions() {
    for searcher in NAMES {
        let result = run(searcher, 1, 1_200, 1);
        let found = recovered(&result);
        assert!(
            found.contains(&0) && found.len() >= 3,
            "{searcher}: {found:?}"
        );
        let regions: Vec<String> = result
            .anomalies
            .iter()
            .filter_map(|a| Some(a.set.as_ref()?.region.text(&space())))
            .collect();
        assert!(result.anomalies.len() <= 12, "{searcher}: {regions:#?}");
    }
}

#[test]
fn a_sound_target_has_no_anomaly() {
    let target = Synthetic::default();
    let mut bench = bench(&target, 500, 1);
    let result = hunt(&mut bench, &space(), &settings("anneal", 1, &target)).unwrap();
    assert!(result.anomalies.is_empty() && result.not_repeated == 0);
    assert_eq!(result.ended, Ended::Budget);
}

#[test]
fn who_watches_knows_what_is_found_before_the_end() {
    let target = target();
    for searcher in ["anneal", "screen"] {
        let mut told = Vec::new();
        let mut bench = bench(&target, 1_000, 3);
        let settings = settings(searcher, 3, &target);
        let result = hunt_watched(&mut bench, &space(), &settings, &mut |found| {
            told.push(found.clone());
        });
        let result = result.unwrap();
        let last = told.last().expect("it found something");
        assert!(!last.anomalies.is_empty(), "{searcher}");
        assert_eq!(last.anomalies, result.anomalies, "{searcher}");
        assert!(told.iter().all(|found| found.ended == Ended::Unfinished));
        let spent: Vec<u64> = told.iter().map(|found| found.spent.experiments).collect();
        assert!(
            spent.is_sorted() && spent[0] < result.spent.experiments,
            "{spent:?}"
        );
    }
}

#[test]
fn a_target_that_is_anomalous_everywhere_is_searched_through() {
    let target = Synthetic {
        faults: vec![fault(crate::monitor::Symptom::PauseFrames, &[])],
        ..Synthetic::default()
    };
    let mut bench = bench(&target, 5_000, 1);
    let result = hunt(&mut bench, &space(), &settings("random", 1, &target)).unwrap();
    assert_eq!(
        (result.anomalies.len(), result.ended),
        (1, Ended::Exhausted)
    );
}

#[test]
fn a_space_that_is_searched_through_early_has_its_conditions_tested() {
    let target = Synthetic {
        faults: vec![fault(
            crate::monitor::Symptom::PauseFrames,
            &[(Feature::Mtu, Allowed::Set(vec![2_048, 4_096]))],
        )],
        ..Synthetic::default()
    };
    let few = "mtu = [1024, 2048, 4096]\nservice = \"rc-write\"\nqueue_pairs = 4\nregions = 1\nregion_bytes = 65536\n\
               memory_a = \"local\"\nmemory_b = \"local\"\nelements = 1\nrequests = 1\nsizes = 4096\npost_list = 1\n\
               depth = [8, 16]\nreceive_depth = 16\nreceive_batch = 1";
    let space = space().restricted(few, "few").unwrap();
    let mut bench = bench(&target, 1_000, 1);
    let result = hunt(&mut bench, &space, &settings("random", 1, &target)).unwrap();
    assert_eq!(result.ended, Ended::Exhausted);
    let sets = result.anomalies.iter().map(|one| one.set.as_ref().unwrap());
    for set in sets {
        assert!(set.checks.is_some(), "{set:?}");
        let conditions: Vec<_> = set.region.features.keys().collect();
        assert_eq!(conditions, [&Feature::Mtu]);
    }
    assert_eq!(result.anomalies.len(), 1);
}

/// Low throughput of runs whose best quarter is sound decides nothing, so what remains are the faults that pause.
#[test]
fn experiments_that_did_not_settle_are_no_findings_and_are_counted() {
    let found = |best_quarter: Option<f64>| {
        let target = Synthetic {
            best_quarter,
            ..target()
        };
        let mut bench = bench(&target, 400, 1);
        let result = hunt(&mut bench, &space(), &settings("random", 3, &target)).unwrap();
        let symptoms = result.anomalies.iter().map(|one| one.symptom);
        let symptoms: std::collections::BTreeSet<_> = symptoms.collect();
        (symptoms.len(), result.unsettled > 0)
    };
    assert_eq!(found(None), (2, false));
    // 5 % of the link in the mean, 5.5 % in the best quarter.
    assert_eq!(found(Some(1.1)), (2, false));
    assert_eq!(found(Some(20.0)), (1, true));
}

#[test]
fn a_seed_decides_everything_and_workers_nothing() {
    for searcher in NAMES {
        let one = run(searcher, 3, 400, 1);
        assert_eq!(one, run(searcher, 3, 400, 3), "{searcher}");
        assert_ne!(one.trace, run(searcher, 4, 400, 1).trace, "{searcher}");
    }
}

#[test]
fn a_larger_budget_only_adds() {
    let (small, large) = (run("anneal", 2, 300, 1), run("anneal", 2, 600, 1));
    assert_eq!(small.trace[..], large.trace[..small.trace.len()]);
    let reduced = small
        .anomalies
        .iter()
        .filter(|anomaly| anomaly.set.is_some());
    for anomaly in reduced {
        let same = large
            .anomalies
            .iter()
            .find(|other| other.number == anomaly.number);
        assert_eq!(same.map(|other| &other.point), Some(&anomaly.point));
    }
}

#[test]
fn the_budget_is_kept_but_for_the_last_batch() {
    for experiments in [1, 37, 200] {
        let result = run("anneal", 5, experiments, 1);
        assert_eq!(result.ended, Ended::Budget);
        let over = result.spent.experiments.saturating_sub(experiments);
        assert!(over < 80, "{experiments}: {}", result.spent.experiments);
    }
}

/// A hunt in `directory` that resumes the state there; with `stop_after` it is killed after that many runs.
fn resumed(directory: &Path, stop_after: Option<usize>) -> HuntResult {
    let cancel: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
    let mut target = target();
    target.stop_after = stop_after.map(|after| (after, cancel));
    let header = Header::new("test", "synthetic");
    let (mut journal, known) = match directory.join(JOURNAL_NAME).exists() {
        true => Journal::resume(directory, &header).unwrap(),
        false => (
            Journal::create(directory, &header).unwrap(),
            Known::default(),
        ),
    };
    let bounds = match known.start.and_then(|start| start.bounds) {
        Some(bounds) => bounds,
        None => {
            let start = Start {
                bounds: Some(bounds()),
                latency: None,
                alone: None,
                counters: Vec::new(),
            };
            journal.begin(&start).unwrap();
            bounds()
        }
    };
    let options = BenchOptions {
        seed: 9,
        ..options(600, 2, cancel)
    };
    let rule = Rule::Device(bounds, None);
    let mut bench = Bench::new(&target, rule, Some(journal), known.experiments, options);
    let result = hunt(&mut bench, &space(), &settings("anneal", 9, &target)).unwrap();
    let stopped = cancel.load(Ordering::Relaxed);
    assert_eq!(result.ended == Ended::Interrupted, stopped);
    result
}

#[test]
fn a_hunt_killed_again_and_again_ends_like_one_that_was_not() {
    let directory = tempfile::tempdir().unwrap();
    let whole = resumed(directory.path(), None);
    assert_eq!(whole.ended, Ended::Budget);
    let mut stream = isolane_common_quantities::rng::Stream::named(1, "kill");
    let other = tempfile::tempdir().unwrap();
    let mut kills = 0;
    let last = loop {
        let part = resumed(other.path(), Some(1 + stream.below(150) as usize));
        if part.ended != Ended::Interrupted {
            break part;
        }
        kills += 1;
        // Besides, lose a part of the last line, as a kill in the middle of a write would.
        let path = other.path().join(JOURNAL_NAME);
        let length = std::fs::metadata(&path).unwrap().len();
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(length - stream.below(200).min(length))
            .unwrap();
    };
    assert!(kills > 2, "{kills}");
    assert_eq!(last, whole);
}

#[test]
#[ignore = "prints what shorter experiments would save and miss, for those who change the search"]
fn shorter_experiments() {
    let profile = crate::space::tests::profile("cx6-200g-roce");
    let lab = Lab::simulated(&SimTestbed, &profile);
    let space = Space::of(&profile);
    let bounds = Bounds::measure(&lab, &profile, &space, 1).unwrap();
    let mut stream = Stream::named(1, "test");
    let points: Vec<Point> = (0..100).map(|_| space.draw(&mut stream).unwrap()).collect();
    let verdicts = |duration_us: u64, extensions: u32| {
        let mut lab = Lab::simulated(&SimTestbed, &profile);
        lab.times.duration = Duration::from_us(duration_us);
        lab.extensions = extensions;
        let (mut before_us, mut measured_us) = (0.0, 0.0);
        let verdict = |point| {
            let measured = lab.measure(point, 1).unwrap();
            before_us += measured.settled_after_us.unwrap_or(0.0);
            measured_us += measured.measured_us.unwrap_or(0.0);
            crate::monitor::judge(point, &measured, &bounds).symptom
        };
        let all: Vec<_> = points.iter().map(verdict).collect();
        println!(
            "{duration_us} us, {extensions} extensions: {before_us} us before, {measured_us} us measured"
        );
        all
    };
    let usual = verdicts(200, 2);
    for (duration_us, extensions) in [(200, 0), (50, 0)] {
        let short = verdicts(duration_us, extensions);
        let other = usual.iter().zip(&short).filter(|(one, other)| one != other);
        println!("  {} of {} verdicts differ", other.count(), usual.len());
    }
}
