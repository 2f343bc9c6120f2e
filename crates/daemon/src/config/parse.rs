//! The file's text to checked values, every mistake with its line.

use super::keys::{self, NAME_MAX, TABLES_MAX};
use super::{Config, DeviceConfig, Listen, PeerConfig, Peering, TARGET_FACTOR, Target, TenantRule};
use isolane_proto::message::Class;
use isolane_scenario::error::InputError;
use isolane_scenario::table::{Key, Source, Table};
use std::net::SocketAddr;
use std::path::PathBuf;

type Result<T> = std::result::Result<T, InputError>;

/// The configuration that `text` says; `file` is its name in messages.
///
/// # Errors
/// The first mistake: file, line, key, value, what is allowed.
pub fn parse(file: &str, text: &str) -> Result<Config> {
    let source = Source { file, text };
    let tree = source.tree()?;
    let top = Table::open(source, tree.get_ref(), 0, keys::TOP, None)?;
    let mut config = Config::for_devices(&[]);
    set(&mut config.socket, path(&top, "socket")?);
    set(&mut config.socket_mode, mode(&top, "socket_mode")?);
    set(&mut config.control, path(&top, "control_socket")?);
    set(&mut config.policy, top.choice("policy")?);
    set(&mut config.granularity, top.choice("granularity")?);
    set(&mut config.trust_declared, top.flag("trust_declared")?);
    set(
        &mut config.declared_weight_max,
        top.count32("declared_weight_max")?,
    );
    if config.socket == config.control {
        return Err(top.wrong("control_socket", "must differ from socket"));
    }
    for (index, table) in tables(&top, "device", keys::DEVICE)?.iter().enumerate() {
        let device = device(table)?;
        if config.devices[..index]
            .iter()
            .any(|other| other.name == device.name)
        {
            return Err(table.wrong("name", "is listed twice; merge the two [[device]]"));
        }
        config.devices.push(device);
    }
    if config.devices.is_empty() {
        return Err(top.wrong(
            "device",
            "must list at least one device; ibv_devices shows them",
        ));
    }
    config.peering = match top.table("peering", keys::PEERING)? {
        Some(table) => Some(Peering {
            listen: address(&table, "listen")?,
            key_file: path(&table, "key_file")?.expect("the key is required"),
        }),
        None => None,
    };
    for table in tables(&top, "peer", keys::PEER)? {
        let peer = peer(&table, &config)?;
        if config.peers.contains(&peer) {
            return Err(table.wrong("remote_device", "this peer is listed twice; remove one"));
        }
        config.peers.push(peer);
    }
    for table in tables(&top, "tenant", keys::TENANT)? {
        config.tenants.push(tenant(&table)?);
    }
    if let Some(table) = top.table("metrics", keys::METRICS)? {
        config.metrics = Some(listen(&table)?);
    }
    Ok(config)
}

fn set<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

/// The tables of one kind, opened, each named by what it is and its `name`.
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

/// A name: not empty, not long, plain.
fn name(table: &Table<'_>, key: &str) -> Result<Option<String>> {
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

fn path(table: &Table<'_>, key: &str) -> Result<Option<PathBuf>> {
    let Some(text) = table.text(key)? else {
        return Ok(None);
    };
    match text.starts_with('/') && text.len() > 1 {
        true => Ok(Some(text.into())),
        false => Err(table.wrong(key, "must be an absolute path")),
    }
}

/// Mode bits, as text in octal so that `0666` is not read as a decimal number.
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
    let mut device = DeviceConfig::named(&name(table, "name")?.expect("the key is required"));
    let small = |key| Ok(table.count(key)?.map(|count| count as u8));
    set(&mut device.port, small("port")?);
    device.gid_index = small("gid_index")?;
    device.rate = table.rate("rate")?;
    device.messages_per_s = table.count("messages_per_s")?;
    device.target = target(table)?;
    device.reference_period = table.duration("reference_period")?;
    if let Some(count) = table.count("reference_count")? {
        device.reference_count = count as usize;
    }
    Ok(device)
}

fn target(table: &Table<'_>) -> Result<Target> {
    let factor = table.count32("target_factor")?;
    // A number without quotes is no text; the reader of durations says what is missing.
    let text = table
        .raw("target")
        .and_then(|value| value.get_ref().as_str());
    if text == Some("auto") || !table.has("target") {
        let factor = factor.unwrap_or(TARGET_FACTOR);
        return Ok(Target::Auto { factor });
    }
    if factor.is_some() {
        return Err(table.wrong(
            "target_factor",
            "goes with target = \"auto\" only; remove one",
        ));
    }
    let target = table.clone().with_keys(keys::TARGET_KEY).duration("target");
    match target? {
        Some(target) => Ok(Target::Fixed(target)),
        None => unreachable!("the table has the key"),
    }
}

fn peer(table: &Table<'_>, config: &Config) -> Result<PeerConfig> {
    let peer = PeerConfig {
        device: name(table, "device")?.expect("the key is required"),
        address: address(table, "address")?,
        remote_device: name(table, "remote_device")?.expect("the key is required"),
    };
    if config.device(&peer.device).is_none() {
        return Err(table.wrong("device", "is not one of [[device]]; add it there"));
    }
    match peer.address {
        None if config.device(&peer.remote_device).is_none() => Err(table.wrong(
            "remote_device",
            "is not one of [[device]]; give the address of the daemon that has it",
        )),
        None if peer.remote_device == peer.device => Err(table.wrong(
            "remote_device",
            "is the same device; a reference flow to itself would not see the network",
        )),
        Some(_) if config.peering.is_none() => Err(table.wrong(
            "address",
            "needs the cluster's key; add [peering] with key_file",
        )),
        _ => Ok(peer),
    }
}

fn tenant(table: &Table<'_>) -> Result<TenantRule> {
    let class = table.choice::<String>("class")?;
    let rule = TenantRule {
        name: name(table, "name")?.expect("the key is required"),
        cgroup: table.text("cgroup")?.map(str::to_owned),
        user: table.count32("user")?,
        program: table.text("program")?.map(str::to_owned),
        declared: table.text("declared")?.map(str::to_owned),
        class: class
            .map(|class| Class::from_name(&class).expect("the list has the class's own names")),
        weight: table.count32("weight")?,
    };
    let conditions = [&rule.cgroup, &rule.program, &rule.declared];
    if conditions.iter().all(|condition| condition.is_none()) && rule.user.is_none() {
        let expected = "has no condition; give cgroup, user, program or declared, or cgroup = \"*\" for everyone";
        return Err(table.wrong("name", expected));
    }
    Ok(rule)
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
