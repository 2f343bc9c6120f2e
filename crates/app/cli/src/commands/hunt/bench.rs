//! `isolane hunt bench`: searchers compared over seeds, and the claims about such comparisons.
//!
//! Hunts run side by side, one core each, since a hunt's own experiments wait for each other. Every finished hunt is a
//! line of `bench.jsonl`, so the same command continues where it was stopped. Other settings need another directory.

mod claims;
mod course;

use crate::inputs::bad;
use crate::output;
use crate::progress::Bar;
use crate::report;
use crate::status::Status;
use crate::target::cancel_on_signal;
use anyhow::{Context, Result, bail};
use course::{Course, course, race};
use isolane_common_journal::Journal;
use isolane_study_claims::claim::{Claim, ClaimTestbed};
use isolane_study_claims::hunt::HuntRun;
use isolane_study_hunt::bench::Budget;
use isolane_study_hunt::compare::{COMPARISON_VERSION, Comparison, Contestant, Race};
use isolane_study_hunt::state::JOURNAL_NAME;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Finished hunts, one line each, after one of settings.
pub(super) const JOURNAL: &str = "bench.jsonl";
/// The comparison as JSON.
const RESULT: &str = "bench.json";

/// Arguments of `isolane hunt bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Device, of which published anomalies are known: sim: and a profile's name
    #[arg(long, value_name = "sim:PROFILE", default_value = "sim:cx6-200g-roce")]
    target: String,
    /// What a finding is held against: published conditions, or the mechanism whose removal ends its symptom
    #[arg(long, value_enum, default_value_t = Truth::Published)]
    truth: Truth,
    /// Search this many devices with planted random mechanisms instead; each hunt is on a device of its own
    #[arg(long, value_name = "N", conflicts_with_all = ["truth", "check_claims", "seeds"], value_parser = crate::numbers::whole::<u64>(1..=1000))]
    planted: Option<u64>,
    /// Number of the first planted device
    #[arg(long, value_name = "N", default_value_t = 1, requires = "planted")]
    planted_from: u64,
    /// Who searches: names of searchers, with :perf for performance counters, :occupancy for occupancies besides diagnostic
    /// counters, :no-mfs for no reduction, and for factors :no-isolation, :no-coverage, :no-feedback, :no-triage,
    /// :no-border or :no-reverts for the search without that stage
    #[arg(long, value_delimiter = ',', default_value = "factors,anneal,random", value_parser = contestant)]
    searchers: Vec<Contestant>,
    /// Hunts of each, with seeds from 1
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = crate::numbers::whole::<u64>(1..=1000))]
    seeds: u64,
    /// What each hunt may use: experiments, or modelled time like 10h [default: 10h, the paper's; 825 with --truth knockout and
    /// --planted]
    #[arg(long, value_parser = super::budget)]
    budget: Option<Budget>,
    /// Search only workloads that this file allows (TOML)
    #[arg(long, value_name = "FILE")]
    restrict: Option<PathBuf>,
    /// Kinds of traffic that a workload may have at once; planted mechanisms may need two then
    #[arg(long, default_value_t = 1, value_parser = crate::numbers::whole::<u32>(1..=2))]
    kinds: u32,
    /// After each hunt, test the conditions of the published anomalies that it found, and print them beside the published ones
    #[arg(long, conflicts_with_all = ["planted"])]
    refine: bool,
    /// Where bench.json, report.html and the finished hunts go
    #[arg(long, value_name = "DIR", default_value = "out/bench-hunt")]
    report: PathBuf,
    /// Hunts at once [default: one per core]
    #[arg(long, value_name = "N", value_parser = crate::numbers::whole::<u32>(1..=1024))]
    jobs: Option<u32>,
    /// Print the comparison as JSON
    #[arg(long)]
    json: bool,
    /// Run what the claims about searchers need, and say which hold
    #[arg(long)]
    check_claims: bool,
    /// Also write the comparison and the claims as a page
    #[arg(long, value_name = "FILE", requires = "check_claims")]
    markdown: Option<PathBuf>,
}

