//! `isolane explain`: the causal story of one pair of victim and attacker.

use crate::inputs::{self, DEFAULT_PROFILE};
use crate::interrupt;
use crate::output;
use crate::progress::Bar;
use crate::report;
use crate::status::Status;
use anyhow::Result;
use isolane_common_quantities::units::Duration;
use isolane_rdma_scenario::Overrides;
use isolane_rdma_scenario::catalogue::Catalogue;
use isolane_rdma_scenario::model::PolicySpec;
use isolane_study_audit::constants::settling;
use isolane_study_audit::plan::WARMUP;
use isolane_study_explain::measure::{DURATION, Settings};
use isolane_study_explain::{Explanation, Subject, text};
use std::path::PathBuf;

/// Simulated time after which the victim under attack counts as not settled; the explained run lasts half as long again. Longer
/// than an audit's: one pair takes half a second.
const LONGEST: Duration = Duration::from_ms(40);

/// Arguments of `isolane explain`.
#[derive(Debug, clap::Args)]
#[command(override_usage = "isolane explain [OPTIONS] VICTIM ATTACKER\n       \
    isolane explain [OPTIONS] --scenario FILE --victim TENANT [--attacker TENANT]")]
pub(crate) struct Arguments {
    /// Victim of the catalogue
    #[arg(value_name = "VICTIM", value_parser = inputs::victim_names(), hide_possible_values = true)]
    #[arg(required_unless_present = "scenario", conflicts_with = "scenario")]
    name: Option<String>,
    /// Attacker of the catalogue
    #[arg(value_name = "ATTACKER", value_parser = inputs::attacker_names(), hide_possible_values = true)]
    #[arg(required_unless_present = "scenario", conflicts_with = "scenario")]
    by: Option<String>,
    /// Tenants of this scenario file (TOML) instead of the catalogue's workloads
    #[arg(long, value_name = "FILE", requires = "victim")]
    scenario: Option<PathBuf>,
    /// Victim: a tenant of the scenario
    #[arg(long, value_name = "TENANT", requires = "scenario")]
    victim: Option<String>,
    /// Attacker: a tenant of the scenario [default: all others together]
    #[arg(long, value_name = "TENANT", requires = "scenario")]
    attacker: Option<String>,
    /// Policy [default: the scenario's, or none]
    #[arg(long, value_parser = inputs::policy_names())]
    policy: Option<String>,
    /// Set a parameter of the policy, like target_us=3; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Device profile: a name, or the path of a TOML file [default: the scenario's, or cx5-100g-roce]
    #[arg(long, value_parser = inputs::profile_names(), hide_possible_values = true)]
    profile: Option<String>,
    /// Run seed [default: the scenario's, or 1]
    #[arg(long)]
    seed: Option<u64>,
    /// Measure for exactly this time; the attacker starts after a third of it [default: at least 3ms, until the victim has settled]
    #[arg(long, value_parser = inputs::duration)]
    duration: Option<Duration>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Directory of explain.json and report.html
    #[arg(long, value_name = "DIR", default_value = "out/explain")]
    report: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    output::check_directory(&arguments.report)?;
    let stop = interrupt::at_once(&Bar::of_runs())?;
    let explanation = explain(arguments)?;
    stop.done();
    let path = report::write_explanation(&arguments.report, &explanation)?;
    match arguments.json {
        true => output::print_json(&explanation)?,
        false => output::show(&text::render(&explanation, output::width()))?,
    }
    output::note(&format!("wrote {}", path.display()));
    Ok(Status::Done)
}

