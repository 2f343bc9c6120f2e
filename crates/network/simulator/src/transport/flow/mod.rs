//! Messages in progress, for the transports that treat each message as a flow of its own.
//!
//! Both ends of a flow share one record: which packets were acknowledged is the sender's, which came is the receiver's;
//! neither reads the other's part. Records are in a slab and are used again, so nothing is allocated for a message once
//! the slab has grown to the most that were open at once. A packet names its flow by place ([`Packet::flow`]); packets
//! that may outlive it carry the flow's serial number too.
//!
//! Units: packets are counted from 0 within the flow; all but the last are full.

pub mod alarm;
pub mod paced;
pub mod ready;
mod set;
pub mod window;

pub use set::PacketSet;

use crate::network::Network;
use crate::packet::{HostId, Packet, PacketId, PacketKind};
use crate::transport::{Ended, How, Message};
use isolane_common_quantities::units::{BitRate, Bytes, Duration, Instant};

/// One message in progress, with a protocol's own state `P`.
#[derive(Clone, Debug)]
pub struct Flow<P> {
    /// What is sent.
    pub message: Message,
    /// Number of the flow over the whole run, from 1, wrapping.
    pub serial: u32,
    /// Packets of the flow.
    pub packets: u32,
    /// Payload of the last one.
    pub last_payload: u16,
    /// Whether the record is in use.
    pub open: bool,
    /// Sender: packets known to have arrived.
    pub acked: PacketSet,
    /// Sender: payload not known to have arrived.
    pub remaining: u64,
    /// Receiver: packets that came.
    pub came: PacketSet,
    /// The protocol's.
    pub own: P,
}

/// All flows of a run.
#[derive(Clone, Debug)]
pub struct Flows<P> {
    slots: Vec<Flow<P>>,
    free: Vec<u32>,
    serial: u32,
    open: usize,
    /// Payload of a full packet.
    pub mtu: u16,
    /// Headers of a packet; the length of a packet without payload.
    pub header: u16,
}

impl<P: Default> Flows<P> {
    /// No flows yet.
    pub fn new(network: &Network) -> Self {
        let narrow = |bytes: Bytes| u16::try_from(bytes.get()).expect("packets are below 64 KiB");
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            serial: 0,
            open: 0,
            mtu: narrow(network.mtu()),
            header: narrow(network.header()),
        }
    }

    /// Opens a flow for `message`. The protocol's state is that of the previous owner, or the default one. Panics with
    /// a message of no bytes, or of 2^32 packets.
    pub fn open(&mut self, message: Message) -> u32 {
        let size = message.size.get();
        assert!(size > 0, "a message has at least one byte");
        self.serial = self.serial.wrapping_add(1);
        self.open += 1;
        let packets = u32::try_from(size.div_ceil(u64::from(self.mtu))).expect("2^32 packets");
        let last_payload = (size - u64::from(packets - 1) * u64::from(self.mtu)) as u16;
        let id = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Flow {
                message,
                serial: 0,
                packets,
                last_payload,
                open: false,
                acked: PacketSet::default(),
                remaining: 0,
                came: PacketSet::default(),
                own: P::default(),
            });
            self.slots.len() as u32 - 1
        });
        let flow = &mut self.slots[id as usize];
        (flow.message, flow.serial, flow.packets) = (message, self.serial, packets);
        (flow.last_payload, flow.remaining, flow.open) = (last_payload, size, true);
        flow.acked.reset(packets);
        flow.came.reset(packets);
        id
    }

    /// Ends a flow and gives its record free.
    pub fn close(&mut self, id: u32, how: How) -> Ended {
        self.release(id);
        Ended {
            token: self[id].message.token,
            how,
        }
    }

    /// Frees the record of a flow whose end was reported before.
    pub fn release(&mut self, id: u32) {
        let flow = &mut self.slots[id as usize];
        assert!(flow.open, "a record is given back once");
        flow.open = false;
        self.open -= 1;
        self.free.push(id);
    }

    /// Packet `sequence` of flow `id` with its payload.
    #[inline]
    pub fn data(&self, id: u32, sequence: u32, now: Instant) -> Packet {
        self[id].data(id, sequence, now, self.mtu, self.header)
    }

    /// Flows open now.
    pub fn open_now(&self) -> usize {
        self.open
    }

    /// As [`Flows::named`], by the serial number's lower half in [`Packet::path`]: for packets whose other fields are
    /// taken, of flows that keep their order and so leave nothing behind but repeated controls.
    #[inline]
    pub fn on_path(&mut self, packet: &Packet) -> Option<&mut Flow<P>> {
        let flow = &mut self.slots[packet.flow as usize];
        (flow.open && flow.serial as u16 == packet.path).then_some(flow)
    }

    /// Data packet `id` of a flow that keeps its order has come: noted and acknowledged, or dropped if its flow is over.
    #[inline]
    pub fn take_in_order(&mut self, network: &mut Network, id: PacketId) {
        let packet = network.packets[id];
        let header = self.header;
        let Some(flow) = self.on_path(&packet) else {
            return network.free(id);
        };
        flow.came.insert(packet.sequence);
        answer(network, id, PacketKind::Ack, header);
    }

    /// The flow that `packet` belongs to, if it is still the one that the serial number in [`Packet::extra`] names.
    #[inline]
    pub fn named(&mut self, packet: &Packet) -> Option<&mut Flow<P>> {
        let flow = &mut self.slots[packet.flow as usize];
        (flow.open && flow.serial == packet.extra as u32).then_some(flow)
    }
}

