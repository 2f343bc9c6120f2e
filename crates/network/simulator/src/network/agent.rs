//! What a switch does with packets that carry requests of a transport (D3, PDQ): it reads them, writes into them, and
//! keeps state per port.
//!
//! A packet with [`flags::VISIT_PORTS`](crate::packet::flags::VISIT_PORTS) is shown to the network's one agent at each
//! node of its way, before it waits at the port that it leaves through. The agent acts for all ports and keeps a state
//! per [`PortId`].

use crate::packet::Packet;
use crate::topology::PortId;
use isolane_common_quantities::units::{BitRate, Bytes, Instant};

/// Where a packet is when the agent sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    /// When.
    pub now: Instant,
    /// The port that it leaves through; none at the host it is for.
    pub leaves: Option<PortId>,
    /// The port towards the packet's source; none at the host that sent it. An answer on the reverse path of its
    /// request passes the ports through which the request left.
    pub back: Option<PortId>,
    /// Rate of `leaves`; zero without.
    pub rate: BitRate,
    /// Bytes that wait at `leaves`, all classes; zero without.
    pub queued: Bytes,
}

/// The program of the switches.
pub trait PortAgent: std::fmt::Debug {
    /// A packet passes. Everything but where it goes and how long it is may be changed.
    fn visit(&mut self, visit: Visit, packet: &mut Packet);
}
