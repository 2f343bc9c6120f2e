//! `isolane claims`: the papers' numbers and ours, in the simulator or as the lab measured them on real devices.

mod lab;

use crate::inputs;
use crate::interrupt;
use crate::output;
use crate::progress::{Bar, ProgressArguments};
use crate::status::{BadInput, Status};
use anyhow::Result;
use isolane_app_report::ClaimRow;
use isolane_ethernet_scenario::profile::NicProfile;
use isolane_study_claims::claim::{Claim, ClaimTestbed};
use isolane_study_claims::cross::{self, CrossOptions, Family, LeaveOut};
use isolane_study_claims::laboratory::Laboratory;
use isolane_study_claims::report::{self, ClaimReport, Tally};
use isolane_study_claims::{ClaimError, figure, plan, why};
use isolane_study_testbed_simulator::SimTestbed;
use std::path::{Path, PathBuf};

/// Arguments of `isolane claims`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only claims whose id, or system/id, matches (`*` is any text); may be repeated
    #[arg(long, value_name = "GLOB", value_delimiter = ',')]
    only: Vec<String>,
    /// Of these, only claims about this figure of their paper, such as 11 or 3.22
    #[arg(long, value_name = "NUMBER")]
    figure: Option<String>,
    /// Of these, only claims about this table of their paper
    #[arg(long, value_name = "NUMBER", conflicts_with = "figure")]
    table: Option<String>,
    /// Read the claims from DIR/SYSTEM/*.toml instead of those in this program
    #[arg(long, value_name = "DIR", conflicts_with = "lab")]
    from: Option<PathBuf>,
    /// List the claims without running them
    #[arg(long)]
    list: bool,
    /// Print the misses alone, each with its reason and whether the claim holds with the change that the reason names
    #[arg(long, conflicts_with_all = ["list", "lab"])]
    why: bool,
    /// Predict each claim with parameters of its device that are fitted to the other claims, and print how many hold
    #[arg(long, conflicts_with_all = ["list", "why", "markdown", "outcomes", "report", "lab", "fail_on_miss"])]
    cross_validate: bool,
    /// Settings of the fitted parameters that --cross-validate tries for each device
    #[arg(long, value_name = "N", default_value_t = 32, requires = "cross_validate", value_parser = clap::value_parser!(u16).range(2..=1000))]
    draws: u16,
    /// With --cross-validate, which other claims take no part in the fit: runs (those that measure the same runs) or configuration (those
    /// that share a configuration of an Ethernet NIC, a scenario, or a column of attackers)
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Together::Runs, requires = "cross_validate")]
    leave_out: Together,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write Markdown to FILE, or print it when no file is named
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = STDOUT)]
    markdown: Option<String>,
    /// Write a line per claim with its outcome to FILE
    #[arg(long, value_name = "FILE", conflicts_with = "lab")]
    outcomes: Option<PathBuf>,
    /// Write claims.html into DIR: every claim with its statement, source, outcome and reason, to search and filter
    #[arg(long, value_name = "DIR", conflicts_with = "lab")]
    report: Option<PathBuf>,
    /// Check the claims on real devices instead, by what lab/run wrote into DIR; may be repeated
    #[arg(long, value_name = "DIR", conflicts_with = "list")]
    lab: Vec<PathBuf>,
    #[command(flatten)]
    progress: ProgressArguments,
    /// Exit with 1 when a claim misses; with --why, when a reason is refuted
    #[arg(long)]
    fail_on_miss: bool,
}

/// What `--leave-out` takes.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Together {
    Runs,
    Configuration,
}

/// The file name that means stdout.
const STDOUT: &str = "-";

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    let to_stdout = arguments.markdown.as_deref() == Some(STDOUT);
    if arguments.json && to_stdout {
        let reason = "--json and --markdown both print: name a file, as in --markdown CLAIMS.md";
        return Err(inputs::bad(reason));
    }
    let claims = match &arguments.from {
        Some(folder) => claims_of(folder)?,
        None => isolane_study_claims::embedded_claims()?,
    };
    let selected = select(&claims, arguments).map_err(|error| BadInput(error.to_string()))?;
    if arguments.list {
        output::show(&list(&selected))?;
        return Ok(Status::Done);
    }
    if arguments.cross_validate {
        return cross_validate(&selected, arguments);
    }
    let markdown_file = arguments.markdown.as_deref().filter(|_| !to_stdout);
    if let Some(file) = markdown_file {
        output::check_file(Path::new(file))?;
    }
    if let Some(file) = &arguments.outcomes {
        output::check_file(file)?;
    }
    if let Some(folder) = &arguments.report {
        output::check_directory(folder)?;
    }
    let (reports, text) = match arguments.lab.as_slice() {
        [] => {
            let bar = arguments.progress.runs();
            let stop = interrupt::at_once(&bar)?;
            let reports = measure(&selected, &bar);
            stop.done();
            let text = report::markdown(&reports);
            (reports, text)
        }
        directories => lab::check(&selected, directories)?,
    };
    if to_stdout {
        output::print(&text)?;
    }
    if let Some(file) = markdown_file {
        write(Path::new(file), &text)?;
    }
    if let Some(file) = &arguments.outcomes {
        write(file, &report::outcomes(&reports))?;
    }
    if let Some(folder) = &arguments.report {
        output::make_directory(folder)?;
        let rows: Vec<ClaimRow> = reports.iter().map(row_of).collect();
        write(
            &folder.join("claims.html"),
            &isolane_app_report::claims(&rows),
        )?;
    }
    if arguments.why {
        return reasons(&reports, arguments);
    }
    match (arguments.json, to_stdout) {
        (true, _) => output::print_json(&reports)?,
        (false, false) => output::show(&report::table(&reports, output::width()))?,
        (false, true) => {}
    }
    let missed = Tally::of(&reports).missed > 0;
    Ok(match arguments.fail_on_miss && missed {
        true => Status::No,
        false => Status::Done,
    })
}

