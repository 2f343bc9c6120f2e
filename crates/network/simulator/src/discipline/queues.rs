//! First-in first-out lists of packets, one for each class.
//!
//! Packets are linked through [`Packet::next`], so a list is two ends and a sum and nothing is allocated for one.
//! Units: bytes on the wire.
//!
//! [`Packet::next`]: crate::packet::Packet::next

use crate::packet::{NIL, PacketId, Packets};
use isolane_common_events::prefetch::fetch;
use isolane_network_scenario::model::CLASSES_MAX;

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
        match self.head {
            NIL => self.tail = NIL,
            head => fetch(&packets[PacketId(head)]),
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

/// A list for each class, and which of them hold something.
#[derive(Clone, Debug, Default)]
pub struct ClassQueues {
    lists: [List; CLASSES_MAX],
    waiting: u8,
}

impl ClassQueues {
    /// Appends `id` to the list of `class`; true when it is the first there.
    #[inline]
    pub fn push(&mut self, packets: &mut Packets, class: usize, id: PacketId) -> bool {
        let bit = 1 << class;
        let is_first = self.waiting & bit == 0;
        self.waiting |= bit;
        self.lists[class].push(packets, id);
        is_first
    }

    /// Takes the first of `class`, and names the one behind it. Panics if the class has none.
    #[inline]
    pub fn pop(&mut self, packets: &Packets, class: usize) -> (PacketId, Option<PacketId>) {
        let list = &mut self.lists[class];
        let id = list
            .pop(packets)
            .expect("only a class with packets is visited");
        let next = list.first();
        if next.is_none() {
            self.waiting &= !(1 << class);
        }
        (id, next)
    }

    /// The first of `class`.
    #[inline]
    pub fn first(&self, class: usize) -> Option<PacketId> {
        self.lists[class].first()
    }

    /// The classes with packets, a bit for each.
    #[inline]
    pub fn waiting(&self) -> u8 {
        self.waiting
    }

    /// Bytes of all classes.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.lists.iter().map(List::bytes).sum()
    }

    /// Bytes of one class.
    #[inline]
    pub fn class_bytes(&self, class: usize) -> u64 {
        self.lists[class].bytes()
    }
}
