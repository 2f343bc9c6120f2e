//! `isolane hunt bench`: searchers compared over seeds, and the claims about such comparisons.
//!
//! Hunts run side by side, one core each, since a hunt's own experiments wait for each other. Every finished hunt is a line
//! of `bench.jsonl`, so that the same command goes on where it was stopped; other settings start anew in another directory.

use crate::inputs::{self, bad};
use crate::laboratory::Equipped;
use crate::output;
use crate::progress::Bar;
use crate::report;
use crate::status::Status;
use crate::target::cancel_on_signal;
use crate::text::counted;
use anyhow::{Context, Result, bail};
use isolane_common_journal::Journal;
use isolane_rdma_scenario::profile::Profile;
use isolane_study_claims::claim::{Claim, ClaimTestbed};
use isolane_study_claims::hunt::{HuntNumbers, HuntRun};
use isolane_study_claims::plan;
use isolane_study_claims::report::{self as claim_report, ClaimReport};
use isolane_study_hunt::bench::{Bench, BenchOptions, Budget};
use isolane_study_hunt::compare::{
    COMPARISON_VERSION, Comparison, Contestant, Race, median_time, numbers,
};
use isolane_study_hunt::counters;
use isolane_study_hunt::experiment::{Lab, inventory};
use isolane_study_hunt::hunt::{Ended, Settings, hunt};
use isolane_study_hunt::known::KnownSet;
use isolane_study_hunt::rule::Rule;
use isolane_study_hunt::session::device_start;
use isolane_study_hunt::space::Space;
use isolane_study_hunt::state::{JOURNAL_NAME, Start};
use isolane_study_testbed_simulator::SimTestbed;
use std::collections::BTreeMap;
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
    /// Who searches: names of searchers, with :perf for performance counters and :no-mfs for no reduction
    #[arg(long, value_delimiter = ',', default_value = "anneal,random,bayes,screen", value_parser = contestant)]
    searchers: Vec<Contestant>,
    /// Hunts of each, with seeds from 1
    #[arg(long, default_value_t = 20, value_parser = crate::numbers::whole::<u64>(1..=1000))]
    seeds: u64,
    /// What each hunt may use: experiments, or modelled time like 10h
    #[arg(long, default_value = "10h", value_parser = super::budget)]
    budget: Budget,
    /// Search only workloads that this file allows (TOML)
    #[arg(long, value_name = "FILE")]
    restrict: Option<PathBuf>,
    /// Where bench.json, report.html and the finished hunts go
    #[arg(long, value_name = "DIR", default_value = "out/bench-hunt")]
    report: PathBuf,
    /// Hunts at once [default: one per core]
    #[arg(long, value_parser = crate::numbers::whole::<u32>(1..=1024))]
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

fn contestant(text: &str) -> Result<Contestant, String> {
    Contestant::parse(text.trim())
}

/// What all hunts share.
struct Course {
    profile: Profile,
    space: Space,
    start: Start,
    published: KnownSet,
    budget: Budget,
    settings: String,
}

pub(super) fn run(arguments: &Arguments) -> Result<Status> {
    let cancel = cancel_on_signal()?;
    let claims = isolane_study_claims::embedded_claims()?;
    let claims: Vec<&Claim> = claims
        .iter()
        .filter(|claim| claim.testbed == ClaimTestbed::Hunt)
        .collect();
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
        .flat_map(|one| (1..=arguments.seeds).map(move |seed| (one.clone(), seed)))
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
    races.retain(|race| place(race).is_some() && race.seed <= arguments.seeds);
    races.sort_by_key(|race| (place(race), race.seed));
    let comparison = Comparison {
        version: COMPARISON_VERSION,
        target: arguments.target.clone(),
        budget: words(arguments.budget),
        anomalies: numbers(&course.published),
        races,
    };
    let json = arguments.report.join(RESULT);
    output::write_file(&json, &output::compact_json(&comparison)?)?;
    let page = report::write_comparison(&arguments.report, &comparison)?;
    match arguments.json {
        true => output::print(&output::compact_json(&comparison)?)?,
        false => output::print(&comparison.text())?,
    }
    if arguments.check_claims {
        let (claims, remark) = asked(&claims, arguments);
        remark.into_iter().for_each(|remark| output::note(&remark));
        let claims: Vec<&Claim> = claims.iter().collect();
        let reports = checked(&claims, &comparison);
        output::print(&claim_report::table(&reports, output::width()))?;
        if let Some(path) = &arguments.markdown {
            output::write_file(path, &page_of(&reports, &comparison, arguments.seeds))?;
            output::note(&format!("wrote {}", path.display()));
        }
    }
    for path in [json, page] {
        output::note(&format!("wrote {}", path.display()));
    }
    Ok(Status::Done)
}

