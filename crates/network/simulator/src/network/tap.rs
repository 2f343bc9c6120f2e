//! Reports every packet, for traces.

use super::DropReason;
use crate::packet::Packet;
use crate::topology::PortId;
use isolane_common_quantities::units::Instant;

/// What happens to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TapMoment {
    /// Its first bit leaves the port.
    Left,
    /// It has come whole to the host that the port belongs to, and that it is for.
    Arrived,
    /// The port has no room for it.
    Dropped(DropReason),
}

/// An observer of packets.
pub trait Tap: std::fmt::Debug {
    /// Something happens to `packet` at `port`, `at` this time.
    fn saw(&mut self, at: Instant, port: PortId, moment: TapMoment, packet: &Packet);
}
