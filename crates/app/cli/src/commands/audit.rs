//! `isolane audit`: the matrix of victims and attackers.

mod check;
#[cfg(feature = "rdma-hosts")]
mod real;
#[cfg(not(feature = "rdma-hosts"))]
mod real {
    /// Never called: no value of the devices' type exists.
    pub(super) fn suit(
        _: &mut super::Plan,
        devices: &crate::devices::VerbsTestbed,
        _: &super::Arguments,
    ) -> anyhow::Result<()> {
        match *devices {}
    }
}

use crate::inputs::{self, DEFAULT_PROFILE, bad};
use crate::output;
use crate::progress::RunArguments;
use crate::report;
use crate::status::Status;
use crate::target::{Bed, TargetArguments, cancel_on_signal};
use crate::text::counted;
use anyhow::{Result, bail};
use clap::ValueEnum;
use isolane_common_quantities::units::Duration;
use isolane_rdma_scenario::Overrides;
use isolane_rdma_scenario::library::Library;
use isolane_rdma_scenario::model::{PolicySpec, Topology};
use isolane_rdma_scenario::profile::Profile;
use isolane_study_audit::journal::{JOURNAL_NAME, build_of};
use isolane_study_audit::matrix::{AuditResult, Progress};
use isolane_study_audit::place::{Intent, Place, RESULT_NAME};
use isolane_study_audit::plan::{
    ALPHA, AttackerPlan, CAP, LEAST, Plan, SEEDS, TENANTS, TOPOLOGY, VictimPlan, WARMUP,
};
use isolane_study_audit::predicate::{Part, Predicate};
use isolane_study_audit::run::{Reused, RunOptions, run as run_plan};
use isolane_study_audit::select::Selection;
use isolane_study_audit::{junit, table, tenants};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Arguments of `isolane audit`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Audit the tenants of this scenario file (TOML) instead of the catalogue's workloads
    #[arg(long, value_name = "FILE", conflicts_with = "quick")]
    scenario: Option<PathBuf>,
    /// Device profile: a name, or the path of a TOML file [default: the scenario's, or cx5-100g-roce]
    #[arg(long, value_parser = inputs::profile_names(), hide_possible_values = true)]
    profile: Option<String>,
    /// Policies to compare; all is every policy that the device can run
    #[arg(long, value_name = "POLICY,...", value_delimiter = ',', default_value = "none,justitia", value_parser = inputs::policies_or_all())]
    policies: Vec<String>,
    /// Victims by name; * and ? are wildcards, commas separate [default: all but applications, app_*]
    #[arg(long, value_name = "GLOB")]
    victims: Option<String>,
    /// Attackers by name; * and ? are wildcards, commas separate [default: all]
    #[arg(long, value_name = "GLOB")]
    attackers: Option<String>,
    /// A few victims and attackers, of every kind, instead of all; with more than 3 policies one seed
    #[arg(long, conflicts_with_all = ["victims", "attackers"])]
    quick: bool,
    /// Print every policy's matrix, also of more than 3 policies
    #[arg(long, conflicts_with = "json")]
    matrix: bool,
    /// Tolerated loss, relative to the smaller of the victim's rate alone and its fair share, 0 to 1
    #[arg(long, default_value_t = ALPHA, value_parser = crate::numbers::real(0.0..=1.0))]
    alpha: f64,
    /// Rule for victims whose rate counts
    #[arg(long, value_enum, default_value_t = Rule::Share)]
    predicate: Rule,
    /// Runs of each cell, each with another seed [default: 3, or 1 with --quick and more than 3 policies]
    #[arg(long, value_name = "N", value_parser = crate::numbers::whole::<u32>(1..=1000))]
    seeds: Option<u32>,
    #[command(flatten)]
    target: TargetArguments,
    /// Minimum measured time of a run, which continues until it has settled; for applications (app_*) at least 4 to 40 ms [default: the scenario's, or 400us; 1s on real devices]
    #[arg(long, value_parser = inputs::duration)]
    duration: Option<Duration>,
    /// Minimum time before measuring starts, counted from the end of the requests posted at the start; time constants of the policy are added [default: the scenario's, or 150us; 200ms on real devices]
    #[arg(long, value_parser = inputs::duration)]
    warmup: Option<Duration>,
    /// Simulated time after which a run ends, settled or not [default: 8ms; on real devices four times the minimum times]
    #[arg(long, value_parser = inputs::duration)]
    cap: Option<Duration>,
    /// Measure for exactly --warmup and --duration instead of until each run has settled
    #[arg(long, conflicts_with = "cap")]
    fixed: bool,
    /// Audit again with every time doubled and other seeds, and print the verdicts that change; exits with 1 when more than 1 % do
    #[arg(long, conflicts_with_all = ["resume", "json", "junit", "fixed", "fail_on_violation"])]
    check_settling: bool,
    /// Directory of audit.json, audit.xml, report.html and the journal
    #[arg(long, value_name = "DIR", default_value = "out/audit")]
    report: PathBuf,
    /// Continue the interrupted audit in --report
    #[arg(long)]
    resume: bool,
    /// Replace an audit with other settings in --report
    #[arg(long, conflicts_with = "resume")]
    force: bool,
    /// Print the result as JSON instead of the matrix
    #[arg(long)]
    json: bool,
    /// Also write JUnit XML to this file
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    #[command(flatten)]
    runs: RunArguments,
    /// Exit with 1 when a guarantee is violated
    #[arg(long)]
    fail_on_violation: bool,
}

