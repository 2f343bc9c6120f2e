//! `isolane sim` on RDMA hosts: one scenario, once per policy.

use super::Arguments;
use crate::devices;
use crate::inputs::{self, bad};
use crate::interrupt;
use crate::network::BAR_UNITS;
use crate::output;
use crate::progress;
use crate::remarks;
use crate::report;
use crate::status::Status;
use crate::target::cancel_on_signal;
use crate::text::{Table, fitted, number, optional};
use anyhow::{Result, bail};
use isolane_common_quantities::settle::SAMPLES;
use isolane_common_quantities::units::Duration;
use isolane_rdma_scenario::Overrides;
use isolane_rdma_scenario::library::Library;
use isolane_rdma_scenario::model::{Class, Scenario};
use isolane_rdma_scenario::stack::{self, NOT_ON_SALE};
use isolane_study_audit::settled;
use isolane_study_results::rdma::{HostCounters, RunResult, Settling, TenantResult};
use isolane_study_testbed::settle::of_fixed;
use std::collections::BTreeSet;
use std::fmt::Write;

/// One run: its scenario and policy, and its result.
struct Run {
    scenario: Scenario,
    result: RunResult,
    /// Whether it went on until it settled; otherwise the scenario's own times were measured.
    settles: bool,
}

/// Runs the scenario that `text`, called `file`, describes.
pub(super) fn run(arguments: &Arguments, text: &str, file: &str) -> Result<Status> {
    let runs = measure(arguments, text, file)?;
    let compare = !arguments.policies.is_empty();
    let results: Vec<RunResult> = runs.iter().map(|run| run.result.clone()).collect();
    match arguments.json {
        true if compare => output::print_json(&results)?,
        true => output::print_json(&results[0])?,
        false => output::show(&shown(&runs, compare, arguments.verbose))?,
    }
    if let Some(directory) = &arguments.report {
        let said: Vec<Vec<String>> = runs.iter().map(said).collect();
        let path = match compare {
            true => report::write_runs(directory, &results, &said)?,
            false => report::write_run(directory, &results[0], &said[0])?,
        };
        output::note(&format!("wrote {}", path.display()));
    }
    Ok(Status::Done)
}

/// The scenario of `file` under every requested policy.
fn scenarios(
    arguments: &Arguments,
    text: &str,
    file: &str,
    library: &mut Library,
) -> Result<Vec<Scenario>> {
    let profile = arguments.profile.as_deref();
    let profile = profile.map(|name| inputs::profile(library, name));
    let profile = profile.transpose()?.map(|profile| profile.name);
    let policies: Vec<Option<String>> = match arguments.policies.is_empty() {
        true => vec![arguments.policy.clone()],
        false => arguments.policies.iter().cloned().map(Some).collect(),
    };
    for (index, name) in policies.iter().enumerate() {
        if let Some(name) = name {
            inputs::policy(name)?;
            if policies[..index].contains(&Some(name.clone())) {
                bail!(bad(format!("--policies names {name} twice")));
            }
        }
    }
    let mut scenarios = Vec::new();
    for policy in policies {
        let overrides = Overrides {
            profile: profile.clone(),
            policy,
            seed: arguments.seed,
        };
        let mut scenario = isolane_rdma_scenario::parse_with(text, file, library, &overrides)?;
        if let Some(duration) = arguments.duration {
            set_duration(&mut scenario, duration)?;
        }
        scenarios.push(scenario);
    }
    let mut specs: Vec<_> = scenarios
        .iter_mut()
        .map(|scenario| &mut scenario.policy)
        .collect();
    inputs::set_parameters(&mut specs, &arguments.set)?;
    Ok(scenarios)
}

/// The runs of `arguments`: at least one.
fn measure(arguments: &Arguments, text: &str, file: &str) -> Result<Vec<Run>> {
    let mut library = inputs::library();
    let mut scenarios = scenarios(arguments, text, file, &mut library)?;
    let (bar, stage) = progress::stages();
    let bed = arguments.target.bed(cancel_on_signal, stage)?;
    if let Some(devices) = bed.devices() {
        for scenario in &mut scenarios {
            devices.check(scenario)?;
            devices::suit(devices, scenario, arguments.duration);
        }
    }
    let part = arguments.progress.part();
    // A run on devices stops by the testbed's flag, so that every process of it ends.
    let stop = bed.devices().is_none().then(|| interrupt::at_once(&part));
    let stop = stop.transpose()?;
    if bed.devices().is_none() {
        part.set_length(scenarios.len() as u64 * BAR_UNITS);
    }
    let runs = scenarios.into_iter().enumerate().map(|(index, scenario)| {
        let profile = library
            .profile(&scenario.profile)
            .expect("a parsed scenario names a profile of its library");
        let watch = |done: f64| {
            part.set_position(((index as f64 + done) * BAR_UNITS as f64) as u64);
        };
        let (scenario, result) = match arguments.settle {
            None => {
                let mut result = bed.testbed().run_watched(&scenario, profile, &watch)?;
                result.settling = of_fixed(&scenario, &result, &settled::demands(&scenario));
                (scenario, result)
            }
            Some(cap) => {
                let scenario = settled::prepared(&scenario, profile, 1);
                let demands = settled::demands(&scenario);
                let result = settled::run(bed.testbed(), &scenario, profile, (1, cap), &demands)?;
                (scenario, result)
            }
        };
        Ok(Run {
            scenario,
            result,
            settles: arguments.settle.is_some(),
        })
    });
    let runs: Result<Vec<Run>> = runs.collect();
    part.finish_and_clear();
    bar.finish_and_clear();
    if let (Ok(_), Some(stop)) = (&runs, &stop) {
        stop.done();
    }
    runs
}