/// What a finding is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Truth {
    /// Published conditions.
    Published,
    /// Mechanisms of the model.
    Knockout,
}

impl Arguments {
    /// What each hunt may use.
    fn budget(&self) -> Budget {
        let published = self.planted.is_none() && self.truth == Truth::Published;
        self.budget.unwrap_or(match published {
            true => Budget::ModelledSeconds(10.0 * 3600.0),
            false => Budget::Experiments(825),
        })
    }
}

fn contestant(text: &str) -> Result<Contestant, String> {
    Contestant::parse(text.trim())
}

/// The numbers of the hunts of each searcher: seeds, or planted devices.
fn seeds(arguments: &Arguments) -> std::ops::RangeInclusive<u64> {
    match arguments.planted {
        Some(count) => arguments.planted_from..=arguments.planted_from + count - 1,
        None => 1..=arguments.seeds,
    }
}

pub(super) fn run(arguments: &Arguments) -> Result<Status> {
    let cancel = cancel_on_signal()?;
    let claims = isolane_study_claims::embedded_claims()?;
    let claims: Vec<&Claim> = claims
        .iter()
        .filter(|claim| claim.testbed == ClaimTestbed::Hunt)
        .collect();
    let who = contestants(arguments, &claims)?;
    output::check_directory(&arguments.report)?;
    if arguments.report.join(JOURNAL_NAME).exists() {
        bail!(bad(format!(
            "--report {}: holds a hunt, whose page this would replace: use another directory",
            arguments.report.display()
        )));
    }
    let course = course(arguments)?;
    output::make_directory(&arguments.report)?;
    let (journal, mut races) = resumed(arguments, &course)?;
    let undone: Vec<(Contestant, u64)> = who
        .iter()
        .flat_map(|one| seeds(arguments).map(move |seed| (one.clone(), seed)))
        .filter(|(one, seed)| {
            !races
                .iter()
                .any(|r| r.contestant == *one && r.seed == *seed)
        })
        .collect();
    let begun = Instant::now();
    let new = run_all(arguments, &course, &undone, journal, &cancel)?;
    output::note(&duration(
        &new,
        races.len(),
        begun.elapsed(),
        jobs(arguments),
    ));
    races.extend(new);
    if cancel.load(Ordering::Relaxed) {
        output::note("isolane: interrupted; the same command goes on");
        return Ok(Status::Interrupted);
    }
    let place = |race: &Race| who.iter().position(|one| *one == race.contestant);
    races.retain(|race| place(race).is_some() && seeds(arguments).contains(&race.seed));
    races.sort_by_key(|race| (place(race), race.seed));
    let comparison = Comparison {
        version: COMPARISON_VERSION,
        target: course.target.clone(),
        budget: words(arguments.budget()),
        anomalies: course.anomalies.clone(),
        races,
    };
    let json = arguments.report.join(RESULT);
    output::write_file(&json, &output::compact_json(&comparison)?)?;
    let page = report::write_comparison(&arguments.report, &comparison)?;
    match arguments.json {
        true => output::print(&output::compact_json(&comparison)?)?,
        false => output::show(&comparison.text())?,
    }
    if arguments.check_claims {
        claims::report(arguments, &claims, &comparison)?;
    }
    for path in [json, page] {
        output::note(&format!("wrote {}", path.display()));
    }
    Ok(Status::Done)
}

/// The searchers that the user names, and with `--check-claims` those of the claims.
fn contestants(arguments: &Arguments, claims: &[&Claim]) -> Result<Vec<Contestant>> {
    let mut who = arguments.searchers.clone();
    if arguments.check_claims {
        for run in claims.iter().flat_map(|claim| &claim.runs) {
            let name = run.hunt.as_ref().map(HuntRun::contestant);
            let one = Contestant::parse(&name.unwrap_or_default()).map_err(bad)?;
            if !who.contains(&one) {
                who.push(one);
            }
        }
    }
    Ok(who)
}

