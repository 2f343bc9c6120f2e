//! `[network]` of a scenario of RDMA hosts: a network in the place of its cable or switch.
//!
//! The tables are those of a network's own scenario, below `[network]`; run times and seed are the scenario's. `hosts`
//! says which hosts of the network the scenario's hosts a, b, ... are: there the RNIC model takes the place of the host,
//! and no other traffic begins or ends there.

use super::{groups, limits, lists, named, network};
use crate::keys::BEHIND;
use crate::model::{
    Behind, FabricPolicy, FabricPolicyKind, FabricScenario, FabricTopology, Pattern, PortSettings,
    Traffic, TrafficClass,
};
use isolane_common_quantities::units::{BitRate, Duration};
use isolane_common_toml_input::error::{InputError, Problem};
use isolane_common_toml_input::table::Table;
use std::collections::BTreeMap;

/// What the scenario says elsewhere.
pub struct Around<'a> {
    /// The name of the hosts' scenario.
    pub name: &'a str,
    /// Its warm-up.
    pub warmup: Duration,
    /// Its measured time.
    pub duration: Duration,
    /// Its run seed.
    pub seed: u64,
    /// Hosts a, b, ... that the scenario uses.
    pub hosts: usize,
    /// Rate of the device's link.
    pub rate: BitRate,
}

/// Reads `[network]`, if it is there.
pub fn read(top: &Table<'_>, around: &Around<'_>) -> Result<Option<Behind>, InputError> {
    let Some(table) = top.table("network", BEHIND)? else {
        return Ok(None);
    };
    let table = table.placed("network".to_owned());
    let topology = network::topology(&table)?;
    let hosts = lists::hosts(&table, "hosts", topology.shape.hosts())?;
    let hosts = hosts.expect("the key is required");
    check_hosts(&table, &topology, &hosts, around)?;
    let ports = network::ports(&table)?;
    check_pauses(&table, &ports)?;
    let classes = match table.has("class") {
        true => network::classes(&table, FabricPolicyKind::None, &ports)?,
        false => vec![TrafficClass {
            name: "all".to_owned(),
            weight: 1,
            buffer: None,
            slo: None,
        }],
    };
    let end = around.warmup + around.duration;
    let traffic = match table.has("traffic") {
        true => groups::read(&table, &topology, &classes, end)?,
        false => Vec::new(),
    };
    check_apart(&table, &traffic, &hosts)?;
    let transport = named::transport(&table, &ports)?;
    let fabric = FabricScenario {
        name: around.name.to_owned(),
        description: String::new(),
        topology,
        ports,
        classes,
        transport,
        policy: FabricPolicy {
            kind: FabricPolicyKind::None,
            parameters: BTreeMap::new(),
        },
        traffic,
        warmup: around.warmup,
        duration: around.duration,
        calls: None,
        drain: Duration::ZERO,
        seed: around.seed,
        sample_interval: None,
        per_pair: false,
    };
    if !fabric.traffic.is_empty() {
        limits::loads(&table, &fabric)?;
    }
    Ok(Some(Behind { hosts, fabric }))
}

/// Each of the scenario's hosts has a place, whose link has the device's rate.
fn check_hosts(
    table: &Table<'_>,
    topology: &FabricTopology,
    hosts: &[u32],
    around: &Around<'_>,
) -> Result<(), InputError> {
    if hosts.len() < around.hosts {
        let expected = format!(
            "places {} hosts, and the tenants use {}, a to the last: must name one for each",
            hosts.len(),
            around.hosts
        );
        return Err(table.wrong("hosts", expected));
    }
    if topology.host_rate != around.rate {
        let expected = format!(
            "is {}, and the device's link has {}: must be the same, because the device sends through it",
            topology.host_rate, around.rate
        );
        let problem = Problem::value("rate", topology.host_rate.to_string(), expected);
        return Err(table.error_at("fabric", problem));
    }
    Ok(())
}

/// Ports pause their peers, until they take the pause back.
fn check_pauses(table: &Table<'_>, ports: &PortSettings) -> Result<(), InputError> {
    let Some(pfc) = ports.pfc else {
        let expected = "must pause rather than drop, because the device repeats nothing: set ports.pfc = { xoff = \
                        ..., xon = ... }";
        let problem = Problem::value("ports", "without pfc".to_owned(), expected.to_owned());
        return Err(table.error_at("ports", problem));
    };
    let Some(quanta) = pfc.quanta else {
        return Ok(());
    };
    let expected = "is not for networks of devices, whose own pauses hold until they are taken back: leave it out";
    let problem = Problem::value("quanta", quanta.to_string(), expected.to_owned());
    Err(table.error_at("ports", problem))
}

/// Traffic of the network uses none of the scenario's own hosts.
fn check_apart(table: &Table<'_>, traffic: &[Traffic], hosts: &[u32]) -> Result<(), InputError> {
    for group in traffic {
        if let Some(host) = hosts.iter().find(|&&host| touches(&group.pattern, host)) {
            let expected = format!(
                "begins or ends at host {host}, which is one of the scenario's own: must use others"
            );
            let problem = Problem::value("traffic", format!("{:?}", group.name), expected);
            return Err(table.error_at("traffic", problem));
        }
    }
    Ok(())
}

fn touches(pattern: &Pattern, host: u32) -> bool {
    match pattern {
        Pattern::AllToAll { hosts }
        | Pattern::Permutation { hosts }
        | Pattern::Shuffle { hosts } => hosts.contains(&host),
        Pattern::Incast { senders, receiver } => senders.contains(&host) || *receiver == host,
        Pattern::Pairs { pairs } => pairs.iter().any(|&(from, to)| from == host || to == host),
    }
}