/// `--predicate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Rule {
    /// At least (1 - alpha) x min(alone, one n-th of the NIC)
    Share,
    /// Bits and messages at least (1 - alpha) x alone
    Ratio,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    let cancel = cancel_on_signal()?;
    let flag = Arc::clone(&cancel);
    let bed = arguments.target.bed(move || Ok(flag), |_| {})?;
    let mut plan = plan(arguments, &bed)?;
    for left in &plan.left_out {
        output::note(&format!(
            "isolane: left out {}: {}",
            left.policy, left.reason
        ));
    }
    if arguments.check_settling {
        return check::run(
            &plan,
            bed.testbed(),
            jobs(arguments, &bed),
            &cancel,
            arguments.runs.progress,
        );
    }
    if let Some(path) = &arguments.junit {
        output::check_file(path)?;
    }
    output::make_directory(&arguments.report)?;
    let intent = match (arguments.resume, arguments.force) {
        (true, _) => Intent::Resume,
        (false, true) => Intent::Replace,
        (false, false) => Intent::Repeat,
    };
    let _place = Place::claim(&arguments.report, &plan.rerun, intent)?;
    if let Bed::Verbs(devices) = &bed {
        real::suit(&mut plan, devices, arguments)?;
    }
    let bar = arguments.runs.progress.runs();
    let mut show = |progress: Progress| {
        bar.set_length(progress.runs_total);
        bar.set_position(progress.runs_done);
    };
    let journal = arguments.report.join(JOURNAL_NAME);
    let build = build();
    let result = run_plan(
        &plan,
        bed.testbed(),
        RunOptions {
            jobs: jobs(arguments, &bed),
            cancel: &cancel,
            journal: Some(&journal),
            build: &build,
            resume: arguments.resume,
            on_resume: &mut |reused| output::note(&resumption(arguments, reused)),
            on_progress: &mut show,
        },
    );
    bar.finish_and_clear();
    let result = result?;
    let written = write(arguments, &result)?;
    show_result(arguments, &result)?;
    for path in written {
        output::note(&format!("wrote {}", path.display()));
    }
    Ok(status(arguments, &result))
}

fn show_result(arguments: &Arguments, result: &AuditResult) -> Result<()> {
    if arguments.json {
        return output::print(&output::compact_json(result)?);
    }
    let style = table::Style {
        colour: output::colour(),
        width: output::width(),
        comparison_only: !arguments.matrix && result.policies.len() > table::MATRICES_MAX,
    };
    output::show(&table::render(result, style))
}

/// The exit status, and on stderr its reason where the table does not show it.
fn status(arguments: &Arguments, result: &AuditResult) -> Status {
    match () {
        () if result.progress.partial => {
            output::note(&format!(
                "isolane: interrupted after {} of {}; go on with: {} --resume",
                result.progress.runs_done,
                counted(result.progress.runs_total, "run"),
                result.rerun
            ));
            Status::Interrupted
        }
        () if result.judged() == 0 => {
            output::note(
                "isolane: no pair has a verdict: the device can run none of them, or nothing completed in the measured time \
                 (see the reasons above; raise --duration)",
            );
            match arguments.fail_on_violation {
                true => Status::No,
                false => Status::Done,
            }
        }
        () if arguments.fail_on_violation && result.violations() > 0 => Status::No,
        () => Status::Done,
    }
}

