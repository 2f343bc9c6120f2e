//! The file of `isolane rdma enforce`: who the tenants of a real host are, and what each may use.
//!
//! Guarantees are those of `[tenant.guarantee]` in scenarios, so a guarantee that held in the simulator can be enforced
//! unchanged. This file adds the conditions by which a process belongs to a tenant: cgroup, container, pod, container
//! annotation or user, which the tenant itself cannot forge. A process joins a tenant without conditions by name, with
//! `isolane rdma run --tenant`.
//!
//! **Overlap.** Two tenants that name the same kinds of condition must exclude each other in one of them. Tenants that
//! name different kinds may both match; the more precise kind wins: pod and container and label before cgroup, cgroup
//! before user. Limits: a file describes one host. Source: harmonic 5.3, table 5.1.

mod keys;

use self::keys::{CAP, CAPACITY, CONTROL_RATES, ENFORCED_TENANT, ENFORCEMENT};
use crate::model::Guarantee;
use crate::promise;
use crate::spec::TENANTS_MAX;
use isolane_common_quantities::units::BitRate;
use isolane_common_toml_input::error::{InputError, Problem};
use isolane_common_toml_input::keys::Key;
use isolane_common_toml_input::name::checked_name;
use isolane_common_toml_input::table::{Source, Table};
use serde::{Deserialize, Serialize};

/// Normalised requests per second of a NIC without a measurement: the largest allowed value.
const DATA_REQUESTS: u64 = 10_000_000_000;
/// Characters of a container's identifier that name it, as runtimes print it.
const CONTAINER_MIN: usize = 12;

/// A file of `isolane rdma enforce`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Enforcement {
    /// What becomes of control verbs while no enforcer runs.
    pub on_death: OnDeath,
    /// The NIC's capacity, where the file has one.
    pub capacity: Option<NicCapacity>,
    /// The tenants, in the file's order.
    pub tenants: Vec<EnforcedTenant>,
}

/// What becomes of control verbs while no enforcer runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnDeath {
    /// They go on.
    #[default]
    Open,
    /// They wait for the next enforcer.
    Closed,
}

/// What a NIC has to share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct NicCapacity {
    /// Rate of the link.
    pub rate: BitRate,
    /// Normalised data requests per second.
    pub data_requests_per_s: u64,
}

/// A tenant of a real host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EnforcedTenant {
    /// Unique.
    pub name: String,
    /// The conditions for its processes.
    pub selector: Selector,
    /// Whether the tenant gets all processes that no other tenant selects.
    pub others: bool,
    /// Its part of the capacity without a guarantee.
    pub weight: u32,
    /// What it has been promised, and may not exceed.
    pub guarantee: Guarantee,
    /// Control verbs per second by what they work on.
    pub control: ControlRates,
    /// Limits of the rdma cgroup controller.
    pub cap: Cap,
}

/// The conditions by which processes belong to a tenant; all conditions that are set must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Selector {
    /// This cgroup and those below it.
    pub cgroup: Option<String>,
    /// The container whose identifier begins so.
    pub container: Option<String>,
    /// The pod of this UID.
    pub pod: Option<String>,
    /// A container annotation, key and value.
    pub label: Option<(String, String)>,
    /// The user, by number.
    pub user: Option<u32>,
}

/// Control verbs per second; absent ones do not bind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ControlRates {
    /// On queue pairs and shared receive queues.
    pub queue_pairs: Option<u64>,
    /// On completion queues and channels.
    pub completion_queues: Option<u64>,
    /// On memory regions and windows.
    pub memory_regions: Option<u64>,
    /// On address handles.
    pub address_handles: Option<u64>,
    /// Others that change something.
    pub others: Option<u64>,
    /// Those that change nothing.
    pub queries: Option<u64>,
    /// Calls at once after a pause.
    pub burst: Option<u64>,
}

/// Limits of the rdma cgroup controller, which refuses what exceeds them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cap {
    /// Objects of every kind.
    pub objects: Option<u32>,
    /// Open device files.
    pub handles: Option<u32>,
}