fn words(budget: Budget) -> String {
    match budget {
        Budget::Experiments(count) => format!("{count} experiments"),
        Budget::ModelledSeconds(seconds) => format!("{} modelled hours", seconds / 3600.0),
    }
}

fn course(arguments: &Arguments) -> Result<Course> {
    let name = arguments.target.strip_prefix("sim:").ok_or_else(|| {
        bad(format!(
            "--target {}: must be sim: and a profile, like sim:cx6-200g-roce: a comparison takes days on real devices",
            arguments.target
        ))
    })?;
    let profile = inputs::profile(&mut inputs::library(), name)?;
    let device = Space::of(&profile);
    let Some(published) = KnownSet::published(&profile.name, &device)? else {
        let known: Vec<&str> = KnownSet::published_profiles().collect();
        bail!(bad(format!(
            "--target {}: no anomalies were published of it, so nothing says what was found; there are some of {}",
            arguments.target,
            known.join(" and ")
        )));
    };
    let (space, restriction) = match &arguments.restrict {
        None => (device, String::new()),
        Some(path) => {
            let text = inputs::read(path)?;
            let file = path.to_string_lossy();
            (device.restricted(&text, &file)?, text)
        }
    };
    let start = device_start(&Lab::simulated(&SimTestbed, &profile), 1, false)?;
    let settings = format!(
        "isolane hunt bench {} --target {} --budget {} restrictions {}",
        super::audit::build(),
        arguments.target,
        words(arguments.budget),
        isolane_study_audit::journal::build_of(restriction.as_bytes())
    );
    Ok(Course {
        profile,
        space,
        start,
        published,
        budget: arguments.budget,
        settings,
    })
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
        "isolane: {} hunts of {experiments} experiments took {:.1} minutes, {jobs} at once ({:.1} experiments/s); {before} \
         were done before",
        new.len(),
        seconds / 60.0,
        experiments as f64 / seconds.max(1e-3)
    )
}

/// One hunt; none where the user stopped it.
fn race(
    course: &Course,
    contestant: &Contestant,
    seed: u64,
    cancel: &AtomicBool,
) -> Result<Option<Race>> {
    let lab = Lab::simulated(&SimTestbed, &course.profile);
    let bounds = course.start.bounds.clone();
    let rule = Rule::Device(bounds.context("a device was measured")?, None);
    let options = BenchOptions {
        seed,
        parallel: 1,
        budget: course.budget,
        cancel,
        on_progress: Box::new(|_| {}),
    };
    let asked = [contestant.counters.clone()];
    let settings = Settings {
        seed,
        searcher: contestant.searcher.clone(),
        counters: counters::choose(&asked, &lab.name, &inventory(&lab)?)?,
        reduces: contestant.reduces,
        tests: false,
    };
    let mut bench = Bench::new(&lab, rule, None, BTreeMap::new(), options);
    let result = hunt(&mut bench, &course.space, &settings)?;
    let race = Race::of(contestant, &result, &course.published);
    Ok((result.ended != Ended::Interrupted).then_some(race))
}

/// The budget that the claims are about, seconds.
const CLAIMED_S: f64 = 36_000.0;

/// The claims over the seeds that there are, and what is less than they ask for.
fn asked(claims: &[&Claim], arguments: &Arguments) -> (Vec<Claim>, Option<String>) {
    let mut kept: Vec<Claim> = claims.iter().map(|&claim| claim.clone()).collect();
    let most = claims.iter().flat_map(|claim| &claim.seeds).max();
    let most = most.copied().unwrap_or(0);
    for claim in &mut kept {
        claim.seeds.retain(|seed| *seed <= arguments.seeds);
    }
    let whole = arguments.budget == Budget::ModelledSeconds(CLAIMED_S);
    let remark = (arguments.seeds < most || !whole || arguments.restrict.is_some()).then(|| {
        format!(
            "isolane: the claims are about {} of {} in the whole space; what follows is of {} of {}{}",
            counted(most, "seed"),
            words(Budget::ModelledSeconds(CLAIMED_S)),
            counted(arguments.seeds.min(most), "seed"),
            words(arguments.budget),
            match &arguments.restrict {
                Some(file) => format!(" in {}", file.display()),
                None => String::new(),
            }
        )
    });
    (kept, remark)
}

/// The comparison and its claims as a page.
fn page_of(reports: &[ClaimReport], comparison: &Comparison, seeds: u64) -> String {
    let reports: Vec<&ClaimReport> = reports.iter().collect();
    format!(
        "# Searchers compared\n\nGenerated by `isolane hunt bench --seeds {seeds} --check-claims --markdown \
         docs/internals/hunt-claims.md`; do not edit.\n[hunt.md](hunt.md#comparing-searchers) says what is compared, \
         [claims.md](claims.md) explains the format.\n\n```text\n{}```\n{}",
        comparison.text(),
        claim_report::verdicts(&reports)
    )
}

