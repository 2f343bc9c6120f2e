//! Named victims and attackers, as data: husky's catalogue and the latency victims it lacks.
//!
//! An entry holds client command lines; they become workloads for a given device, since a device decides the
//! default MTU and the inline limit. Applications are written in full, as in a scenario, and fitted to the device in
//! the same way. Sources: husky's public test suite and its table 4.3; applications name theirs.

use crate::application_text;
use crate::check::{DeviceLimits, traffic_allowed};
use crate::command::{self, Command};
use crate::model::{Class, Host, Traffic, Transport, Workload};
use crate::spec::{APPLICATION, ENTRY, TRAFFIC};
use crate::traffic;
use isolane_common_quantities::units::Duration;
use isolane_common_toml_input::error::{CommandError, InputError, Problem};
use isolane_common_toml_input::keys::{Key, Kind};
use isolane_common_toml_input::table::{Source, Table, number};
use serde::{Deserialize, Serialize};

/// Which side of an audit a workload is on.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// A tenant whose performance counts.
    Victim,
    /// A tenant that tries to take it away.
    Attacker,
}

/// Husky's group of a workload.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
pub enum Category {
    /// The link.
    #[serde(rename = "BW")]
    Bandwidth,
    /// The PCIe bus.
    #[serde(rename = "PCIe")]
    Pcie,
    /// Processing units.
    #[serde(rename = "PU")]
    ProcessingUnits,
    /// On-NIC caches.
    #[serde(rename = "Cache")]
    Cache,
    /// Latency (not husky's).
    #[serde(rename = "Latency")]
    Latency,
    /// Applications, judged by their own operations.
    #[serde(rename = "Application")]
    Application,
}

/// A column of husky table 4.3, and bandwidth.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Column {
    /// Plain bandwidth, which the table leaves out.
    Bandwidth,
    /// Processing units, receive errors on reliable connections.
    PuErrorRc,
    /// Processing units, receive errors on unreliable transports.
    PuErrorUnreliable,
    /// Processing units, data requests.
    PuData,
    /// Caches, control verbs.
    CacheControl,
    /// Caches, data verbs.
    CacheData,
    /// PCIe, data verbs.
    PcieData,
}

/// Where a workload's clients and servers run, seen from the victim: its clients are on host A.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// From A to B, as the victim.
    Forward,
    /// From B to A.
    Backward,
    /// Within host A, the victim's client side.
    LoopbackA,
    /// Within host B, the victim's server side.
    LoopbackB,
}

impl Direction {
    fn hosts(self) -> (Host, Host) {
        match self {
            Self::Forward => (Host::A, Host::B),
            Self::Backward => (Host::B, Host::A),
            Self::LoopbackA => (Host::A, Host::A),
            Self::LoopbackB => (Host::B, Host::B),
        }
    }
}

/// What a latency victim may expect.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct LatencyBound {
    /// p99 under attack may be at most this many times p99 alone.
    pub over_solo: f64,
}

/// One workload of a catalogue.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CatalogueEntry {
    /// Which side it is on.
    pub role: Role,
    /// Unique name within its role, as husky's files are called.
    pub name: String,
    /// Husky's group.
    pub category: Category,
    /// Column of husky table 4.3; attackers only.
    pub column: Option<Column>,
    /// The resource it presses on, or needs.
    pub resource: String,
    /// What it says of itself.
    pub class: Class,
    /// The client command lines; all run at once.
    pub commands: Vec<String>,
    /// What it runs where it has no command line, for a device without limits.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub in_full: Vec<Workload>,
    /// Measured time that a verdict needs, at least.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<Duration>,
    /// Copies of each.
    pub processes: u32,
    /// Where it runs.
    pub direction: Direction,
    /// Bound on latency under attack; latency victims only.
    pub latency_bound: Option<LatencyBound>,
}

impl CatalogueEntry {
    /// `victim/name` or `attacker/name`, as a scenario names it.
    pub fn path(&self) -> String {
        match self.role {
            Role::Victim => format!("victim/{}", self.name),
            Role::Attacker => format!("attacker/{}", self.name),
        }
    }

