//! `isolane hunt`: the search for performance anomalies of one device.
//!
//! The directory of a hunt holds its journal, from which `--resume` goes on, the result as JSON, and for each anomaly a
//! scenario that shows it. The budget does not belong to a hunt: a resumed one may have a larger one.

use super::audit;
use crate::inputs::{self, bad};
use crate::output;
use crate::progress;
use crate::status::Status;
use crate::target::cancel_on_signal;
use anyhow::{Context, Result, bail};
use isolane_hunt::HuntError;
use isolane_hunt::bench::{Bench, BenchOptions, Budget};
use isolane_hunt::counters;
use isolane_hunt::experiment::{Lab, inventory};
use isolane_hunt::hunt::{Ended, HuntResult, Settings, hunt};
use isolane_hunt::search::NAMES;
use isolane_hunt::session::Session;
use isolane_hunt::space::Space;
use isolane_hunt::space::convert::scenario_text;
use isolane_hunt::state::Header;
use isolane_hunt::table;
use isolane_scenario::profile::Profile;
use isolane_testbed::SimTestbed;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// File name of the result within the directory.
const RESULT_NAME: &str = "hunt.json";
/// What simulated targets begin with.
const SIMULATED: &str = "sim:";
/// Steps of the progress bar.
const STEPS: f64 = 1_000.0;

/// Arguments of `isolane hunt`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Device to search: sim: and a profile's name, or sim: and the path of its TOML file
    #[arg(long, value_name = "sim:PROFILE")]
    target: String,
    /// Experiments, like 2000, or time that they would take on real hardware, like 10h, 30m or 90s
    #[arg(long, default_value = "2000", value_parser = budget)]
    budget: Budget,
    /// How to search
    #[arg(long, default_value = NAMES[0], value_parser = clap::builder::PossibleValuesParser::new(NAMES))]
    searcher: String,
    /// Counters to follow: perf, diag, or names of counters
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "diag",
        value_name = "perf|diag|NAME,..."
    )]
    counters: Vec<String>,
    /// Search only workloads that this file allows (TOML)
    #[arg(long, value_name = "FILE")]
    restrict: Option<PathBuf>,
    /// Every random choice follows from it
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the journal, hunt.json and a scenario per anomaly go
    #[arg(long, value_name = "DIR", default_value = "out/hunt")]
    out: PathBuf,
    /// Go on with the hunt in --out; the budget counts what it has used
    #[arg(long)]
    resume: bool,
    /// Print the result as JSON instead of the table
    #[arg(long)]
    json: bool,
    /// Experiments at once; the result is the same for any number [default: one per core]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    parallel: Option<u32>,
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

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    let profile = profile(&arguments.target)?;
    let (space, restriction) = space(arguments, &profile)?;
    let lab = Lab::simulated(&SimTestbed, &profile);
    let counters = counters::choose(&arguments.counters, &lab.name, &inventory(&lab)?)?;
    output::make_directory(&arguments.out)?;
    let header = Header::new(
        &audit::build(),
        &settings(arguments, &profile, &restriction),
    );
    let session = Session::open(
        &arguments.out,
        &header,
        arguments.resume,
        &lab,
        arguments.seed,
    )?;
    if arguments.resume {
        let done = session.known.len();
        output::note(&format!("isolane: {done} experiments are done already"));
    }
    let cancel = cancel_on_signal()?;
    let bar = progress::part();
    bar.set_length(STEPS as u64);
    let shown = bar.clone();
    let chosen = arguments.budget;
    let options = BenchOptions {
        seed: arguments.seed,
        parallel: parallel(arguments),
        budget: chosen,
        cancel: as_flag(&cancel),
        on_progress: Box::new(move |spent| shown.set_position((chosen.part(spent) * STEPS) as u64)),
    };
    let mut bench = Bench::new(
        &lab,
        session.start.bounds,
        Some(session.journal),
        session.known,
        options,
    );
    let searched = hunt(
        &mut bench,
        &space,
        &Settings {
            seed: arguments.seed,
            searcher: arguments.searcher.clone(),
            counters,
        },
    );
    bar.finish_and_clear();
    let result = searched?;
    let (now, before) = (result.spent.experiments, written_before(&arguments.out));
    if now < before {
        return Err(bad(format!(
            "--budget ends after {now} experiments, but the result in {} has {before}; it stays as it is: give a larger budget",
            arguments.out.display()
        )));
    }
    let written = write(arguments, &result, &space, &lab, &bench)?;
    match arguments.json {
        true => output::print(&output::compact_json(&result)?)?,
        false => output::print(&table::render(&result, &space))?,
    }
    for path in written {
        output::note(&format!("wrote {}", path.display()));
    }
    Ok(match result.ended {
        Ended::Interrupted => {
            output::note("isolane: interrupted; the same command with --resume goes on");
            Status::Interrupted
        }
        Ended::Budget | Ended::Exhausted => Status::Done,
    })
}