impl Selector {
    /// Whether it has no condition.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// How precise it is: of two that match, the higher wins.
    pub fn precision(&self) -> u32 {
        let precise = self.pod.is_some() || self.container.is_some() || self.label.is_some();
        4 * u32::from(precise)
            + 2 * u32::from(self.cgroup.is_some())
            + u32::from(self.user.is_some())
    }

    /// Which conditions are set.
    fn kinds(&self) -> [bool; 5] {
        [
            self.cgroup.is_some(),
            self.container.is_some(),
            self.pod.is_some(),
            self.label.is_some(),
            self.user.is_some(),
        ]
    }

    /// Whether some condition of both can never hold for one process.
    fn excludes(&self, other: &Self) -> bool {
        let both = |one: &Option<String>, two: &Option<String>, apart: fn(&str, &str) -> bool| matches!((one, two), (Some(one), Some(two)) if apart(one, two));
        both(&self.cgroup, &other.cgroup, |a, b| {
            !below(a, b) && !below(b, a)
        }) || both(&self.container, &other.container, |a, b| {
            !a.starts_with(b) && !b.starts_with(a)
        }) || both(&self.pod, &other.pod, |a, b| a != b)
            || matches!((&self.label, &other.label), (Some(a), Some(b)) if a.0 == b.0 && a.1 != b.1)
            || matches!((self.user, other.user), (Some(a), Some(b)) if a != b)
    }
}

