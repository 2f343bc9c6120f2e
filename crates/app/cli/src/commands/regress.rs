//! `isolane regress`: known reproducers as a suite, on a device, on several states of it, on a list of versions, or every night.

use super::hunt::found;
use super::hunt::ground::{Place, measured_time};
use crate::file_kind::{FileKind, Wanted};
use crate::inputs::{self, bad};
use crate::interrupt;
use crate::output;
use crate::status::Status;
use crate::target::cancel_on_signal;
use crate::text::counted;
use anyhow::{Context, Result, bail};
use isolane_common_quantities::units::Duration;
use isolane_rdma_scenario::profile::Profile;
use isolane_study_hunt::known::KnownSet;
use isolane_study_hunt::regress::bisect::{VERSIONS_MIN, bisect};
use isolane_study_hunt::regress::bundle::bundle;
use isolane_study_hunt::regress::canary::{CANARY_VERSION, Canary, NIGHTS};
use isolane_study_hunt::regress::compare::compare;
use isolane_study_hunt::regress::{
    REGRESS_VERSION, Regression, Reproducer, State, Suite, broken, of_hunt, published, regress,
};
use isolane_study_hunt::space::Space;
use isolane_study_testbed_simulator::SimTestbed;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};

/// Arguments of `isolane regress`.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("states").required(true)))]
pub(crate) struct Arguments {
    /// Hunts whose anomalies are the reproducers: directories or hunt.json [default: the published triggers of the first profile]
    #[arg(value_name = "DIR|FILE", conflicts_with = "compare")]
    hunts: Vec<PathBuf>,
    /// Profiles, names or files, the baseline first: a device with its firmware, driver and settings each
    #[arg(long, group = "states", value_delimiter = ',')]
    #[arg(value_name = "NAME|FILE,...")]
    profile_matrix: Vec<String>,
    /// Profiles of successive versions: find the first on which each reproducer shows, or no longer shows
    #[arg(long, group = "states", value_delimiter = ',')]
    #[arg(value_name = "NAME|FILE,...")]
    bisect: Vec<String>,
    /// Real devices: verbs:DEVICE,DEVICE, or verbs:HOST:DEVICE,HOST:DEVICE with an agent on each host
    #[arg(long, group = "states", value_name = "verbs:...")]
    target: Option<String>,
    /// Compare the second of two files of --record with the first, and run nothing
    #[arg(long, group = "states", value_delimiter = ',')]
    #[arg(value_name = "BEFORE,AFTER")]
    compare: Vec<PathBuf>,
    /// Profile with the transports, MTUs and published triggers of the real devices [default: cx5-100g-roce]
    #[arg(long, requires = "target", value_name = "NAME|FILE")]
    profile: Option<String>,
    /// Certificates for agents that listen; without them agents are reached by ssh
    #[arg(long, requires = "target", value_name = "DIR")]
    identity: Option<PathBuf>,
    /// Also run the published triggers with each of their conditions broken alone: a device that behaves as published shows no anomaly with them
    #[arg(long, conflicts_with_all = ["compare", "hunts"])]
    broken: bool,
    /// Only these reproducers
    #[arg(long, conflicts_with = "compare", value_delimiter = ',')]
    #[arg(value_name = "NAME,...")]
    only: Vec<String>,
    /// Measured time of a run on real devices [default: 1s]
    #[arg(long, requires = "target", value_name = "TIME", value_parser = measured_time)]
    measure: Option<Duration>,
    /// Runs of each reproducer on each state
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = crate::numbers::whole::<u64>(1..=1000))]
    seeds: u64,
    /// Also write the result, with what it ran on, for --compare
    #[arg(long, conflicts_with_all = ["compare", "bisect", "canary"], value_name = "FILE")]
    record: Option<PathBuf>,
    /// Also write a directory for the vendor: conditions, counters, versions, repeats, scenarios and perftest scripts
    #[arg(long, conflicts_with_all = ["compare", "bisect", "canary"], value_name = "DIR")]
    bundle: Option<PathBuf>,
    /// Compare with the nights before: the first call writes the file, each later one adds a night
    #[arg(long, conflicts_with_all = ["compare", "bisect"], value_name = "FILE")]
    canary: Option<PathBuf>,
    /// Mean nights to a false alarm, at least, of a new --canary file
    #[arg(long, requires = "canary", default_value_t = NIGHTS, value_parser = crate::numbers::whole::<u64>(1..=1_000_000))]
    false_alarm_nights: u64,
    /// Also write the result as JUnit XML
    #[arg(long, conflicts_with_all = ["compare", "bisect", "canary"], value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    if !arguments.compare.is_empty() {
        return run_compare(arguments);
    }
    let single = arguments.target.is_some() || arguments.profile_matrix.len() == 1;
    for (name, given) in [
        ("--bundle", arguments.bundle.is_some()),
        ("--canary", arguments.canary.is_some()),
    ] {
        if given && !single {
            bail!(bad(format!(
                "{name}: needs one state of the device: give one profile to --profile-matrix, or --target"
            )));
        }
    }
    match &arguments.target {
        Some(target) => real(arguments, target),
        None => simulated(arguments),
    }
}

