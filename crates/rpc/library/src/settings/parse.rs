//! Parses the file's text into checked values; each mistake is reported with its line.

use super::read::{absolute, name, number};
use super::{Algorithm, ClassSettings, GroupSettings, Mode, QuotaSettings, Settings};
use crate::table::{CLASSES_MAX, DESTINATIONS_MAX, GROUPS_MAX};
use isolane_common_quantities::units::Duration;
use isolane_common_toml_input::error::InputError;
use isolane_common_toml_input::keys::{Key, Kind, key, required};
use isolane_common_toml_input::table::{Source, Table};
use isolane_rpc_policy::aequitas::{AequitasOptions, Probability};
use isolane_rpc_policy::aequitas2::{Aequitas2Options, CUT};

type Result<T> = std::result::Result<T, InputError>;

/// Smallest and largest target per MTU, ps: 0.1 ns is below any wire, 10 s above any use.
const TARGET: (u64, u64) = (100, 10_000_000_000_000);
/// Smallest and largest idle time, ps.
const IDLE: (u64, u64) = (100_000_000_000, 86_400_000_000_000_000);

/// [`Kind`] has no fractional numbers; [`number`] reads them.
const NUMBER: Kind = Kind::Text;

#[rustfmt::skip]
const TOP: &[Key] = &[
    key("mode", Kind::Choice(&["enforce", "shadow", "off"]), "whether decisions are acted upon (enforce)"),
    key("algorithm", Kind::Choice(&["aequitas", "aequitas-2"]), "how calls are admitted (aequitas)"),
    key("mtu_bytes", Kind::Count { min: 64, max: 65_535 }, "payload of one packet; sizes of calls are counted in it (1460)"),
    key("idle_after", Kind::duration(IDLE.0, IDLE.1), "how long a destination keeps what it learned without calls (60s)"),
    key("destinations_max", Kind::Count { min: 1, max: DESTINATIONS_MAX as u64 }, "most destinations with a place of their own (100000)"),
    key("metrics_destinations", Kind::Count { min: 0, max: 10_000 }, "most destinations that metrics show one by one (100)"),
    key("alpha", NUMBER, "what a window without a miss adds (0.01)"),
    key("beta", NUMBER, "what each MTU of a miss takes (0.01)"),
    key("floor", NUMBER, "the least admit probability (0.1); with aequitas-2, of one MTU in each target_per_mtu (0.01)"),
    key("cut", NUMBER, "with aequitas-2: relative change of the level by one congestion (0.0625)"),
    key("group", Kind::Tables, "destinations that share a quota, as [[group]]"),
    key("quota", Kind::Table, "the quota server, and for whom this process sends"),
    required("class", Kind::Tables, "the classes as [[class]], the highest first; the last one has no objective"),
];

#[rustfmt::skip]
const CLASS: &[Key] = &[
    required("name", Kind::Text, "as applications and metrics call it"),
    required("dscp", Kind::Count { min: 0, max: 63 }, "the mark of its packets, 0 to 63"),
    key("target_per_mtu", Kind::duration(TARGET.0, TARGET.1), "longest network latency of a call, for each MTU of its size"),
    key("percentile", NUMBER, "the part of calls that must meet it, in percent (99.9)"),
    key("alpha", NUMBER, "the class's own alpha"),
    key("beta", NUMBER, "the class's own beta"),
    key("floor", NUMBER, "the class's own floor"),
    key("cut", NUMBER, "the class's own cut"),
];

const GROUP: &[Key] = &[
    required("name", Kind::Text, "as the quota server knows it"),
    required(
        "destinations",
        Kind::Text,
        "patterns of its destinations' names: *, ?, separated by commas",
    ),
];

const QUOTA: &[Key] = &[
    required(
        "server",
        Kind::Text,
        "\"unix:/path\" or an address and a port, like \"127.0.0.1:7480\"",
    ),
    key("key_file", Kind::Text, "file with the server's key (none)"),
    required("tenant", Kind::Text, "for whom this process sends"),
];

