//! The shapes: the neighbours of each node.
//!
//! Each shape lists its switches with the hosts below them and returns the node at the other end of a switch's port;
//! ports, pairs and routes follow from that in one place.

use super::{NodeId, PortId, PortSpec, Route, Topology};
use isolane_common_quantities::units::{BitRate, Duration};
use isolane_network_scenario::model::{FabricTopology, HOSTS_MAX, Shape};

/// A switch of a shape: its place in the tree.
struct Switch {
    name: String,
    /// First host below.
    low: u32,
    /// Hosts below each down port.
    span: u32,
    downs: u32,
    /// Up ports.
    ups: u32,
}

/// The other end of a switch's port.
enum Peer {
    Host(u32),
    /// A switch and the number of its port within the switch.
    Switch(u32, u32),
}

impl Topology {
    /// Builds `spec`. Panics for a shape that the parser refuses: no hosts, more than [`HOSTS_MAX`], a fat tree of odd
    /// k.
    pub fn new(spec: &FabricTopology) -> Self {
        let rate = spec.host_rate;
        match spec.shape {
            Shape::SingleSwitch { hosts } => single(spec, hosts),
            Shape::LeafSpine {
                leaves,
                spines,
                hosts_per_leaf,
                uplink_rate,
            } => leaf_spine(spec, [leaves, spines, hosts_per_leaf], uplink_rate),
            Shape::FatTree { k } => fat_tree(spec, k, rate),
            Shape::TwoRacks {
                hosts_per_rack,
                uplink_rate,
            } => two_racks(spec, hosts_per_rack, uplink_rate),
        }
    }
}

fn single(spec: &FabricTopology, hosts: u32) -> Topology {
    let switch = switch("switch".to_owned(), 0, 1, hosts, 0);
    assemble(spec, hosts, vec![switch], |_, port| {
        (Peer::Host(port), spec.host_rate)
    })
}

fn leaf_spine(
    spec: &FabricTopology,
    [leaves, spines, below]: [u32; 3],
    uplink_rate: BitRate,
) -> Topology {
    let leaf = |leaf| switch(format!("leaf{leaf}"), leaf * below, 1, below, spines);
    let spine = |spine| switch(format!("spine{spine}"), 0, below, leaves, 0);
    let switches = (0..leaves).map(leaf).chain((0..spines).map(spine));
    assemble(spec, leaves * below, switches.collect(), |switch, port| {
        if switch >= leaves {
            (Peer::Switch(port, below + switch - leaves), uplink_rate)
        } else if port < below {
            (Peer::Host(switch * below + port), spec.host_rate)
        } else {
            (Peer::Switch(leaves + port - below, switch), uplink_rate)
        }
    })
}

/// Edges first, then aggregation switches, then cores. Aggregation switch j of every pod has the cores
/// j * k/2 to (j + 1) * k/2 - 1 above it.
fn fat_tree(spec: &FabricTopology, k: u32, rate: BitRate) -> Topology {
    assert!(k >= 2 && k.is_multiple_of(2), "a fat tree's k is even: {k}");
    let half = k / 2;
    let (edges, pod) = (k * half, half * half);
    let edge = |edge| switch(format!("edge{edge}"), edge * half, 1, half, half);
    let aggregation = |number| {
        let low = number / half * pod;
        switch(format!("agg{number}"), low, half, half, half)
    };
    let core = |core| switch(format!("core{core}"), 0, pod, k, 0);
    let switches = (0..edges)
        .map(edge)
        .chain((0..edges).map(aggregation))
        .chain((0..pod).map(core));
    assemble(spec, k * pod, switches.collect(), |switch, port| {
        let peer = if switch < edges {
            let (in_pod, place) = (switch / half * half, switch % half);
            match port.checked_sub(half) {
                None => Peer::Host(switch * half + port),
                Some(up) => Peer::Switch(edges + in_pod + up, place),
            }
        } else if switch < 2 * edges {
            let (pod, place) = ((switch - edges) / half, (switch - edges) % half);
            match port.checked_sub(half) {
                None => Peer::Switch(pod * half + port, half + place),
                Some(up) => Peer::Switch(2 * edges + place * half + up, pod),
            }
        } else {
            let core = switch - 2 * edges;
            Peer::Switch(edges + port * half + core / half, half + core % half)
        };
        (peer, rate)
    })
}

fn two_racks(spec: &FabricTopology, below: u32, uplink_rate: BitRate) -> Topology {
    let rack = |rack| switch(format!("tor{rack}"), rack * below, 1, below, 1);
    let core = switch("core".to_owned(), 0, below, 2, 0);
    let switches = vec![rack(0), rack(1), core];
    assemble(spec, 2 * below, switches, |switch, port| {
        if switch == 2 {
            (Peer::Switch(port, below), uplink_rate)
        } else if port < below {
            (Peer::Host(switch * below + port), spec.host_rate)
        } else {
            (Peer::Switch(2, switch), uplink_rate)
        }
    })
}

fn switch(name: String, low: u32, span: u32, downs: u32, ups: u32) -> Switch {
    Switch {
        name,
        low,
        span,
        downs,
        ups,
    }
}

fn assemble(
    spec: &FabricTopology,
    hosts: u32,
    switches: Vec<Switch>,
    peer: impl Fn(u32, u32) -> (Peer, BitRate),
) -> Topology {
    assert!(
        (1..=HOSTS_MAX).contains(&hosts),
        "{hosts} hosts, and a network has 1 to {HOSTS_MAX}"
    );
    let mut next = hosts;
    let routes: Vec<Route> = switches
        .iter()
        .map(|switch| {
            let first = next;
            next += switch.downs + switch.ups;
            Route {
                low: switch.low,
                below: switch.span * switch.downs,
                reciprocal: (1_u64 << 32).div_ceil(u64::from(switch.span)),
                first,
                up: first + switch.downs,
                ups: switch.ups,
            }
        })
        .collect();
    let mut ports_of: Vec<Vec<PortId>> = (0..hosts).map(|host| vec![PortId(host)]).collect();
    let mut ports = vec![unconnected(spec.hop_delay); hosts as usize];
    for (number, switch) in switches.iter().enumerate() {
        let (number, first) = (number as u32, routes[number].first);
        let node = NodeId(hosts + number);
        for local in 0..switch.downs + switch.ups {
            let (peer, rate) = peer(number, local);
            let (to, back) = match peer {
                Peer::Host(host) => (NodeId(host), PortId(host)),
                Peer::Switch(other, port) => {
                    let back = routes[other as usize].first + port;
                    (NodeId(hosts + other), PortId(back))
                }
            };
            if let Peer::Host(host) = peer {
                ports[host as usize] = PortSpec {
                    from: to,
                    to: node,
                    back: PortId(first + local),
                    rate: spec.nic_rate,
                    delay: spec.hop_delay,
                };
            }
            ports.push(PortSpec {
                from: node,
                to,
                back,
                rate,
                delay: spec.hop_delay,
            });
        }
        ports_of.push((first..ports.len() as u32).map(PortId).collect());
    }
    let mut names: Vec<String> = (0..hosts).map(|host| format!("host{host}")).collect();
    names.extend(switches.into_iter().map(|switch| switch.name));
    Topology {
        hosts,
        names,
        ports,
        ports_of,
        routes,
    }
}

/// A host's port until its switch is reached.
fn unconnected(delay: Duration) -> PortSpec {
    PortSpec {
        from: NodeId(u32::MAX),
        to: NodeId(u32::MAX),
        back: PortId(u32::MAX),
        rate: BitRate::ZERO,
        delay,
    }
}
