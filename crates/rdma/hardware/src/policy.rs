//! The operator's file: what the tenants of one device get.
//!
//! Problem: a mistake must be reported with its line and never guessed around. Method: [`parse`] turns TOML into checked
//! values; the compiler checks only what depends on the device. Units: as written ("40Gb/s", "5us").

use crate::setting::rate_shown;
use isolane_common_quantities::units::{BitRate, Duration};
use isolane_common_toml_input::error::{InputError, Problem};
use isolane_common_toml_input::keys::{Key, Kind, count, key, required};
use isolane_common_toml_input::table::{Source, Table};
use serde_json::json;
use std::fmt::{self, Write};

type Result<T> = std::result::Result<T, InputError>;

/// Longest file, bytes: a thousand tenants need a fifth of it.
pub const FILE_MAX: u64 = 1 << 20;
/// Tenants or classes of a file.
const TABLES_MAX: usize = 1_024;
/// Largest weight: the daemon's.
const WEIGHT_MAX: u64 = 1_000_000;
/// Longest name, bytes: devlink's groups and the daemon's tenants.
const NAME_MAX: usize = 48;
/// 10 ns is below the latency of every RNIC, 1 s above that of every network.
const LATENCY: Kind = Kind::duration(10_000, 1_000_000_000_000);

/// The whole file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Name of the device; `None`: the host's only one.
    pub device: Option<String>,
    /// Rate to share, bits per second; `None`: the port's.
    pub rate: Option<BitRate>,
    /// Length of the longest cable of the port, metres; `None`: buffers stay as they are.
    pub cable_m: Option<u32>,
    /// Traffic classes, in the file's order.
    pub classes: Vec<Class>,
    /// Tenants, in the file's order.
    pub tenants: Vec<Tenant>,
}

/// A traffic class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// Whether the port serves it before every class with a share.
    pub strict: bool,
    /// Guaranteed share of the port, percent; `None`: in proportion to its tenants.
    pub share_percent: Option<u8>,
    /// DSCP of its packets.
    pub dscp: Option<u8>,
    /// Priority of its packets, 0 to 7; `None`: the compiler chooses.
    pub priority: Option<u8>,
    /// Whether the port pauses the sender instead of dropping packets.
    pub lossless: bool,
}

/// A tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Its name.
    pub name: String,
    /// Weight in the rate that guarantees leave.
    pub weight: u32,
    /// Guaranteed rate.
    pub guarantee: Option<BitRate>,
    /// Largest rate.
    pub limit: Option<BitRate>,
    /// Largest 99th percentile of latency.
    pub p99: Option<Duration>,
    /// Name of its class.
    pub class: Option<String>,
    /// Functions of the device that it alone uses: `vf0`, `sf88`.
    pub functions: Vec<String>,
    /// Path of its cgroup.
    pub cgroup: Option<String>,
    /// Most RDMA objects (queue pairs, completion queues, memory regions, protection domains together).
    pub objects_max: Option<u32>,
    /// Most open device files.
    pub handles_max: Option<u32>,
}

#[rustfmt::skip]
const TOP: &[Key] = &[
    key("device", Kind::Text, "RDMA device, or network device without RDMA (the host's only device)"),
    key("rate", Kind::Rate, "rate to share among tenants (the rate of the port)"),
    key("cable_m", count(1, 10_000), "longest cable of the port, metres: gives lossless classes a receive buffer (the driver's own buffers stay)"),
    key("class", Kind::Tables, "a traffic class"),
    required("tenant", Kind::Tables, "a tenant: at least one [[tenant]]"),
];

#[rustfmt::skip]
const CLASS: &[Key] = &[
    required("name", Kind::Text, "name of the class"),
    key("strict", Kind::Flag, "served before every class with a share (false)"),
    key("share_percent", count(1, 100), "guaranteed share of the port (in proportion to its tenants)"),
    key("dscp", count(0, 63), "DSCP of its packets"),
    key("priority", count(0, 7), "priority of its packets (chosen: 3 if lossless, else a free one of 1 to 5)"),
    key("lossless", Kind::Flag, "pause the sender instead of dropping packets (false)"),
];

#[rustfmt::skip]
const TENANT: &[Key] = &[
    required("name", Kind::Text, "name of the tenant"),
    key("weight", count(1, WEIGHT_MAX), "weight in the rate that guarantees leave (1)"),
    key("guarantee", Kind::Rate, "guaranteed rate (none)"),
    key("limit", Kind::Rate, "largest rate (none)"),
    key("p99", LATENCY, "largest 99th percentile of latency (none)"),
    key("class", Kind::Text, "name of its class (the default class)"),
    key("functions", Kind::Commands, "functions of the device that it alone uses: \"vf0\", or [\"vf0\", \"sf88\"]"),
    key("cgroup", Kind::Text, "path of its cgroup below the mount: \"/kubepods.slice/...\""),
    key("objects_max", count(1, u32::MAX as u64), "most RDMA objects of its cgroup (none)"),
    key("handles_max", count(1, u32::MAX as u64), "most open device files of its cgroup (none)"),
];

