//! Scenario TOML to a checked [`Scenario`].
//!
//! `docs/reference/scenario.md` describes the format. Everything is checked here, the device's limits included, so
//! that later layers never validate again: a scenario that parses runs.

use crate::application_text;
use crate::catalogue::CatalogueEntry;
use crate::check::{DeviceLimits, traffic_allowed};
use crate::command::{self, Command};
use crate::device_name::unknown_profile;
use crate::library::Library;
use crate::model::{
    Class, ControlObject, ControlPhase, ControlTraffic, Host, PolicySpec, Scenario, Tenant,
    Topology, Traffic, Workload,
};
use crate::policy;
use crate::promise;
use crate::spec::{APPLICATION, CONTROL, TENANT, TENANTS_MAX, TOP, TRAFFIC};
use crate::stack;
use crate::traffic;
use isolane_common_quantities::units::{BitRate, Bytes, Duration};
use isolane_common_toml_input::error::{CommandError, InputError, Problem};
use isolane_common_toml_input::name::{checked_name, stem};
use isolane_common_toml_input::table::{Source, Table};
use isolane_network_scenario::behind;
use toml::de::DeTable;

const WARMUP: Duration = Duration::from_us(200);
const DURATION: Duration = Duration::from_ms(2);
const SEED: u64 = 1;
/// Points of the time series unless the scenario says otherwise.
const SAMPLES: u64 = 50;
/// Narrowest point of the time series unless the scenario says otherwise.
const SAMPLE_MIN: Duration = Duration::from_us(1);
const REGION: Bytes = Bytes::from_kib(4);

/// What the caller wants other than the text says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Another device profile.
    pub profile: Option<String>,
    /// Another policy; the text's parameters are kept only if the text names the same policy.
    pub policy: Option<String>,
    /// Another seed.
    pub seed: Option<u64>,
}

/// The scenario written in `text`; `file` names it in messages. The error is the first mistake of the text, with file,
/// line, key, value, and the remedy.
pub fn parse(text: &str, file: &str, library: &Library) -> Result<Scenario, InputError> {
    parse_with(text, file, library, &Overrides::default())
}

/// As [`parse`], with some values replaced by the caller's. Fails as [`parse`] does, and for a profile or policy of
/// `overrides` that does not exist.
pub fn parse_with(
    text: &str,
    file: &str,
    library: &Library,
    overrides: &Overrides,
) -> Result<Scenario, InputError> {
    let source = Source { file, text };
    let tree = source.tree()?;
    refuse_other_kinds(source, tree.get_ref())?;
    let top = Table::open(source, tree.get_ref(), 0, TOP, None)?;

    let profile_name = match &overrides.profile {
        Some(name) => name.as_str(),
        None => top
            .text("profile")?
            .expect("opening checked that it is there"),
    };
    let Some(profile) = library.profile(profile_name) else {
        let problem = Problem::UnknownProfile {
            value: format!("{profile_name:?}"),
            hint: unknown_profile(profile_name, library.profile_names()),
        };
        return Err(top.error_at("profile", problem));
    };
    let warmup = top.duration("warmup")?.unwrap_or(WARMUP);
    let duration = top.duration("duration")?.unwrap_or(DURATION);
    let reader = Reader {
        library,
        limits: DeviceLimits::of(profile),
        end: warmup + duration,
    };
    let sample_interval = sample_interval(&top, duration)?;
    let name = name_of(&top, file)?;
    let policy = policy_of(&top, overrides)?;
    let tenants = reader.tenants(&top)?;
    let topology = top.choice("topology")?.unwrap_or(Topology::BackToBack);
    let seed = match overrides.seed {
        Some(seed) => seed,
        None => top.count("seed")?.unwrap_or(SEED),
    };
    let around = behind::Around {
        name: &name,
        warmup,
        duration,
        seed,
        hosts: hosts(&tenants),
        rate: BitRate::from_gbps_f64(profile.value("link", "rate_gbps")),
    };
    let network = behind::read(&top, &around)?.map(Box::new);
    if network.is_none() {
        joined(&top, topology, &tenants)?;
    }
    stack::check_device(&policy.name, profile, tenants.len())
        .map_err(|error| top.error_at("policy", policy::refused("policy", &error)))?;
    promise::sums::check(&top, profile, &tenants)?;
    Ok(Scenario {
        name,
        description: top.text("description")?.unwrap_or("").trim().to_owned(),
        profile: profile_name.to_owned(),
        topology,
        warmup,
        duration,
        seed,
        sample_interval,
        policy,
        network,
        tenants,
    })
}

