//! The quota server's settings file.
//!
//! Units: as written ("100Gb/s", "3s"). Limits: as in [`crate::settings`], and [`TERM`] for the term.

use super::line::Address;
use super::protocol::Terms;
use crate::settings::read::{absolute, name, number};
use crate::table::{CLASSES_MAX, GROUPS_MAX};
use isolane_common_quantities::units::{BitRate, Bytes, Duration};
use isolane_common_toml_input::error::InputError;
use isolane_common_toml_input::keys::{Key, Kind, key, required};
use isolane_common_toml_input::table::{Source, Table};
use isolane_rpc_policy::queueing::Arrivals;
use isolane_rpc_policy::queueing::fluid::Port;
use isolane_rpc_policy::quota::{Bound, Pool, QuotaError};
use std::path::PathBuf;

/// Shortest and longest term, ps; clients renew three times per term.
pub const TERM: (u64, u64) = (300_000_000_000, 600_000_000_000_000);

/// Largest number of tenants of a group and class.
pub(crate) const TENANTS_MAX: usize = 10_000;

/// Place of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A directory of this machine.
    Folder(PathBuf),
    /// An etcd server.
    Etcd {
        /// Address of its endpoint.
        address: std::net::SocketAddr,
        /// Prefix of its keys.
        prefix: String,
    },
}

/// The whole file, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Listening address.
    pub listen: Address,
    /// Permission bits of a Unix socket; `None` leaves them to the umask.
    pub socket_mode: Option<u32>,
    /// File with the clients' key; without it every client that can connect is accepted.
    pub key_file: Option<PathBuf>,
    /// Duration of a lease.
    pub term: Duration,
    /// Place of the store.
    pub place: Place,
    /// Capacity by group and class.
    pub pools: Vec<(String, String, Bound)>,
    /// Tenants of the file; terms set at run time override them.
    pub tenants: Vec<Terms>,
}

/// Why an address that other machines reach needs a key.
const STRANGERS: &str = "other machines reach it, and every client could claim any tenant's name and change quotas; \
    add key_file = \"/path\" and give clients the same, or listen on unix:/path or 127.0.0.1";

/// [`Kind`] has no fractional numbers.
const NUMBER: Kind = Kind::Text;

#[rustfmt::skip]
const TOP: &[Key] = &[
    key("listen", Kind::Text, "\"unix:/path\" or an address and a port (127.0.0.1:7480)"),
    key("socket_mode", Kind::Text, "who may connect to a Unix socket, in octal, like \"0660\" (what the umask leaves)"),
    key("key_file", Kind::Text, "the file of the key that clients must have (none; needed where other machines reach the address)"),
    key("term", Kind::duration(TERM.0, TERM.1), "how long a lease lasts (3s)"),
    key("store", Kind::Text, "directory where leases are kept"),
    key("etcd", Kind::Text, "etcd's endpoint instead, like \"127.0.0.1:2379\""),
    key("etcd_prefix", Kind::Text, "what its keys begin with (/isolane/quota)"),
    required("class", Kind::Tables, "the classes as [[class]], the highest first"),
    required("group", Kind::Tables, "the groups of destinations as [[group]]"),
    key("tenant", Kind::Tables, "who has what, as [[tenant]]"),
];

const CLASS: &[Key] = &[
    required("name", Kind::Text, "as clients call it"),
    required("weight", NUMBER, "its weight at the port"),
];

#[rustfmt::skip]
const GROUP: &[Key] = &[
    required("name", Kind::Text, "as clients call it"),
    required("line_rate", Kind::Rate, "the rate of the group's narrowest port"),
    required("load", NUMBER, "average load of that port, in line rates (mu)"),
    required("burst", NUMBER, "highest load of that port, in line rates (rho)"),
];

