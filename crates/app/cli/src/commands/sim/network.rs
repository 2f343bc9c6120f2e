//! `isolane sim` on a network: one scenario, once per policy.

use super::Arguments;
use crate::inputs::bad;
use crate::interrupt;
use crate::network::{self, Job, Jobs, trace};
use crate::output;
use crate::report;
use crate::status::Status;
use crate::target::cancel_on_signal;
use anyhow::{Result, bail};
use isolane_common_quantities::units::Duration;
use isolane_network_scenario as fabric;
use isolane_network_scenario::FabricOverrides;
use isolane_network_scenario::model::FabricScenario;
use isolane_study_results::network::FabricResult;

/// Points of the time series of `--series`.
const POINTS: u64 = 50;

/// Runs the network that `text`, called `file`, describes.
pub(super) fn run(arguments: &Arguments, text: &str, file: &str) -> Result<Status> {
    let scenarios = scenarios(arguments, text, file)?;
    let compare = !arguments.policies.is_empty();
    let cancel = cancel_on_signal()?;
    let tap = match &arguments.network.trace {
        Some(path) => Some(trace::open(
            path,
            &scenarios[0],
            arguments.network.trace_port.as_deref(),
            arguments.network.trace_packets,
        )?),
        None => None,
    };
    let bar = arguments.progress.part();
    let jobs = Jobs {
        cancel: &cancel,
        workers: network::cores(),
        bar: &bar,
    };
    let results = match &tap {
        Some(tap) => network::run_one(&scenarios[0], &jobs, Some(tap.tap())).map(|one| vec![one]),
        None => {
            let list = scenarios.iter().map(|scenario| Job {
                scenario: scenario.clone(),
            });
            jobs.run(list.collect())
        }
    };
    bar.finish_and_clear();
    let Some(results) = network::unless_cancelled(results)? else {
        return Ok(interrupt::stopped(&bar));
    };
    if let Some(tap) = tap {
        output::note(&tap.finish()?);
    }
    show(arguments, &scenarios, &results, compare)?;
    Ok(Status::Done)
}

fn show(
    arguments: &Arguments,
    scenarios: &[FabricScenario],
    results: &[FabricResult],
    compare: bool,
) -> Result<()> {
    match arguments.json {
        true if compare => output::print_json(&results)?,
        true => output::print_json(&results[0])?,
        false => output::show(&network::text::runs(scenarios, results, arguments.verbose))?,
    }
    if let Some(directory) = &arguments.report {
        let remarks: Vec<Vec<String>> = scenarios
            .iter()
            .zip(results)
            .map(|(scenario, result)| network::remarks::notes(scenario, result))
            .collect();
        let path = report::write_network(directory, scenarios, results, &remarks)?;
        output::note(&format!("wrote {}", path.display()));
    }
    Ok(())
}

/// The scenario under each policy that `arguments` name, or its own.
fn scenarios(arguments: &Arguments, text: &str, file: &str) -> Result<Vec<FabricScenario>> {
    let policies: Vec<Option<String>> = match arguments.policies.is_empty() {
        true => vec![arguments.policy.clone()],
        false => arguments.policies.iter().cloned().map(Some).collect(),
    };
    for (index, name) in policies.iter().enumerate() {
        if policies[..index].contains(name) {
            let name = name.as_deref().unwrap_or_default();
            bail!(bad(format!("--policies names {name} twice")));
        }
    }
    let settings = network::settings(&arguments.set)?;
    let mut scenarios = Vec::new();
    for policy in &policies {
        let known = |key: &str| match policy {
            Some(name) => !network::only_others(key, name, policies.iter().flatten()),
            None => true,
        };
        let overrides = FabricOverrides {
            policy: policy.clone(),
            seed: arguments.seed,
            duration: arguments.duration,
            settings: settings
                .iter()
                .filter(|(key, _)| known(key))
                .cloned()
                .collect(),
        };
        let mut scenario = fabric::parse_with(text, file, &overrides)?;
        scenario.per_pair |= arguments.network.per_pair;
        if arguments.network.series && scenario.sample_interval.is_none() {
            let interval = (scenario.warmup + scenario.duration) / POINTS;
            scenario.sample_interval = Some(interval.max(Duration::from_us(1)));
        }
        scenarios.push(scenario);
    }
    Ok(scenarios)
}