/// The claims, held against the comparison.
fn checked(claims: &[&Claim], comparison: &Comparison) -> Vec<ClaimReport> {
    let library = inputs::library();
    let hunts = |run: &HuntRun, seed: u64| {
        let name = run.contestant();
        let mut races = comparison.races.iter();
        let race = races.find(|race| race.seed == seed && race.contestant.name() == name);
        let race =
            race.ok_or_else(|| format!("{name} has no hunt with seed {seed}: raise --seeds"))?;
        Ok(figures(race, comparison.anomalies.len()))
    };
    let laboratory = Equipped::with_hunts(&library, &hunts);
    let files = isolane_study_claims::embedded_scenarios();
    plan::check(claims, &files, &laboratory, &|_, _| {})
}

/// What claims may ask of one hunt.
fn figures(race: &Race, anomalies: usize) -> HuntNumbers {
    let has = |name: &str| {
        if race.found.contains_key(name) {
            1.0
        } else {
            0.0
        }
    };
    let mut all = BTreeMap::from([
        ("found".to_owned(), race.found.len() as f64),
        ("others".to_owned(), f64::from(race.others)),
        (
            "search_experiments".to_owned(),
            race.search_experiments as f64,
        ),
        ("counter_max".to_owned(), race.counter_max),
        ("found_7".to_owned(), has("7")),
        ("found_8".to_owned(), has("8")),
        ("found_13".to_owned(), has("13")),
    ]);
    let half = anomalies.div_ceil(2);
    for (name, nth) in [
        ("hours_to_first", 1),
        ("hours_to_7", 7),
        ("hours_to_8", 8),
        ("hours_to_11", 11),
        ("hours_to_13", 13),
        ("hours_to_half", half),
    ] {
        if let Some((experiments, hours)) = median_time(&[race], nth) {
            all.insert(name.to_owned(), hours);
            if nth == 13 {
                all.insert("experiments_to_13".to_owned(), experiments);
            }
        }
    }
    if let Some(at) = race.found.get("13") {
        all.insert("hours_of_13".to_owned(), at.modelled_s / 3600.0);
    }
    HuntNumbers(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_study_claims::hunt::{FIELDS, SEARCHERS};
    use isolane_study_hunt::bench::Spent;
    use isolane_study_hunt::search::NAMES;

    #[test]
    fn claims_know_the_searchers_and_the_figures() {
        assert_eq!(SEARCHERS, NAMES);
        let spent = |experiments: u64| Spent {
            experiments,
            modelled_s: 24.0 * experiments as f64,
        };
        let race = Race {
            contestant: Contestant::parse("anneal").unwrap(),
            seed: 1,
            spent: spent(900),
            found: (1..=13u64)
                .map(|n| (n.to_string(), spent(n * 60)))
                .collect(),
            others: 2,
            search_experiments: 500,
            counter_max: 3.0,
        };
        let HuntNumbers(all) = figures(&race, 13);
        let named: Vec<&str> = all.keys().map(String::as_str).collect();
        let mut fields = FIELDS.to_vec();
        fields.sort_unstable();
        assert_eq!(named, fields);
        assert_eq!((all["found"], all["hours_to_half"]), (13.0, 2.8));
    }

    #[test]
    fn fewer_seeds_check_the_claims_over_those_and_say_so() {
        let claims = isolane_study_claims::embedded_claims().unwrap();
        let claims: Vec<&Claim> = claims
            .iter()
            .filter(|claim| claim.testbed == ClaimTestbed::Hunt)
            .collect();
        let of = |seeds: u64, budget: &str| {
            let arguments = Arguments {
                target: String::new(),
                searchers: Vec::new(),
                seeds,
                budget: super::super::budget(budget).unwrap(),
                restrict: None,
                report: PathBuf::new(),
                jobs: None,
                json: false,
                check_claims: true,
                markdown: None,
            };
            let (kept, remark) = asked(&claims, &arguments);
            let longest = kept.iter().map(|claim| claim.seeds.len()).max();
            (longest, remark.unwrap_or_default())
        };
        assert_eq!(of(20, "10h"), (Some(20), String::new()));
        assert_eq!(of(30, "600m"), (Some(20), String::new()));
        let (longest, remark) = of(3, "2000");
        assert_eq!(longest, Some(3));
        assert!(
            remark.ends_with("is of 3 seeds of 2000 experiments"),
            "{remark}"
        );
    }
}
