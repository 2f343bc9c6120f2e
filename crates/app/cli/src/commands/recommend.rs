//! `isolane recommend`: which policy meets the SLOs of a scenario's tenants.

#[cfg(feature = "rdma-hosts")]
mod emit;

use crate::inputs;
use crate::interrupt;
use crate::output;
use crate::progress::RunArguments;
use crate::report;
use crate::status::Status;
use crate::target::Bed;
use anyhow::Result;
use isolane_rdma_scenario::{Overrides, stack};
use isolane_study_audit::plan::CAP;
use isolane_study_recommend::result::{Recommendation, TenantNeeds};
use isolane_study_recommend::run::{Question, run as answer};
use isolane_study_recommend::text;
use isolane_study_testbed_simulator::SimTestbed;
use std::path::PathBuf;

/// Arguments of `isolane recommend`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Scenario file (TOML) with tenants and objectives, which are derived if there are none; - reads the file from stdin
    scenario: PathBuf,
    /// Policies to compare; all is every policy that the device can run
    #[arg(long, value_name = "POLICY,...", value_delimiter = ',', default_value = "all", value_parser = inputs::policies_or_all())]
    policies: Vec<String>,
    /// Also recommend policies that need hardware that is not on sale, as if --policies named one
    #[arg(long)]
    not_on_sale: bool,
    /// Device profile instead of the scenario's: a name, or the path of a TOML file
    #[arg(long, value_parser = inputs::profile_names(), hide_possible_values = true)]
    profile: Option<String>,
    /// Runs under each policy, each with another seed
    #[arg(long, value_name = "N", default_value_t = SEEDS, value_parser = crate::numbers::whole::<u32>(1..=1000))]
    seeds: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Also write recommendation.json and report.html into this directory
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Also write a policy for `isolane rdma plan`: the tenants with their objectives
    #[cfg(feature = "rdma-hosts")]
    #[arg(long, value_name = "FILE")]
    emit: Option<PathBuf>,
    #[command(flatten)]
    runs: RunArguments,
    /// Exit with 1 when the best policy misses an SLO
    #[arg(long)]
    fail_on_violation: bool,
}

/// Runs under each policy: the fewest with a median that one outlier cannot move.
const SEEDS: u32 = 3;

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    let question = question(arguments)?;
    if let Some(directory) = &arguments.report {
        output::check_directory(directory)?;
    }
    #[cfg(feature = "rdma-hosts")]
    if let Some(path) = &arguments.emit {
        output::check_file(path)?;
    }
    let bar = arguments.runs.progress.runs();
    let stop = interrupt::at_once(&bar)?;
    let show = |done: u64, total: u64| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let found = answer(&question, &SimTestbed, jobs(arguments), &show);
    bar.finish_and_clear();
    let found = found?;
    stop.done();
    match arguments.json {
        true => output::print_json(&found)?,
        false => {
            let style = text::Style {
                colour: output::colour(),
                width: output::width(),
            };
            output::show(&text::render(&found, style))?;
        }
    }
    if let Some(directory) = &arguments.report {
        let path = report::write_recommendation(directory, &found)?;
        output::note(&format!("wrote {}", path.display()));
    }
    #[cfg(feature = "rdma-hosts")]
    if let Some(path) = &arguments.emit {
        output::write_file(path, &emit::policy(&found))?;
        output::note(&format!(
            "wrote {}; next: isolane rdma plan {}",
            path.display(),
            path.display()
        ));
    }
    for tenant in without_objective(&found) {
        output::note(&format!(
            "isolane: tenant {tenant} completes nothing when it runs alone for {} us, so it has no objective and is not judged: raise \
             the scenario's duration, or give the tenant an slo",
            found.measured_us
        ));
    }
    Ok(status(arguments, &found))
}

/// The tenants for which no objective could be derived.
fn without_objective(found: &Recommendation) -> impl Iterator<Item = &str> {
    let silent = |tenant: &&TenantNeeds| tenant.derived && tenant.objectives.is_empty();
    found
        .tenants
        .iter()
        .filter(silent)
        .map(|tenant| tenant.name.as_str())
}

fn status(arguments: &Arguments, found: &Recommendation) -> Status {
    let best = found.policies.first();
    let missed = best.is_none_or(|best| best.met < best.objectives)
        || without_objective(found).next().is_some();
    match arguments.fail_on_violation && missed {
        true => Status::No,
        false => Status::Done,
    }
}

fn question(arguments: &Arguments) -> Result<Question> {
    let mut library = inputs::library();
    let profile = arguments.profile.as_deref();
    let profile = profile.map(|name| inputs::profile(&mut library, name));
    let (text, file) = inputs::scenario_text(&arguments.scenario)?;
    let parse = |policy: Option<&str>, profile: Option<String>| {
        let overrides = Overrides {
            profile,
            policy: policy.map(str::to_owned),
            seed: None,
        };
        isolane_rdma_scenario::parse_with(&text, &file, &library, &overrides)
    };
    let name = profile.transpose()?.map(|profile| profile.name);
    // The scenario's own policy is one of many: one that the device lacks must not stop the others.
    let written = parse(None, name.clone()).ok().map(|own| own.policy);
    let scenario = parse(Some("none"), name)?;
    let profile = library
        .profile(&scenario.profile)
        .expect("a parsed scenario names a profile of its library")
        .clone();
    let chosen = inputs::policies(
        &arguments.policies,
        &profile,
        scenario.tenants.len(),
        &|name| Bed::Sim(SimTestbed).runs_policy(name),
    )?;
    let policies = chosen.policies.into_iter().map(|policy| match &written {
        Some(written) if written.name == policy.name => written.clone(),
        _ => policy,
    });
    Ok(Question {
        rerun: rerun(arguments),
        advises_not_on_sale: arguments.not_on_sale
            || arguments
                .policies
                .iter()
                .any(|name| !stack::is_on_sale(name)),
        policies: policies.collect(),
        left_out: chosen.left_out,
        seeds: (1..=u64::from(arguments.seeds)).collect(),
        profile,
        scenario,
        cap: Some(CAP),
    })
}

/// The command line of the same recommendation.
fn rerun(arguments: &Arguments) -> String {
    let mut words = vec![
        "isolane recommend".to_owned(),
        inputs::quoted(&arguments.scenario.to_string_lossy()),
    ];
    let policies = arguments.policies.join(",");
    if policies != "all" {
        words.push(format!("--policies {}", inputs::quoted(&policies)));
    }
    if let Some(profile) = &arguments.profile {
        words.push(format!("--profile {}", inputs::quoted(profile)));
    }
    if arguments.not_on_sale {
        words.push("--not-on-sale".to_owned());
    }
    if arguments.seeds != SEEDS {
        words.push(format!("--seeds {}", arguments.seeds));
    }
    words.join(" ")
}

fn jobs(arguments: &Arguments) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    arguments.runs.jobs.map_or_else(cores, |jobs| jobs as usize)
}