impl<P> Flow<P> {
    /// Payload of packet `sequence` when full ones hold `mtu`.
    #[inline]
    pub fn payload(&self, sequence: u32, mtu: u16) -> u16 {
        match sequence + 1 == self.packets {
            true => self.last_payload,
            false => mtu,
        }
    }

    /// Notes that packet `sequence` has arrived; false when that was known.
    #[inline]
    pub fn acknowledge(&mut self, sequence: u32, mtu: u16) -> bool {
        let fresh = self.acked.insert(sequence);
        if fresh {
            self.remaining -= u64::from(self.payload(sequence, mtu));
        }
        fresh
    }

    /// A packet of this flow without payload from its sender to its receiver; `header` bytes long.
    pub fn control(&self, id: u32, kind: PacketKind, now: Instant, header: u16) -> Packet {
        Packet {
            sent_at: now,
            extra: u64::from(self.serial),
            flow: id,
            to: self.message.to,
            from: self.message.from,
            path: self.serial as u16,
            bytes: header,
            kind,
            ..Packet::default()
        }
    }

    /// Packet `sequence` with its payload.
    pub fn data(&self, id: u32, sequence: u32, now: Instant, mtu: u16, header: u16) -> Packet {
        let payload = self.payload(sequence, mtu);
        Packet {
            sequence,
            payload,
            bytes: payload + header,
            ..self.control(id, PacketKind::Data, now, header)
        }
    }
}

impl<P> std::ops::Index<u32> for Flows<P> {
    type Output = Flow<P>;

    #[inline]
    fn index(&self, id: u32) -> &Flow<P> {
        &self.slots[id as usize]
    }
}

impl<P> std::ops::IndexMut<u32> for Flows<P> {
    #[inline]
    fn index_mut(&mut self, id: u32) -> &mut Flow<P> {
        &mut self.slots[id as usize]
    }
}

impl<P: Default> Flows<P> {
    /// Takes packet `id`, which has arrived: data is acknowledged in order, a request is granted. Any other packet is an
    /// answer for its sender.
    pub fn receive(&mut self, network: &mut Network, id: PacketId) -> Option<Packet> {
        let packet = network.packets[id];
        match packet.kind {
            PacketKind::Data => self.take_in_order(network, id),
            PacketKind::Request => answer(network, id, PacketKind::Grant, self.header),
            _ => {
                network.free(id);
                return Some(packet);
            }
        }
        None
    }
}

/// Sends packet `id`, which has arrived, back as an answer of `kind` without payload.
#[inline]
pub fn answer(network: &mut Network, id: PacketId, kind: PacketKind, header: u16) {
    let packet = &mut network.packets[id];
    (packet.from, packet.to) = (packet.to, packet.from);
    packet.kind = kind;
    packet.bytes = header;
    packet.payload = 0;
    network.answer(id);
}

/// Requests [`crate::transport::Transport::on_idle`] at every host: the next packet is chosen when a port is empty.
pub fn tell_when_idle(network: &mut Network) {
    for host in 0..network.topology().hosts {
        network.tell_when_idle(HostId(host as u16), true);
    }
}

/// What a host can send and receive: the slower of its own port and of the one that leads to it. A scenario may make the
/// host's port much faster than its link.
pub fn line_rate(network: &Network, host: HostId) -> BitRate {
    let ports = &network.topology().ports;
    let own = ports[usize::from(host.0)];
    own.rate.min(ports[own.back.0 as usize].rate)
}

/// The longest base round trip of a full packet and its answer among the pairs of the first host: hosts are numbered
/// rack by rack, so the way to the last one passes all tiers.
pub fn base_round_trip(network: &Network) -> Duration {
    let (mtu, header) = (network.mtu(), network.header());
    let last = HostId((network.topology().hosts - 1) as u16);
    network
        .base_path(HostId(0), last, mtu + header, header)
        .round_trip
}