/// The name in the text; without one, the file's stem.
fn name_of(top: &Table<'_>, file: &str) -> Result<String, InputError> {
    match top.text("name")? {
        Some(name) => Ok(checked_name(top, name)?.to_owned()),
        None => Ok(stem(file).to_owned()),
    }
}

/// Number of hosts that tenants use, at least two.
fn hosts(tenants: &[Tenant]) -> usize {
    let ends = tenants.iter().flat_map(|tenant| &tenant.workloads);
    let last = ends.flat_map(Workload::hosts).max();
    last.map_or(2, |host| host.index() + 1).max(2)
}

fn sample_interval(top: &Table<'_>, duration: Duration) -> Result<Duration, InputError> {
    match top.duration("sample_interval")? {
        Some(interval) if interval > duration => {
            let expected = format!("must be at most the duration, {duration}");
            Err(top.wrong("sample_interval", expected))
        }
        Some(interval) => Ok(interval),
        None => Ok((duration / SAMPLES).max(SAMPLE_MIN).min(duration)),
    }
}

/// Refuses a host that no cable reaches.
fn joined(top: &Table<'_>, topology: Topology, tenants: &[Tenant]) -> Result<(), InputError> {
    if topology == Topology::Switch {
        return Ok(());
    }
    for tenant in tenants {
        let ends = tenant.workloads.iter().flat_map(Workload::hosts);
        if let Some(host) = ends.max().filter(|&host| host > Host::B) {
            let expected = format!(
                "joins hosts a and b only, and tenant {:?} uses host {}: must be \"switch\"",
                tenant.name,
                host.letter().to_ascii_lowercase()
            );
            let value = "\"back-to-back\"".to_owned();
            return Err(top.error_at("topology", Problem::value("topology", value, expected)));
        }
    }
    Ok(())
}

fn policy_of(top: &Table<'_>, overrides: &Overrides) -> Result<PolicySpec, InputError> {
    let written = policy::read(top)?;
    let Some(name) = &overrides.policy else {
        return Ok(written);
    };
    let name = stack::canonical(name);
    let name = name.map_err(|error| top.error(0, policy::refused("policy", &error)))?;
    if name == written.name {
        return Ok(written);
    }
    Ok(PolicySpec::named(name))
}

/// What every tenant is read against.
struct Reader<'a> {
    library: &'a Library,
    limits: DeviceLimits,
    end: Duration,
}

/// What a tenant runs, and what that says of it.
struct Work {
    workloads: Vec<Workload>,
    class: Class,
    run_for: Option<Duration>,
}

