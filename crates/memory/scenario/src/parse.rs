//! A tiered-memory scenario's TOML to a checked [`MemScenario`].
//!
//! A file with a `[memory]` table describes applications on one machine with tiered memory.
//! `docs/reference/memory-scenario.md` describes the format. What comes out is valid by construction.

use super::keys::{APP, APPS_MAX, CHANGE, MEMORY_KEYS, POLICY, TOP};
use super::machine::MemMachine;
use super::model::{Change, Load, MEM_POLICIES, MemApp, MemPolicyName, MemScenario, Placement};
use isolane_common_quantities::units::{Bytes, Duration};
use isolane_common_toml_input::error::{InputError, Problem};
use isolane_common_toml_input::name::{checked_name, scenario_name};
use isolane_common_toml_input::table::Table;
use isolane_memory_policy::mercury::{CPU_ONE, Objective};

/// What the caller wants other than the text says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemOverrides {
    /// Another policy.
    pub policy: Option<String>,
    /// Another seed.
    pub seed: Option<u64>,
    /// Another measured time.
    pub duration: Option<Duration>,
    /// Default number of points of a series, approximately.
    pub points: Option<u64>,
}

/// The scenario written in `text`; `file` names it in messages.
///
/// ```
/// let text = r#"
/// duration = "10s"
/// [memory]
/// machine = "genoa-cxl"
/// [[app]]
/// name = "probe"
/// kind = "latency"
/// working_set = "4GB"
/// "#;
/// let scenario = isolane_memory_scenario::parse::parse(text, "probe.toml")?;
/// assert_eq!((scenario.name.as_str(), scenario.apps.len()), ("probe", 1));
/// # Ok::<(), isolane_common_toml_input::error::InputError>(())
/// ```
///
/// # Errors
/// The first mistake of the text, with file, line, key, value, and the remedy.
pub fn parse(text: &str, file: &str) -> Result<MemScenario, InputError> {
    MemOverrides::default().parse(text, file)
}

impl MemOverrides {
    /// As [`parse`], with these values in place of those of the text. Fails as [`parse`] does, and for a policy that
    /// does not exist.
    pub fn parse(&self, text: &str, file: &str) -> Result<MemScenario, InputError> {
        Table::read(file, text, TOP, |top| scenario(top, file, self))
    }
}

fn scenario(
    top: &Table<'_>,
    file: &str,
    overrides: &MemOverrides,
) -> Result<MemScenario, InputError> {
    let name = scenario_name(top, file)?;
    let memory = top.table("memory", MEMORY_KEYS)?.expect(PRESENT);
    let (machine, capacity) = machine_of(&memory)?;
    let mut apps: Vec<MemApp> = Vec::new();
    let tables = top.tables("app")?;
    if tables.is_empty() || tables.len() > APPS_MAX {
        return Err(top.error_at(
            "app",
            Problem::Promise {
                problem: format!(
                    "{} applications: there must be 1 to {APPS_MAX}, each an [[app]]",
                    tables.len()
                ),
            },
        ));
    }
    for (index, (start, map)) in tables.iter().enumerate() {
        let table = Table::open(
            top.source(),
            map,
            *start,
            APP,
            Some(format!("app {}", index + 1)),
        )?;
        let app = app_of(&table, (tables.len() - index) as u32)?;
        let table = table.placed(format!("app {:?}", app.name));
        check_beside(&table, &app, &apps)?;
        check_limit(&table, &app, &machine, &capacity)?;
        apps.push(app);
    }
    check_cores(top, &machine, &apps)?;
    check_capacity(&memory, &capacity, &apps, &machine)?;
    let warmup = top.duration("warmup")?.unwrap_or(Duration::ZERO);
    let duration = overrides
        .duration
        .or(top.duration("duration")?)
        .expect(PRESENT);
    let sample_interval = match (top.duration("sample_interval")?, overrides.points) {
        (None, Some(points)) => {
            let interval = (warmup + duration) / points.max(1);
            Some(interval.max(Duration::from_ms(100)))
        }
        (written, _) => written,
    };
    let scenario = MemScenario {
        name,
        machine: machine.name,
        capacity,
        policy: policy_of(top, overrides)?,
        apps,
        warmup,
        duration,
        sample_interval,
        seed: overrides.seed.or(top.count("seed")?).unwrap_or(1),
    };
    // A file that is run under another policy than its own may have limits for its own.
    match scenario.idle_limits().into_iter().next() {
        Some(problem) if overrides.policy.is_none() => {
            Err(top.error_at("policy", Problem::Promise { problem }))
        }
        _ => Ok(scenario),
    }
}