fn words(budget: Budget) -> String {
    match budget {
        Budget::Experiments(count) => format!("{count} experiments"),
        Budget::ModelledSeconds(seconds) => format!("{} modelled hours", seconds / 3600.0),
    }
}

/// The journal, and the hunts that an earlier run of the same settings finished.
fn resumed(arguments: &Arguments, course: &Course) -> Result<(Journal, Vec<Race>)> {
    let path = arguments.report.join(JOURNAL);
    let name = path.display();
    let (mut journal, lines) = match Journal::open(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            std::fs::create_dir_all(&arguments.report)
                .and_then(|()| Journal::create_new(&path))
                .map(|journal| (journal, Vec::new()))
        }
        opened => opened,
    }
    .with_context(|| format!("cannot write {name}"))?;
    if lines.is_empty() {
        journal
            .append(format!("{}\n", course.settings).as_bytes())
            .with_context(|| format!("cannot write {name}"))?;
    }
    let mut lines = lines.split(|&byte| byte == b'\n');
    if !matches!(lines.next(), Some(first) if first.is_empty() || first == course.settings.as_bytes())
    {
        bail!(bad(format!(
            "{name} holds a comparison with other settings or of another build: use another --report, or remove it"
        )));
    }
    let races = lines.filter_map(|line| serde_json::from_slice(line).ok());
    Ok((journal, races.collect()))
}

fn run_all(
    arguments: &Arguments,
    course: &Course,
    undone: &[(Contestant, u64)],
    journal: Journal,
    cancel: &AtomicBool,
) -> Result<Vec<Race>> {
    let path = arguments.report.join(JOURNAL);
    let jobs = jobs(arguments);
    let bar = Bar::of_runs();
    bar.set_length(undone.len() as u64);
    let next = AtomicUsize::new(0);
    let done: Mutex<(Journal, Vec<Race>)> = Mutex::new((journal, Vec::new()));
    let work = || -> Result<()> {
        while let Some((contestant, seed)) = undone.get(next.fetch_add(1, Ordering::Relaxed)) {
            let Some(race) = race(course, contestant, *seed, cancel)? else {
                return Ok(());
            };
            let line = output::compact_json(&race)?;
            let mut done = done
                .lock()
                .map_err(|_| anyhow::anyhow!("a hunt before this failed"))?;
            done.0
                .append(line.as_bytes())
                .with_context(|| format!("cannot write {}", path.display()))?;
            done.1.push(race);
            bar.inc(1);
        }
        Ok(())
    };
    std::thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = (0..jobs.min(undone.len()))
            .map(|_| scope.spawn(work))
            .collect();
        for worker in workers {
            worker
                .join()
                .map_err(|_| anyhow::anyhow!("a hunt broke"))??;
        }
        Ok(())
    })?;
    bar.finish_and_clear();
    let done = done
        .into_inner()
        .map_err(|_| anyhow::anyhow!("a hunt broke"))?;
    Ok(done.1)
}

fn jobs(arguments: &Arguments) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    arguments.jobs.map_or_else(cores, |jobs| jobs as usize)
}

/// How long `new` took with so many `jobs`, in words; `before` were done already.
fn duration(new: &[Race], before: usize, took: Duration, jobs: usize) -> String {
    let experiments: u64 = new.iter().map(|race| race.spent.experiments).sum();
    let seconds = took.as_secs_f64();
    format!(
        "isolane: hunts run: {}, {experiments} experiments in all, {:.1} minutes, {jobs} at once ({:.1} experiments/s); {before} \
         were done before",
        new.len(),
        seconds / 60.0,
        experiments as f64 / seconds.max(1e-3)
    )
}
