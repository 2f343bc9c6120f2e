//! The order in which a port sends what waits there.
//!
//! A discipline keeps packets by class and says which goes next. Packets are linked through [`Packet::next`], so a
//! queue costs no memory of its own. All disciplines are variants of one enum: the choice costs a jump, not a call
//! through a pointer; their state is boxed, so a port stays small. Classes that the peer has paused are passed over
//! (`paused`, a bit per class).
//!
//! | order | goes next | source |
//! |---|---|---|
//! | [`Order::Arrival`] | what came first | |
//! | [`Order::Strict`] | the highest class, first come first served within it | IEEE 802.1Q |
//! | [`Order::Wfq`] | what a fluid server sharing by weight would have done first | Parekh and Gallager 1993 |
//! | [`Order::VirtualClock`] | what is due first by wall time, at each class's guaranteed rate | Zhang 1990 |
//! | [`Order::Dwrr`] | classes in turn, bytes by weight | Shreedhar and Varghese 1996 |
//! | [`Order::SmallestKey`] | the flow with the smallest key, its earliest packet | pFabric 4.1 |
//!
//! Bound of weighted fair queueing, held by the tests against a slow fluid server: a packet leaves no later than the
//! fluid server is done with it, plus the time of one largest packet.

mod arrival;
mod deficit;
mod queues;
mod sorted;
#[cfg(test)]
mod tests;
mod virtual_clock;
mod wfq;

pub use arrival::ArrivalOrder;
pub use deficit::DeficitRoundRobin;
pub use queues::{ClassQueues, List};
pub use sorted::Sorted;
pub use virtual_clock::VirtualClock;
pub use wfq::WeightedFair;

use crate::packet::{Packet, PacketId, Packets};
use isolane_common_quantities::units::{BitRate, Bytes, Instant};
use isolane_network_scenario::model::{CLASSES_MAX, PortScheduler};

/// Which packet goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// First come, first served over all classes.
    Arrival,
    /// The highest class first.
    Strict,
    /// Weighted fair queueing.
    Wfq,
    /// Virtual clock: tags from wall time.
    VirtualClock,
    /// Deficit weighted round robin.
    Dwrr,
    /// The smallest [`Packet::key`] first; the largest is dropped from a full buffer.
    SmallestKey,
}

impl From<PortScheduler> for Order {
    fn from(scheduler: PortScheduler) -> Self {
        match scheduler {
            PortScheduler::Wfq => Self::Wfq,
            PortScheduler::VirtualClock => Self::VirtualClock,
            PortScheduler::Dwrr => Self::Dwrr,
            PortScheduler::Strict => Self::Strict,
        }
    }
}

/// What a port's discipline must know.
#[derive(Clone, Copy, Debug)]
pub struct PortOrder<'a> {
    /// Which packet goes next.
    pub order: Order,
    /// Weight of each class from the highest, each above 0; at most [`CLASSES_MAX`]. Further classes have weight 1.
    pub weights: &'a [u32],
    /// Rate of the link.
    pub rate: BitRate,
    /// The largest packet on the wire.
    pub largest: Bytes,
}

/// The queues of one port.
#[derive(Clone, Debug)]
pub enum Discipline {
    /// First come, first served.
    Arrival(Box<ArrivalOrder>),
    /// First come, first served, where all packets are of class 0.
    Single(List),
    /// The highest class first, first come first served within it.
    Strict(Box<ClassQueues>),
    /// Weighted fair queueing.
    Wfq(Box<WeightedFair>),
    /// Virtual clock.
    VirtualClock(Box<VirtualClock>),
    /// Deficit weighted round robin.
    Dwrr(Box<DeficitRoundRobin>),
    /// Smallest key first.
    SmallestKey(Box<Sorted>),
}

impl Discipline {
    /// Empty queues of a port. Panics with a weight of zero, or more than [`CLASSES_MAX`] of them.
    pub fn new(port: &PortOrder<'_>) -> Self {
        let weights = port.weights;
        assert!(weights.len() <= CLASSES_MAX, "at most 8 classes");
        match port.order {
            Order::Arrival => Self::Arrival(Box::default()),
            Order::Strict => Self::Strict(Box::default()),
            // A single class shares with no other.
            Order::Wfq | Order::VirtualClock | Order::Dwrr if weights.len() == 1 => {
                Self::Single(List::default())
            }
            Order::Wfq => Self::Wfq(Box::new(WeightedFair::new(weights, port.rate))),
            Order::VirtualClock => {
                Self::VirtualClock(Box::new(VirtualClock::new(weights, port.rate)))
            }
            Order::Dwrr => Self::Dwrr(Box::new(DeficitRoundRobin::new(weights, port.largest))),
            Order::SmallestKey => Self::SmallestKey(Box::default()),
        }
    }

