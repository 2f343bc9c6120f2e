//! The smallest key first: the order of pFabric ports, and of any transport that writes its priority into packets.
//!
//! Method (pFabric 4.1): the flow of the waiting packet with the smallest [`Packet::key`] goes next, but with its
//! packet that came first, so that a flow whose key falls from packet to packet is not reordered. When the buffer is
//! full, the packet with the largest key gives way, the newest of equal ones. A flow is a sender and a channel number.
//! Cost: linear in the packets that wait; such ports are meant to hold a few hundred (two bandwidth-delay products).
//! The array keeps the memory of its longest queue, so a steady load allocates nothing.
//!
//! [`Packet::key`]: crate::packet::Packet::key

use crate::packet::{PacketId, Packets};
use isolane_scenario::fabric::model::CLASSES_MAX;

/// The packets of one port, smallest key first.
#[derive(Clone, Debug, Default)]
pub struct Sorted {
    /// In no order.
    waiting: Vec<Entry>,
    class_bytes: [u64; CLASSES_MAX],
    arrived: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: u64,
    /// Rises with each arrival.
    number: u64,
    /// Sender and channel.
    flow: u64,
    id: PacketId,
    bytes: u16,
    class: u8,
}

impl Sorted {
    /// Takes in `id`.
    pub fn push(&mut self, packets: &Packets, id: PacketId) {
        let packet = &packets[id];
        self.arrived += 1;
        self.class_bytes[usize::from(packet.class)] += u64::from(packet.bytes);
        self.waiting.push(Entry {
            key: packet.key,
            number: self.arrived,
            flow: u64::from(packet.from.0) << 32 | u64::from(packet.flow),
            id,
            bytes: packet.bytes,
            class: packet.class,
        });
    }

    /// Takes out the earliest packet of the flow with the smallest key among the classes that are not `paused`.
    pub fn pop(&mut self, paused: u8) -> Option<PacketId> {
        let ready = |entry: &&Entry| paused & (1 << entry.class) == 0;
        let most_urgent = self.waiting.iter().filter(ready);
        let flow = most_urgent
            .min_by_key(|entry| (entry.key, entry.number))?
            .flow;
        let (place, _) = self
            .waiting
            .iter()
            .enumerate()
            .filter(|(_, entry)| entry.flow == flow && ready(entry))
            .min_by_key(|(_, entry)| entry.number)
            .expect("the flow has a packet");
        Some(self.remove(place))
    }

    /// Takes out the packet with the largest key, the newest of equal ones.
    pub fn evict_largest(&mut self) -> Option<PacketId> {
        let by_key = |(_, entry): &(usize, &Entry)| (entry.key, entry.number);
        let (place, _) = self.waiting.iter().enumerate().max_by_key(by_key)?;
        Some(self.remove(place))
    }

    /// Bytes of all classes.
    pub fn bytes(&self) -> u64 {
        self.class_bytes.iter().sum()
    }

    /// Bytes of one class.
    pub fn class_bytes(&self, class: usize) -> u64 {
        self.class_bytes[class]
    }

    /// The classes with packets, a bit for each.
    pub fn waiting(&self) -> u8 {
        let bits = self.class_bytes.iter().enumerate();
        bits.fold(0, |all, (class, bytes)| all | u8::from(*bytes > 0) << class)
    }

    fn remove(&mut self, place: usize) -> PacketId {
        let entry = self.waiting.swap_remove(place);
        self.class_bytes[usize::from(entry.class)] -= u64::from(entry.bytes);
        entry.id
    }
}
