//! Hosts whose port is elsewhere: a NIC with a transmitter of its own, which hands frames over when they have left it.
//!
//! Its port of this network sends nothing, but models the link: frames reach the first switch after the link's delay,
//! the switch's pauses for it are passed on ([`Network::is_paused`]), and the NIC's own pauses hold the switch's port
//! towards it.

use super::{Event, Network};
use crate::packet::{HostId, Packet, PacketId, PacketKind};
use isolane_common_quantities::units::Instant;
use isolane_network_scenario::model::CLASSES_MAX;

impl Network {
    /// When the next event of the network is due.
    pub fn next_time(&self) -> Option<Instant> {
        self.events.peek_time()
    }

    /// Takes a packet whose last bit leaves the NIC of `packet.from` at `leaves`.
    pub fn take_over(&mut self, mut packet: Packet, leaves: Instant) -> PacketId {
        let state = &mut self.ports[usize::from(packet.from.0)];
        packet.hops = 1;
        packet.ingress = state.enters;
        state.sent += u64::from(packet.bytes);
        let (to, arrival) = (state.to, Instant::from_ps(leaves.as_ps() + state.delay));
        self.counts.sent += 1;
        self.counts.data += u64::from(packet.kind == PacketKind::Data);
        self.counts.on_wire += 1;
        let id = self.packets.insert(packet);
        self.events.schedule(arrival, Event::Arrive(id, to));
        id
    }

    /// Whether the switch has paused `class` at the port of `host`.
    #[inline]
    pub fn is_paused(&self, host: HostId, class: u8) -> bool {
        self.ports[usize::from(host.0)].paused >> class & 1 == 1
    }

    /// The NIC of `host` pauses all classes of the switch's port towards it at `at`, or releases them.
    pub fn ask_to_hold(&mut self, host: HostId, at: Instant, on: bool) {
        let port = self.topology.ports[usize::from(host.0)].back;
        let delay = self.ports[usize::from(host.0)].delay;
        let arrival = Instant::from_ps(at.as_ps() + delay);
        self.counts.pauses += 1;
        for class in 0..CLASSES_MAX as u8 {
            self.events
                .schedule(arrival, Event::Pause { port, class, on });
        }
    }
}