/// Parses `text`; `file` is its name in messages. The error is the first mistake: file, line, key, value, what is
/// allowed.
pub fn parse(file: &str, text: &str) -> Result<Settings> {
    let source = Source { file, text };
    let tree = source.tree()?;
    let top = Table::open(source, tree.get_ref(), 0, TOP, None)?;
    let mode = match top.choice::<String>("mode")?.as_deref() {
        Some("shadow") => Mode::Shadow,
        Some("off") => Mode::Off,
        _ => Mode::Enforce,
    };
    let algorithm = match top.choice::<String>("algorithm")?.as_deref() {
        Some("aequitas-2") => Algorithm::Aequitas2,
        _ => Algorithm::Aequitas,
    };
    reject_unused(algorithm, &top)?;
    let count = |key, default| Ok(top.count(key)?.map_or(default, |count| count as usize));
    Ok(Settings {
        mode,
        algorithm,
        mtu_bytes: top.count32("mtu_bytes")?.unwrap_or(1460),
        idle_after: top
            .duration("idle_after")?
            .unwrap_or(Duration::from_secs(60)),
        destinations_max: count("destinations_max", 100_000)?,
        metrics_destinations: count("metrics_destinations", 100)?,
        classes: classes(algorithm, &top)?,
        groups: groups(&top)?,
        quota: quota(&top)?,
    })
}

fn classes(algorithm: Algorithm, top: &Table<'_>) -> Result<Vec<ClassSettings>> {
    let raw = top.tables("class")?;
    if !(2..=CLASSES_MAX).contains(&raw.len()) {
        return Err(top.wrong(
            "class",
            format!(
                "{} classes: must be 2 to {CLASSES_MAX}; the last one takes the calls that are not admitted",
                raw.len()
            ),
        ));
    }
    let last = raw.len() - 1;
    let mut classes: Vec<ClassSettings> = Vec::new();
    for (position, (start, map)) in raw.into_iter().enumerate() {
        let table = Table::open(top.source(), map, start, CLASS, Some("class".to_owned()))?;
        let name = name(&table)?;
        let table = table.placed(format!("class {name:?}"));
        if classes.iter().any(|other| other.name == name) {
            return Err(table.wrong("name", "is listed twice; rename or remove one"));
        }
        let dscp = table.count("dscp")?.expect("the key is required") as u8;
        if let Some(other) = classes.iter().find(|other| other.dscp == dscp) {
            let expected = format!(
                "class {:?} has the same mark, so the network could not distinguish them; give another",
                other.name
            );
            return Err(table.wrong("dscp", expected));
        }
        let options = match position == last {
            true => none(&table)?,
            false => {
                reject_unused(algorithm, &table)?;
                Some(options(algorithm, top, &table)?)
            }
        };
        classes.push(ClassSettings {
            name,
            dscp,
            options,
            cut: own_or_top(top, &table, "cut")?.unwrap_or(Probability::from_f64(CUT)),
        });
    }
    Ok(classes)
}

fn quota(top: &Table<'_>) -> Result<Option<QuotaSettings>> {
    let Some(table) = top.table("quota", QUOTA)? else {
        return Ok(None);
    };
    let table = table.placed("quota".to_owned());
    if !top.has("group") {
        return Err(top.missing(
            "group",
            "a quota is for groups of destinations; add [[group]]",
        ));
    }
    let server = table.text("server")?.expect("the key is required");
    let tenant = table.text("tenant")?.expect("the key is required");
    Ok(Some(QuotaSettings {
        server: server
            .parse()
            .map_err(|error: String| table.wrong("server", error))?,
        key_file: absolute(&table, "key_file")?,
        tenant: tenant.to_owned(),
    }))
}