/// Points of the time series when the duration is changed; as for scenarios that do not say.
const POINTS: u64 = 50;

fn set_duration(scenario: &mut Scenario, duration: Duration) -> Result<()> {
    let end = scenario.warmup + duration;
    let late = scenario.tenants.iter().find(|tenant| tenant.start >= end);
    if let Some(tenant) = late {
        bail!(bad(format!(
            "--duration {duration}: tenant {:?} starts only at {}, after the end at {end}",
            tenant.name, tenant.start
        )));
    }
    scenario.duration = duration;
    scenario.sample_interval = (duration / POINTS).max(Duration::from_us(1)).min(duration);
    Ok(())
}

/// Whether the run settled, and when, or which tenants did not.
fn settling(run: &Run) -> String {
    let Some(settling) = &run.result.settling else {
        return "settling is not judged: a tenant starts late, stops, or posts a fixed number of messages".to_owned();
    };
    let open = open(settling, &run.result);
    let time = |us: f64| Duration::from_us(us.round() as u64);
    let measured = format!(
        "measured for {} after {}",
        time(settling.measured_us),
        time(settling.settled_after_us)
    );
    match (settling.settled, run.settles) {
        (true, _) => format!("settled: {measured}"),
        (false, true) => format!(
            "not settled within {} of simulated time: {open}; {measured}; raise --settle=CAP",
            time(settling.cap_us)
        ),
        (false, false) => {
            format!("not settled: {open}; {measured}; --settle goes on until every tenant settles")
        }
    }
}

/// The tenants that did not settle, each with the reason.
fn open(settling: &Settling, result: &RunResult) -> String {
    let tenants = result.tenants.iter().zip(&settling.tenants);
    let open = tenants.filter(|(_, how)| !how.settled);
    let each = open.map(|(tenant, how)| {
        let few = tenant.declared_class == Class::Latency && how.samples < SAMPLES;
        match few {
            true => format!(
                "{} ({} latencies, and its p99 needs {SAMPLES})",
                tenant.name, how.samples
            ),
            false => format!("{} (parts of the measured time differ)", tenant.name),
        }
    });
    each.collect::<Vec<_>>().join(", ")
}

/// Everything a terminal shows of `runs`; a comparison leaves counters to `verbose`.
fn shown(runs: &[Run], compare: bool, verbose: bool) -> String {
    let Run {
        scenario, result, ..
    } = &runs[0];
    let policies: Vec<String> = runs
        .iter()
        .map(|run| stack::marked(&run.result.policy))
        .collect();
    let mut text = format!(
        "{} on {} under {}, seed {}, {} measured\n\n",
        result.scenario,
        result.profile,
        policies.join(", "),
        result.seed,
        match runs[0].settles {
            true => format!("at least {}", scenario.duration),
            false => scenario.duration.to_string(),
        }
    );
    text.push_str(&tenants(runs, compare));
    if runs.iter().any(|run| !run.result.on_sale) {
        let _ = writeln!(text, "  {NOT_ON_SALE}");
    }
    for run in runs {
        let under = match compare {
            true => format!(" ({})", run.result.policy),
            false => String::new(),
        };
        let mut notes = remarks::notes(&run.scenario, &run.result);
        notes.push(settling(run));
        list(&mut text, &format!("Notes{under}"), &notes);
        let device = device(&run.result);
        if device.is_empty() {
            let pressure = remarks::pressure(&run.result.counters);
            list(&mut text, &format!("Under pressure{under}"), &pressure);
        } else {
            list(&mut text, &format!("The device alone{under}"), &device);
        }
    }
    for run in runs {
        if verbose && !run.result.policy_state.is_empty() {
            let _ = writeln!(text, "\nFigures of {}", run.result.policy);
            text.push_str(&policy_state(&run.result));
        }
        if verbose || !compare {
            let under = match compare {
                true => format!(" ({})", run.result.policy),
                false => String::new(),
            };
            let _ = writeln!(text, "\nNIC counters{under}");
            text.push_str(&counters(&run.result.counters, verbose));
        }
    }
    text
}