impl Reader<'_> {
    fn tenants(&self, top: &Table<'_>) -> Result<Vec<Tenant>, InputError> {
        let tables = top.tables("tenant")?;
        if tables.is_empty() || tables.len() > TENANTS_MAX {
            return Err(top.error_at(
                "tenant",
                Problem::value(
                    "tenant",
                    format!("{} tables", tables.len()),
                    format!("must be 1 to {TENANTS_MAX} tables, [[tenant]]"),
                ),
            ));
        }
        let mut tenants: Vec<Tenant> = Vec::with_capacity(tables.len());
        for (index, (start, map)) in tables.into_iter().enumerate() {
            let table = tenant_table(top, start, map, index)?;
            let tenant = self.tenant(&table)?;
            if tenants.iter().any(|other| other.name == tenant.name) {
                return Err(table.wrong("name", "is taken by an earlier tenant: must be unique"));
            }
            tenants.push(tenant);
        }
        Ok(tenants)
    }

    fn tenant(&self, table: &Table<'_>) -> Result<Tenant, InputError> {
        let name = table
            .text("name")?
            .expect("opening checked that it is there");
        let name = checked_name(table, name)?.to_owned();
        let start = table.duration("start")?.unwrap_or(Duration::ZERO);
        if start >= self.end {
            return Err(table.wrong(
                "start",
                format!(
                    "never starts: must be before the end of the run, {}",
                    self.end
                ),
            ));
        }
        let work = self.work(table)?;
        let stop = match table.duration("stop")? {
            Some(stop) if stop <= start => {
                return Err(table.wrong("stop", format!("must be after start, {start}")));
            }
            Some(stop) => Some(stop),
            None => work.run_for.map(|time| start + time),
        };
        Ok(Tenant {
            name,
            class: table.choice("class")?.unwrap_or(work.class),
            weight: table.count32("weight")?.unwrap_or(1),
            guarantee: promise::guarantee(table)?,
            slo: promise::slo(table)?,
            start,
            stop,
            workloads: work.workloads,
        })
    }

    fn work(&self, table: &Table<'_>) -> Result<Work, InputError> {
        let ways = ["perftest", "engine", "workload"];
        let mut given: Vec<&str> = ways.into_iter().filter(|key| table.has(key)).collect();
        if table.has("application") {
            given.push("application");
        }
        let in_full = table.has("traffic") || table.has("control");
        if in_full {
            given.push(if table.has("traffic") {
                "traffic"
            } else {
                "control"
            });
        }
        let choice = "must be exactly one of perftest, engine, workload, [[tenant.application]], or [[tenant.traffic]] and [[tenant.control]]";
        match given[..] {
            [] => return Err(table.missing("perftest", choice)),
            [_] => {}
            [_, second, ..] => return Err(table.wrong(second, choice)),
        }
        let misplaced: &[&str] = match given[0] {
            "workload" => &["honour_iterations"],
            "perftest" | "engine" => &[],
            _ => &["honour_iterations", "processes", "from", "to"],
        };
        if let Some(key) = misplaced.iter().find(|key| table.has(key)) {
            return Err(table.wrong(
                key,
                "has no meaning here: write it in [[tenant.traffic]], or drop it",
            ));
        }
        match given[0] {
            key @ ("perftest" | "engine") => self.commands(table, key),
            "workload" => self.catalogued(table),
            _ => self.in_full(table),
        }
    }

    fn commands(&self, table: &Table<'_>, key: &str) -> Result<Work, InputError> {
        let honour = table.flag("honour_iterations")?.unwrap_or(false);
        let mut workloads = Vec::new();
        let mut class = None;
        let mut run_for = None;
        for (offset, line) in table.commands(key)? {
            let command = self.command(key, line);
            let command = command.map_err(|source| {
                let key = key.to_owned();
                table.error(offset, Problem::Command { key, source })
            })?;
            class = Some(class.unwrap_or(command.class));
            run_for = run_for.max(command.run_for);
            let mut workload = command.workload;
            if let (true, Traffic::Data(data)) = (honour, &mut workload.traffic) {
                data.iterations = command.iterations;
                traffic::shorten_queues(data);
                traffic_allowed(data, &self.limits).map_err(|fault| {
                    table.error(
                        offset,
                        Problem::value(fault.key, fault.value, fault.expected),
                    )
                })?;
            }
            self.place(table, &mut workload)?;
            workloads.push(workload);
        }
        Ok(Work {
            workloads,
            class: class.unwrap_or(Class::Auto),
            run_for,
        })
    }

    fn command(&self, key: &str, line: &str) -> Result<Command, CommandError> {
        if key == "perftest" && command::is_engine(line) {
            return Err(CommandError::new(
                line,
                "is an engine command line: write engine = ...",
            ));
        }
        if key == "engine" && command::is_perftest(line) {
            return Err(CommandError::new(
                line,
                "is a perftest command line: write perftest = ...",
            ));
        }
        match key {
            "engine" => command::engine(line, &self.limits),
            _ => command::perftest(line, &self.limits),
        }
    }

    /// Applies the tenant's `processes`, `from` and `to`.
    fn place(&self, table: &Table<'_>, workload: &mut Workload) -> Result<(), InputError> {
        if let Some(processes) = table.count32("processes")? {
            workload.processes = processes;
        }
        let from: Option<Host> = table.choice("from")?;
        let to: Option<Host> = table.choice("to")?;
        if matches!(workload.traffic, Traffic::Application(_))
            && let Some(key) = ["processes", "from", "to"]
                .iter()
                .find(|key| table.has(key))
        {
            let expected = "an application says itself where it runs: drop it, or write [[tenant.application]]";
            return Err(table.wrong(key, expected));
        }
        if matches!(workload.traffic, Traffic::Control(_)) {
            if to.is_some() {
                return Err(table.wrong("to", "control verbs stay on one host: give from only"));
            }
            workload.from = from.unwrap_or(workload.from);
            workload.to = workload.from;
            return Ok(());
        }
        workload.from = from.unwrap_or(workload.from);
        workload.to = to.unwrap_or(workload.to);
        Ok(())
    }

    fn catalogued(&self, table: &Table<'_>) -> Result<Work, InputError> {
        let name = table.text("workload")?.expect("the caller saw it");
        let catalogue = &self.library.catalogue;
        let Some(entry) = catalogue.find(name) else {
            let names: Vec<String> = catalogue.entries.iter().map(CatalogueEntry::path).collect();
            let problem = Problem::unknown_name("workload", name, names.iter().map(String::as_str));
            return Err(table.error_at("workload", problem));
        };
        let workloads = entry.workloads(&self.limits);
        let mut workloads = workloads.map_err(|source| {
            let key = format!("workload {}", entry.path());
            table.error_at("workload", Problem::Command { key, source })
        })?;
        for workload in &mut workloads {
            self.place(table, workload)?;
        }
        Ok(Work {
            workloads,
            class: entry.class,
            run_for: None,
        })
    }

    fn in_full(&self, table: &Table<'_>) -> Result<Work, InputError> {
        let mut workloads = Vec::new();
        for (index, (start, map)) in table.tables("traffic")?.into_iter().enumerate() {
            let place = table.place().map(str::to_owned);
            let part = Table::open(table.source(), map, start, TRAFFIC, place)?;
            workloads.push(traffic::read(&part, index, &self.limits)?);
        }
        for (index, (start, map)) in table.tables("control")?.into_iter().enumerate() {
            let place = table.place().map(str::to_owned);
            let part = Table::open(table.source(), map, start, CONTROL, place)?;
            workloads.push(control(&part, index)?);
        }
        for (index, (start, map)) in table.tables("application")?.into_iter().enumerate() {
            let place = table.place().map(str::to_owned);
            let part = Table::open(table.source(), map, start, APPLICATION, place)?;
            workloads.push(application_text::read(&part, index, &self.limits)?);
        }
        if workloads.is_empty() {
            return Err(table.missing(
                "traffic",
                "must have at least one [[tenant.traffic]] or [[tenant.control]]",
            ));
        }
        Ok(Work {
            workloads,
            class: Class::Auto,
            run_for: None,
        })
    }
}

