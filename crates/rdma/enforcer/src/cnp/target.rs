//! Whom a notification may be sent to: flows of this host's tenants, and nobody else.
//!
//! Problem: a forged notification slows a sender down. Sent to somebody else's, it would be an attack. Method: a
//! [`Target`] has private fields and one constructor, which takes a queue pair out of the kernel's inventory of this host
//! and a port of this host; the notification's IP and Ethernet destination is that port, its queue pair that queue pair.
//! No address of another host can become a destination, and no bytes of a tenant take part.
//!
//! What it can slow is therefore what this host sends: the tenant's WRITEs, SENDs and atomics, and the READs of others
//! that it answers. READs that the tenant asks for are sent by the other host, which alone could slow them.
//!
//! Source: harmonic 5.5.1, which sends to any sender end of a tenant's connections; sending to this host only is ours.

use super::packet::{Addresses, Notification};
use isolane_rdma_inventory::rdma::{QueuePair, QueuePairKind, QueuePairState};
use std::net::IpAddr;

/// Code point of notifications unless the operator's network has another: 48, as NICs of several vendors send them.
pub const CODE_POINT: u8 = 48;
/// UDP source ports of RoCEv2 lie in the dynamic range.
const PORT_BASE: u16 = 0xc000;

/// A port of this host's NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalPort {
    /// Its Ethernet address.
    hardware: [u8; 6],
    /// An address of its GID table.
    address: IpAddr,
}

impl LocalPort {
    /// The port of the RDMA device `device`, as this host's `/sys` describes it; none where it has no Ethernet address or
    /// no RoCEv2 address.
    pub fn read(root: &isolane_common_linux::Root, device: &str, port: u32) -> Option<Self> {
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
        // Flows over IPv4 are the usual ones.
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

/// A flow that may be slowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    port: LocalPort,
    queue_pair: u32,
    peer: Option<IpAddr>,
}

impl Target {
    /// The flow of `queue_pair`, which the kernel says is on this host, through `port`, the port of its device. `peer` is
    /// its other end where the kernel knows it (connections made through the connection manager); it only stands as the
    /// source. None for a queue pair that cannot send, has no user process, or knows no congestion control (UD, raw).
    pub fn of(queue_pair: &QueuePair, port: LocalPort, peer: Option<IpAddr>) -> Option<Self> {
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

    /// Its queue pair.
    pub fn queue_pair(&self) -> u32 {
        self.queue_pair
    }

    /// What to tell it, from the Ethernet address `source_hardware`.
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
