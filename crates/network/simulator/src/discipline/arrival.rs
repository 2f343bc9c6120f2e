//! First come, first served over all classes.
//!
//! Every packet gets a number when it comes; the smallest waiting one goes next. Classes keep their own lists, so that
//! a paused class does not stop the others.

use super::queues::ClassQueues;
use super::wfq::smallest;
use crate::packet::{PacketId, Packets};
use isolane_network_scenario::model::CLASSES_MAX;

/// The queues of one port, first come, first served.
#[derive(Clone, Debug, Default)]
pub struct ArrivalOrder {
    queues: ClassQueues,
    /// Number of the first packet of each class with packets.
    first_number: [u64; CLASSES_MAX],
    arrived: u64,
}

impl ArrivalOrder {
    /// Takes in `id`.
    #[inline]
    pub fn push(&mut self, packets: &mut Packets, id: PacketId) {
        self.arrived += 1;
        let packet = &mut packets[id];
        packet.tag = self.arrived;
        let class = usize::from(packet.class);
        if self.queues.push(packets, class, id) {
            self.first_number[class] = self.arrived;
        }
    }

    /// Takes out the oldest packet of the classes that are not `paused`.
    #[inline]
    pub fn pop(&mut self, packets: &Packets, paused: u8) -> Option<PacketId> {
        let class = smallest(&self.first_number, self.queues.waiting() & !paused, |one| {
            *one
        })?;
        let (id, next) = self.queues.pop(packets, class);
        if let Some(next) = next {
            self.first_number[class] = packets[next].tag;
        }
        Some(id)
    }

    /// What waits.
    #[inline]
    pub fn queues(&self) -> &ClassQueues {
        &self.queues
    }
}
