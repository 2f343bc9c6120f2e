//! The permitted destinations of notifications: flows of this host's tenants and no others.
//!
//! Problem: a forged notification slows a sender down; sent to another host's flow, it is an attack. Method: a
//! [`Target`] has private fields and one constructor. The constructor takes a queue pair from the kernel's inventory of
//! this host and a port of this host, and these become the destination. No address of another host and no bytes of a
//! tenant can become a destination.
//!
//! A notification therefore slows only what this host sends: the tenant's WRITEs, SENDs and atomics, and READ
//! responses. The data of a tenant's own READs is sent by the other host, and only that host could slow it.
//!
//! Source: harmonic 5.5.1, which notifies any sender of a tenant's connections. The restriction to this host is ours.

use super::packet::{Addresses, Notification};
use isolane_rdma_inventory::rdma::{QueuePair, QueuePairKind, QueuePairState};
use std::net::IpAddr;

/// Default code point of notifications: 48, the default of several RNIC vendors.
pub(crate) const CODE_POINT: u8 = 48;
/// UDP source ports of RoCEv2 are in the dynamic range.
const PORT_BASE: u16 = 0xc000;

/// A port of an RNIC of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LocalPort {
    /// Ethernet address.
    hardware: [u8; 6],
    /// An address of the GID table.
    address: IpAddr,
}

impl LocalPort {
    /// Reads the port of the RDMA device `device` from `/sys`. `None` without an Ethernet address or a RoCEv2 address.
    pub(crate) fn read(root: &isolane_common_linux::Root, device: &str, port: u32) -> Option<Self> {
        let folder = format!("/sys/class/infiniband/{device}/ports/{port}");
        let entries = root.list(&format!("{folder}/gids"));
        let addresses = entries.iter().filter_map(|index| {
            let kind = root.text(&format!("{folder}/gid_attrs/types/{index}"))?;
            let gid = root.text(&format!("{folder}/gids/{index}"))?;
            let interface = root.text(&format!("{folder}/gid_attrs/ndevs/{index}"))?;
            let gid: std::net::Ipv6Addr = gid.parse().ok()?;
            let usable = kind.contains("v2") && !gid.is_unspecified();
            usable.then_some((gid, interface))
        });
        // Prefer IPv4: most flows use it.
        let (gid, interface) = addresses.min_by_key(|(gid, _)| gid.to_ipv4_mapped().is_none())?;
        let hardware = root.text(&format!("/sys/class/net/{interface}/address"))?;
        Some(Self {
            hardware: hardware_address(&hardware)?,
            address: gid.to_canonical(),
        })
    }
}

pub(super) fn hardware_address(text: &str) -> Option<[u8; 6]> {
    let mut bytes = [0; 6];
    let mut words = text.split(':');
    for byte in &mut bytes {
        *byte = u8::from_str_radix(words.next()?, 16).ok()?;
    }
    words.next().is_none().then_some(bytes)
}

/// A flow that can be slowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    port: LocalPort,
    queue_pair: u32,
    peer: Option<IpAddr>,
}

impl Target {
    /// The flow of `queue_pair`, from the kernel's inventory, through `port` of its device. `peer` is the remote
    /// address where the kernel knows it (connections of the connection manager); it becomes only the source address.
    /// `None` for a queue pair that cannot send, has no user process, or has no congestion control (UD, raw).
    pub(crate) fn of(
        queue_pair: &QueuePair,
        port: LocalPort,
        peer: Option<IpAddr>,
    ) -> Option<Self> {
        let sends = matches!(
            queue_pair.state,
            QueuePairState::ReadyToSend | QueuePairState::SendQueueDrained
        );
        let controlled = matches!(
            queue_pair.kind,
            QueuePairKind::ReliableConnection
                | QueuePairKind::UnreliableConnection
                | QueuePairKind::ExtendedInitiator
        );
        let ours = queue_pair.holder.process().is_some();
        let alike = peer.filter(|peer| peer.is_ipv4() == port.address.is_ipv4());
        (sends && controlled && ours && queue_pair.number < 1 << 24).then_some(Self {
            port,
            queue_pair: queue_pair.number,
            peer: alike,
        })
    }

    /// Builds the notification with the source Ethernet address `source_hardware`.
    pub(super) fn notification(&self, source_hardware: [u8; 6], code_point: u8) -> Notification {
        let addresses = match (self.port.address, self.peer.unwrap_or(self.port.address)) {
            (IpAddr::V4(destination), IpAddr::V4(source)) => Addresses::V4 {
                source,
                destination,
            },
            (IpAddr::V6(destination), IpAddr::V6(source)) => Addresses::V6 {
                source,
                destination,
            },
            _ => unreachable!("the constructor keeps a peer of the same kind only"),
        };
        Notification {
            source_hardware,
            destination_hardware: self.port.hardware,
            addresses,
            source_port: PORT_BASE | self.queue_pair as u16 & !PORT_BASE,
            queue_pair: self.queue_pair,
            code_point,
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
