//! Parses the file's text into checked values; each mistake is reported with its line.

use super::keys::{self, NAME_MAX, TABLES_MAX};
use super::{Listen, PEERS_MAX, Peer, Peering, Place, Port, Settings};
use crate::cgroups;
use crate::config::{Config, DeviceConfig, PolicyName, Rule, TenantConfig};
use isolane_common_linux::cgroup::is_pod_uid;
use isolane_common_quantities::units::Duration;
use isolane_common_toml_input::error::InputError;
use isolane_common_toml_input::keys::Key;
use isolane_common_toml_input::table::{Source, Table};
use isolane_rdma_policy::granularity::Granularity;
use isolane_rdma_session::message::Class;
use std::net::SocketAddr;
use std::path::PathBuf;

type Result<T> = std::result::Result<T, InputError>;

/// Parses `text`; `file` is its name in messages. The error is the first mistake: file, line, key, value, what is
/// allowed.
pub fn parse(file: &str, text: &str) -> Result<Settings> {
    let source = Source { file, text };
    let tree = source.tree()?;
    let top = Table::open(source, tree.get_ref(), 0, keys::TOP, None)?;
    let mut settings = Settings::for_devices(&[]);
    top_level(&top, &mut settings.config)?;
    set(&mut settings.control, path(&top, "control_socket")?);
    if settings.config.socket == settings.control {
        return Err(top.wrong("control_socket", "must differ from socket"));
    }
    for table in tables(&top, "device", keys::DEVICE)? {
        let device = device(&table)?;
        let place = place(&settings, &device.name);
        if place.is_some() {
            return Err(table.wrong("name", "is listed twice; merge the two [[device]]"));
        }
        settings.ports.push(port(&table)?);
        settings.config.devices.push(device);
    }
    if settings.config.devices.is_empty() {
        return Err(top.wrong(
            "device",
            "must list at least one device; ibv_devices shows them",
        ));
    }
    settings.peering = match top.table("peering", keys::PEERING)? {
        Some(table) => Some(Peering {
            listen: address(&table, "listen")?,
            key_file: path(&table, "key_file")?.expect("the key is required"),
        }),
        None => None,
    };
    for table in tables(&top, "peer", keys::PEER)? {
        let peer = peer(&table, &settings)?;
        if settings.peers.contains(&peer) {
            return Err(table.wrong("remote_device", "this peer is listed twice; remove one"));
        }
        let at_it =
            |one: &&Peer| one.device == peer.device || one.place == Place::Here(peer.device);
        if settings.peers.iter().filter(at_it).count() >= PEERS_MAX {
            let expected = format!(
                "has {PEERS_MAX} peers already, the most of a device; remove [[peer]] tables"
            );
            return Err(table.wrong("device", expected));
        }
        settings.peers.push(peer);
    }
    if settings.peers.is_empty() && settings.peering.is_none() {
        settings.peers = Settings::default_peers(settings.config.devices.len());
    }
    for table in tables(&top, "rule", keys::RULE)? {
        settings.config.rules.push(rule(&table)?);
    }
    for table in tables(&top, "tenant", keys::TENANT)? {
        let tenant = tenant(&table)?;
        let known = &settings.config.tenants;
        if known.iter().any(|other| other.name == tenant.name) {
            return Err(table.wrong("name", "is listed twice; remove one [[tenant]]"));
        }
        settings.config.tenants.push(tenant);
    }
    if let Some(table) = top.table("metrics", keys::METRICS)? {
        settings.metrics = Some(listen(&table)?);
    }
    Ok(settings)
}

fn top_level(top: &Table<'_>, config: &mut Config) -> Result<()> {
    set(&mut config.socket, path(top, "socket")?);
    set(&mut config.socket_mode, mode(top, "socket_mode")?);
    config.granularity = match top.choice::<String>("granularity")?.as_deref() {
        None => config.granularity,
        Some("application") => Granularity::Application,
        Some(_) => Granularity::Tenant,
    };
    set(&mut config.trust_names, top.flag("trust_names")?);
    set(&mut config.trust_classes, top.flag("trust_classes")?);
    set(&mut config.own_weight_max, top.count32("own_weight_max")?);
    config.period = top.duration("period")?;
    config.idle_after = top.duration("idle_after")?;
    let number = |key| Ok(top.count(key)?.map(|count| count as usize));
    set(&mut config.own_names_max, number("own_names_max")?);
    set(&mut config.sessions_max, number("sessions_max")?);
    set(
        &mut config.sessions_per_account_max,
        number("sessions_per_account_max")?,
    );
    if let (Some(idle_after), Some(period)) = (config.idle_after, config.period)
        && idle_after < period
    {
        return Err(top.wrong("idle_after", format!("must be at least period, {period}")));
    }
    Ok(())
}

