//! `isolane hunt`: the search for performance anomalies of one device, or for the attackers of one victim.
//!
//! The directory of a hunt holds its journal, from which `--resume` goes on, the result as JSON, and for each anomaly a
//! scenario that shows it. The budget does not belong to a hunt: a resumed one may have a larger one.

mod bench;
mod directory;
mod farm;
pub(super) mod found;
pub(super) mod ground;
mod speed;

use super::audit;
use crate::inputs::{self, bad};
use crate::output;
use crate::progress::ProgressArguments;
use crate::report;
use crate::status::Status;
use crate::target::cancel_on_signal;
use crate::text::counted;
use anyhow::{Context, Result, bail};
use farm::{Executor, Farm};
use ground::{Named, Place};
use isolane_common_quantities::units::Duration;
use isolane_study_audit::plan::ALPHA;
use isolane_study_hunt::HuntError;
use isolane_study_hunt::bench::{Bench, BenchOptions, Budget};
use isolane_study_hunt::counters::{self, Counter, RANKING_POINTS};
use isolane_study_hunt::experiment::{MODELLED_LEAST_S, Target};
use isolane_study_hunt::hunt::{Ended, HuntResult, Settings, hunt_watched};
use isolane_study_hunt::search::{NAMES, Stages};
use isolane_study_hunt::session::Session;
use isolane_study_hunt::space::{Point, Space};
use isolane_study_hunt::state::Header;
use isolane_study_hunt::table;
use isolane_study_hunt::victim::RETAINED;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// File name of the result within the directory.
const RESULT_NAME: &str = "hunt.json";
/// Steps of the progress bar.
const STEPS: f64 = 1_000.0;
/// What searches unless the user names another: the best on planted devices (docs/internals/hunt-figures.md).
const SEARCHER: &str = "factors";

/// Arguments of `isolane hunt`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    other: Option<Other>,
    /// Device to search: sim: and a profile's name or file; or real ones, verbs:DEVICE,DEVICE [default: the victim's]
    #[arg(long, value_name = "sim:PROFILE|verbs:...")]
    target: Option<String>,
    /// Search the attackers of the one tenant in this scenario file instead of anomalies of the device
    #[arg(long, value_name = "FILE")]
    victim: Option<PathBuf>,
    /// Policy that protects the victim [default: the file's]
    #[arg(long, requires = "victim", value_parser = inputs::policy_names(), hide_possible_values = true)]
    policy: Option<String>,
    /// Tolerated loss, relative to the smaller of the victim's rate alone and its fair share, 0 to 1
    #[arg(long, requires = "victim", default_value_t = ALPHA, value_parser = fraction)]
    alpha: f64,
    /// Also count attackers that use more than their own share of the link
    #[arg(long, requires = "victim")]
    beyond_guarantee: bool,
    /// Also search for p99 latencies that the workload's own queues do not explain
    #[arg(long, conflicts_with = "victim")]
    latency: bool,
    /// Profile with the transports and MTUs of the real devices [default: cx5-100g-roce]
    #[arg(long, value_name = "NAME|FILE")]
    profile: Option<String>,
    /// Certificates for agents that listen; without them agents are reached by ssh
    #[arg(long, value_name = "DIR")]
    identity: Option<PathBuf>,
    /// Measured time of an experiment on real devices [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = ground::measured_time)]
    measure: Option<Duration>,
    /// Experiments, like 2000, or time that they would take on real hardware, like 10h, 30m or 90s
    #[arg(allow_hyphen_values = true, long, default_value = "2000", value_parser = budget)]
    budget: Budget,
    /// How to search: anneal is the paper's, factors and screen are ours
    #[arg(long, value_name = "NAME", default_value = SEARCHER)]
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(NAMES))]
    searcher: String,
    /// Counters to follow: perf, diag, occupancy, or names of counters [default: diag; with --victim also the part of its rate that the victim keeps]
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "perf|diag|occupancy|NAME,..."
    )]
    counters: Option<Vec<String>>,
    /// Search only workloads that this file allows (TOML)
    #[arg(long, value_name = "FILE")]
    restrict: Option<PathBuf>,
    /// Kinds of traffic that a workload may have at once; a file for --restrict that names a second kind allows two
    #[arg(long, default_value_t = 1, value_parser = crate::numbers::whole::<u32>(1..=2), conflicts_with = "victim")]
    kinds: u32,
    /// Seed of every random choice
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Directory of the journal, hunt.json and a scenario per anomaly [default: out/hunt, or the next free out/hunt-2, out/hunt-3, ...]
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Continue the hunt in --report, or else the newest hunt with these settings; its finished experiments count in the budget
    #[arg(long)]
    resume: bool,
    /// Print the result as JSON instead of the table
    #[arg(long)]
    json: bool,
    /// Experiments at once; the result is the same for any number [default: one per core]
    #[arg(long, value_name = "N", value_parser = crate::numbers::whole::<u32>(1..=1024))]
    jobs: Option<u32>,
    /// Where experiments run: threads here, processes here, or a Ray cluster; the result is the same
    #[arg(long, value_enum, default_value_t = Executor::Local)]
    executor: Executor,
    #[command(flatten)]
    progress: ProgressArguments,
    /// Answer the experiments of another hunt
    #[arg(long, hide = true)]
    worker: bool,
}