    /// The workloads on a device of `limits`. Fails if the device cannot run it: atomics on a device without them,
    /// datagrams larger than its MTU.
    pub fn workloads(&self, limits: &DeviceLimits) -> Result<Vec<Workload>, CommandError> {
        if !self.in_full.is_empty() {
            let in_full = self.in_full.iter();
            return in_full.map(|workload| fitted(workload, limits)).collect();
        }
        let (from, to) = self.direction.hosts();
        let commands = self.commands.iter();
        commands
            .map(|line| {
                let mut workload = command_of(line, limits)?.workload;
                workload.processes = self.processes;
                workload.from = from;
                workload.to = match workload.traffic {
                    Traffic::Control(_) => from,
                    Traffic::Data(_) | Traffic::Application(_) => to,
                };
                Ok(workload)
            })
            .collect()
    }
}

/// `workload`, which allows everything, as a device of `limits` runs it.
fn fitted(workload: &Workload, limits: &DeviceLimits) -> Result<Workload, CommandError> {
    let mut workload = workload.clone();
    let mtu = |transport| match transport {
        Transport::Ud => limits.mtu_max,
        _ => limits.mtu_default,
    };
    match &mut workload.traffic {
        Traffic::Application(application) => {
            application.mtu = mtu(application.transport);
            application.inline_bytes = application.inline_bytes.min(limits.inline_max);
            if let Some(bytes) = application.datagram_too_large() {
                let reason = format!(
                    "sends datagrams of {bytes} bytes, and the profile's MTU is {}",
                    application.mtu
                );
                return Err(CommandError::new(workload.name, reason));
            }
        }
        Traffic::Data(data) => {
            data.mtu = mtu(data.transport);
            data.inline_bytes = data.inline_bytes.min(limits.inline_max);
            traffic_allowed(data, limits).map_err(|fault| {
                CommandError::new(format!("{} = {}", fault.key, fault.value), fault.expected)
            })?;
        }
        Traffic::Control(_) => {}
    }
    Ok(workload)
}

fn command_of(line: &str, limits: &DeviceLimits) -> Result<Command, CommandError> {
    match command::is_engine(line) {
        true => command::engine(line, limits),
        false => command::perftest(line, limits),
    }
}

/// A list of workloads, in the order of its files.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Catalogue {
    /// The workloads.
    pub entries: Vec<CatalogueEntry>,
}

#[rustfmt::skip]
const FILE: &[Key] = &[
    Key { name: "victim", kind: Kind::Tables, required: false, about: "victims" },
    Key { name: "attacker", kind: Kind::Tables, required: false, about: "attackers" },
];

#[rustfmt::skip]
const BOUND: &[Key] = &[Key { name: "over_solo", kind: Kind::Rate, required: true, about: "p99 under attack over p99 alone" }];

/// The catalogue files compiled in: add a file with one line.
#[rustfmt::skip]
const EMBEDDED: &[(&str, &str)] = &[
    ("workloads/husky/victims.toml", include_str!("../../../../workloads/husky/victims.toml")),
    ("workloads/husky/attackers.toml", include_str!("../../../../workloads/husky/attackers.toml")),
    ("workloads/latency/victims.toml", include_str!("../../../../workloads/latency/victims.toml")),
    ("workloads/applications/victims.toml", include_str!("../../../../workloads/applications/victims.toml")),
];

impl Catalogue {
    /// The catalogue compiled into this crate.
    pub fn embedded() -> Self {
        let mut all = Self::default();
        for (file, text) in EMBEDDED {
            let part = Self::parse(text, file).expect("tests parse every embedded catalogue");
            all.entries.extend(part.entries);
        }
        all
    }

    /// The catalogue written in `text`; `file` names it in messages. The error is the first mistake, with its line:
    /// unknown keys, names taken twice, command lines that cannot be honoured.
    pub fn parse(text: &str, file: &str) -> Result<Self, InputError> {
        let source = Source { file, text };
        let tree = source.tree()?;
        let top = Table::open(source, tree.get_ref(), 0, FILE, None)?;
        let mut entries: Vec<CatalogueEntry> = Vec::new();
        for (key, role) in [("victim", Role::Victim), ("attacker", Role::Attacker)] {
            for (start, map) in top.tables(key)? {
                let table = Table::open(source, map, start, ENTRY, Some(key.to_owned()))?;
                let entry = entry(table, role)?;
                if let Some(twin) = entries.iter().find(|twin| twin.path() == entry.path()) {
                    let expected = format!("{} is there already: must be unique", twin.path());
                    let problem = Problem::value("name", format!("{:?}", entry.name), expected);
                    return Err(top.error(start, problem));
                }
                entries.push(entry);
            }
        }
        Ok(Self { entries })
    }

