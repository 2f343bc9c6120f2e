//! What the hunts of a comparison share, and one of them: a simulated device with published anomalies or with the
//! mechanisms of its model, or planted devices, a different one per hunt.

use super::super::with_kinds;
use super::{Arguments, Truth, seeds, words};
use crate::inputs::{self, bad};
use anyhow::{Context, Result, bail};
use isolane_rdma_scenario::profile::Profile;
use isolane_study_hunt::bench::{Bench, BenchOptions, Budget, Stop};
use isolane_study_hunt::compare::{
    Compared, Contestant, Race, numbers, others, with_the_same_cause,
};
use isolane_study_hunt::counters::{self, Counter};
use isolane_study_hunt::experiment::{Lab, inventory};
use isolane_study_hunt::hunt::{Anomaly, Ended, Settings, hunt};
use isolane_study_hunt::knockout::Knockout;
use isolane_study_hunt::known::KnownSet;
use isolane_study_hunt::mfs::{FeatureSet, corner};
use isolane_study_hunt::planted::PlantedDevice;
use isolane_study_hunt::region::Region;
use isolane_study_hunt::rule::Rule;
use isolane_study_hunt::session::device_start;
use isolane_study_hunt::space::Space;
use isolane_study_hunt::state::Start;
use isolane_study_testbed_simulator::SimTestbed;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

pub(super) struct Course {
    profile: Profile,
    space: Space,
    place: Place,
    budget: Budget,
    /// Whether conditions of published anomalies are tested after the hunt.
    refines: bool,
    pub(super) settings: String,
    /// What is searched, in words.
    pub(super) target: String,
    /// Names of what there is to find; none where it differs from hunt to hunt.
    pub(super) anomalies: Vec<String>,
}

/// Where hunts take place, and what their findings are held against.
pub(super) enum Place {
    /// A simulated device, and conditions.
    Published(Start, KnownSet),
    /// A simulated device, and its mechanisms.
    Knockout(Start),
    Planted,
}

/// What `arguments` want searched.
pub(super) fn course(arguments: &Arguments) -> Result<Course> {
    match arguments.planted {
        Some(_) => planted_course(arguments),
        None => device_course(arguments),
    }
}

fn device_course(arguments: &Arguments) -> Result<Course> {
    let name = arguments.target.strip_prefix("sim:").ok_or_else(|| {
        bad(format!(
            "--target {}: must be sim: and a profile, like sim:cx6-200g-roce: a comparison takes days on real devices",
            arguments.target
        ))
    })?;
    let profile = inputs::profile(&mut inputs::library(), name)?;
    let all = with_kinds(Space::of(&profile), arguments.kinds);
    let (space, restriction) = restricted(arguments, all)?;
    let lab = Lab::simulated(&SimTestbed, &profile);
    let measured = || device_start(&lab, &space, 1, false);
    let (place, anomalies) = match arguments.truth {
        Truth::Knockout => {
            let start = measured()?;
            let bounds = start.bounds.as_ref().context("a device was measured")?;
            let knockout = Knockout::of(&SimTestbed, &profile, bounds);
            let names = knockout.mechanisms().map(|one| one.name.to_owned());
            let names = names.collect();
            (Place::Knockout(start), names)
        }
        Truth::Published => {
            let device = Space::of(&profile);
            let Some(published) = KnownSet::published(&profile.name, &device)? else {
                let known: Vec<&str> = KnownSet::published_profiles().collect();
                bail!(bad(format!(
                    "--target {}: no anomalies were published of it, so nothing says what was found; there are some of {}; \
                     --truth knockout needs none",
                    arguments.target,
                    known.join(" and ")
                )));
            };
            let names = numbers(&published);
            (Place::Published(measured()?, published), names)
        }
    };
    Ok(Course {
        profile,
        space,
        place,
        budget: arguments.budget(),
        refines: arguments.refine,
        settings: format!(
            "isolane hunt bench {} --target {} --truth {:?} --budget {} restrictions {restriction}{}{}",
            super::super::audit::build(),
            arguments.target,
            arguments.truth,
            words(arguments.budget()),
            kinds(arguments),
            if arguments.refine { " --refine" } else { "" },
        ),
        target: arguments.target.clone(),
        anomalies,
    })
}

/// Hunts on planted devices, whose space is that of the target.
fn planted_course(arguments: &Arguments) -> Result<Course> {
    let name = arguments.target.trim_start_matches("sim:");
    let profile = inputs::profile(&mut inputs::library(), name)?;
    let all = with_kinds(Space::of(&profile), arguments.kinds);
    let (space, restriction) = restricted(arguments, all)?;
    let numbers = seeds(arguments);
    Ok(Course {
        profile,
        space,
        place: Place::Planted,
        budget: arguments.budget(),
        refines: arguments.refine,
        settings: format!(
            "isolane hunt bench {} --planted --target {} --budget {} restrictions {restriction}{}",
            super::super::audit::build(),
            arguments.target,
            words(arguments.budget()),
            kinds(arguments),
        ),
        target: format!("planted devices {} to {}", numbers.start(), numbers.end()),
        anomalies: Vec::new(),
    })
}

/// The kinds of traffic, as settings name them: nothing for one, as journals of earlier versions have it.
fn kinds(arguments: &Arguments) -> String {
    match arguments.kinds {
        1 => String::new(),
        kinds => format!(" --kinds {kinds}"),
    }
}

/// `space` after `--restrict`, and a text that identifies the restrictions.
fn restricted(arguments: &Arguments, space: Space) -> Result<(Space, String)> {
    let (space, text) = match &arguments.restrict {
        None => (space, String::new()),
        Some(path) => {
            let text = inputs::read(path, &inputs::RESTRICTION)?;
            let file = path.to_string_lossy();
            (space.restricted(&text, &file)?, text)
        }
    };
    Ok((
        space,
        isolane_study_audit::journal::build_of(text.as_bytes()),
    ))
}

