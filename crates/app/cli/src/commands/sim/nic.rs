//! `isolane sim` on hosts with Ethernet NICs: one study, one run.

use super::Arguments;
use crate::card_study::{simulate, table};
use crate::inputs::bad;
use crate::interrupt;
use crate::output;
use crate::report;
use crate::status::Status;
use crate::target::cancel_on_signal;
use anyhow::{Result, bail};
use isolane_ethernet_scenario::parse::NicOverrides;

/// Runs the study that `text`, called `file`, describes.
pub(super) fn run(arguments: &Arguments, text: &str, file: &str) -> Result<Status> {
    let given = [
        (arguments.policy.is_some(), "--policy"),
        (!arguments.policies.is_empty(), "--policies"),
        (arguments.profile.is_some(), "--profile"),
        (!arguments.target.is_simulator(), "--target"),
        (!arguments.set.is_empty(), "--set"),
        (arguments.network.per_pair, "--per-pair"),
        (arguments.network.series, "--series"),
        (arguments.network.trace.is_some(), "--trace"),
    ];
    if let Some((_, option)) = given.iter().find(|(given, _)| *given) {
        bail!(bad(format!(
            "{option}: {file} describes hosts with Ethernet NICs ([nic]), which do not have this option; drop the option, or \
             choose another configuration with --config"
        )));
    }
    let overrides = NicOverrides {
        config: arguments.config.clone(),
        seed: arguments.seed,
        duration: arguments.duration,
    };
    let study = overrides.parse(text, file)?;
    let cancel = cancel_on_signal()?;
    let bar = arguments.progress.runs();
    bar.set_length(1);
    let results = simulate(std::slice::from_ref(&study), &cancel, &bar);
    bar.finish_and_clear();
    let Some(results) = results? else {
        return Ok(interrupt::stopped(&bar));
    };
    match (arguments.json, results.first()) {
        (true, Some(result)) => output::print_json(result)?,
        (false, Some(result)) => output::show(&table::one(result))?,
        (_, None) => {}
    }
    if let Some(directory) = &arguments.report {
        let path = report::write_nic(directory, &results)?;
        output::note(&format!("wrote {}", path.display()));
    }
    Ok(Status::Done)
}