#[rustfmt::skip]
const TENANT: &[Key] = &[
    required("name", Kind::Text, "as clients call it"),
    required("group", Kind::Text, "one of [[group]]"),
    required("class", Kind::Text, "one of [[class]], not the last"),
    key("weight", Kind::Count { min: 1, max: 1_000_000 }, "its weight for what no guarantee takes (1)"),
    key("guarantee", Kind::Rate, "what it gets whenever it asks (nothing)"),
];

/// Parses `text`; `file` is its name in messages. The error is the first mistake: file, line, key, value, what is
/// allowed.
pub fn parse(file: &str, text: &str) -> Result<Settings, InputError> {
    let source = Source { file, text };
    let tree = source.tree()?;
    let top = Table::open(source, tree.get_ref(), 0, TOP, None)?;
    let listen = top.text("listen")?.unwrap_or("127.0.0.1:7480");
    let listen = listen
        .parse()
        .map_err(|error: String| top.wrong("listen", error))?;
    let classes = classes(&top)?;
    let socket_mode = socket_mode(&top, &listen)?;
    let key_file = absolute(&top, "key_file")?;
    if listen.is_remote() && key_file.is_none() {
        return Err(top.wrong("listen", STRANGERS));
    }
    let mut settings = Settings {
        listen,
        socket_mode,
        key_file,
        term: top.duration("term")?.unwrap_or(Duration::from_secs(3)),
        place: place(&top)?,
        pools: pools(&top, &classes)?,
        tenants: Vec::new(),
    };
    let tenants = top.tables("tenant")?;
    if tenants.len() > TENANTS_MAX {
        return Err(top.wrong("tenant", format!("must be at most {TENANTS_MAX}")));
    }
    for (start, map) in tenants {
        let table = Table::open(top.source(), map, start, TENANT, Some("tenant".to_owned()))?;
        let terms = tenant(&table, &settings, &classes)?;
        settings.tenants.push(terms);
    }
    Ok(settings)
}

/// Permission bits: three octal digits, with or without a leading zero.
fn socket_mode(top: &Table<'_>, listen: &Address) -> Result<Option<u32>, InputError> {
    let Some(text) = top.text("socket_mode")? else {
        return Ok(None);
    };
    if !matches!(listen, Address::Unix(_)) {
        return Err(top.wrong(
            "socket_mode",
            "is for a Unix socket: set listen = \"unix:/path\", or remove it",
        ));
    }
    let digits = text.strip_prefix('0').unwrap_or(text);
    let mode = match digits.len() {
        3 => u32::from_str_radix(digits, 8).ok(),
        _ => None,
    };
    let expected = "must be three octal digits that let the owner read and write, like \"0660\"";
    let mode = mode.filter(|mode| mode & 0o600 == 0o600);
    mode.ok_or_else(|| top.wrong("socket_mode", expected))
        .map(Some)
}

fn place(top: &Table<'_>) -> Result<Place, InputError> {
    match (absolute(top, "store")?, top.text("etcd")?) {
        (Some(folder), None) => Ok(Place::Folder(folder)),
        (None, Some(address)) => Ok(Place::Etcd {
            address: address.parse().map_err(|_| {
                top.wrong(
                    "etcd",
                    "must be an address and a port, like \"127.0.0.1:2379\"",
                )
            })?,
            prefix: top
                .text("etcd_prefix")?
                .unwrap_or("/isolane/quota")
                .to_owned(),
        }),
        (Some(_), Some(_)) => Err(top.wrong("etcd", "store is given too; remove one")),
        (None, None) => Err(top.missing("store", "a directory where leases are kept, or etcd")),
    }
}

fn classes(top: &Table<'_>) -> Result<Vec<(String, f64)>, InputError> {
    let raw = top.tables("class")?;
    if !(2..=CLASSES_MAX).contains(&raw.len()) {
        let expected = format!("{} classes: must be 2 to {CLASSES_MAX}", raw.len());
        return Err(top.wrong("class", expected));
    }
    let mut classes: Vec<(String, f64)> = Vec::new();
    for (start, map) in raw {
        let table = Table::open(top.source(), map, start, CLASS, Some("class".to_owned()))?;
        let name = name(&table)?;
        if classes.iter().any(|(other, _)| *other == name) {
            return Err(table.wrong("name", "is listed twice; rename or remove one"));
        }
        let weight = number(&table, "weight")?.expect("the key is required");
        classes.push((name, weight));
    }
    Ok(classes)
}