const PRESENT: &str = "opening checked that it is there";

fn machine_of(memory: &Table<'_>) -> Result<(MemMachine, Vec<Option<Bytes>>), InputError> {
    let name = memory.text("machine")?.expect(PRESENT);
    let machine = MemMachine::named(name).ok_or_else(|| {
        let all = MemMachine::embedded();
        let names = all.iter().map(|machine| machine.name.as_str());
        memory.error_at("machine", Problem::unknown_name("machine", name, names))
    })?;
    let mut capacity = Vec::new();
    for tier in ["local", "far", "farther"] {
        if machine.sections.contains_key(tier) {
            let given = memory.size(tier)?;
            let own = capacity_of(&machine, tier);
            if given.is_some_and(|given| given.get() > own) {
                let expected = format!(
                    "machine {name} has {:.1} GB in that tier: write at most that, or drop the key to use all of it",
                    own as f64 / 1e9
                );
                return Err(memory.wrong(tier, expected));
            }
            capacity.push(given);
        } else if memory.has(tier) {
            let expected = format!("machine {name} has no such tier: drop the key");
            return Err(memory.wrong(tier, expected));
        }
    }
    Ok((machine, capacity))
}

/// Bytes of `tier` as the machine's file says.
fn capacity_of(machine: &MemMachine, tier: &str) -> u64 {
    (machine.value(tier, "capacity_gb") * 1e9) as u64
}

fn policy_of(top: &Table<'_>, overrides: &MemOverrides) -> Result<MemPolicyName, InputError> {
    let written: Option<String> = match top.table("policy", POLICY)? {
        Some(table) => table.choice("name")?,
        None => None,
    };
    let wanted = overrides.policy.clone().or(written);
    let Some(name) = wanted else {
        return Ok(MemPolicyName::Tpp);
    };
    MemPolicyName::named(&name).ok_or_else(|| {
        top.error_at(
            "policy",
            Problem::unknown_name("policy", &name, MEM_POLICIES.iter().copied()),
        )
    })
}

fn share(table: &Table<'_>, key: &str) -> Result<Option<f64>, InputError> {
    Ok(table.number(key)?.map(|percent| percent / 100.0))
}

fn app_of(table: &Table<'_>, by_order: u32) -> Result<MemApp, InputError> {
    let name = table.text("name")?.expect(PRESENT);
    let name = checked_name(table, name)?.to_owned();
    let latency = table.duration("slo_latency")?;
    let bandwidth = bytes_per_s(table, "slo_bandwidth")?;
    let objective = match (latency, bandwidth) {
        (Some(_), Some(_)) => {
            let expected = "an application has one objective: drop slo_latency or slo_bandwidth";
            return Err(table.wrong("slo_bandwidth", expected));
        }
        (Some(latency), None) => Objective::Latency(latency),
        (None, Some(rate)) => Objective::Bandwidth(rate),
        (None, None) => Objective::BestEffort,
    };
    let initial = Load {
        working_set: table.size("working_set")?.expect(PRESENT),
        activity: share(table, "activity")?.unwrap_or(1.0),
    };
    let changes = changes_of(table, initial)?;
    let sizes = changes.iter().map(|change| change.to.working_set);
    let footprint = sizes.fold(initial.working_set, Ord::max);
    let start = table.duration("start")?.unwrap_or(Duration::ZERO);
    let stop = table.duration("stop")?;
    if stop.is_some_and(|stop| stop <= start) {
        return Err(table.wrong("stop", format!("must be after start, {start}")));
    }
    let cpu = share(table, "cpu_limit")?.unwrap_or(1.0);
    Ok(MemApp {
        name,
        kind: table.choice("kind")?.expect(PRESENT),
        cores: table.count32("cores")?.unwrap_or(1),
        objective,
        priority: table.count32("priority")?.unwrap_or(by_order),
        weight: table.count32("weight")?.unwrap_or(1_000),
        footprint,
        initial,
        changes,
        placement: match share(table, "far_percent")? {
            Some(far) => Placement::Interleaved(far),
            None => Placement::Managed,
        },
        local_limit: table.size("local_limit")?,
        cpu_limit: (cpu * f64::from(CPU_ONE)).round() as u32,
        start,
        stop,
    })
}