fn write(file: &Path, text: &str) -> Result<()> {
    output::write_file(file, text)?;
    output::note(&format!("wrote {}", file.display()));
    Ok(())
}

/// The claims of `folder`, which holds a directory for each system.
fn claims_of(folder: &Path) -> Result<Vec<Claim>> {
    let mut files: Vec<(String, String)> = Vec::new();
    for system in entries(folder)?.iter().filter(|path| path.is_dir()) {
        for file in entries(system)? {
            if file.extension().is_none_or(|extension| extension != "toml") {
                continue;
            }
            let text = std::fs::read_to_string(&file)
                .map_err(|error| inputs::bad(format!("{}: {error}", file.display())))?;
            let inside = file.strip_prefix(folder).expect("it was listed below");
            files.push((format!("claims/{}", inside.display()), text));
        }
    }
    let files = files
        .iter()
        .map(|(file, text)| (file.as_str(), text.as_str()));
    Ok(isolane_study_claims::read(files)?)
}

/// The paths in `folder`, sorted.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let bad = |error: std::io::Error| inputs::bad(format!("--from {}: {error}", folder.display()));
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(bad)? {
        paths.push(entry.map_err(bad)?.path());
    }
    paths.sort();
    Ok(paths)
}

/// `--cross-validate`: how many of `claims` hold with parameters that were fitted to the others.
fn cross_validate(claims: &[&Claim], arguments: &Arguments) -> Result<Status> {
    let library = inputs::library();
    let laboratory = Laboratory {
        library: &library,
        testbed: &SimTestbed,
    };
    let families: Vec<Family> = library
        .profiles()
        .iter()
        .map(Family::of_rnic)
        .chain([Family::of_nic(&NicProfile::of_paper())])
        .collect();
    let bar = arguments.progress.runs();
    let stop = interrupt::at_once(&bar)?;
    let rates = cross::check(
        &families,
        claims,
        &isolane_study_claims::embedded_scenarios(),
        &laboratory,
        CrossOptions {
            draws: arguments.draws.into(),
            leave_out: match arguments.leave_out {
                Together::Runs => LeaveOut::Runs,
                Together::Configuration => LeaveOut::Configuration,
            },
        },
        &|done, all| {
            bar.set_length(all as u64);
            bar.set_position(done as u64);
        },
    );
    bar.finish_and_clear();
    stop.done();
    if rates.is_empty() {
        let reason = "--only: no two of these claims run on one device that has fitted parameters: name more, as in --only 'justitia/*'";
        return Err(inputs::bad(reason));
    }
    match arguments.json {
        true => output::print_json(&rates)?,
        false => output::show(&cross::text(&rates))?,
    }
    Ok(Status::Done)
}

/// `--why`: the misses among `reports` with their reasons.
fn reasons(reports: &[ClaimReport], arguments: &Arguments) -> Result<Status> {
    let missed: Vec<&ClaimReport> = reports
        .iter()
        .filter(|report| report.within == Some(false))
        .collect();
    match arguments.json {
        true => output::print_json(&missed)?,
        false => output::show(&why::text(reports))?,
    }
    let refuted = missed.iter().any(|report| report.confirmed == Some(false));
    Ok(match arguments.fail_on_miss && refuted {
        true => Status::No,
        false => Status::Done,
    })
}

/// A claim's row of the page.
fn row_of(report: &ClaimReport) -> ClaimRow {
    ClaimRow {
        system: report.system.clone(),
        id: report.id.clone(),
        statement: report.statement.clone(),
        source: report.paper.clone(),
        kind: report.kind.name().to_owned(),
        published: report.published_text(),
        ours: report.ours_text(),
        tolerance: report.tolerance.to_string(),
        verdict: report.verdict_text().to_owned(),
        remark: report
            .reason
            .as_ref()
            .or(report.note.as_ref())
            .cloned()
            .unwrap_or_default(),
    }
}

/// The claims that the arguments name.
fn select<'a>(claims: &'a [Claim], arguments: &Arguments) -> Result<Vec<&'a Claim>, ClaimError> {
    let selected = isolane_study_claims::select(claims, &arguments.only)?;
    match (&arguments.figure, &arguments.table) {
        (Some(number), _) => figure::select(&selected, "figure", number),
        (None, Some(number)) => figure::select(&selected, "table", number),
        (None, None) => Ok(selected),
    }
}

fn list(claims: &[&Claim]) -> String {
    claims
        .iter()
        .map(|claim| format!("{}/{}  {}\n", claim.system, claim.id, claim.statement))
        .collect()
}

fn measure(claims: &[&Claim], bar: &Bar) -> Vec<ClaimReport> {
    let library = inputs::library();
    let laboratory = Laboratory {
        library: &library,
        testbed: &SimTestbed,
    };
    let (here, elsewhere): (Vec<&Claim>, Vec<&Claim>) = claims
        .iter()
        .copied()
        .partition(|claim| claim.testbed == ClaimTestbed::Simulated);
    let scenarios = isolane_study_claims::embedded_scenarios();
    let mut reports = why::check(&here, |claims| {
        plan::check(claims, &scenarios, &laboratory, &|done, all| {
            bar.set_length(all as u64);
            bar.set_position(done as u64);
        })
    });
    bar.finish_and_clear();
    reports.extend(elsewhere.into_iter().map(ClaimReport::elsewhere));
    reports.sort_by(|a, b| (&a.system, &a.id).cmp(&(&b.system, &b.id)));
    reports
}
