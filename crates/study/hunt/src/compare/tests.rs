//! Comparisons on targets whose anomalies are known.

use super::*;
use crate::hunt::{Settings, hunt};
use crate::monitor::Symptom;
use crate::region::Region;
use crate::space::tests::profile;
use crate::space::{Allowed, Feature, Space};
use crate::synthetic::{Fault, Synthetic, bench, counters};
use isolane_common_quantities::rng::Stream;

fn published() -> KnownSet {
    let device = Space::of(&profile("cx6-200g-roce"));
    let set = KnownSet::published("cx6-200g-roce", &device);
    set.expect("it is read").expect("it is there")
}

/// A target with exactly the conditions of `known`, for searchers only: it says nothing of any device.
fn target(known: &KnownSet) -> Synthetic {
    let faults = known.known.iter().map(|known| Fault {
        symptom: known.symptom,
        region: known.region.clone(),
        probability: 1.0,
    });
    Synthetic {
        faults: faults.collect(),
        ..Synthetic::default()
    }
}

fn race(contestant: &str, seed: u64, experiments: u64, known: &KnownSet) -> Race {
    let contestant = Contestant::parse(contestant).unwrap();
    let target = target(known);
    let mut bench = bench(&target, experiments, 1);
    let settings = Settings {
        seed,
        searcher: contestant.searcher.clone(),
        counters: counters(&target),
        reduces: contestant.reduces,
        stages: contestant.stages(),
        tests: true,
    };
    let space = Space::of(&profile("cx6-200g-roce"));
    let result = hunt(&mut bench, &space, &settings).unwrap();
    Race::of(&contestant, &result, known, &space)
}

#[test]
fn contestants_are_read_as_they_are_written() {
    for name in [
        "anneal",
        "anneal:perf",
        "random:no-mfs",
        "bayes:perf:no-mfs",
        "factors:no-feedback:no-triage",
    ] {
        assert_eq!(Contestant::parse(name).unwrap().name(), name);
    }
    assert!(Contestant::parse("magic").unwrap_err().contains("anneal"));
    assert!(
        Contestant::parse("anneal:fast")
            .unwrap_err()
            .contains("no-mfs")
    );
}

#[test]
fn rows_that_differ_in_a_letter_are_one_anomaly() {
    let expected: Vec<String> = (1..=13).map(|number| number.to_string()).collect();
    assert_eq!(numbers(&published()), expected);
}

#[test]
fn what_is_found_is_named_by_its_simplest_cause() {
    let race = race("screen", 1, 400, &published());
    assert!(race.found.contains_key("13"), "{race:?}");
    let times = race.times();
    assert!(times.is_sorted_by_key(|spent| spent.experiments));
    assert_eq!(times.len(), race.found.len());
}

#[test]
fn without_reduction_nothing_is_left_out_and_nothing_is_spent_on_it() {
    let race = race("random:no-mfs", 1, 200, &published());
    assert!(
        race.search_experiments >= 200 && race.search_experiments < 220,
        "{race:?}"
    );
    assert_eq!(race.spent.experiments, race.search_experiments);
}

#[test]
fn medians_count_races_that_never_came_there() {
    let spent = |experiments: u64| Spent {
        experiments,
        modelled_s: 3600.0 * experiments as f64,
    };
    let race = |times: &[u64]| Race {
        contestant: Contestant::parse("random").unwrap(),
        seed: 1,
        spent: spent(100),
        found: (1..)
            .zip(times)
            .map(|(n, &t): (i32, _)| (n.to_string(), spent(t)))
            .collect(),
        others: 0,
        findings: 2,
        mechanisms: 0,
        conditions: Default::default(),
        compared: Vec::new(),
        other_causes: Default::default(),
        search_experiments: 100,
        counter_max: 0.0,
    };
    let races = [race(&[4, 9]), race(&[5]), race(&[6])];
    let races: Vec<&Race> = races.iter().collect();
    assert_eq!(median_time(&races, 1), Some((5.0, 5.0)));
    assert_eq!(median_time(&races, 2), None);
    assert_eq!(median_time(&races[..2], 1), Some((4.5, 4.5)));
}

/// 13 faults with conditions of the kinds that published ones have, but others: what no searcher was made for.
fn made_up(seed: u64) -> KnownSet {
    let space = Space::of(&profile("cx6-200g-roce"));
    let mut stream = Stream::named(seed, "made-up");
    let numbers = [
        Feature::QueuePairs,
        Feature::PostList,
        Feature::Depth,
        Feature::Regions,
        Feature::Elements,
        Feature::Largest,
        Feature::Smallest,
    ];
    let mut known = Vec::new();
    for number in 1..=13 {
        let mut features = BTreeMap::new();
        let mut choose = |feature: Feature, stream: &mut Stream| {
            let grid = space.allowed(feature).grid();
            let value = grid[stream.below(grid.len() as u64) as usize];
            features.insert(feature, Allowed::Set(vec![value]));
        };
        choose(Feature::Service, &mut stream);
        if stream.chance(1, 3) {
            choose(Feature::Direction, &mut stream);
        }
        if stream.chance(1, 3) {
            choose(Feature::Mtu, &mut stream);
        }
        for _ in 0..1 + stream.below(4) {
            let feature = numbers[stream.below(numbers.len() as u64) as usize];
            let grid = space.allowed(feature).grid();
            let (first, last) = (grid[0], grid[grid.len() - 1]);
            let place = stream.below(grid.len().div_ceil(2) as u64) as usize;
            let allowed = match stream.chance(1, 2) {
                true => Allowed::Range(first, grid[place]),
                false => Allowed::Range(grid[grid.len() - 1 - place], last),
            };
            features.insert(feature, allowed);
        }
        known.push(Known {
            name: number.to_string(),
            symptom: match stream.chance(1, 2) {
                true => Symptom::PauseFrames,
                false => Symptom::LowThroughput,
            },
            region: Region { features },
            note: None,
            checks: None,
            untested: false,
        });
    }
    KnownSet {
        source: "made up".to_owned(),
        known,
        unreduced: Vec::new(),
    }
}

/// Seeds of a comparison.
const SEEDS: u64 = 8;
/// Experiments of each of its hunts.
const BUDGET: u64 = 6_000;

fn compared(target: &str, known: &dyn Fn(u64) -> KnownSet) -> Comparison {
    let mut comparison = Comparison {
        version: COMPARISON_VERSION,
        target: target.to_owned(),
        budget: format!("{BUDGET} experiments"),
        anomalies: numbers(&known(1)),
        races: Vec::new(),
    };
    for name in ["anneal", "screen"] {
        let races = (1..=SEEDS).map(|seed| race(name, seed, BUDGET, &known(seed)));
        comparison.races.extend(races);
    }
    println!("{}", comparison.text());
    comparison
}

#[test]
#[ignore = "minutes: prints how the searchers compare on published conditions"]
fn searchers_on_the_published_conditions() {
    let comparison = compared("published conditions", &|_| published());
    assert!(comparison.races.iter().all(|race| race.others < 40));
}

#[test]
#[ignore = "minutes: prints how the searchers compare on unpublished conditions"]
fn searchers_on_conditions_made_up() {
    let comparison = compared("made-up conditions, others for each seed", &made_up);
    assert!(comparison.races.iter().all(|race| race.others < 40));
}
