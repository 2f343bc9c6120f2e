//! `isolane sim`: one scenario, once.

use crate::inputs::{self, bad};
use crate::output;
use crate::report;
use crate::status::Status;
use crate::text::{Table, number, optional};
use anyhow::{Result, bail};
use isolane_core::units::Duration;
use isolane_scenario::Overrides;
use isolane_scenario::measure::{HostCounters, RunResult, TenantResult};
use isolane_scenario::model::{Class, Host, Scenario};
use isolane_testbed::{SimTestbed, Testbed};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::PathBuf;

/// Arguments of `isolane sim`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Scenario file (TOML)
    scenario: PathBuf,
    /// Policy instead of the scenario's: none, justitia, lite or hw-priority
    #[arg(long)]
    policy: Option<String>,
    /// Device profile instead of the scenario's: a name, or the path of a TOML file
    #[arg(long)]
    profile: Option<String>,
    /// Run seed instead of the scenario's
    #[arg(long)]
    seed: Option<u64>,
    /// Measured time instead of the scenario's, like 5ms
    #[arg(long, value_parser = inputs::duration)]
    duration: Option<Duration>,
    /// Set a parameter of the policy, like target_us=3; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Also write an HTML report into this directory
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    let mut library = inputs::library();
    let profile = arguments.profile.as_deref();
    let profile = profile.map(|name| inputs::profile(&mut library, name));
    if let Some(name) = &arguments.policy {
        inputs::policy(name)?;
    }
    let overrides = Overrides {
        profile: profile.transpose()?.map(|profile| profile.name),
        policy: arguments.policy.clone(),
        seed: arguments.seed,
    };
    let mut scenario = inputs::scenario(&library, &arguments.scenario, &overrides)?;
    inputs::set_parameters(&mut scenario.policy, &arguments.set)?;
    if let Some(duration) = arguments.duration {
        set_duration(&mut scenario, duration)?;
    }
    let profile = library
        .profile(&scenario.profile)
        .expect("a parsed scenario names a profile of its library");
    let result = SimTestbed.run(&scenario, profile)?;
    match arguments.json {
        true => output::print_json(&result)?,
        false => output::print(&table(&scenario, &result))?,
    }
    if let Some(directory) = &arguments.report {
        let path = report::write_run(directory, &result)?;
        output::note(&format!("wrote {}", path.display()));
    }
    Ok(Status::Done)
}

/// Points of the time series when the duration is changed; as for scenarios that do not say.
const SAMPLES: u64 = 50;

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
    scenario.sample_interval = (duration / SAMPLES).max(Duration::from_us(1)).min(duration);
    Ok(())
}

fn table(scenario: &Scenario, result: &RunResult) -> String {
    let mut text = format!(
        "{} on {} under {}, seed {}, {} measured\n\n",
        result.scenario, result.profile, result.policy, result.seed, scenario.duration
    );
    text.push_str(&tenants(&result.tenants));
    if !result.policy_state.is_empty() {
        let _ = writeln!(text, "\n{}", result.policy);
        let mut table = Table::new("lr", &["figure", "value"]);
        for (name, value) in &result.policy_state {
            table.row(vec![name.clone(), number(*value)]);
        }
        text.push_str(&table.render());
    }
    text.push_str("\nNIC counters\n");
    text.push_str(&counters(&result.counters));
    text
}

fn tenants(tenants: &[TenantResult]) -> String {
    let headings = [
        "tenant",
        "class",
        "offered Gb/s",
        "goodput Gb/s",
        "messages M/s",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "share %",
        "policy cores",
    ];
    let mut table = Table::new("llrrrrrrrr", &headings);
    for tenant in tenants {
        let latency = tenant.latency_us.as_ref();
        table.row(vec![
            tenant.name.clone(),
            class(tenant),
            optional(tenant.offered_gbps),
            number(tenant.goodput_gbps),
            number(tenant.message_rate_per_s / 1e6),
            optional(latency.map(|latency| latency.p50)),
            optional(latency.map(|latency| latency.p99)),
            optional(latency.map(|latency| latency.p999)),
            number(tenant.share * 100.0),
            number(tenant.policy_cores),
        ]);
    }
    let mut text = table.render();
    for tenant in tenants
        .iter()
        .filter(|tenant| tenant.control_rate_per_s > 0.0)
    {
        let rate = number(tenant.control_rate_per_s);
        let _ = writeln!(text, "  {}: {rate} control verbs per second", tenant.name);
    }
    for tenant in tenants.iter().filter(|tenant| tenant.errors > 0) {
        let _ = writeln!(
            text,
            "  {}: {} completions with an error",
            tenant.name, tenant.errors
        );
    }
    text
}

/// The class the tenant was treated as, and what it said when that differs.
fn class(tenant: &TenantResult) -> String {
    let name = |class| match class {
        Class::Latency => "latency",
        Class::Throughput => "throughput",
        Class::Bandwidth => "bandwidth",
        Class::Auto => "auto",
    };
    match tenant.class == tenant.declared_class {
        true => name(tenant.class).to_owned(),
        false => format!("{} ({})", name(tenant.class), name(tenant.declared_class)),
    }
}

/// Ratios as percentages first, then counts; a line per counter that is not zero on both hosts.
fn counters(counters: &[HostCounters]) -> String {
    let of = |host| counters.iter().find(|counters| counters.host == host);
    let (a, b) = (of(Host::A), of(Host::B));
    let mut table = Table::new("lrr", &["counter", "host A", "host B"]);
    let ratios = |host: Option<&HostCounters>, name: &str| {
        host.and_then(|host| host.ratios.get(name).copied())
            .unwrap_or(0.0)
    };
    let values = |host: Option<&HostCounters>, name: &str| {
        host.and_then(|host| host.values.get(name).copied())
            .unwrap_or(0)
    };
    let both = || counters.iter();
    let names: BTreeSet<&String> = both().flat_map(|host| host.ratios.keys()).collect();
    for name in names {
        let pair = [ratios(a, name), ratios(b, name)];
        if pair != [0.0; 2] {
            let percent = pair.map(|ratio| format!("{:.1} %", ratio * 100.0));
            table.row([vec![name.clone()], percent.to_vec()].concat());
        }
    }
    let names: BTreeSet<&String> = both().flat_map(|host| host.values.keys()).collect();
    for name in names {
        let pair = [values(a, name), values(b, name)];
        if pair != [0; 2] {
            let counts = pair.map(|count| count.to_string());
            table.row([vec![name.clone()], counts.to_vec()].concat());
        }
    }
    table.render()
}
