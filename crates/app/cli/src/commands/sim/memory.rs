//! `isolane sim` on tiered memory: one scenario, once per policy.

use super::{Arguments, policy_option};
use crate::inputs::{bad, suggestion};
use crate::interrupt;
use crate::output;
use crate::report;
use crate::status::Status;
use crate::target::cancel_on_signal;
use crate::text::{Table, fitted, number, optional};
use anyhow::{Result, bail};
use isolane_memory_scenario::model::{MEM_POLICIES, MemScenario};
use isolane_memory_scenario::parse::MemOverrides;
use isolane_memory_simulator::STEP;
use isolane_study_results::memory::{MemAppResult, MemResult};
use std::fmt::Write;
use std::sync::atomic::Ordering;

/// Points of the time series of `--series`.
const POINTS: u64 = 50;
/// Points of a report: as fine as its plots are wide.
const REPORT_POINTS: u64 = 240;

/// Runs the machine that `text`, called `file`, describes.
pub(super) fn run(arguments: &Arguments, text: &str, file: &str) -> Result<Status> {
    refuse(arguments, file)?;
    let scenarios = scenarios(arguments, text, file)?;
    let cancel = cancel_on_signal()?;
    let bar = arguments.progress.part();
    let mut results = Vec::new();
    for scenario in &scenarios {
        let ran = isolane_memory_simulator::run_with(scenario, &mut |done, all| {
            bar.set_length(all);
            bar.set_position(done);
            !cancel.load(Ordering::Relaxed)
        });
        match ran {
            Some(result) => results.push(result),
            None => {
                bar.finish_and_clear();
                return Ok(interrupt::stopped(&bar));
            }
        }
    }
    bar.finish_and_clear();
    let remarks: Vec<Vec<String>> = scenarios.iter().map(MemScenario::idle_limits).collect();
    for remark in remarks.iter().flatten() {
        output::note(&format!("{file}: {remark}"));
    }
    if let Some(directory) = &arguments.report {
        let path = report::write_memory(directory, &results, &remarks)?;
        output::note(&format!("wrote {}", path.display()));
        if !arguments.network.series && !has_series(text, file, &scenarios[0])? {
            // Only the report needs points.
            for result in &mut results {
                result.series.clear();
                result.changes.clear();
            }
        }
    }
    let compare = !arguments.policies.is_empty();
    match arguments.json {
        true if compare => output::print_json(&results)?,
        true => output::print_json(&results[0])?,
        false => output::show(&shown(&results, arguments.verbose))?,
    }
    Ok(Status::Done)
}

/// Whether the file itself requests points over time.
fn has_series(text: &str, file: &str, scenario: &MemScenario) -> Result<bool> {
    let overrides = MemOverrides {
        policy: Some(scenario.policy.name().to_owned()),
        ..MemOverrides::default()
    };
    Ok(overrides.parse(text, file)?.sample_interval.is_some())
}

/// Points over time that the options request.
fn points(arguments: &Arguments) -> Option<u64> {
    match (&arguments.report, arguments.network.series) {
        (Some(_), _) => Some(REPORT_POINTS),
        (None, true) => Some(POINTS),
        (None, false) => None,
    }
}

/// Options that would do nothing.
fn refuse(arguments: &Arguments, file: &str) -> Result<()> {
    let given = [
        (arguments.profile.is_some(), "--profile"),
        (!arguments.target.is_simulator(), "--target"),
        (!arguments.set.is_empty(), "--set"),
        (arguments.config.is_some(), "--config"),
        (arguments.network.per_pair, "--per-pair"),
        (arguments.network.trace.is_some(), "--trace"),
    ];
    if let Some((_, option)) = given.iter().find(|(given, _)| *given) {
        bail!(bad(format!(
            "{option}: {file} describes tiered memory ([memory]), which has no such thing; drop the option"
        )));
    }
    match arguments.duration {
        Some(duration) if duration < STEP => bail!(bad(format!(
            "--duration {duration}: the model of tiered memory has steps of {STEP}; measure at least one"
        ))),
        _ => Ok(()),
    }
}

/// The scenario under each policy that `arguments` name, or its own.
fn scenarios(arguments: &Arguments, text: &str, file: &str) -> Result<Vec<MemScenario>> {
    let policies: Vec<Option<String>> = match arguments.policies.is_empty() {
        true => vec![arguments.policy.clone()],
        false => arguments.policies.iter().cloned().map(Some).collect(),
    };
    let mut scenarios = Vec::new();
    for (index, policy) in policies.iter().enumerate() {
        if policies[..index].contains(policy) {
            let name = policy.as_deref().unwrap_or_default();
            bail!(bad(format!("--policies names {name} twice")));
        }
        if let Some(name) = policy
            .as_deref()
            .filter(|name| !MEM_POLICIES.contains(name))
        {
            bail!(bad(format!(
                "{} {name}: {file} describes tiered memory ([memory]), which has no such policy{}",
                policy_option(arguments),
                suggestion(name, MEM_POLICIES.iter().copied())
            )));
        }
        let overrides = MemOverrides {
            policy: policy.clone(),
            seed: arguments.seed,
            duration: arguments.duration,
            points: points(arguments),
        };
        scenarios.push(overrides.parse(text, file)?);
    }
    Ok(scenarios)
}