fn real(arguments: &Arguments, target: &str) -> Result<Status> {
    let identity = arguments.identity.clone();
    let cancel = cancel_on_signal()?;
    let mut place = Place::alone(target, identity, arguments.profile.as_deref(), &cancel)?;
    place.measure = arguments.measure;
    let profile = inputs::profile(&mut inputs::library(), &place.profile_name)?;
    let corpus = corpus(arguments, &profile)?;
    let state = State::of(target, place.lab(), place.environment()?);
    on_states(arguments, &[state], &corpus, || ())
}

fn simulated(arguments: &Arguments) -> Result<Status> {
    let names = match arguments.bisect.is_empty() {
        true => &arguments.profile_matrix,
        false => &arguments.bisect,
    };
    // A library of its own for each: a file replaces the shipped profile of the same name.
    let profiles = names.iter();
    let profiles: Vec<Profile> = profiles
        .map(|name| inputs::profile(&mut inputs::library(), name))
        .collect::<Result<_>>()?;
    let first = profiles.first().context("a list has a first member")?;
    let corpus = corpus(arguments, first)?;
    let states = names.iter().zip(&profiles);
    let states = states.map(|(name, profile)| State::simulated(&SimTestbed, name, profile));
    let states: Vec<State<'_>> = states.collect();
    let stop = interrupt::at_once_during("the runs of the reproducers")?;
    if arguments.bisect.is_empty() {
        return on_states(arguments, &states, &corpus, || stop.done());
    }
    if states.len() < VERSIONS_MIN {
        bail!(bad(format!(
            "--bisect: has 1 version: must be at least {VERSIONS_MIN}, the oldest first"
        )));
    }
    let found = bisect(&states, &corpus, arguments.seeds)?;
    show(arguments, &found, || found.text())?;
    Ok(answer(found.turns.iter().any(|turn| turn.came)))
}