/// What else the command does.
#[derive(Debug, clap::Subcommand)]
enum Other {
    /// Compare searchers over seeds on a simulated device, or on devices with planted mechanisms
    Bench(bench::Arguments),
    /// Time single simulated experiments on this machine
    Speed(speed::Arguments),
}

/// A budget: a count, or a time with a unit.
fn budget(text: &str) -> Result<Budget, String> {
    let form =
        "must be a number of experiments, like 2000, or a time, like 10h, 30m or 90s, above 0";
    let wrong = || format!("{text:?} {form}");
    let text = text.trim();
    if let Ok(experiments) = text.parse::<u64>() {
        return match experiments {
            0 => Err(wrong()),
            some => Ok(Budget::Experiments(some)),
        };
    }
    let seconds = match text.chars().last() {
        Some('h') => 3600.0,
        Some('m') => 60.0,
        Some('s') => 1.0,
        _ => return Err(wrong()),
    };
    let number = text[..text.len() - 1]
        .trim()
        .parse::<f64>()
        .map_err(|_| wrong())?;
    match number.is_finite() && number > 0.0 {
        true => Ok(Budget::ModelledSeconds(number * seconds)),
        false => Err(wrong()),
    }
}

/// What is said of a `budget` that ends before the search begins.
fn too_small(budget: Budget) -> Option<String> {
    let least = RANKING_POINTS as f64 * MODELLED_LEAST_S;
    let (small, given) = match budget {
        Budget::Experiments(most) => (most <= RANKING_POINTS as u64, most.to_string()),
        Budget::ModelledSeconds(most) => (most <= least, format!("{most} s")),
    };
    small.then(|| {
        format!(
            "--budget {given}: no search follows the {RANKING_POINTS} random workloads at the start of every hunt, which take \
             {least:.0} s or more on real hardware and run in any case; to search, give more, like --budget 500"
        )
    })
}

/// A part, for `--alpha`.
fn fraction(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok();
    number
        .filter(|part| (0.0..1.0).contains(part))
        .ok_or_else(|| format!("{text:?} must be a number from 0 to below 1, like 0.25"))
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    match &arguments.other {
        Some(Other::Bench(arguments)) => return bench::run(arguments),
        Some(Other::Speed(arguments)) => return speed::run(arguments),
        None => {}
    }
    let real = |target: &String| target.starts_with("verbs:");
    if arguments.executor != Executor::Local && arguments.target.as_ref().is_some_and(real) {
        bail!(bad(
            "--executor is for simulated devices (--target sim:PROFILE): those of --target verbs:... are there once"
        ));
    }
    let cancel = cancel_on_signal()?;
    let place = Place::of(arguments, &cancel)?;
    if let Some(remark) = too_small(arguments.budget) {
        output::note(&format!("isolane: {remark}"));
    }
    if arguments.worker {
        farm::work(arguments, &place)?;
        return Ok(Status::Done);
    }
    search(arguments, &place, &cancel)
}

