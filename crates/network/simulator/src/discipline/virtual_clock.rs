//! Virtual clock: tags from wall time, the scheduler that the public Aequitas simulator calls weighted fair queueing.
//!
//! Problem: published results came from a port whose tags follow the wall clock and not the virtual time of a fluid server, and
//! the two differ once a class sends less than its part: to compare with such results, a port must do the same.
//! Method (Zhang 1990): each class has a guaranteed part of the line, its weight over the sum of all weights, busy or not. A
//! packet finishes at the later of its arrival and the finish of the packet before it in its class, plus its time at the class's
//! guaranteed rate. The waiting packet with the smallest finish goes next; of equal ones that of the higher class.
//! Consequences: a class that sends below its guaranteed rate has tags close to the wall clock and is served almost as with
//! strict priority. A class that used idle capacity has tags in the future and waits for the others afterwards.
//! Pauses: a paused class is passed over and keeps its tags, so it catches up afterwards.
//! Arithmetic: integer, picoseconds with [`FRACTION`] more bits; a cost per byte is rounded down.
//! Cost: O(classes) for each choice; nothing is allocated. Limits: runs below 2^50 ps, about 18 minutes.

use super::queues::ClassQueues;
use super::wfq::smallest;
use crate::packet::{Packet, PacketId, Packets};
use isolane_common_quantities::units::{BitRate, Instant};
use isolane_network_scenario::model::CLASSES_MAX;

/// The queues of one port under virtual clock.
#[derive(Clone, Debug)]
pub struct VirtualClock {
    queues: ClassQueues,
    /// Finish of the first packet of each class with packets.
    first: [u64; CLASSES_MAX],
    /// Finish of the newest packet of each class.
    last: [u64; CLASSES_MAX],
    /// Time of a byte at each class's guaranteed rate.
    byte_time: [u64; CLASSES_MAX],
}

impl VirtualClock {
    /// Queues of a line of `rate` whose class `i` has `weights[i]`; a further class is served as one of weight 1.
    pub fn new(weights: &[u32], rate: BitRate) -> Self {
        let sum: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
        let byte_time = |class: usize| {
            let weight = u128::from(weights.get(class).copied().unwrap_or(1));
            assert!(weight > 0, "weights are above 0");
            let whole = (PS_BITS_PER_BYTE_S << FRACTION) * u128::from(sum);
            u64::try_from(whole / (weight * u128::from(rate.as_bps())))
                .expect("a byte takes less than 2^50 ps on a line above 1 kb/s")
        };
        Self {
            queues: ClassQueues::default(),
            first: [0; CLASSES_MAX],
            last: [0; CLASSES_MAX],
            byte_time: std::array::from_fn(byte_time),
        }
    }

    /// Takes in `id`.
    #[inline]
    pub fn push(&mut self, packets: &mut Packets, now: Instant, id: PacketId) {
        let finish = self.finish(now, &packets[id]);
        let packet = &mut packets[id];
        packet.tag = finish;
        let class = usize::from(packet.class);
        if self.queues.push(packets, class, id) {
            self.first[class] = finish;
        }
    }

    /// Takes note of a packet that goes to the line at once.
    #[inline]
    pub fn pass(&mut self, now: Instant, packet: &Packet) {
        self.finish(now, packet);
    }

    /// Takes out the packet with the smallest finish among the classes that are not `paused`.
    #[inline]
    pub fn pop(&mut self, packets: &Packets, paused: u8) -> Option<PacketId> {
        let ready = self.queues.waiting() & !paused;
        let class = smallest(&self.first, ready, |finish| *finish)?;
        let (id, next) = self.queues.pop(packets, class);
        if let Some(next) = next {
            self.first[class] = packets[next].tag;
        }
        Some(id)
    }

    /// What waits.
    #[inline]
    pub fn queues(&self) -> &ClassQueues {
        &self.queues
    }

    /// The finish of a packet that comes at `now`.
    #[inline]
    fn finish(&mut self, now: Instant, packet: &Packet) -> u64 {
        let class = usize::from(packet.class);
        let begin = self.last[class].max(now.as_ps() << FRACTION);
        self.last[class] = begin + u64::from(packet.bytes) * self.byte_time[class];
        self.last[class]
    }
}

/// Bits of a picosecond's fraction.
const FRACTION: u32 = 12;
/// Picoseconds of a second times bits of a byte.
const PS_BITS_PER_BYTE_S: u128 = 8_000_000_000_000;
