//! Deficit weighted round robin: bytes by weight at constant cost (Shreedhar and Varghese 1996).
//!
//! Method: classes with packets are visited in turn. A visit earns a class its quantum of bytes, and it sends while its
//! credit covers its first packet; what is left stays for the next visit and is lost when the class runs empty. Quanta
//! have the ratios of the weights, and the smallest one is a largest packet or slightly more, so every visit sends. A
//! class that is paused during its visit loses the rest of it. Bound: between classes that stay backlogged, sent bytes
//! over weight differ by at most one quantum and two packets. Units: bytes on the wire.

use super::queues::ClassQueues;
use crate::packet::{PacketId, Packets};
use isolane_common_quantities::units::Bytes;
use isolane_network_scenario::model::CLASSES_MAX;

/// The queues of one port under deficit weighted round robin.
#[derive(Clone, Debug)]
pub struct DeficitRoundRobin {
    queues: ClassQueues,
    quantum: [u64; CLASSES_MAX],
    credit: [u64; CLASSES_MAX],
    /// The class being visited.
    visited: usize,
    /// Whether it has earned its quantum.
    has_earned: bool,
}

impl DeficitRoundRobin {
    /// Queues whose class `i` has `weights[i]`, for packets of at most `largest`; further classes have weight 1.
    pub fn new(weights: &[u32], largest: Bytes) -> Self {
        let mut all = [1; CLASSES_MAX];
        all[..weights.len()].copy_from_slice(weights);
        let lightest = all[..weights.len().max(1)].iter().min();
        let lightest = u64::from(*lightest.expect("there are classes"));
        assert!(lightest > 0, "weights are above 0");
        let unit = largest.get().div_ceil(lightest).max(1);
        Self {
            queues: ClassQueues::default(),
            quantum: all.map(|weight| u64::from(weight) * unit),
            credit: [0; CLASSES_MAX],
            visited: 0,
            has_earned: false,
        }
    }

    /// Takes in `id`.
    #[inline]
    pub fn push(&mut self, packets: &mut Packets, id: PacketId) {
        let class = usize::from(packets[id].class);
        self.queues.push(packets, class, id);
    }

    /// Takes out the packet that goes next among the classes that are not `paused`.
    #[inline]
    pub fn pop(&mut self, packets: &Packets, paused: u8) -> Option<PacketId> {
        let ready = self.queues.waiting() & !paused;
        if ready == 0 {
            return None;
        }
        loop {
            let class = self.visited;
            if ready & (1 << class) == 0 {
                if self.has_earned {
                    self.credit[class] = 0;
                }
                self.visit_next(ready);
                continue;
            }
            if !self.has_earned {
                self.credit[class] += self.quantum[class];
                self.has_earned = true;
            }
            let first = self.queues.first(class).expect("a ready class has packets");
            let bytes = u64::from(packets[first].bytes);
            if self.credit[class] < bytes {
                self.visit_next(ready);
                continue;
            }
            self.credit[class] -= bytes;
            let (id, next) = self.queues.pop(packets, class);
            if next.is_none() {
                self.credit[class] = 0;
                self.visit_next(self.queues.waiting());
            }
            return Some(id);
        }
    }

    /// What waits.
    #[inline]
    pub fn queues(&self) -> &ClassQueues {
        &self.queues
    }

    /// Goes to the next class of `ready`, behind the visited one and around.
    #[inline]
    fn visit_next(&mut self, ready: u8) {
        let after = self.visited as u32 + 1;
        let behind = u32::from(ready) >> after << after;
        let next = if behind == 0 {
            u32::from(ready)
        } else {
            behind
        };
        self.visited = match next {
            0 => self.visited,
            classes => classes.trailing_zeros() as usize,
        };
        self.has_earned = false;
    }
}