/// Searches, or goes on where an earlier hunt ended, and shows the result.
fn search(arguments: &Arguments, place: &Place, cancel: &Arc<AtomicBool>) -> Result<Status> {
    let (space, restriction) = space(arguments, place)?;
    let name = place.lab().name;
    let counters = followed(arguments, &name, &place.counters()?)?;
    let settings = settings(arguments, place, &restriction);
    let header = Header::new(&audit::build(), &settings);
    let out = directory::choose(arguments.report.as_deref(), &header, arguments.resume);
    prepare(&out)?;
    let session = Session::open(&out, &header, arguments.resume, || {
        place.first(arguments, &space)
    })?;
    if arguments.resume {
        output::note(&match session.known.len() {
            0 => format!(
                "isolane: {} has no finished experiment to resume; starting with the first",
                out.display()
            ),
            done => format!(
                "isolane: {} done already",
                counted(done as u64, "experiment")
            ),
        });
    }
    let bar = arguments.progress.part();
    bar.set_length(STEPS as u64);
    let shown = bar.clone();
    let chosen = arguments.budget;
    let parallel = parallel(arguments, place);
    let Session {
        journal,
        start,
        known,
    } = session;
    let (result, written) = place.with(arguments, &start, |target, rule, reproducer| {
        let farm = Farm::of(arguments, (&start, target.name()), parallel, cancel)?;
        let options = BenchOptions {
            seed: arguments.seed,
            parallel: farm.as_ref().map_or(parallel, Farm::workers),
            budget: chosen,
            cancel,
            on_progress: Box::new(move |spent| {
                shown.set_position((chosen.part(spent) * STEPS) as u64);
            }),
        };
        let target: &dyn Target = match &farm {
            Some(farm) => farm,
            None => target,
        };
        let mut bench = Bench::new(target, rule, Some(journal), known, options);
        let before = written_before(&out);
        let searched = hunt_watched(
            &mut bench,
            &space,
            &Settings {
                seed: arguments.seed,
                searcher: arguments.searcher.clone(),
                counters,
                reduces: true,
                stages: Stages::default(),
                tests: true,
            },
            &mut |found| keep(&out, found, before),
        );
        bar.finish_and_clear();
        let result = searched?;
        refuse_less(&out, result.spent.experiments, before)?;
        let written = write(&out, &result, &space, &bench, reproducer)?;
        Ok((result, written))
    })?;
    match arguments.json {
        true => output::print(&output::compact_json(&result)?)?,
        false => output::show(&table::render(&result, &space, output::width()))?,
    }
    Ok(close(&result, &written))
}

/// Refuses to replace a result in `out` of `before` experiments by one of fewer.
fn refuse_less(out: &Path, now: u64, before: u64) -> Result<()> {
    if now >= before {
        return Ok(());
    }
    Err(bad(format!(
        "--budget ends after {now} experiments, but the result in {} has {before}; it stays as it is: give a larger budget",
        out.display()
    )))
}

/// Makes the directory of a hunt.
fn prepare(out: &Path) -> Result<()> {
    if out.join(bench::JOURNAL).exists() {
        bail!(bad(format!(
            "--report {}: holds a comparison of searchers, whose page this would replace: use another directory",
            out.display()
        )));
    }
    output::make_directory(out)
}

/// Names the files that were `written`, and says whether the hunt came to its end.
fn close(result: &HuntResult, written: &[PathBuf]) -> Status {
    for path in written {
        output::note(&format!("wrote {}", path.display()));
    }
    match result.ended {
        Ended::Interrupted => {
            output::note("isolane: interrupted; the same command with --resume goes on");
            Status::Interrupted
        }
        Ended::Budget | Ended::Exhausted | Ended::Unfinished => Status::Done,
    }
}

/// The words of `--counters`, or what they are by default.
fn asked_counters(arguments: &Arguments) -> Vec<String> {
    let default = match arguments.victim {
        Some(_) => vec![RETAINED.to_owned(), "diag".to_owned()],
        None => vec!["diag".to_owned()],
    };
    arguments.counters.clone().unwrap_or(default)
}

/// The counters that the hunt follows, of those that the target `name` has.
fn followed(arguments: &Arguments, name: &str, known: &[String]) -> Result<Vec<Counter>> {
    let mut asked = asked_counters(arguments);
    if arguments.counters.is_none() {
        // Few real devices show what is inside them.
        let usual = counters::usual(name, known);
        let diag = asked.iter_mut().filter(|word| *word == "diag");
        diag.for_each(|word| usual.clone_into(word));
    }
    Ok(counters::choose(&asked, name, known)?)
}

/// The space, and the text that restricts it.
fn space(arguments: &Arguments, place: &Place) -> Result<(Space, String)> {
    let space = with_kinds(place.space(), arguments.kinds);
    let Some(path) = &arguments.restrict else {
        return Ok((space, String::new()));
    };
    let text = inputs::read(path, &inputs::RESTRICTION)?;
    let file = path
        .to_str()
        .context("the path of --restrict must be UTF-8")?;
    Ok((space.restricted(&text, file)?, text))
}

/// `space` with the workloads of so many kinds of traffic.
fn with_kinds(space: Space, kinds: u32) -> Space {
    match kinds {
        1 => space,
        _ => space.with_two_kinds(),
    }
}

