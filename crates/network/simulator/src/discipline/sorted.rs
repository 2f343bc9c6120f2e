//! The smallest key first: the order of pFabric ports, and of any transport that writes its priority into packets.
//!
//! Method (pFabric 4.1): the flow of the waiting packet with the smallest [`Packet::key`] goes next, but with its
//! packet that came first, so that a flow whose key falls from packet to packet is not reordered. When the buffer is
//! full, the packet with the largest key is dropped, the newest of equal ones. A flow is a sender and a channel number.
//! Cost: linear in the packets that wait; such ports are meant to hold a few hundred (two bandwidth-delay products).
//! Keys and flows are in arrays of their own in order of arrival, so a scan of all of them reads little memory. The
//! arrays keep the memory of their longest queue, so a steady load allocates nothing.
//!
//! [`Packet::key`]: crate::packet::Packet::key

use crate::packet::{PacketId, Packets};
use isolane_network_scenario::model::CLASSES_MAX;

/// The packets of one port, smallest key first.
#[derive(Clone, Debug, Default)]
pub struct Sorted {
    /// Key of each waiting packet, in order of arrival.
    keys: Vec<u64>,
    /// Its sender and channel.
    flows: Vec<u64>,
    waiting: Vec<Entry>,
    class_bytes: [u64; CLASSES_MAX],
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    id: PacketId,
    bytes: u16,
    class: u8,
}

impl Sorted {
    /// Takes in `id`.
    pub fn push(&mut self, packets: &Packets, id: PacketId) {
        let packet = &packets[id];
        self.class_bytes[usize::from(packet.class)] += u64::from(packet.bytes);
        self.keys.push(packet.key);
        self.flows
            .push(u64::from(packet.from.0) << 32 | u64::from(packet.flow));
        self.waiting.push(Entry {
            id,
            bytes: packet.bytes,
            class: packet.class,
        });
    }

    /// Takes out the earliest packet of the flow with the smallest key among the classes that are not `paused`.
    pub fn pop(&mut self, paused: u8) -> Option<PacketId> {
        if paused != 0 {
            return self.pop_unpaused(paused);
        }
        let smallest = smallest(&self.keys)?;
        let first_with = self.keys.iter().position(|key| *key == smallest)?;
        let flow = self.flows[first_with];
        let place = self.flows.iter().position(|other| *other == flow)?;
        Some(self.remove(place))
    }

    #[cold]
    fn pop_unpaused(&mut self, paused: u8) -> Option<PacketId> {
        let ready = |place: &usize| paused & (1 << self.waiting[*place].class) == 0;
        let places = 0..self.keys.len();
        let first = places.clone().filter(ready);
        let flow = self.flows[first.min_by_key(|place| self.keys[*place])?];
        let place = places
            .into_iter()
            .find(|place| ready(place) && self.flows[*place] == flow)?;
        Some(self.remove(place))
    }

    /// Takes out the packet with the largest key, the newest of equal ones.
    pub fn evict_largest(&mut self) -> Option<PacketId> {
        let largest = self.keys.iter().copied().max()?;
        let place = self.keys.iter().rposition(|key| *key == largest)?;
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
        self.keys.remove(place);
        self.flows.remove(place);
        let entry = self.waiting.remove(place);
        self.class_bytes[usize::from(entry.class)] -= u64::from(entry.bytes);
        entry.id
    }
}

/// The smallest of `keys`, eight at a time: one after the other, each comparison would wait for the one before.
fn smallest(keys: &[u64]) -> Option<u64> {
    let mut lanes = [u64::MAX; 8];
    let chunks = keys.chunks_exact(lanes.len());
    let rest = chunks.remainder().iter().min();
    for chunk in chunks {
        for (lane, key) in lanes.iter_mut().zip(chunk) {
            *lane = (*lane).min(*key);
        }
    }
    let smallest = lanes.iter().chain(rest).min();
    smallest.copied().filter(|_| !keys.is_empty())
}