/// Parses `text`; `file` is its name in messages. The error is the first mistake: file, line, key, value, what is
/// allowed.
pub fn parse(file: &str, text: &str) -> Result<Policy> {
    let source = Source { file, text };
    let tree = source.tree()?;
    let top = Table::open(source, tree.get_ref(), 0, TOP, None)?;
    let mut policy = Policy {
        device: top.text("device")?.map(str::to_owned),
        rate: top.rate("rate")?,
        cable_m: top.count32("cable_m")?,
        classes: Vec::new(),
        tenants: Vec::new(),
    };
    for table in tables(&top, "class", CLASS)? {
        let class = class(&table, &policy.classes)?;
        policy.classes.push(class);
    }
    let shares = policy.classes.iter();
    let sum: u32 = shares
        .filter_map(|class| class.share_percent.map(u32::from))
        .sum();
    if sum > 100 {
        let expected = format!("the shares of all classes sum to {sum} %; must be at most 100");
        return Err(top.error_at(
            "class",
            Problem::value("share_percent", sum.to_string(), expected),
        ));
    }
    for table in tables(&top, "tenant", TENANT)? {
        let tenant = tenant(&table, &policy)?;
        policy.tenants.push(tenant);
    }
    match policy.tenants.is_empty() {
        true => Err(top.wrong("tenant", "must list at least one [[tenant]]")),
        false => Ok(policy),
    }
}

/// The JSON schema of the file.
pub fn schema() -> serde_json::Value {
    use isolane_common_toml_input::schema::{object, titled};
    let below = |key: &Key| match key.name {
        "class" => object(CLASS, |_| json!({})),
        _ => object(TENANT, |_| json!({})),
    };
    titled("Isolane policy of a device", object(TOP, below))
}

/// The tables of one kind; each is named by its kind and its `name`.
fn tables<'a>(top: &Table<'a>, kind: &'static str, keys: &'static [Key]) -> Result<Vec<Table<'a>>> {
    let found = top.tables(kind)?;
    if found.len() > TABLES_MAX {
        return Err(top.wrong(kind, format!("must be at most {TABLES_MAX} tables")));
    }
    let open = |(start, map)| {
        let table = Table::open(top.source(), map, start, keys, Some(format!("[[{kind}]]")))?;
        let name = name(&table, "name")?;
        Ok(table.placed(format!("{kind} {name:?}")))
    };
    found.into_iter().map(open).collect()
}

/// A name that devlink, the daemon and shells accept.
fn name(table: &Table<'_>, key: &'static str) -> Result<String> {
    let name = table.text(key)?.expect("the key is required");
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let starts = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    match name.len() <= NAME_MAX && starts && name.chars().all(is_plain) {
        true => Ok(name.to_owned()),
        false => Err(table.wrong(
            key,
            format!("must be 1 to {NAME_MAX} letters, digits, -, _ or ., beginning with a letter or digit"),
        )),
    }
}

fn class(table: &Table<'_>, known: &[Class]) -> Result<Class> {
    let small = |key: &'static str| {
        let number = table.count(key)?;
        Ok(number.map(|number| u8::try_from(number).expect("the key's range fits 8 bits")))
    };
    let class = Class {
        name: name(table, "name")?,
        strict: table.flag("strict")?.unwrap_or(false),
        share_percent: small("share_percent")?,
        dscp: small("dscp")?,
        priority: small("priority")?,
        lossless: table.flag("lossless")?.unwrap_or(false),
    };
    if class.strict && class.share_percent.is_some() {
        return Err(table.wrong(
            "share_percent",
            "is for a class with a share; remove it or strict",
        ));
    }
    if known.iter().any(|other| other.name == class.name) {
        return Err(table.wrong("name", "is listed twice; merge the two [[class]]"));
    }
    for other in known {
        if class.dscp.is_some() && other.dscp == class.dscp {
            return Err(table.wrong(
                "dscp",
                format!("is that of class {} too; choose another", other.name),
            ));
        }
        if class.priority.is_some() && other.priority == class.priority {
            let expected = format!("is that of class {} too; choose another", other.name);
            return Err(table.wrong("priority", expected));
        }
    }
    Ok(class)
}

fn tenant(table: &Table<'_>, policy: &Policy) -> Result<Tenant> {
    let tenant = Tenant {
        name: name(table, "name")?,
        weight: table.count32("weight")?.unwrap_or(1),
        guarantee: table.rate("guarantee")?,
        limit: table.rate("limit")?,
        p99: table.duration("p99")?,
        class: table.text("class")?.map(str::to_owned),
        functions: functions(table)?,
        cgroup: cgroup(table)?,
        objects_max: table.count32("objects_max")?,
        handles_max: table.count32("handles_max")?,
    };
    if policy.tenants.iter().any(|other| other.name == tenant.name) {
        return Err(table.wrong("name", "is listed twice; merge the two [[tenant]]"));
    }
    if let Some(class) = &tenant.class
        && policy.classes.iter().all(|known| known.name != *class)
    {
        let known = policy.classes.iter().map(|class| class.name.as_str());
        return Err(table.error_at("class", Problem::unknown_name("class", class, known)));
    }
    if let (Some(guarantee), Some(limit)) = (tenant.guarantee, tenant.limit)
        && guarantee > limit
    {
        return Err(table.wrong("guarantee", format!("must be at most limit, {limit}")));
    }
    for function in &tenant.functions {
        let other = policy
            .tenants
            .iter()
            .find(|other| other.functions.contains(function));
        if let Some(other) = other {
            let expected = format!(
                "{function} is a function of tenant {} too; each has one tenant",
                other.name
            );
            return Err(table.wrong("functions", expected));
        }
    }
    if tenant.cgroup.is_none() && (tenant.objects_max.is_some() || tenant.handles_max.is_some()) {
        return Err(table.missing(
            "cgroup",
            "objects_max and handles_max limit a cgroup; name it",
        ));
    }
    Ok(tenant)
}