    /// The entry a scenario names as `victim/name` or `attacker/name`.
    pub fn find(&self, path: &str) -> Option<&CatalogueEntry> {
        self.entries.iter().find(|entry| entry.path() == path)
    }

    /// The victims, in order.
    pub fn victims(&self) -> impl Iterator<Item = &CatalogueEntry> {
        self.with_role(Role::Victim)
    }

    /// The attackers, in order.
    pub fn attackers(&self) -> impl Iterator<Item = &CatalogueEntry> {
        self.with_role(Role::Attacker)
    }

    fn with_role(&self, role: Role) -> impl Iterator<Item = &CatalogueEntry> {
        self.entries.iter().filter(move |entry| entry.role == role)
    }
}

fn entry(table: Table<'_>, role: Role) -> Result<CatalogueEntry, InputError> {
    let name = table
        .text("name")?
        .expect("opening checked that it is there")
        .to_owned();
    let table = table.placed(format!(
        "{} {name:?}",
        if role == Role::Victim {
            "victim"
        } else {
            "attacker"
        }
    ));
    let mut commands = Vec::new();
    let mut class = None;
    for (offset, line) in table.commands("command")? {
        let command = command_of(line, &DeviceLimits::PERMISSIVE).map_err(|source| {
            let key = "command".to_owned();
            table.error(offset, Problem::Command { key, source })
        })?;
        class = class.or(Some(command.class));
        commands.push(line.to_owned());
    }
    let in_full = in_full(&table)?;
    if role == Role::Attacker && !table.has("column") {
        return Err(table.missing("column", "an attacker needs its column of husky table 4.3"));
    }
    Ok(CatalogueEntry {
        role,
        name,
        category: table
            .choice("category")?
            .expect("opening checked that it is there"),
        column: table.choice("column")?,
        resource: table
            .text("resource")?
            .expect("opening checked that it is there")
            .to_owned(),
        class: table.choice("class")?.or(class).unwrap_or(Class::Auto),
        commands,
        in_full,
        duration: table.duration("duration")?,
        processes: table.count32("processes")?.unwrap_or(1),
        direction: table.choice("direction")?.unwrap_or(Direction::Forward),
        latency_bound: bound(&table)?,
    })
}

/// What an entry without a command line runs.
fn in_full(table: &Table<'_>) -> Result<Vec<Workload>, InputError> {
    let ways = ["command", "traffic", "application"];
    let choice = "must be one of command, [[victim.traffic]] and [[victim.application]]";
    let given: Vec<&str> = ways.into_iter().filter(|key| table.has(key)).collect();
    match given[..] {
        [] => return Err(table.missing("command", choice)),
        [_] => {}
        [_, second, ..] => return Err(table.wrong(second, choice)),
    }
    if given != ["command"]
        && let Some(key) = ["processes", "direction"].iter().find(|key| table.has(key))
    {
        return Err(table.wrong(key, "belongs to a command line: drop it"));
    }
    let place = || table.place().map(str::to_owned);
    let limits = &DeviceLimits::PERMISSIVE;
    let mut workloads = Vec::new();
    for (index, (start, map)) in table.tables("traffic")?.into_iter().enumerate() {
        let part = Table::open(table.source(), map, start, TRAFFIC, place())?;
        if part.has("mtu") {
            return Err(part.wrong("mtu", "is the device's in a catalogue: drop it"));
        }
        workloads.push(traffic::read(&part, index, limits)?);
    }
    for (index, (start, map)) in table.tables("application")?.into_iter().enumerate() {
        let part = Table::open(table.source(), map, start, APPLICATION, place())?;
        workloads.push(application_text::read(&part, index, limits)?);
    }
    Ok(workloads)
}

fn bound(table: &Table<'_>) -> Result<Option<LatencyBound>, InputError> {
    let Some(bound) = table.table("latency_bound", BOUND)? else {
        return Ok(None);
    };
    let value = bound.raw("over_solo").map(toml::Spanned::get_ref);
    match value.and_then(number) {
        Some(over_solo) if over_solo >= 1.0 && over_solo.is_finite() => {
            Ok(Some(LatencyBound { over_solo }))
        }
        _ => Err(bound.wrong("over_solo", "must be a number, at least 1")),
    }
}