/// What the terminal says of `run` besides its figures, for its page.
fn said(run: &Run) -> Vec<String> {
    let mut lines = remarks::notes(&run.scenario, &run.result);
    lines.push(settling(run));
    let device = device(&run.result);
    match device.is_empty() {
        true => {
            let pressure = remarks::pressure(&run.result.counters);
            lines.extend(
                pressure
                    .iter()
                    .map(|line| format!("under pressure: {line}")),
            );
        }
        false => lines.extend(
            device
                .iter()
                .map(|line| format!("the device alone: {line}")),
        ),
    }
    lines
}

/// What a calibration of real devices found, in words; nothing for a simulated one.
fn device(result: &RunResult) -> Vec<String> {
    let figure = |name: &str| result.policy_state.get(&format!("device.{name}")).copied();
    let figures = [
        ("goodput_gbps", "Gb/s of 64 KiB WRITEs; shares are of this"),
        ("messages_per_s", "messages/s of 16 B WRITEs"),
        ("idle_p50_us", "us median latency of a 16 B WRITE"),
        ("idle_p99_us", "us at the 99th percentile"),
    ];
    let known = figures
        .into_iter()
        .filter_map(|(name, words)| Some((figure(name)?, words)));
    known
        .map(|(value, words)| format!("{} {words}", number(value)))
        .collect()
}

fn list(text: &mut String, heading: &str, lines: &[String]) {
    let _ = writeln!(text, "\n{heading}");
    for line in lines {
        let _ = writeln!(text, "  {line}");
    }
}

/// A row per tenant, and per policy in a comparison.
fn tenants(runs: &[Run], compare: bool) -> String {
    let figures = [
        "class",
        "offered Gb/s",
        "goodput Gb/s",
        "messages M/s",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "share of link %",
        "policy cores",
    ];
    let (columns, names) = match compare {
        true => ("lllrrrrrrrr", &["tenant", "policy"][..]),
        false => ("llrrrrrrrr", &["tenant"][..]),
    };
    let mut table = Table::new(columns, &[names, &figures].concat()).keys(names.len());
    for index in 0..runs[0].result.tenants.len() {
        for run in runs {
            let tenant = &run.result.tenants[index];
            let mut row = vec![tenant.name.clone()];
            if compare {
                row.push(stack::marked(&run.result.policy));
            }
            row.extend(cells(tenant));
            table.row(row);
        }
    }
    fitted(&table)
}

fn cells(tenant: &TenantResult) -> [String; 9] {
    let latency = tenant.latency_us.as_ref();
    [
        class(tenant),
        optional(tenant.offered_gbps),
        number(tenant.goodput_gbps),
        number(tenant.message_rate_per_s / 1e6),
        optional(latency.map(|latency| latency.p50)),
        optional(latency.map(|latency| latency.p99)),
        optional(latency.map(|latency| latency.p999)),
        number(tenant.share * 100.0),
        number(tenant.policy_cores),
    ]
}

/// The class the tenant was treated as, and what it said when that differs.
fn class(tenant: &TenantResult) -> String {
    match tenant.class == tenant.declared_class {
        true => tenant.class.name().to_owned(),
        false => format!("{} ({})", tenant.class.name(), tenant.declared_class.name()),
    }
}

fn policy_state(result: &RunResult) -> String {
    let mut table = Table::new("lr", &["figure", "value"]);
    for (name, value) in &result.policy_state {
        table.row(vec![name.clone(), number(*value)]);
    }
    fitted(&table)
}

/// Ratios as percentages, the largest first, then counts by name; those that are zero on both hosts only when
/// `verbose`.
fn counters(counters: &[HostCounters], verbose: bool) -> String {
    let names = counters
        .iter()
        .map(|of| format!("host {}", of.host.letter()));
    let head: Vec<String> = std::iter::once("counter".to_owned()).chain(names).collect();
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    // A name and a figure for each host, however many there are.
    let columns = format!("l{}", "r".repeat(counters.len()));
    let mut table = Table::new(columns, &head);
    let named = |of: fn(&HostCounters) -> Vec<&String>| -> BTreeSet<&String> {
        counters.iter().flat_map(of).collect()
    };
    let mut ratios: Vec<(&String, Vec<f64>)> = named(|host| host.ratios.keys().collect())
        .into_iter()
        .map(|name| {
            let of = |host: &HostCounters| host.ratios.get(name).copied().unwrap_or(0.0);
            (name, counters.iter().map(of).collect())
        })
        .collect();
    ratios.sort_by(|left, right| largest(&right.1).total_cmp(&largest(&left.1)));
    for (name, values) in ratios {
        if verbose || values.iter().any(|value| *value != 0.0) {
            let percent = values.iter().map(|ratio| format!("{:.1} %", ratio * 100.0));
            table.row(std::iter::once(name.clone()).chain(percent).collect());
        }
    }
    for name in named(|host| host.values.keys().collect()) {
        let of = |host: &HostCounters| host.values.get(name).copied().unwrap_or(0);
        let values: Vec<u64> = counters.iter().map(of).collect();
        if verbose || values.iter().any(|value| *value != 0) {
            let counts = values.iter().map(u64::to_string);
            table.row(std::iter::once(name.clone()).chain(counts).collect());
        }
    }
    fitted(&table)
}

fn largest(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}