fn groups(top: &Table<'_>) -> Result<Vec<GroupSettings>> {
    let raw = top.tables("group")?;
    if raw.len() > GROUPS_MAX {
        return Err(top.wrong("group", format!("must be at most {GROUPS_MAX}")));
    }
    let mut groups: Vec<GroupSettings> = Vec::new();
    for (start, map) in raw {
        let table = Table::open(top.source(), map, start, GROUP, Some("group".to_owned()))?;
        let name = name(&table)?;
        let table = table.placed(format!("group {name:?}"));
        if groups.iter().any(|other| other.name == name) {
            return Err(table.wrong("name", "is listed twice; merge the two [[group]]"));
        }
        let destinations = table.text("destinations")?.expect("the key is required");
        if destinations.trim().is_empty() {
            return Err(table.wrong("destinations", "must have a pattern, like \"10.0.1.*\""));
        }
        groups.push(GroupSettings {
            name,
            destinations: destinations.to_owned(),
        });
    }
    Ok(groups)
}

/// Rejects control parameters of the lowest class.
fn none(table: &Table<'_>) -> Result<Option<AequitasOptions>> {
    let keys = [
        "target_per_mtu",
        "percentile",
        "alpha",
        "beta",
        "floor",
        "cut",
    ];
    match keys.into_iter().find(|key| table.has(key)) {
        None => Ok(None),
        Some(key) => Err(table.wrong(
            key,
            "the last class takes all calls that are not admitted and has no target; remove the key, or add a lower class",
        )),
    }
}

/// Rejects parameters of the other algorithm.
fn reject_unused(algorithm: Algorithm, table: &Table<'_>) -> Result<()> {
    let (unused, remedy): (&[&str], _) = match algorithm {
        Algorithm::Aequitas => (
            &["cut"],
            "has no effect with the algorithm aequitas; remove the key, or give algorithm = \"aequitas-2\"",
        ),
        Algorithm::Aequitas2 => (
            &["alpha", "beta"],
            "has no effect with the algorithm aequitas-2, which has cut; remove the key",
        ),
    };
    match unused.iter().find(|key| table.has(key)) {
        None => Ok(()),
        Some(key) => Err(table.wrong(key, remedy)),
    }
}

fn own_or_top(top: &Table<'_>, table: &Table<'_>, key: &str) -> Result<Option<Probability>> {
    match part(table, key)? {
        Some(part) => Ok(Some(part)),
        None => part(top, key),
    }
}

fn options(algorithm: Algorithm, top: &Table<'_>, table: &Table<'_>) -> Result<AequitasOptions> {
    let Some(target) = table.duration("target_per_mtu")? else {
        let expected =
            "every class but the last needs an objective, like target_per_mtu = \"15us\"";
        return Err(table.missing("target_per_mtu", expected));
    };
    let percentile = match number(table, "percentile")? {
        None => 99.9,
        Some(value) if value > 0.0 && value < 100.0 => value,
        Some(_) => {
            return Err(table.wrong("percentile", "must be above 0 and below 100, like 99.9"));
        }
    };
    let mut options = match algorithm {
        Algorithm::Aequitas => AequitasOptions::new(target, percentile),
        Algorithm::Aequitas2 => Aequitas2Options::new(target, percentile).base,
    };
    let part = |key| own_or_top(top, table, key);
    let set = |place: &mut Probability, value: Option<Probability>| {
        if let Some(value) = value {
            *place = value;
        }
    };
    set(&mut options.increment, part("alpha")?);
    set(&mut options.decrement_per_mtu, part("beta")?);
    set(&mut options.floor, part("floor")?);
    options
        .check()
        .map_err(|error| table.wrong("target_per_mtu", error.to_string()))?;
    Ok(options)
}

/// A part of 1, above 0.
fn part(table: &Table<'_>, key: &str) -> Result<Option<Probability>> {
    let expected =
        "must be above 0 and at most 1: otherwise the admit probability could never change again";
    match number(table, key)? {
        None => Ok(None),
        Some(value) if value > 0.0 && value <= 1.0 => {
            let part = Probability::from_f64(value);
            match part == Probability::ZERO {
                true => Err(table.wrong(key, "must be at least 0.000000001")),
                false => Ok(Some(part)),
            }
        }
        Some(_) => Err(table.wrong(key, expected)),
    }
}