/// A bandwidth of memory. The unit is always bytes: a value in bits is a network's rate, or wrong by a factor of eight.
fn bytes_per_s(table: &Table<'_>, key: &str) -> Result<Option<u64>, InputError> {
    let rate = table.rate(key)?;
    let text = table.text(key)?.unwrap_or_default().trim_end();
    match text.ends_with("b/s") || text.ends_with("bps") {
        true => Err(table.wrong(
            key,
            "is in bits; bandwidth of memory is in bytes, like \"40GB/s\"",
        )),
        false => Ok(rate.map(|rate| rate.as_bps() / 8)),
    }
}

fn changes_of(app: &Table<'_>, initial: Load) -> Result<Vec<Change>, InputError> {
    let mut changes: Vec<Change> = Vec::new();
    let mut load = initial;
    for (start, map) in app.tables("change")? {
        let place = app.place().map(str::to_owned);
        let table = Table::open(app.source(), map, start, CHANGE, place)?;
        let at = table.duration("at")?.expect(PRESENT);
        let until = table.duration("until")?.unwrap_or(at);
        if until < at {
            return Err(table.wrong("until", format!("must not be before at, {at}")));
        }
        if let Some(last) = changes.last()
            && at < last.until
        {
            let expected = format!(
                "the change before it ends at {}: changes follow one another",
                last.until
            );
            return Err(table.wrong("at", expected));
        }
        if let Some(bytes) = table.size("working_set")? {
            load.working_set = bytes;
        }
        if let Some(activity) = share(&table, "activity")? {
            load.activity = activity;
        }
        changes.push(Change {
            at,
            until,
            to: load,
        });
    }
    Ok(changes)
}

/// Names and priorities are unique.
fn check_beside(table: &Table<'_>, app: &MemApp, others: &[MemApp]) -> Result<(), InputError> {
    for other in others {
        if other.name == app.name {
            return Err(table.wrong("name", "another application has this name: give it its own"));
        }
        if other.priority == app.priority {
            let expected = format!(
                "application {:?} has priority {} already: priorities are unique",
                other.name, other.priority
            );
            return Err(table.wrong("priority", expected));
        }
    }
    Ok(())
}

/// A limit by hand is of memory that the near tier has.
fn check_limit(
    table: &Table<'_>,
    app: &MemApp,
    machine: &MemMachine,
    capacity: &[Option<Bytes>],
) -> Result<(), InputError> {
    let near = capacity[0].map_or_else(|| capacity_of(machine, "local"), Bytes::get);
    match app.local_limit {
        Some(limit) if limit.get() > near => {
            let expected = format!(
                "the near tier has {:.1} GB here: write at most that, or drop the key for no limit",
                near as f64 / 1e9
            );
            Err(table.wrong("local_limit", expected))
        }
        _ => Ok(()),
    }
}

/// The cores of applications that run at the same time exist.
fn check_cores(top: &Table<'_>, machine: &MemMachine, apps: &[MemApp]) -> Result<(), InputError> {
    let cores = machine.value("cpu", "cores") as u32;
    for app in apps {
        let running = apps.iter().filter(|other| other.is_running(app.start));
        let needed: u32 = running.map(|other| other.cores).sum();
        if needed > cores {
            let problem = format!(
                "applications that run at {} have {needed} cores, and machine {} has {cores}: take cores from some, or let \
                 them follow one another",
                app.start, machine.name
            );
            return Err(top.error_at("app", Problem::Promise { problem }));
        }
    }
    Ok(())
}

/// The memory of applications that run at the same time exists.
fn check_capacity(
    memory: &Table<'_>,
    capacity: &[Option<Bytes>],
    apps: &[MemApp],
    machine: &MemMachine,
) -> Result<(), InputError> {
    let tiers = machine
        .tiers()
        .zip(capacity)
        .map(|(tier, given)| given.map_or_else(|| capacity_of(machine, tier), Bytes::get));
    let all: u64 = tiers.sum();
    for app in apps {
        let running = apps.iter().filter(|other| other.is_running(app.start));
        let needed: u64 = running.map(|other| other.footprint.get()).sum();
        if needed > all {
            let problem = format!(
                "applications that run at {} use {:.1} GB at most, and all tiers of machine {} together have {:.1} GB here: make \
                 working sets smaller, or let applications follow one another",
                app.start,
                needed as f64 / 1e9,
                machine.name,
                all as f64 / 1e9
            );
            return Err(memory.error_at("machine", Problem::Promise { problem }));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