fn explain(arguments: &Arguments) -> Result<Explanation> {
    let mut library = inputs::library();
    let named = arguments.profile.as_deref();
    let named = named.map(|name| inputs::profile(&mut library, name));
    let named = named.transpose()?;
    let policy = arguments.policy.as_deref().map(inputs::policy);
    let policy = policy.transpose()?;
    let (subject, profile, mut settings) = match &arguments.scenario {
        Some(path) => {
            let overrides = Overrides {
                profile: named.map(|profile| profile.name),
                ..Overrides::default()
            };
            let (text, file) = inputs::scenario_text(path)?;
            let scenario = isolane_rdma_scenario::parse_with(&text, &file, &library, &overrides)?;
            let profile = library.profile(&scenario.profile);
            let profile = profile.expect("a parsed scenario names a profile of its library");
            let victim = arguments.victim.as_deref().unwrap_or_default();
            let attacker = arguments.attacker.as_deref();
            let subject = Subject::of_scenario(&scenario, profile, victim, attacker)?;
            let settings = Settings {
                policy: policy.unwrap_or_else(|| scenario.policy.clone()),
                seed: arguments.seed.unwrap_or(scenario.seed),
                duration: arguments.duration.unwrap_or(DURATION),
                warmup: scenario.warmup,
                cap: arguments.duration.is_none().then_some(LONGEST),
            };
            (subject, profile.clone(), settings)
        }
        None => {
            let profile = match named {
                Some(profile) => profile,
                None => inputs::profile(&mut library, DEFAULT_PROFILE)?,
            };
            let victim = arguments.name.as_deref().unwrap_or_default();
            let attacker = arguments.by.as_deref().unwrap_or_default();
            refuse_swapped(&library.catalogue, victim, attacker)?;
            let subject = Subject::of_catalogue(&library.catalogue, &profile, victim, attacker)?;
            let settings = Settings {
                policy: policy.map_or_else(|| inputs::policy("none"), Ok)?,
                seed: arguments.seed.unwrap_or(1),
                duration: arguments.duration.unwrap_or(DURATION),
                warmup: WARMUP,
                cap: arguments.duration.is_none().then_some(LONGEST),
            };
            (subject, profile, settings)
        }
    };
    let specs: &mut [&mut PolicySpec] = &mut [&mut settings.policy];
    inputs::set_parameters(specs, &arguments.set)?;
    settings.warmup = settings.warmup.max(settling(&settings.policy, &profile));
    let rerun = rerun(arguments, &settings);
    Ok(isolane_study_explain::explain(
        &subject, &profile, &settings, rerun,
    )?)
}

/// Fails where a name is in the other list of the catalogue only.
fn refuse_swapped(catalogue: &Catalogue, victim: &str, attacker: &str) -> Result<()> {
    let is_victim = |name: &str| catalogue.victims().any(|one| one.name == name);
    let is_attacker = |name: &str| catalogue.attackers().any(|one| one.name == name);
    let victim_is_attacker = is_attacker(victim) && !is_victim(victim);
    let attacker_is_victim = is_victim(attacker) && !is_attacker(attacker);
    let problem = match (victim_is_attacker, attacker_is_victim) {
        (false, false) => return Ok(()),
        (true, true) => format!(
            "VICTIM {victim}: is an attacker, and ATTACKER {attacker} is a victim; the victim comes first: {}",
            swapped(victim, attacker)
        ),
        (true, false) => format!(
            "VICTIM {victim}: is an attacker; the victim comes first, as in isolane explain VICTIM {victim}; \
             isolane catalog workloads lists victims"
        ),
        (false, true) => format!(
            "ATTACKER {attacker}: is a victim; the attacker comes second, as in isolane explain {attacker} ATTACKER; \
             isolane catalog workloads lists attackers"
        ),
    };
    Err(inputs::bad(problem))
}

/// The command line of this process with the two names exchanged.
fn swapped(victim: &str, attacker: &str) -> String {
    let words = std::env::args_os().skip(1).map(|word| {
        inputs::quoted(match &*word.to_string_lossy() {
            word if word == victim => attacker,
            word if word == attacker => victim,
            word => word,
        })
    });
    format!("isolane {}", words.collect::<Vec<_>>().join(" "))
}

/// The command line of the same explanation.
fn rerun(arguments: &Arguments, settings: &Settings) -> String {
    let mut words = vec!["isolane explain".to_owned()];
    let names = arguments.name.iter().chain(&arguments.by);
    words.extend(names.map(|name| inputs::quoted(name)));
    let mut option =
        |name: &str, value: &str| words.push(format!("--{name} {}", inputs::quoted(value)));
    if let Some(path) = &arguments.scenario {
        option("scenario", &path.to_string_lossy());
    }
    let given = [
        ("victim", &arguments.victim),
        ("attacker", &arguments.attacker),
        ("profile", &arguments.profile),
    ];
    for (name, value) in given {
        if let Some(value) = value {
            option(name, value);
        }
    }
    option("policy", &settings.policy.name);
    for setting in &arguments.set {
        option("set", setting);
    }
    option("seed", &settings.seed.to_string());
    if settings.cap.is_none() {
        option("duration", &settings.duration.to_string());
    }
    words.join(" ")
}