/// What a resumed audit found to go on with.
fn resumption(arguments: &Arguments, reused: Reused) -> String {
    let Reused {
        journal_found,
        runs,
        runs_total,
    } = reused;
    match journal_found {
        true => format!("isolane: reused {runs} of {}", counted(runs_total, "run")),
        false => format!(
            "isolane: {} has no journal to resume; starting with the first of {runs_total} runs",
            arguments.report.display()
        ),
    }
}

fn plan(arguments: &Arguments, bed: &Bed) -> Result<Plan> {
    let mut library: Library = inputs::library();
    let profile = arguments.profile.as_deref();
    let profile = profile.map(|name| inputs::profile(&mut library, name));
    let subject = match &arguments.scenario {
        Some(path) => own_tenants(arguments, &library, profile.transpose()?, path)?,
        None => {
            let default = || inputs::profile(&mut library.clone(), DEFAULT_PROFILE);
            catalogue(arguments, &library, profile.unwrap_or_else(default)?)?
        }
    };
    let mut policies = Vec::new();
    let chosen = inputs::policies(
        &arguments.policies,
        &subject.profile,
        subject.tenants,
        &|name| bed.runs_policy(name),
    )?;
    for policy in chosen.policies {
        // A scenario that names the policy may set its parameters.
        policies.push(match &subject.policy {
            Some(written) if written.name == policy.name => written.clone(),
            _ => policy,
        });
    }
    let seeds = seeds(arguments, policies.len());
    let alpha = arguments.alpha;
    let predicate = match arguments.predicate {
        Rule::Share => Predicate::Share {
            alpha,
            part: Part::one_of(TENANTS),
        },
        Rule::Ratio => Predicate::Ratio { alpha },
    };
    Ok(Plan {
        rerun: rerun(arguments, &subject.profile.name, seeds),
        profile: subject.profile,
        policies,
        left_out: chosen.left_out,
        victims: subject.victims,
        attackers: subject.attackers,
        seeds: (1..=u64::from(seeds)).collect(),
        predicate,
        warmup: subject.warmup,
        duration: subject.duration,
        cap: (!arguments.fixed).then(|| arguments.cap.unwrap_or(CAP)),
        least_times: 1,
        topology: subject.topology,
    })
}

/// Policies above which the quick audit takes one seed, so that it stays quick.
const QUICK_POLICIES: usize = 3;

/// Runs of each cell.
fn seeds(arguments: &Arguments, policies: usize) -> u32 {
    let many = arguments.quick && policies > QUICK_POLICIES;
    arguments.seeds.unwrap_or(if many { 1 } else { SEEDS })
}

struct Subject {
    profile: Profile,
    /// The most tenants that are there at once.
    tenants: usize,
    victims: Vec<VictimPlan>,
    attackers: Vec<AttackerPlan>,
    warmup: Duration,
    duration: Duration,
    topology: Topology,
    /// The policy that the scenario names, with its parameters.
    policy: Option<PolicySpec>,
}

fn catalogue(arguments: &Arguments, library: &Library, profile: Profile) -> Result<Subject> {
    let selection = Selection {
        victims: arguments.victims.clone(),
        attackers: arguments.attackers.clone(),
        quick: arguments.quick,
    };
    let (victims, attackers) = selection.of(&library.catalogue, &profile)?;
    Ok(Subject {
        profile,
        tenants: TENANTS as usize,
        victims,
        attackers,
        warmup: arguments.warmup.unwrap_or(WARMUP),
        duration: arguments.duration.unwrap_or(LEAST),
        topology: TOPOLOGY,
        policy: None,
    })
}

/// The tenants of the scenario at `path`, with its times and its topology.
fn own_tenants(
    arguments: &Arguments,
    library: &Library,
    profile: Option<Profile>,
    path: &Path,
) -> Result<Subject> {
    let overrides = Overrides {
        profile: profile.map(|profile| profile.name),
        ..Overrides::default()
    };
    let (text, file) = inputs::scenario_text(path)?;
    let scenario = isolane_rdma_scenario::parse_with(&text, &file, library, &overrides)?;
    let warmup = arguments.warmup.unwrap_or(scenario.warmup);
    let duration = arguments.duration.unwrap_or(scenario.duration);
    let end = warmup + duration;
    if let Some(tenant) = scenario.tenants.iter().find(|tenant| tenant.start >= end) {
        bail!(bad(format!(
            "{}: tenant {:?} starts at {}, but --warmup and --duration end the run at {end}: let it last longer",
            path.display(),
            tenant.name,
            tenant.start
        )));
    }
    let globs = (arguments.victims.as_deref(), arguments.attackers.as_deref());
    let (victims, attackers) = tenants::select(&scenario, globs.0, globs.1)?;
    let profile = library.profile(&scenario.profile);
    Ok(Subject {
        profile: profile
            .expect("a parsed scenario names a profile of its library")
            .clone(),
        tenants: scenario.tenants.len(),
        victims,
        attackers,
        warmup,
        duration,
        topology: scenario.topology,
        policy: Some(scenario.policy),
    })
}