    /// Takes in `id`, which has just come.
    #[inline]
    pub fn push(&mut self, packets: &mut Packets, now: Instant, id: PacketId) {
        match self {
            Self::Wfq(port) => port.push(packets, now, id),
            Self::VirtualClock(port) => port.push(packets, now, id),
            Self::Single(list) => {
                assert_eq!(packets[id].class, 0, "the port has one class");
                list.push(packets, id);
            }
            Self::Strict(queues) => {
                let class = usize::from(packets[id].class);
                queues.push(packets, class, id);
            }
            Self::Dwrr(port) => port.push(packets, id),
            Self::Arrival(port) => port.push(packets, id),
            Self::SmallestKey(port) => port.push(packets, id),
        }
    }

    /// Takes out the packet that goes next, if there is one whose class is not `paused`.
    #[inline]
    pub fn pop(&mut self, packets: &mut Packets, now: Instant, paused: u8) -> Option<PacketId> {
        match self {
            Self::Wfq(port) => port.pop(packets, now, paused),
            Self::VirtualClock(port) => port.pop(packets, paused),
            Self::Single(list) => match paused & 1 {
                0 => list.pop(packets),
                _ => None,
            },
            Self::Strict(queues) => {
                let ready = queues.waiting() & !paused;
                let class = ready.trailing_zeros() as usize;
                (ready != 0).then(|| queues.pop(packets, class).0)
            }
            Self::Dwrr(port) => port.pop(packets, paused),
            Self::Arrival(port) => port.pop(packets, paused),
            Self::SmallestKey(port) => port.pop(paused),
        }
    }

    /// Takes note of a packet that goes to the line at once: cheaper than [`Self::push`] and [`Self::pop`]. Only for a
    /// port that sends nothing and where nothing waits.
    #[inline]
    pub fn pass(&mut self, now: Instant, packet: &Packet) {
        match self {
            Self::Wfq(port) => port.pass(now, packet),
            Self::VirtualClock(port) => port.pass(now, packet),
            _ => {}
        }
    }

    /// Takes out the packet that a full buffer drops: the one with the largest key. Nothing under the other orders,
    /// where the packet that comes last is dropped.
    #[inline]
    pub fn evict_largest(&mut self) -> Option<PacketId> {
        match self {
            Self::SmallestKey(port) => port.evict_largest(),
            _ => None,
        }
    }

    /// The classes with packets, a bit for each.
    #[inline]
    pub fn waiting(&self) -> u8 {
        match self {
            Self::SmallestKey(port) => port.waiting(),
            Self::Single(list) => u8::from(list.first().is_some()),
            _ => self.queues().map_or(0, ClassQueues::waiting),
        }
    }

    /// Bytes of all classes.
    #[inline]
    pub fn bytes(&self) -> u64 {
        match self {
            Self::SmallestKey(port) => port.bytes(),
            Self::Single(list) => list.bytes(),
            _ => self.queues().map_or(0, ClassQueues::bytes),
        }
    }

    /// Bytes of one class.
    #[inline]
    pub fn class_bytes(&self, class: u8) -> u64 {
        let class = usize::from(class);
        match self {
            Self::SmallestKey(port) => port.class_bytes(class),
            Self::Single(list) if class == 0 => list.bytes(),
            _ => self.queues().map_or(0, |queues| queues.class_bytes(class)),
        }
    }

    #[inline]
    fn queues(&self) -> Option<&ClassQueues> {
        match self {
            Self::Wfq(port) => Some(port.queues()),
            Self::VirtualClock(port) => Some(port.queues()),
            Self::Strict(queues) => Some(queues),
            Self::Dwrr(port) => Some(port.queues()),
            Self::Arrival(port) => Some(port.queues()),
            Self::Single(_) | Self::SmallestKey(_) => None,
        }
    }
}