fn pools(
    top: &Table<'_>,
    classes: &[(String, f64)],
) -> Result<Vec<(String, String, Bound)>, InputError> {
    let raw = top.tables("group")?;
    if !(1..=GROUPS_MAX).contains(&raw.len()) {
        return Err(top.wrong("group", format!("must be 1 to {GROUPS_MAX}")));
    }
    let weights: Vec<f64> = classes.iter().map(|(_, weight)| *weight).collect();
    let mut pools: Vec<(String, String, Bound)> = Vec::new();
    for (start, map) in raw {
        let table = Table::open(top.source(), map, start, GROUP, Some("group".to_owned()))?;
        let name = name(&table)?;
        let table = table.placed(format!("group {name:?}"));
        if pools.iter().any(|(other, ..)| *other == name) {
            return Err(table.wrong("name", "is listed twice; rename or remove one"));
        }
        let given = |key| Ok::<f64, InputError>(number(&table, key)?.expect("the key is required"));
        let line = table.rate("line_rate")?.expect("the key is required");
        let arrivals = Arrivals::new(given("load")?, given("burst")?);
        let arrivals = arrivals.map_err(|error| table.wrong("load", error.to_string()))?;
        let port = Port::new(&weights, arrivals);
        let port = port.map_err(|error| top.wrong("class", error.to_string()))?;
        for (class, (class_name, _)) in classes[..classes.len() - 1].iter().enumerate() {
            let bound = Bound::new(&port, line, class);
            pools.push((name.clone(), class_name.clone(), bound));
        }
    }
    Ok(pools)
}

fn tenant(
    table: &Table<'_>,
    settings: &Settings,
    classes: &[(String, f64)],
) -> Result<Terms, InputError> {
    let tenant = name(table)?;
    let table = table.clone().placed(format!("tenant {tenant:?}"));
    let text =
        |key| Ok::<String, InputError>(table.text(key)?.expect("the key is required").to_owned());
    let (group, class) = (text("group")?, text("class")?);
    if settings.pools.iter().all(|(name, ..)| *name != group) {
        return Err(table.wrong("group", "is not one of [[group]]; add it there"));
    }
    if classes.last().is_some_and(|(last, _)| *last == class) {
        return Err(table.wrong(
            "class",
            "is the lowest class, which has no guarantees; give a higher one",
        ));
    }
    if classes.iter().all(|(name, _)| *name != class) {
        return Err(table.wrong("class", "is not one of [[class]]; add it there"));
    }
    let guarantee = table.rate("guarantee")?.unwrap_or(BitRate::ZERO);
    Ok(Terms {
        tenant,
        group,
        class,
        weight: table.count32("weight")?.unwrap_or(1),
        guarantee_bytes_per_s: bytes_per_s(guarantee),
    })
}

/// A rate in bytes per second, rounded down.
pub fn bytes_per_s(rate: BitRate) -> u64 {
    let bytes: Bytes = rate.bytes_in(Duration::from_secs(1));
    bytes.get()
}

/// Checks that the tenants' guarantees fit the capacity. The error is the first that does not, with the computation.
pub fn check(settings: &Settings) -> Result<(), QuotaError> {
    for (group, class, bound) in &settings.pools {
        let mut pool = Pool::new(bound.clone(), settings.term);
        let here = |terms: &&Terms| terms.group == *group && terms.class == *class;
        for terms in settings.tenants.iter().filter(here) {
            let pool_terms = isolane_rpc_policy::quota::Terms {
                weight: terms.weight,
                guarantee: terms.guarantee_bytes_per_s,
            };
            pool.set(&terms.tenant, pool_terms)?;
        }
    }
    Ok(())
}