/// One hunt; none where the user stopped it.
pub(super) fn race(
    course: &Course,
    contestant: &Contestant,
    seed: u64,
    cancel: &AtomicBool,
) -> Result<Option<Race>> {
    let start = match &course.place {
        Place::Published(start, _) | Place::Knockout(start) => start,
        Place::Planted => return planted_race(course, contestant, seed, cancel),
    };
    let lab = Lab::simulated(&SimTestbed, &course.profile);
    let bounds = start.bounds.as_ref().context("a device was measured")?;
    let rule = Rule::Device(bounds.clone(), None);
    let asked = contestant.counters();
    let counters = counters::choose(&asked, &lab.name, &inventory(&lab)?)?;
    let options = options(course, seed, cancel);
    let mut bench = Bench::new(&lab, rule, None, BTreeMap::new(), options);
    let settings = settings(contestant, seed, counters);
    let result = hunt(&mut bench, &course.space, &settings)?;
    if result.ended == Ended::Interrupted {
        return Ok(None);
    }
    let knockout = Knockout::of(&SimTestbed, &course.profile, bounds);
    if let Place::Published(_, published) = &course.place {
        let mut race = Race::of(contestant, &result, published, &course.space);
        if course.refines {
            let device = (&lab, &knockout);
            let run_seed = bench.run_seed(1);
            let (same, other_causes) =
                with_the_same_cause(&result.anomalies, published, device, run_seed)?;
            for found in &same {
                let rule = Rule::Device(bounds.clone(), None);
                let without_end = BenchOptions {
                    budget: Budget::Experiments(u64::MAX),
                    ..self::options(course, seed, cancel)
                };
                let mut bench = Bench::new(&lab, rule, None, BTreeMap::new(), without_end);
                let known = others(&result.anomalies, found.1);
                let truth = (published, &course.space);
                race.compared
                    .extend(tested(&mut bench, found, &known, truth)?);
            }
            race.other_causes = other_causes;
        }
        return Ok((!cancel.load(Ordering::Relaxed)).then_some(race));
    }
    let mut causes = vec![Vec::new(); result.anomalies.len()];
    let mut order: Vec<usize> = (0..causes.len()).collect();
    order.sort_by_key(|&index| result.anomalies[index].found_at.experiments);
    let mut shown = BTreeSet::new();
    for index in order {
        let anomaly = &result.anomalies[index];
        let (point, repeat) = match &anomaly.set {
            Some(set) => (&set.witness, 1),
            None => (&anomaly.point, 0),
        };
        let finding = (point, anomaly.symptom);
        let counters = bench
            .recall(point)
            .map_or(&anomaly.counters, |run| &run.counters);
        let found = knockout.causes(finding, bench.run_seed(repeat), &shown, counters)?;
        if let [only] = found.as_slice() {
            shown.insert(only.name);
        }
        causes[index] = found.into_iter().map(|one| one.name.to_owned()).collect();
    }
    let mut race = Race::with_causes(contestant, &result, &causes);
    race.mechanisms = course.anomalies.len() as u32;
    Ok(Some(race))
}

/// The conditions of one finding, which are tested on `bench`, beside the published ones.
fn tested(
    bench: &mut Bench<'_>,
    (name, anomaly): (&String, &&Anomaly),
    known: &[&Region],
    (published, space): (&KnownSet, &Space),
) -> Result<Option<Compared>> {
    let one_kind = |set: &&FeatureSet| set.witness.second.is_none();
    let Some(set) = anomaly.set.as_ref().filter(one_kind) else {
        return Ok(None);
    };
    let tested = match corner(bench, space, set, known) {
        Ok(tested) => tested,
        Err(Stop::Failed(error)) => return Err(error.into()),
        Err(Stop::Budget | Stop::Cancelled) => return Ok(None),
    };
    let runs = bench.spent().experiments;
    let finding = (name.as_str(), *anomaly);
    Ok(Compared::of(finding, (&tested, runs), published, space))
}

/// One hunt on the planted device with this number.
fn planted_race(
    course: &Course,
    contestant: &Contestant,
    number: u64,
    cancel: &AtomicBool,
) -> Result<Option<Race>> {
    let device = PlantedDevice::new(number, &course.space);
    let rule = Rule::Device(device.bounds().clone(), None);
    let options = options(course, number, cancel);
    let mut bench = Bench::new(&device, rule, None, BTreeMap::new(), options);
    let settings = settings(contestant, number, device.counters());
    let result = hunt(&mut bench, &course.space, &settings)?;
    let causes: Vec<Vec<String>> = result
        .anomalies
        .iter()
        .map(|anomaly| {
            let witness = anomaly.set.as_ref().map(|set| &set.witness);
            device.causes(witness.unwrap_or(&anomaly.point), anomaly.symptom)
        })
        .collect();
    let mut race = Race::with_causes(contestant, &result, &causes);
    race.mechanisms = device.mechanisms.len() as u32;
    Ok((result.ended != Ended::Interrupted).then_some(race))
}

fn options<'a>(course: &Course, seed: u64, cancel: &'a AtomicBool) -> BenchOptions<'a> {
    BenchOptions {
        seed,
        parallel: 1,
        budget: course.budget,
        cancel,
        on_progress: Box::new(|_| {}),
    }
}

fn settings(contestant: &Contestant, seed: u64, counters: Vec<Counter>) -> Settings {
    Settings {
        seed,
        searcher: contestant.searcher.clone(),
        counters,
        reduces: contestant.reduces,
        stages: contestant.stages(),
        tests: false,
    }
}
