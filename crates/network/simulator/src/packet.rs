//! What travels: one packet, in one cache line.
//!
//! Packets live in a slab ([`Packets`]) and are named by [`PacketId`]; nothing is allocated for one once the slab has
//! grown to the largest number in flight. Sizes are bytes on the wire, headers included; sequence numbers
//! count packets of one channel (not bytes), because every packet of a message but the last is full.

use isolane_common_quantities::units::{Duration, Instant};

/// A packet in the slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketId(pub u32);

/// A host, numbered from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u16);

/// What a packet is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum PacketKind {
    /// Payload.
    #[default]
    Data,
    /// What the receiver has; may carry an echo of marks, times and telemetry.
    Ack,
    /// The receiver misses a packet.
    Nack,
    /// Congestion notification (DCQCN).
    Cnp,
    /// A request of a transport of its own: rate request (D3, PDQ), request to send (Homa), probe (pFabric).
    Request,
    /// The answer to one: a grant, an allocated rate.
    Grant,
}

/// One packet: 64 bytes, all in one cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub struct Packet {
    /// When the packet (or, in an answer, the packet it answers) left the sending transport.
    pub sent_at: Instant,
    /// Order key for disciplines that sort packets: smaller goes first (pFabric: packets left; PDQ: deadline).
    pub key: u64,
    /// For the transport's own use (allocated rate, grant offset).
    pub extra: u64,
    /// For the discipline of the port that it waits at (virtual finish time).
    pub tag: u64,
    /// Sequence number of the packet in its channel, or the number that an answer is about.
    pub sequence: u32,
    /// Next sequence number that the receiver expects (answers).
    pub expected: u32,
    /// Channel or flow, as the transport counts them.
    pub flow: u32,
    /// Next packet of the queue that it waits in, or of the free list; the slab's and the disciplines'.
    pub next: u32,
    /// Where it goes.
    pub to: HostId,
    /// Its source.
    pub from: HostId,
    /// Port of the node it is in through which it entered, counted within the node; the network's, for pauses.
    pub ingress: u16,
    /// What equal-cost choices are hashed from; equal for all packets of a flow that must stay in order.
    pub path: u16,
    /// Bytes on the wire.
    pub bytes: u16,
    /// Payload bytes.
    pub payload: u16,
    /// Traffic class, 0 the highest.
    pub class: u8,
    /// What it is for.
    pub kind: PacketKind,
    /// Bits of [`flags`].
    pub flags: u8,
    /// Hops so far; the network's.
    pub hops: u8,
}

const _: () = assert!(size_of::<Packet>() == 64, "a packet fills one cache line");

/// The end of a list of packets.
pub const NIL: u32 = u32::MAX;

/// All packets of a run. Freed ones are used again, last freed first.
#[derive(Clone, Debug)]
pub struct Packets {
    slots: Vec<Packet>,
    free: u32,
    live: usize,
}

impl Default for Packets {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: NIL,
            live: 0,
        }
    }
}

impl Packets {
    /// Keeps `packet`. Panics with 2^32 - 1 packets in flight.
    #[inline]
    pub fn insert(&mut self, packet: Packet) -> PacketId {
        self.live += 1;
        if self.free == NIL {
            let id = u32::try_from(self.slots.len()).expect("fewer than 2^32 packets in flight");
            assert!(id != NIL, "2^32 - 1 packets in flight");
            self.slots.push(packet);
            return PacketId(id);
        }
        let id = self.free;
        let slot = &mut self.slots[id as usize];
        self.free = slot.next;
        *slot = packet;
        PacketId(id)
    }

    /// Forgets `id`; its slot is used again.
    #[inline]
    pub fn remove(&mut self, id: PacketId) {
        self.live -= 1;
        self.slots[id.0 as usize].next = self.free;
        self.free = id.0;
    }

    /// Packets of `flow` kept now; looks at all slots.
    pub fn of_flow(&self, flow: u32) -> usize {
        let mut kept = vec![true; self.slots.len()];
        let mut free = self.free;
        while free != NIL {
            kept[free as usize] = false;
            free = self.slots[free as usize].next;
        }
        let slots = self.slots.iter().zip(kept);
        slots
            .filter(|(slot, kept)| *kept && slot.flow == flow)
            .count()
    }

    /// Packets kept now.
    pub fn live(&self) -> usize {
        self.live
    }
}

impl std::ops::Index<PacketId> for Packets {
    type Output = Packet;

    #[inline]
    fn index(&self, id: PacketId) -> &Packet {
        &self.slots[id.0 as usize]
    }
}

impl std::ops::IndexMut<PacketId> for Packets {
    #[inline]
    fn index_mut(&mut self, id: PacketId) -> &mut Packet {
        &mut self.slots[id.0 as usize]
    }
}

/// Bits of [`Packet::flags`].
pub mod flags {
    /// The sender understands marks.
    pub const ECN_CAPABLE: u8 = 1;
    /// A switch marked it, or an answer echoes the mark.
    pub const MARKED: u8 = 2;
    /// Last packet of a message.
    pub const LAST: u8 = 4;
    /// Sent before.
    pub const REPEATED: u8 = 8;
    /// Collects telemetry of each hop (HPCC).
    pub const TELEMETRY: u8 = 16;
    /// Shown to the network's port agent at every port it leaves through (D3, PDQ).
    pub const VISIT_PORTS: u8 = 32;
}

/// The telemetry of one hop (HPCC INT): at most [`TELEMETRY_HOPS`] of them travel with a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HopTelemetry {
    /// Bytes waiting at the port when the packet left it.
    pub queue_bytes: u64,
    /// Bytes the port had sent before the packet.
    pub sent_bytes: u64,
    /// When the packet left it.
    pub at: Instant,
    /// Picoseconds per byte of the link.
    pub ps_per_byte: u64,
}

/// Most hops whose telemetry travels with a packet.
pub const TELEMETRY_HOPS: usize = 6;

/// A timer of a transport or of the calls: who set it and what for. Eight bytes with the event's own tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timer {
    /// Flow, host or generator, as the owner counts.
    pub index: u32,
    /// Which of the owner's timers.
    pub what: u8,
}

/// Round-trip and one-way times that the topology implies without queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BasePath {
    /// Time of a full packet from host to host through empty queues.
    pub one_way: Duration,
    /// The same and back with an acknowledgement.
    pub round_trip: Duration,
    /// Links on the way.
    pub hops: u8,
}