fn place(settings: &Settings, name: &str) -> Option<usize> {
    let devices = &settings.config.devices;
    devices.iter().position(|device| device.name == name)
}

pub(super) fn set<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

/// The tables of one kind; each is named by its kind and its `name`.
fn tables<'a>(top: &Table<'a>, key: &str, keys: &'static [Key]) -> Result<Vec<Table<'a>>> {
    let list = top.tables(key)?;
    if list.len() > TABLES_MAX {
        return Err(top.wrong(key, format!("must be at most {TABLES_MAX}")));
    }
    let open = |(start, map)| {
        let table = Table::open(top.source(), map, start, keys, Some(key.to_owned()))?;
        let name = match keys.iter().any(|key| key.name == "name") {
            true => table.text("name")?,
            false => None,
        };
        Ok(match name {
            Some(name) => table.placed(format!("{key} {name:?}")),
            None => table,
        })
    };
    list.into_iter().map(open).collect()
}

/// A name: 1 to [`NAME_MAX`] bytes without spaces.
pub(super) fn name(table: &Table<'_>, key: &str) -> Result<Option<String>> {
    let Some(text) = table.text(key)? else {
        return Ok(None);
    };
    let plain = |c: char| !c.is_control() && !c.is_whitespace();
    match !text.is_empty() && text.len() <= NAME_MAX && text.chars().all(plain) {
        true => Ok(Some(text.to_owned())),
        false => Err(table.wrong(
            key,
            format!("must be a name of 1 to {NAME_MAX} bytes without spaces"),
        )),
    }
}

pub(super) fn path(table: &Table<'_>, key: &str) -> Result<Option<PathBuf>> {
    let Some(text) = table.text(key)? else {
        return Ok(None);
    };
    match text.starts_with('/') && text.len() > 1 {
        true => Ok(Some(text.into())),
        false => Err(table.wrong(key, "must be an absolute path")),
    }
}

/// Mode bits as octal text, because a number `0666` would be decimal.
fn mode(table: &Table<'_>, key: &str) -> Result<Option<u32>> {
    let Some(text) = table.text(key)? else {
        return Ok(None);
    };
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 && mode & 0o600 == 0o600 => Ok(Some(mode)),
        _ => Err(table.wrong(
            key,
            "must be octal mode bits in quotes that let the daemon itself in, \"0600\" to \"0777\"",
        )),
    }
}

fn address(table: &Table<'_>, key: &str) -> Result<Option<SocketAddr>> {
    let Some(text) = table.text(key)? else {
        return Ok(None);
    };
    match text.parse() {
        Ok(address) => Ok(Some(address)),
        Err(_) => Err(table.wrong(
            key,
            "must be an address and a port, like \"10.0.0.2:7471\" or \"[fd00::2]:7471\"; names are not looked up",
        )),
    }
}

fn device(table: &Table<'_>) -> Result<DeviceConfig> {
    let count = table.count("reference_count")?;
    Ok(DeviceConfig {
        name: name(table, "name")?.expect("the key is required"),
        policy: match table.choice::<String>("policy")?.as_deref() {
            Some("none") => PolicyName::None,
            _ => PolicyName::Justitia,
        },
        rate: table.rate("rate")?,
        message_rate_per_s: table.count("messages_per_s")?,
        target: target(table)?,
        reference_period: table.duration("reference_period")?,
        reference_count: count.map(|count| count as usize),
        chunk: table.size("chunk")?,
        chunk_without_latency: table.size("chunk_without_latency")?,
        additive_step: table.rate("additive_step")?,
        burst: table.duration("burst")?,
        burst_without_latency: table.duration("burst_without_latency")?,
    })
}

fn port(table: &Table<'_>) -> Result<Port> {
    let small = |key| Ok(table.count(key)?.map(|count| count as u8));
    let mut port = Port::default();
    set(&mut port.number, small("port")?);
    port.gid_index = small("gid_index")?;
    set(&mut port.target_factor, table.count32("target_factor")?);
    Ok(port)
}

/// `None` if the target is measured.
fn target(table: &Table<'_>) -> Result<Option<Duration>> {
    // A number without quotes is not text; the duration reader reports what is missing.
    let text = table
        .raw("target")
        .and_then(|value| value.get_ref().as_str());
    if text == Some("auto") || !table.has("target") {
        return Ok(None);
    }
    if table.has("target_factor") {
        return Err(table.wrong(
            "target_factor",
            "goes with target = \"auto\" only; remove one",
        ));
    }
    table.clone().with_keys(keys::TARGET_KEY).duration("target")
}