/// Whether `path` is `parent` or below it.
fn below(path: &str, parent: &str) -> bool {
    let rest = path.strip_prefix(parent.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The file written in `text`; `file` names it in messages. The error is the first mistake of the text, with file,
/// line, key, value and remedy; tenants whose processes cannot be distinguished; guarantees of rate without a capacity.
///
/// ```
/// let text = r#"
/// [[tenant]]
/// name = "batch"
/// cgroup = "/kubepods.slice/batch"
/// guarantee = { control_requests_per_s = 200 }
/// "#;
/// let file = isolane_rdma_scenario::enforcement::parse(text, "profiles.toml")?;
/// assert_eq!(file.tenants[0].guarantee.control_requests_per_s, Some(200));
/// # Ok::<(), isolane_common_toml_input::error::InputError>(())
/// ```
pub fn parse(text: &str, file: &str) -> Result<Enforcement, InputError> {
    let source = Source { file, text };
    let tree = source.tree()?;
    let top = Table::open(source, tree.get_ref(), 0, ENFORCEMENT, None)?;
    let capacity = match top.table("capacity", CAPACITY)? {
        None => None,
        Some(table) => Some(NicCapacity {
            rate: table
                .rate("rate")?
                .expect("opening checked that it is there"),
            data_requests_per_s: table.count("data_requests_per_s")?.unwrap_or(DATA_REQUESTS),
        }),
    };
    let tables = top.tables("tenant")?;
    if tables.is_empty() || tables.len() > TENANTS_MAX {
        return Err(top.wrong("tenant", format!("must be 1 to {TENANTS_MAX} tables")));
    }
    let mut tenants: Vec<EnforcedTenant> = Vec::new();
    for (start, map) in tables {
        let table = Table::open(source, map, start, ENFORCED_TENANT, None)?;
        let tenant = tenant(&table)?;
        let table = table.placed(format!("tenant {:?}", tenant.name));
        distinct(&table, &tenant, &tenants)?;
        let promised =
            tenant.guarantee.rate.is_some() || tenant.guarantee.data_requests_per_s.is_some();
        if promised && capacity.is_none() {
            return Err(table.error_at(
                "guarantee",
                Problem::Promise {
                    problem: "a guarantee of rate or data requests needs the NIC's: add [capacity] with its rate".into(),
                },
            ));
        }
        tenants.push(tenant);
    }
    Ok(Enforcement {
        on_death: top.choice("on_death")?.unwrap_or_default(),
        capacity,
        tenants,
    })
}

fn tenant(table: &Table<'_>) -> Result<EnforcedTenant, InputError> {
    let name = table
        .text("name")?
        .expect("opening checked that it is there");
    let name = checked_name(table, name)?.to_owned();
    let table = &table.clone().placed(format!("tenant {name:?}"));
    let selector = selector(table)?;
    let others = table.flag("others")?.unwrap_or(false);
    if others && !selector.is_empty() {
        return Err(table.wrong(
            "others",
            "this tenant has conditions of its own: leave one of the two out",
        ));
    }
    let cap = cap(table, &selector)?;
    Ok(EnforcedTenant {
        name,
        selector,
        others,
        weight: table.count32("weight")?.unwrap_or(1),
        guarantee: promise::guarantee(table)?,
        control: control(table)?,
        cap,
    })
}

fn selector(table: &Table<'_>) -> Result<Selector, InputError> {
    let text = |key: &str| -> Result<Option<String>, InputError> {
        match table.text(key)? {
            Some(text) if text.trim().is_empty() => Err(table.wrong(key, "must not be empty")),
            text => Ok(text.map(str::to_owned)),
        }
    };
    let cgroup = text("cgroup")?;
    if cgroup.as_ref().is_some_and(|path| !path.starts_with('/')) {
        return Err(table.wrong(
            "cgroup",
            "must begin with /, as the line 0:: of /proc/PID/cgroup shows it",
        ));
    }
    let container = text("container")?;
    if container
        .as_ref()
        .is_some_and(|id| id.len() < CONTAINER_MIN)
    {
        return Err(table.wrong(
            "container",
            format!("must have {CONTAINER_MIN} characters at least, as the runtime prints it"),
        ));
    }
    let label = match table.text("label")? {
        None => None,
        Some(label) => match label.split_once('=') {
            Some((key, value)) if !key.is_empty() => Some((key.to_owned(), value.to_owned())),
            _ => return Err(table.wrong("label", "must be written key=value")),
        },
    };
    Ok(Selector {
        cgroup,
        container,
        pod: text("pod")?,
        label,
        user: table.count32("user")?,
    })
}

fn control(table: &Table<'_>) -> Result<ControlRates, InputError> {
    let Some(rates) = table.table("control", CONTROL_RATES)? else {
        return Ok(ControlRates::default());
    };
    Ok(ControlRates {
        queue_pairs: rates.count("queue_pairs")?,
        completion_queues: rates.count("completion_queues")?,
        memory_regions: rates.count("memory_regions")?,
        address_handles: rates.count("address_handles")?,
        others: rates.count("others")?,
        queries: rates.count("queries")?,
        burst: rates.count("burst")?,
    })
}

fn cap(table: &Table<'_>, selector: &Selector) -> Result<Cap, InputError> {
    let Some(cap) = table.table("cap", CAP)? else {
        return Ok(Cap::default());
    };
    if selector.cgroup.is_none() {
        return Err(table.wrong(
            "cap",
            "is a limit of a cgroup: name the tenant's cgroup as well",
        ));
    }
    Ok(Cap {
        objects: cap.count32("objects")?,
        handles: cap.count32("handles")?,
    })
}

/// Rejects a tenant that cannot be distinguished from an earlier one.
fn distinct(
    table: &Table<'_>,
    tenant: &EnforcedTenant,
    earlier: &[EnforcedTenant],
) -> Result<(), InputError> {
    for other in earlier {
        if other.name == tenant.name {
            return Err(table.wrong("name", "is the name of an earlier tenant: choose another"));
        }
        if other.others && tenant.others {
            return Err(table.wrong(
                "others",
                format!("tenant {:?} already takes all other processes", other.name),
            ));
        }
        let (one, two) = (&tenant.selector, &other.selector);
        let alike = !one.is_empty() && one.kinds() == two.kinds();
        if alike && !one.excludes(two) {
            let key = first_kind(ENFORCED_TENANT, one);
            return Err(table.wrong(
                key,
                format!(
                    "overlaps with tenant {:?}: a process could be of both; make the conditions exclude each other",
                    other.name
                ),
            ));
        }
    }
    Ok(())
}

/// The key of the first condition.
fn first_kind(keys: &[Key], selector: &Selector) -> &'static str {
    let names = ["cgroup", "container", "pod", "label", "user"];
    let set = selector.kinds();
    let name = names.iter().zip(set).find(|(_, set)| *set);
    let name = name.map_or("name", |(name, _)| name);
    keys.iter()
        .find(|key| key.name == name)
        .map_or("name", |key| key.name)
}