fn functions(table: &Table<'_>) -> Result<Vec<String>> {
    let form = "must be \"vfN\" or \"sfN\" with N from 0, or a list of them";
    let Some(value) = table.raw("functions") else {
        return Ok(Vec::new());
    };
    let value = value.get_ref();
    let texts: Option<Vec<&str>> = match (value.as_str(), value.as_array()) {
        (Some(one), _) => Some(vec![one]),
        (None, Some(list)) => list.iter().map(|entry| entry.get_ref().as_str()).collect(),
        (None, None) => None,
    };
    let texts = texts.ok_or_else(|| table.wrong("functions", form))?;
    let mut functions = Vec::new();
    for text in texts {
        let digits = text.strip_prefix("vf").or_else(|| text.strip_prefix("sf"));
        // The number as it is printed again: no sign, no zeros in front.
        let plain = digits
            .is_some_and(|digits| digits.parse::<u32>().is_ok_and(|n| n.to_string() == digits));
        if !plain || functions.iter().any(|known| known == text) {
            return Err(table.wrong("functions", form));
        }
        functions.push(text.to_owned());
    }
    Ok(functions)
}

fn cgroup(table: &Table<'_>) -> Result<Option<String>> {
    let Some(path) = table.text("cgroup")? else {
        return Ok(None);
    };
    let parts = path.split('/').skip(1);
    let plain =
        |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains('\0');
    match path.starts_with('/') && path.len() > 1 && parts.clone().all(plain) {
        true => Ok(Some(path.to_owned())),
        false => Err(table.wrong(
            "cgroup",
            "must be a path below the cgroup mount, like \"/tenants/blue\"",
        )),
    }
}

impl Policy {
    /// The policy as a file that [`parse`] reads again.
    pub fn to_toml(&self) -> String {
        let mut text = Lines::default();
        text.line("device", self.device.as_deref().map(quoted));
        text.line("rate", self.rate.map(rate));
        text.line("cable_m", self.cable_m);
        for class in &self.classes {
            text.0.push_str("\n[[class]]\n");
            text.line("name", Some(quoted(&class.name)));
            text.line("strict", class.strict.then_some(true));
            text.line("share_percent", class.share_percent);
            text.line("dscp", class.dscp);
            text.line("priority", class.priority);
            text.line("lossless", class.lossless.then_some(true));
        }
        for tenant in &self.tenants {
            text.0.push_str("\n[[tenant]]\n");
            text.line("name", Some(quoted(&tenant.name)));
            text.line("weight", (tenant.weight != 1).then_some(tenant.weight));
            text.line("guarantee", tenant.guarantee.map(rate));
            text.line("limit", tenant.limit.map(rate));
            text.line("p99", tenant.p99.map(duration));
            text.line("class", tenant.class.as_deref().map(quoted));
            let functions: Vec<String> = tenant.functions.iter().map(|name| quoted(name)).collect();
            let list = format!("[{}]", functions.join(", "));
            text.line("functions", (!functions.is_empty()).then_some(list));
            text.line("cgroup", tenant.cgroup.as_deref().map(quoted));
            text.line("objects_max", tenant.objects_max);
            text.line("handles_max", tenant.handles_max);
        }
        text.0
    }
}

/// Lines of a TOML file.
#[derive(Default)]
struct Lines(String);

impl Lines {
    /// Adds a key that has a value.
    fn line(&mut self, key: &str, value: Option<impl fmt::Display>) {
        if let Some(value) = value {
            writeln!(self.0, "{key} = {value}").expect("a string takes every text");
        }
    }
}

fn rate(rate: BitRate) -> String {
    quoted(&rate_shown(rate.as_bps()))
}

/// In the largest unit that needs no fraction.
fn duration(duration: Duration) -> String {
    let ps = duration.as_ps();
    let units = [
        (1_000_000_000, "ms"),
        (1_000_000, "us"),
        (1_000, "ns"),
        (1, "ps"),
    ];
    let whole = units.iter().find(|(unit, _)| ps.is_multiple_of(*unit));
    let (unit, name) = whole.expect("1 ps divides every duration");
    quoted(&format!("{}{name}", ps / unit))
}

/// A TOML string. JSON's escapes are valid in TOML.
fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a text is JSON")
}

#[cfg(test)]
mod tests;