/// The command line of the same audit, without options that do not change its result.
fn rerun(arguments: &Arguments, profile: &str, seeds: u32) -> String {
    let mut words = vec!["isolane audit".to_owned()];
    let mut option =
        |name: &str, value: &str| words.push(format!("--{name} {}", inputs::quoted(value)));
    match &arguments.scenario {
        Some(path) => option("scenario", &path.to_string_lossy()),
        None => option("profile", arguments.profile.as_deref().unwrap_or(profile)),
    }
    if let (Some(_), Some(profile)) = (&arguments.scenario, &arguments.profile) {
        option("profile", profile);
    }
    option("policies", &arguments.policies.join(","));
    if let Some(globs) = &arguments.victims {
        option("victims", globs);
    }
    if let Some(globs) = &arguments.attackers {
        option("attackers", globs);
    }
    for (name, value) in arguments.target.words() {
        option(name, &value);
    }
    if arguments.alpha != ALPHA {
        option("alpha", &arguments.alpha.to_string());
    }
    if arguments.predicate == Rule::Ratio {
        option("predicate", "ratio");
    }
    // What --quick chose is said, for a pair of it may run again without --quick.
    if arguments.seeds.is_some_and(|given| given != SEEDS) || seeds != SEEDS {
        option("seeds", &seeds.to_string());
    }
    // A scenario has its own times, so that nothing is left out for being the catalogue's.
    let own = arguments.scenario.is_some() || !arguments.target.words().is_empty();
    if let Some(duration) = arguments.duration.filter(|&d| own || d != LEAST) {
        option("duration", &duration.to_string());
    }
    if let Some(warmup) = arguments.warmup.filter(|&w| own || w != WARMUP) {
        option("warmup", &warmup.to_string());
    }
    if let Some(cap) = arguments.cap {
        option("cap", &cap.to_string());
    }
    for (chosen, name) in [(arguments.fixed, "--fixed"), (arguments.quick, "--quick")] {
        if chosen {
            words.push(name.to_owned());
        }
    }
    // Last, where `place` finds it.
    words.push(format!(
        "--report {}",
        inputs::quoted(&arguments.report.to_string_lossy())
    ));
    words.join(" ")
}

/// Writes every form of the result; returns the paths for people.
fn write(arguments: &Arguments, result: &AuditResult) -> Result<Vec<PathBuf>> {
    let json = arguments.report.join(RESULT_NAME);
    output::write_file(&json, &output::compact_json(result)?)?;
    let xml = junit::to_xml(result);
    let mut written = vec![json, arguments.report.join("audit.xml")];
    output::write_file(&written[1], &xml)?;
    if let Some(path) = &arguments.junit {
        output::write_file(path, &xml)?;
        written.push(path.clone());
    }
    written.push(report::write_audit(&arguments.report, result)?);
    Ok(written)
}

/// What identifies this build: the program's bytes. Where the system hides the bytes, the version identifies the build.
pub(super) fn build() -> String {
    let executable = std::env::current_exe().and_then(std::fs::read);
    executable.map_or_else(|_| "unknown".to_owned(), |bytes| build_of(&bytes))
}

/// Runs at once. Real devices do one at a time: two would measure each other.
fn jobs(arguments: &Arguments, bed: &Bed) -> usize {
    if bed.devices().is_some() {
        return 1;
    }
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    arguments.runs.jobs.map_or_else(cores, |jobs| jobs as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_of_the_help_are_the_crates_constants() {
        assert_eq!(inputs::duration("400us").unwrap(), LEAST);
        assert_eq!(inputs::duration("150us").unwrap(), WARMUP);
        assert_eq!(inputs::duration("8ms").unwrap(), CAP);
    }

    #[test]
    fn globs_are_quoted_for_the_shell() {
        assert_eq!(inputs::quoted("none,justitia"), "none,justitia");
        assert_eq!(inputs::quoted("small_*"), "'small_*'");
        assert_eq!(inputs::quoted("it's"), r"'it'\''s'");
    }
}