/// Everything a terminal shows of `results`, which are of one scenario.
fn shown(results: &[MemResult], verbose: bool) -> String {
    let first = &results[0];
    let policies: Vec<&str> = results.iter().map(|one| one.policy.as_str()).collect();
    let mut text = format!(
        "{} on {} under {}, seed {}, {} s measured\n\n",
        first.scenario,
        first.machine,
        policies.join(", "),
        first.seed,
        number(first.measured_s)
    );
    text.push_str(&apps(results));
    for result in results {
        let _ = writeln!(text, "\nTiers under {}", result.policy);
        text.push_str(&tiers(result));
        if verbose {
            text.push_str(&machine(result));
        }
        for app in &result.apps {
            if let (Some(verdict), Some(reason)) = (app.verdict_words(), &app.verdict_reason) {
                let _ = writeln!(text, "  {}: {verdict}: {reason}", app.name);
            }
            if let Some(reason) = &app.last_reason {
                let _ = writeln!(text, "  {}: last change of limits: {reason}", app.name);
            }
        }
    }
    text
}

fn apps(results: &[MemResult]) -> String {
    let mut table = Table::new(
        "llrrrrrrrrl",
        &[
            "application",
            "policy",
            "latency ns",
            "GB/s",
            "throughput",
            "SLO",
            "SLO met %",
            "near GB",
            "far GB",
            "CPU %",
            "verdict",
        ],
    )
    .keys(2);
    for index in 0..results[0].apps.len() {
        for result in results {
            let app = &result.apps[index];
            let verdict = app.verdict_words().unwrap_or("-").to_owned();
            if app.ran_s <= 0.0 {
                let mut row = vec![app.name.clone(), result.policy.clone()];
                row.resize(10, "-".to_owned());
                row[5] = objective(app);
                row.push(verdict);
                table.row(row);
                continue;
            }
            table.row(vec![
                app.name.clone(),
                result.policy.clone(),
                optional(app.latency_ns),
                number(app.bandwidth_gb_per_s),
                format!("{} {}/s", number(app.throughput), app.operation),
                objective(app),
                met(app),
                number(app.local_bytes as f64 / 1e9),
                number(app.far_bytes as f64 / 1e9),
                number(app.cpu_share * 100.0),
                verdict,
            ]);
        }
    }
    fitted(&table)
}

/// The part of the time in which the objective was met, in percent.
fn met(app: &MemAppResult) -> String {
    match (app.slo_latency_ns, app.slo_bandwidth_gb_per_s) {
        (None, None) => "-".to_owned(),
        _ => number(app.slo_met_share * 100.0),
    }
}

fn objective(app: &MemAppResult) -> String {
    match (app.slo_latency_ns, app.slo_bandwidth_gb_per_s) {
        (Some(latency), _) => format!("<= {} ns", number(latency)),
        (_, Some(bandwidth)) => format!(">= {} GB/s", number(bandwidth)),
        _ => "-".to_owned(),
    }
}

fn tiers(result: &MemResult) -> String {
    let mut table = Table::new(
        "lrrrrr",
        &[
            "tier",
            "latency ns",
            "GB/s",
            "used %",
            "memory used GB",
            "queue full %",
        ],
    );
    for tier in &result.tiers {
        table.row(vec![
            tier.name.clone(),
            number(tier.latency_ns),
            number(tier.bandwidth_gb_per_s),
            number(tier.utilisation * 100.0),
            number(tier.used_bytes as f64 / 1e9),
            number(tier.queue_full_share * 100.0),
        ]);
    }
    fitted(&table)
}

fn machine(result: &MemResult) -> String {
    let all = &result.machine_wide;
    let mut table = Table::new("lr", &["machine", "value"]);
    let mut row = |name: &str, value: f64| table.row(vec![name.to_owned(), number(value)]);
    row("request slots in use, %", all.slots_busy_share * 100.0);
    row("wait for a slot, ns", all.slot_wait_ns);
    row("hint faults per s", all.hint_faults_per_s);
    row("healthy hint faults per s", all.healthy_hint_faults_per_s);
    row("healthy near bandwidth, GB/s", all.healthy_local_gb_per_s);
    for (name, count) in &all.counts {
        row(name, *count as f64);
    }
    fitted(&table)
}