/// Tables that make a file another kind of scenario: what it describes, and what to do with it.
const OTHER_KINDS: [(&str, &str, &str); 3] = [
    (
        "fabric",
        "a network",
        "run it with isolane sim, compare policies with isolane sim --policies A,B, or try many settings with isolane sweep",
    ),
    ("nic", "Ethernet NICs", "run it with isolane sim"),
    ("memory", "tiered memory", "run it with isolane sim"),
];

/// A file of another kind where one of RDMA hosts is wanted: says what it is and which commands take it, rather than which
/// of its keys came first.
fn refuse_other_kinds(source: Source<'_>, top: &DeTable<'_>) -> Result<(), InputError> {
    let found = top.iter().find_map(|(key, _)| {
        let mut kinds = OTHER_KINDS.iter();
        let kind = kinds.find(|(name, _, _)| *name == key.get_ref().as_ref());
        kind.map(|kind| (key, kind))
    });
    let Some((key, (name, what, remedy))) = found else {
        return Ok(());
    };
    let problem = format!(
        "[{name}] makes this the scenario of {what}, and this command takes scenarios of RDMA hosts ([[tenant]] and a profile): \
         {remedy}"
    );
    Err(InputError {
        file: source.file.to_owned(),
        line: Some(source.line(key.span().start)),
        place: None,
        problem: Box::new(Problem::Promise { problem }),
    })
}

/// Opens a tenant's table under the tenant's name, where it has one.
fn tenant_table<'a>(
    top: &Table<'a>,
    start: usize,
    map: &'a DeTable<'a>,
    index: usize,
) -> Result<Table<'a>, InputError> {
    let name = map
        .iter()
        .find(|(key, _)| key.get_ref().as_ref() == "name")
        .and_then(|(_, value)| value.get_ref().as_str());
    let place = match name {
        Some(name) => format!("tenant {name:?}"),
        None => format!("tenant {}", index + 1),
    };
    Table::open(top.source(), map, start, TENANT, Some(place))
}

fn control(table: &Table<'_>, index: usize) -> Result<Workload, InputError> {
    let object: ControlObject = table
        .choice("object")?
        .expect("opening checked that it is there");
    if object != ControlObject::MemoryRegion && table.has("region") {
        return Err(table.wrong("region", "has a meaning for memory regions only: drop it"));
    }
    let from = table.choice("from")?.unwrap_or(Host::A);
    let name = match table.text("name")? {
        Some(name) => checked_name(table, name)?.to_owned(),
        None => format!("control-{}", index + 1),
    };
    Ok(Workload {
        name,
        processes: table.count32("processes")?.unwrap_or(1),
        from,
        to: from,
        traffic: Traffic::Control(ControlTraffic {
            object,
            threads: table.count32("threads")?.unwrap_or(1),
            objects: table.count32("objects")?.unwrap_or(1),
            protection_domains: table.count32("protection_domains")?.unwrap_or(1),
            region_bytes: table.size("region")?.unwrap_or(REGION),
            phase: table.choice("phase")?.unwrap_or(ControlPhase::Cycle),
        }),
    })
}
