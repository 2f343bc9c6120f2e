//! Hosts, switches, links, and routes.
//!
//! Problem: thousands of hosts must not need a table of host pairs, and equal-cost ways must be used evenly.
//!
//! Method: every shape is a tree whose upper tiers are multiplied (a folded Clos network), hosts numbered from left to
//! right. A switch therefore has a contiguous range of hosts below it, cut evenly between its down ports; a packet for
//! a host in the range goes down through the port that is a division away, any other goes up through a port chosen by
//! a hash of the packet's [`path`], its destination and the switch. So packets of equal path and destination stay in
//! order, switches choose independently of each other, and a route costs some forty bytes per switch.
//!
//! A node is a host or a switch. A port is one direction of a link: it belongs to the node that sends through it.
//! Ports come in pairs ([`PortSpec::back`]). Hosts have one port each, and host h's is port h; the ports of a switch
//! are numbered consecutively, down ports first.
//!
//! Limits: links do not fail, and all links of one tier have one rate.
//!
//! [`path`]: crate::packet::Packet::path

mod build;
#[cfg(test)]
mod tests;

use crate::packet::HostId;
use isolane_common_quantities::units::{BitRate, Duration};

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
    routes: Vec<Route>,
}

/// How one switch finds the way.
#[derive(Clone, Copy, Debug)]
struct Route {
    /// First host below.
    low: u32,
    /// Hosts below.
    below: u32,
    /// 2^32 over the hosts below one down port, rounded up: a division as a multiplication.
    reciprocal: u64,
    /// First port, the first down port.
    first: u32,
    /// First up port.
    up: u32,
    /// Up ports; 0 at the top.
    ups: u32,
}

impl Topology {
    /// The port through which `node` sends a packet for `to`; equal-cost ones are chosen by `path`.
    #[inline]
    pub fn way(&self, node: NodeId, to: HostId, path: u16) -> PortId {
        if node.0 < self.hosts {
            return PortId(node.0);
        }
        let route = &self.routes[(node.0 - self.hosts) as usize];
        let offset = u32::from(to.0).wrapping_sub(route.low);
        if offset < route.below {
            // Exact, since offset times the divisor is below 2^32 (at most 2^14 hosts).
            let down = (u64::from(offset) * route.reciprocal) >> 32;
            return PortId(route.first + down as u32);
        }
        let hash = mix(u64::from(node.0) << 32 | u64::from(to.0) << 16 | u64::from(path)) >> 32;
        PortId(route.up + ((hash * u64::from(route.ups)) >> 32) as u32)
    }

    /// The first port of a switch, counted without hosts.
    #[inline]
    pub(crate) fn first_port(&self, switch: u32) -> u32 {
        self.routes[switch as usize].first
    }

    /// Switches.
    pub fn switches(&self) -> u32 {
        self.routes.len() as u32
    }

    /// `leaf2->spine0`.
    pub fn port_name(&self, port: PortId) -> String {
        let spec = self.ports[port.0 as usize];
        let (from, to) = (spec.from.0 as usize, spec.to.0 as usize);
        format!("{}->{}", self.names[from], self.names[to])
    }
}

/// Spreads every bit of `x` over the upper half of the result: the finaliser of splitmix64.
#[inline]
fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