/// The suite on `states`, and what is made of it. Calls `before_writing` after the runs.
fn on_states(
    arguments: &Arguments,
    states: &[State<'_>],
    corpus: &[Reproducer],
    before_writing: impl Fn(),
) -> Result<Status> {
    if let Some(file) = &arguments.canary {
        return night(arguments, &states[0], corpus, file, before_writing);
    }
    for file in [&arguments.junit, &arguments.record].into_iter().flatten() {
        output::check_file(file)?;
    }
    if let Some(folder) = &arguments.bundle {
        output::check_directory(folder)?;
    }
    let result = regress(states, corpus, arguments.seeds)?;
    before_writing();
    if let Some(path) = &arguments.junit {
        output::write_file(path, &result.junit())?;
    }
    if let Some(path) = &arguments.record {
        output::write_file(path, &output::json(&result)?)?;
    }
    if let Some(folder) = &arguments.bundle {
        let seeds = 1..=arguments.seeds;
        for file in bundle(&states[0], corpus, &result.suites[0], &result, seeds)? {
            let path = folder.join(&file.path);
            let parent = path.parent().context("a file lies in a directory")?;
            output::make_directory(parent)?;
            output::write_file(&path, &file.text)?;
        }
    }
    show(arguments, &result, || result.text())?;
    Ok(answer(match states.len() {
        1 => result.shows(),
        _ => !result.regressions.is_empty(),
    }))
}

/// One night of the canary in `file`.
fn night(
    arguments: &Arguments,
    state: &State<'_>,
    corpus: &[Reproducer],
    file: &Path,
    before_writing: impl Fn(),
) -> Result<Status> {
    let canary = match file.exists() {
        true => {
            let mut canary: Canary = read(file, CANARY_VERSION, "--canary", "nights")?;
            let suite = state.suite(corpus, canary.next_seeds())?;
            canary
                .night(&suite)
                .map_err(|error| bad(error.to_string()))?;
            canary
        }
        false => {
            output::check_file(file)?;
            let seeds = arguments.seeds;
            let suite = state.suite(corpus, 1..=seeds)?;
            Canary::begin(&suite, arguments.false_alarm_nights, seeds)
        }
    };
    before_writing();
    output::write_file(file, &output::json(&canary)?)?;
    show(arguments, &canary, || canary.text())?;
    Ok(answer(canary.alarmed()))
}

fn run_compare(arguments: &Arguments) -> Result<Status> {
    let [before, after] = arguments.compare.as_slice() else {
        bail!(bad(format!(
            "--compare: has {}: must be two, the earlier first",
            counted(arguments.compare.len() as u64, "file")
        )));
    };
    let comparison = compare(&suite(before)?, &suite(after)?);
    show(arguments, &comparison, || comparison.text())?;
    Ok(comparison.answer().map_or(Status::Missing, answer))
}

/// The one suite of the record in `path`.
fn suite(path: &Path) -> Result<Suite> {
    let mut record: Regression = read(path, REGRESS_VERSION, "--record", "suites")?;
    match (record.suites.pop(), record.suites.is_empty()) {
        (Some(suite), true) => Ok(suite),
        (_, false) => bail!(bad(format!(
            "{}: has several states: must have one; its first is the baseline of the others already",
            path.display()
        ))),
        (None, true) => bail!(bad(format!("{}: has no suite", path.display()))),
    }
}

/// What the options that read an earlier file take.
const JSON: Wanted = Wanted {
    kind: |kind| matches!(kind, FileKind::Json | FileKind::RunResult),
    words: "a file that `isolane regress --record` or `--canary` wrote",
};

/// What `path` holds: a file that `option` wrote, known by its `key`.
fn read<T: DeserializeOwned>(path: &Path, version: u32, option: &str, key: &str) -> Result<T> {
    let text = inputs::read(path, &JSON)?;
    let wanted = format!("a file that `isolane regress {option} FILE` wrote");
    let wrong = |is: String| {
        let file = path.display();
        bad(format!("{file}: is {is}, and {wanted} is needed"))
    };
    let value: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| wrong(format!("not JSON ({error})")))?;
    let has = |key: &str| value.get(key).is_some();
    if !has(key) {
        bail!(wrong(match () {
            () if has("nights") => "a file of --canary".to_owned(),
            () if has("suites") => "a file of --record".to_owned(),
            () => FileKind::of(text.as_bytes()).map_or("unknown".to_owned(), FileKind::words),
        }));
    }
    if value["version"].as_u64() != Some(u64::from(version)) {
        bail!(wrong(format!(
            "of version {}, this program reads {version}",
            value["version"]
        )));
    }
    serde_json::from_value(value)
        .map_err(|error| wrong(format!("a changed or cut file of {option} ({error})")))
}

fn show(
    arguments: &Arguments,
    result: &impl serde::Serialize,
    text: impl FnOnce() -> String,
) -> Result<()> {
    match arguments.json {
        true => output::print_json(result),
        false => output::show(&text()),
    }
}

const fn answer(bad: bool) -> Status {
    match bad {
        true => Status::No,
        false => Status::Done,
    }
}

/// The reproducers, those published of `first` where no hunt is named.
fn corpus(arguments: &Arguments, first: &Profile) -> Result<Vec<Reproducer>> {
    let space = Space::of(first);
    let mut all = Vec::new();
    for path in &arguments.hunts {
        let result = found::read(path)?;
        if result.victim.is_some() {
            bail!(bad(format!(
                "{}: a hunt with a victim: must be one on a device alone; repeat such attacks with `isolane sim`",
                path.display()
            )));
        }
        all.extend(of_hunt(&result, &path.to_string_lossy(), &space));
    }
    if arguments.hunts.is_empty() {
        all = published(first);
        if arguments.broken {
            all.extend(broken(first));
        }
    }
    let unknown = |name: &&String| all.iter().all(|one: &Reproducer| one.name != **name);
    if let (Some(name), false) = (arguments.only.iter().find(unknown), all.is_empty()) {
        let known: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
        bail!(bad(format!(
            "--only {name}: is no reproducer; must be one of {}",
            known.join(", ")
        )));
    }
    all.retain(|one| arguments.only.is_empty() || arguments.only.contains(&one.name));
    if all.is_empty() {
        let known: Vec<&str> = KnownSet::published_profiles().collect();
        let profile = match (&arguments.target, arguments.bisect.is_empty()) {
            (Some(_), _) => "give --profile",
            (None, true) => "begin --profile-matrix with",
            (None, false) => "begin --bisect with",
        };
        bail!(bad(format!(
            "no reproducers: give the directory of a hunt that found an anomaly, or {profile} {}, of which triggers were published",
            known.join(" or ")
        )));
    }
    Ok(all)
}