/// What decides which experiments are done, in which order: for the journal.
fn settings(arguments: &Arguments, place: &Place, restriction: &str) -> String {
    let hash = |text: &str| isolane_study_audit::journal::build_of(text.as_bytes());
    // A profile may come from a file, so its name alone does not identify it. The rates of real devices are measured
    // again and are in the journal.
    let device = match place.bed.devices() {
        Some(_) => String::new(),
        None => output::compact_json(&place.profile).unwrap_or_default(),
    };
    let target = arguments.target.clone();
    let mut words = vec![
        format!(
            "--target {}",
            target.unwrap_or_else(|| format!("sim:{}", place.profile_name))
        ),
        format!("--searcher {}", arguments.searcher),
        format!("--counters {}", asked_counters(arguments).join(",")),
        format!("--seed {}", arguments.seed),
        format!("profile {}", hash(&device)),
    ];
    let restrictions = statements(restriction);
    if !restrictions.is_empty() {
        words.push(format!("--restrict {{{restrictions}}}"));
    }
    if arguments.kinds > 1 {
        words.push(format!("--kinds {}", arguments.kinds));
    }
    if arguments.latency {
        words.push("--latency".to_owned());
    }
    if let Some(measure) = place.measure {
        words.push(format!("--measure {measure}"));
    }
    if let Some(victim) = &place.victim {
        words.push(format!(
            "--policy {} --alpha {} victim {}",
            victim.scenario.policy.name,
            arguments.alpha,
            hash(&victim.text)
        ));
        if arguments.beyond_guarantee {
            words.push("--beyond-guarantee".to_owned());
        }
    }
    words.join(" ")
}

/// What a file of restrictions says, in one line, so that a refused --resume can name it.
fn statements(restriction: &str) -> String {
    let lines = restriction.lines().map(str::trim);
    let said = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    said.collect::<Vec<_>>().join("; ")
}

fn parallel(arguments: &Arguments, place: &Place) -> usize {
    // Real devices are there once.
    let cores = || match place.bed.devices() {
        Some(_) => 1,
        None => std::thread::available_parallelism().map_or(1, usize::from),
    };
    arguments
        .jobs
        .map_or_else(cores, |parallel| parallel as usize)
}

/// Writes the result, the page and a scenario per anomaly; returns the paths for people.
fn write(
    out: &Path,
    result: &HuntResult,
    space: &Space,
    bench: &Bench<'_>,
    reproducer: &dyn Fn(&Point, &Named<'_>) -> Result<String>,
) -> Result<Vec<PathBuf>> {
    let json = out.join(RESULT_NAME);
    output::write_file(&json, &output::compact_json(result)?)?;
    let mut written = vec![json, report::write_hunt(out, result, space)?];
    for anomaly in &result.anomalies {
        let name = format!("anomaly-{}", anomaly.number);
        let path = out.join(format!("{name}.toml"));
        let (point, when) = match &anomaly.set {
            Some(set) => (&set.witness, set.region.text(space)),
            None => (&anomaly.point, "not reduced".to_owned()),
        };
        let description = format!("{} on {}: {when}", anomaly.symptom.name(), result.target);
        let text = reproducer(point, &Named::of(&name, &description, bench))?;
        output::write_file(&path, &text)?;
        written.push(path);
    }
    forget(out, result.anomalies.len())?;
    Ok(written)
}

/// Removes scenarios of anomalies that a longer search has merged since.
fn forget(out: &Path, kept: usize) -> Result<()> {
    for number in kept + 1.. {
        let path = out.join(format!("anomaly-{number}.toml"));
        match std::fs::remove_file(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => break,
            Err(source) => bail!(HuntError::Write { path, source }),
        }
    }
    Ok(())
}

/// Writes what is known so far, for a kill; not where an earlier run left a result of more than `before` experiments.
fn keep(out: &Path, found: &HuntResult, before: u64) {
    if found.spent.experiments <= before {
        return;
    }
    let written = output::compact_json(found)
        .and_then(|text| output::write_file(&out.join(RESULT_NAME), &text));
    if let Err(error) = written {
        // The journal has it all the same, and the result at the end fails aloud.
        output::note(&format!("isolane: {}", output::error_line(&error)));
    }
}

/// Experiments of the result that an earlier run left in `directory`; 0 if there is none that can be read.
fn written_before(directory: &Path) -> u64 {
    let text = std::fs::read_to_string(directory.join(RESULT_NAME)).unwrap_or_default();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    value["spent"]["experiments"].as_u64().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_that_end_before_the_search_are_remarked_on() {
        for text in ["11", "201s"] {
            assert_eq!(too_small(budget(text).unwrap()), None);
        }
        for (text, given) in [("10", "--budget 10:"), ("1m", "--budget 60 s:")] {
            let remark = too_small(budget(text).unwrap()).unwrap();
            assert!(remark.starts_with(given), "{remark}");
            assert!(remark.ends_with("give more, like --budget 500"), "{remark}");
        }
    }

    #[test]
    fn budgets_are_counts_or_times() {
        assert_eq!(budget("2000"), Ok(Budget::Experiments(2_000)));
        assert_eq!(budget("10h"), Ok(Budget::ModelledSeconds(36_000.0)));
        assert_eq!(budget("1.5 m"), Ok(Budget::ModelledSeconds(90.0)));
        for wrong in ["", "0", "0h", "-1", "10x", "h", "infs", "NaNh"] {
            assert!(budget(wrong).is_err(), "{wrong}");
        }
    }
}
