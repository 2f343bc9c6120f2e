//! The order in which a port sends what waits there.
//!
//! A discipline keeps packets by class and says which goes next. Packets are linked through [`Packet::next`], so a
//! queue costs no memory of its own. All disciplines are variants of one enum: the choice costs a jump, not a call
//! through a pointer. Classes that the peer has paused are passed over (`paused`, a bit per class).
//!
//! [`Packet::next`]: crate::packet::Packet::next

use crate::packet::{NIL, PacketId, Packets};
use isolane_core::units::Instant;
use isolane_scenario::fabric::model::CLASSES_MAX;

/// A first-in first-out list of packets.
#[derive(Clone, Copy, Debug)]
pub struct List {
    head: u32,
    tail: u32,
    bytes: u64,
}

impl Default for List {
    fn default() -> Self {
        Self {
            head: NIL,
            tail: NIL,
            bytes: 0,
        }
    }
}

impl List {
    /// Appends `id`.
    #[inline]
    pub fn push(&mut self, packets: &mut Packets, id: PacketId) {
        let packet = &mut packets[id];
        packet.next = NIL;
        self.bytes += u64::from(packet.bytes);
        match self.tail {
            NIL => self.head = id.0,
            tail => packets[PacketId(tail)].next = id.0,
        }
        self.tail = id.0;
    }

    /// Takes the first.
    #[inline]
    pub fn pop(&mut self, packets: &Packets) -> Option<PacketId> {
        if self.head == NIL {
            return None;
        }
        let id = PacketId(self.head);
        let packet = &packets[id];
        self.bytes -= u64::from(packet.bytes);
        self.head = packet.next;
        if self.head == NIL {
            self.tail = NIL;
        }
        Some(id)
    }

    /// The first.
    #[inline]
    pub fn first(&self) -> Option<PacketId> {
        (self.head != NIL).then_some(PacketId(self.head))
    }

    /// Bytes of all of them.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// The queues of one port.
#[derive(Clone, Debug)]
pub enum Discipline {
    /// The highest class first, first come first served within it.
    Strict([List; CLASSES_MAX]),
}

impl Discipline {
    /// Takes in `id`.
    #[inline]
    pub fn push(&mut self, packets: &mut Packets, _now: Instant, id: PacketId) {
        match self {
            Self::Strict(lists) => lists[packets[id].class as usize].push(packets, id),
        }
    }

    /// Takes out the packet that goes next, if there is one whose class is not `paused`.
    #[inline]
    pub fn pop(&mut self, packets: &mut Packets, _now: Instant, paused: u8) -> Option<PacketId> {
        match self {
            Self::Strict(lists) => lists
                .iter_mut()
                .enumerate()
                .filter(|(class, _)| paused & (1 << class) == 0)
                .find_map(|(_, list)| list.pop(packets)),
        }
    }

    /// Bytes of all classes.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Strict(lists) => lists.iter().map(List::bytes).sum(),
        }
    }

    /// Bytes of one class.
    #[inline]
    pub fn class_bytes(&self, class: u8) -> u64 {
        match self {
            Self::Strict(lists) => lists[class as usize].bytes(),
        }
    }
}