fn as_flag(flag: &std::sync::Arc<AtomicBool>) -> &AtomicBool {
    flag
}

fn profile(target: &str) -> Result<Profile> {
    let Some(name) = target.strip_prefix(SIMULATED) else {
        bail!(bad(format!(
            "--target {target}: must be sim: and a profile, like sim:cx5-100g-roce; hunts on real devices are not there yet"
        )));
    };
    inputs::profile(&mut inputs::library(), name)
}

/// The space, and the text that restricts it.
fn space(arguments: &Arguments, profile: &Profile) -> Result<(Space, String)> {
    let space = Space::of(profile);
    let Some(path) = &arguments.restrict else {
        return Ok((space, String::new()));
    };
    let text = inputs::read(path)?;
    let file = path
        .to_str()
        .context("the path of --restrict must be UTF-8")?;
    Ok((space.restricted(&text, file)?, text))
}

/// What decides which experiments are done, in which order: for the journal.
fn settings(arguments: &Arguments, profile: &Profile, restriction: &str) -> String {
    // A profile may come from a file, so its name does not say all.
    let device = output::compact_json(profile).unwrap_or_default();
    let words = [
        format!("--target {}", arguments.target),
        format!("--searcher {}", arguments.searcher),
        format!("--counters {}", arguments.counters.join(",")),
        format!("--seed {}", arguments.seed),
        format!(
            "profile {}",
            isolane_audit::journal::build_of(device.as_bytes())
        ),
        format!(
            "restrictions {}",
            isolane_audit::journal::build_of(restriction.as_bytes())
        ),
    ];
    words.join(" ")
}

fn parallel(arguments: &Arguments) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    arguments
        .parallel
        .map_or_else(cores, |parallel| parallel as usize)
}

/// Writes the result and a scenario per anomaly; returns the paths for people.
fn write(
    arguments: &Arguments,
    result: &HuntResult,
    space: &Space,
    lab: &Lab<'_>,
    bench: &Bench<'_>,
) -> Result<Vec<PathBuf>> {
    let json = arguments.out.join(RESULT_NAME);
    output::write_file(&json, &output::compact_json(result)?)?;
    let mut written = vec![json];
    for anomaly in &result.anomalies {
        let name = format!("anomaly-{}", anomaly.number);
        let path = arguments.out.join(format!("{name}.toml"));
        let (point, when) = match &anomaly.set {
            Some(set) => (&set.witness, set.region.text(space)),
            None => (&anomaly.point, "not reduced".to_owned()),
        };
        let description = format!("{} on {}: {when}", anomaly.symptom.name(), result.target);
        let seed = bench.run_seed(1);
        let text = scenario_text(
            point,
            (&name, &description),
            &lab.profile.name,
            seed,
            lab.times,
        );
        output::write_file(&path, &text)?;
        written.push(path);
    }
    forget(&arguments.out, result.anomalies.len())?;
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
    fn budgets_are_counts_or_times() {
        assert_eq!(budget("2000"), Ok(Budget::Experiments(2_000)));
        assert_eq!(budget("10h"), Ok(Budget::ModelledSeconds(36_000.0)));
        assert_eq!(budget("1.5 m"), Ok(Budget::ModelledSeconds(90.0)));
        for wrong in ["", "0", "0h", "-1", "10x", "h", "infs", "NaNh"] {
            assert!(budget(wrong).is_err(), "{wrong}");
        }
    }
}