fn peer(table: &Table<'_>, settings: &Settings) -> Result<Peer> {
    let ours = name(table, "device")?.expect("the key is required");
    let theirs = name(table, "remote_device")?.expect("the key is required");
    let Some(device) = place(settings, &ours) else {
        return Err(table.wrong("device", "is not one of [[device]]; add it there"));
    };
    let place = match (address(table, "address")?, place(settings, &theirs)) {
        (Some(_), _) if settings.peering.is_none() => {
            return Err(table.wrong(
                "address",
                "needs the cluster's key; add [peering] with key_file",
            ));
        }
        (Some(address), _) => Place::There {
            address,
            device: theirs,
        },
        (None, None) => {
            let expected = "is not one of [[device]]; give the address of the daemon that has it";
            return Err(table.wrong("remote_device", expected));
        }
        (None, Some(other)) if other == device => {
            let expected =
                "is the same device; a reference flow to itself would not see the network";
            return Err(table.wrong("remote_device", expected));
        }
        (None, Some(other)) => Place::Here(other),
    };
    Ok(Peer { device, place })
}

fn rule(table: &Table<'_>) -> Result<Rule> {
    let own = |key| Ok(table.text(key)?.map(str::to_owned));
    let class = table.choice::<String>("class")?;
    tenant_is_safe(table)?;
    let rule = Rule {
        cgroup: cgroup(table)?,
        pod: pod(table)?,
        user: table.count32("user")?,
        program: own("program")?,
        claim: own("claim")?,
        tenant: name(table, "tenant")?,
        class: class
            .map(|class| Class::from_name(&class).expect("the list has the class's own names")),
        weight: table.count32("weight")?,
        watches_latency: false,
    };
    if rule.tenant.is_none() && rule.class.is_none() && rule.weight.is_none() {
        return Err(table.missing("tenant", "a rule must give tenant, class or weight"));
    }
    Ok(rule)
}

/// The pattern of a cgroup's path.
pub(super) fn cgroup(table: &Table<'_>) -> Result<Option<String>> {
    let Some(pattern) = table.text("cgroup")? else {
        return Ok(None);
    };
    match cgroups::mistake(pattern) {
        Some(mistake) => Err(table.wrong("cgroup", mistake)),
        None => Ok(Some(pattern.to_owned())),
    }
}

/// Whether only the host chooses the tenant's name. A name with `{cgroup}` needs a pod, or a pattern of cgroups that no
/// tenant creates.
pub(super) fn tenant_is_safe(table: &Table<'_>) -> Result<()> {
    let takes = table
        .text("tenant")?
        .is_some_and(|name| name.contains("{cgroup}"));
    let pattern = cgroup(table)?;
    let is_the_hosts = pattern.is_some_and(|pattern| cgroups::last_name_is_the_hosts(&pattern));
    match takes && !is_the_hosts && pod(table)?.is_none() {
        true => Err(table.wrong(
            "tenant",
            "has {cgroup}, which a tenant that creates cgroups chooses here; use {owner}, or a cgroup with * in its last part alone",
        )),
        false => Ok(()),
    }
}

/// The UID of a pod, with dashes.
pub(super) fn pod(table: &Table<'_>) -> Result<Option<String>> {
    match table.text("pod")? {
        Some(uid) if !is_pod_uid(uid) => Err(table.wrong(
            "pod",
            "must be the pod's UID: 32 lower-case hexadecimal digits and dashes",
        )),
        uid => Ok(uid.map(str::to_owned)),
    }
}

fn tenant(table: &Table<'_>) -> Result<TenantConfig> {
    Ok(TenantConfig {
        name: name(table, "name")?.expect("the key is required"),
        weight: table.count32("weight")?.expect("the key is required"),
    })
}

fn listen(table: &Table<'_>) -> Result<Listen> {
    let text = table.text("listen")?.expect("the key is required");
    if let Some(path) = text.strip_prefix("unix:") {
        return match path.starts_with('/') && path.len() > 1 {
            true => Ok(Listen::Unix(path.into())),
            false => Err(table.wrong("listen", "must have an absolute path behind unix:")),
        };
    }
    let Ok(address) = text.parse::<SocketAddr>() else {
        return Err(table.wrong(
            "listen",
            "must be \"unix:/absolute/path\" or an address and a port, like \"127.0.0.1:9471\"",
        ));
    };
    match address.ip().is_loopback() || table.flag("expose")? == Some(true) {
        true => Ok(Listen::Tcp(address)),
        false => Err(table.wrong(
            "listen",
            "can be reached by other machines, and metrics name tenants; use 127.0.0.1, or say expose = true",
        )),
    }
}
