//! Titan: flows of one host share a network card with several transmit queues fairly, on an unmodified kernel.
//!
//! Problem: the kernel spreads flows over queues by hash, the card serves queues in turn, and a large segment holds up
//! its queue. So two flows in one queue get half of what the others get, even while other queues are idle (titan 3).
//!
//! * [`assign`] - dynamic queue assignment (DQA): which queue a newly backlogged flow takes;
//! * [`weights`] - dynamic queue weight assignment (DQWA): the weights of the NIC's scheduler, and how often they are
//!   set;
//! * [`segments`] - dynamic segmentation offload sizing (DSOS): how large segments may be;
//! * [`pools`] - which queues the flows of one processor or of one container may take.
//!
//! Units: a flow's weight counts in parts of [`WEIGHT_ONE`], so that a container's weight divides among its flows.
//! Cost: the first two run per packet or per millisecond on real hosts. The first has a twin in C, for the kernel
//! (`crates/ethernet/bpf/bpf`); tests compare the two.
//! Source: Titan 4. Ours: containers, the latency queue, and rate-limited weights with a dead band.

pub mod assign;
pub mod pools;
pub mod segments;
pub mod weights;

/// Most transmit queues that are managed; a card with more uses its first ones. A set of queues is one word.
pub const QUEUES_MAX: u16 = 64;

/// The weight of an ordinary flow.
pub const WEIGHT_ONE: u32 = 1024;

/// A set of transmit queues.
///
/// ```
/// use isolane_ethernet_policy::titan::QueueSet;
/// let set = QueueSet::first(8).without(0);
/// assert_eq!(set.iter().collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7]);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueSet(pub u64);

impl QueueSet {
    /// No queue.
    pub const EMPTY: Self = Self(0);

    /// The first `count` queues, at most [`QUEUES_MAX`].
    pub const fn first(count: u16) -> Self {
        match count {
            0 => Self(0),
            1..64 => Self((1 << count) - 1),
            _ => Self(u64::MAX),
        }
    }

    /// One queue. Panics from [`QUEUES_MAX`] on.
    pub const fn one(queue: u16) -> Self {
        assert!(queue < QUEUES_MAX, "a set has 64 queues");
        Self(1 << queue)
    }

    /// Whether it holds `queue`.
    pub const fn holds(self, queue: u16) -> bool {
        queue < QUEUES_MAX && self.0 & (1 << queue) != 0
    }

    /// This and `other`.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// This, but for one queue.
    pub const fn without(self, queue: u16) -> Self {
        Self(self.0 & !Self::one(queue).0)
    }

    /// What both hold.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// How many.
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether it holds none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// From the lowest number on.
    pub fn iter(self) -> impl Iterator<Item = u16> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let next = (left != 0).then(|| left.trailing_zeros() as u16)?;
            left &= left - 1;
            Some(next)
        })
    }
}
