//! The lanes of a port: where contexts that can send wait, and whose packet is next (stage 3).
//!
//! Problem: tenants may have hardware queues of their own, in two ways at once: *classes* (priorities, traffic
//! classes, virtual lanes), among which an arbiter chooses, and *functions* (SR-IOV), which take turns packet by
//! packet within a class. A lane is one function's part of one class. It has its own schedule queue and send
//! engines, and it may have a rate limiter; a class can be paused by the link partner.
//!
//! Units: bytes on the wire, picoseconds. Method: each class of several lanes keeps a ring of those of its lanes that have work and
//! are not waiting for their limiter; a bit per class says whether the ring holds any. A step chooses the class, then
//! the lane in front of its ring; the caller then says what the lane sent. All steps are O(classes), and nothing is
//! allocated once the queues have grown.
//!
//! Limits: all lanes share the processing units, the PCIe bus and the caches behind them, as in NICs.

use super::arbiter::{Arbiter, Choice, Sharing};
use super::chunks::Chunks;
use super::limiter::Limiter;
use super::queue_pair::NONE;
use isolane_common_quantities::units::BitRate;
use std::collections::VecDeque;

pub(crate) const ALL_CLASSES: u16 = u16::MAX;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Engine {
    /// The context it serves, or [`NONE`].
    pub(crate) context: u32,
    /// What is left of the turn: packets, or bytes of frames on a device that prefetches.
    pub(crate) left: u32,
}

/// One function's part of one class.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    /// Contexts that wait for an engine.
    pub(crate) ready: VecDeque<u32>,
    pub(crate) engines: Vec<Engine>,
    /// Whose turn it is.
    pub(crate) next_engine: usize,
    /// Takes the place of `ready` and the engines where chunks are scheduled.
    pub(crate) chunks: Option<Box<Chunks>>,
    limiter: Option<Limiter>,
    /// Contexts that wait or are being served.
    work: u32,
    limited: bool,
    /// Is in its class's ring.
    listed: bool,
}

/// The result of serving a context once.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Served {
    /// A packet went out and there is more to send.
    More,
    /// A packet went out; nothing more is ready.
    Last,
    /// The context was set aside; no packet went out.
    Aside,
}

#[derive(Clone, Debug)]
pub(crate) struct Lanes {
    pub(crate) lanes: Vec<Lane>,
    functions: usize,
    /// Per class the lanes that have work and do not wait for a limiter, in turn; unused where a class is one lane.
    rings: Vec<VecDeque<u16>>,
    /// Classes whose ring holds lanes.
    busy: u16,
    /// Classes the link partner has stopped.
    pub(crate) paused: u16,
    arbiter: Arbiter,
}

impl Lanes {
    /// Idle lanes: `functions` for each class of `sharing`, each with `engines` send engines. `limit` says the
    /// rate of a lane by class and function.
    pub(crate) fn new(
        sharing: &Sharing,
        functions: usize,
        engines: usize,
        limit: impl Fn(usize, usize) -> Option<BitRate>,
    ) -> Self {
        let classes = sharing.classes();
        let lane = |number: usize| Lane {
            ready: VecDeque::with_capacity(64),
            engines: vec![
                Engine {
                    context: NONE,
                    left: 0
                };
                engines
            ],
            next_engine: 0,
            chunks: None,
            limiter: limit(number / functions, number % functions).map(Limiter::new),
            work: 0,
            limited: false,
            listed: false,
        };
        Self {
            lanes: (0..classes * functions).map(lane).collect(),
            functions,
            rings: vec![VecDeque::with_capacity(functions); classes],
            busy: 0,
            paused: 0,
            arbiter: Arbiter::new(sharing),
        }
    }

    #[inline]
    pub(crate) fn lane_of(&self, class: u8, function: u8) -> usize {
        usize::from(class) * self.functions + usize::from(function)
    }

    #[inline]
    fn class_of(&self, lane: usize) -> usize {
        if self.functions == 1 {
            lane
        } else {
            lane / self.functions
        }
    }

    /// A context waits in a lane. The rank of its class when nothing else is there to send, if that class may send.
    #[inline(always)]
    pub(crate) fn push(&mut self, lane: usize, context: u32) -> Option<usize> {
        self.lanes[lane].ready.push_back(context);
        self.count(lane)
    }

    /// A lane has one more context with work; returns as [`Lanes::push`] does.
    #[inline(always)]
    pub(crate) fn count(&mut self, lane: usize) -> Option<usize> {
        self.lanes[lane].work += 1;
        self.list(lane)
    }

    /// Puts a lane into its class's ring if it belongs there and is not there yet; returns as [`Lanes::push`] does.
    #[inline(always)]
    fn list(&mut self, lane: usize) -> Option<usize> {
        let class = self.class_of(lane);
        let bit = 1 << class;
        let state = &mut self.lanes[lane];
        if !state.listed {
            if state.limited || state.work == 0 {
                return None;
            }
            state.listed = true;
            if self.functions > 1 {
                self.rings[class].push_back(lane as u16);
            }
            self.busy |= bit;
        }
        (self.paused & bit == 0).then(|| usize::from(self.arbiter.best_rank(bit)))
    }

    /// The best rank among all classes that can send now.
    #[inline]
    pub(crate) fn best_rank(&self) -> Option<usize> {
        let ready = self.busy & !self.paused;
        (ready != 0).then(|| usize::from(self.arbiter.best_rank(ready)))
    }

    /// Whether a packet's rank on the wire is its class.
    #[inline]
    pub(crate) fn ranks_by_class(&self) -> bool {
        self.arbiter.is_priority()
    }

    /// The lane whose packet is next, and its rank on the wire.
    #[inline]
    pub(crate) fn choose(&mut self) -> Option<(usize, usize)> {
        let Choice { class, rank } = self.arbiter.choose(self.busy & !self.paused)?;
        let lane = match self.functions {
            1 => usize::from(class),
            _ => usize::from(self.turn_of_class(class)),
        };
        Some((lane, usize::from(rank)))
    }

    /// The lane in front of a busy class's ring.
    fn turn_of_class(&self, class: u8) -> u16 {
        let lane = self.rings[usize::from(class)].front();
        *lane.expect("a busy class has a lane in its ring")
    }

    /// The chosen lane has sent `bytes`, and its context left it if `gone`. When the lane's limiter lets it go
    /// on, ps, if that is later than `now`: the caller then has to call [`Lanes::replenished`] at that time.
    #[inline(always)]
    pub(crate) fn served(&mut self, now: u64, lane: usize, bytes: u64, gone: bool) -> Option<u64> {
        let class = self.class_of(lane);
        self.arbiter.charge(class as u8, bytes);
        let state = &mut self.lanes[lane];
        state.work -= u32::from(gone);
        let due = match &mut state.limiter {
            Some(limiter) if bytes > 0 => limiter.charge(now, bytes),
            _ => 0,
        };
        state.limited = due > now;
        let stays = state.work > 0 && !state.limited;
        state.listed = stays;
        let limited = state.limited;
        if self.functions > 1 {
            self.turn_ring(lane, stays);
        } else if !stays {
            self.busy &= !(1 << class);
        }
        limited.then_some(due)
    }

    /// The lane in front of its class's ring goes to the end if it `stays`, or leaves the ring.
    fn turn_ring(&mut self, lane: usize, stays: bool) {
        let class = self.class_of(lane);
        let ring = &mut self.rings[class];
        ring.pop_front();
        if stays {
            ring.push_back(lane as u16);
        } else if ring.is_empty() {
            self.busy &= !(1 << class);
        }
    }

    /// A class has used up so much of its share otherwise than by sending.
    pub(crate) fn charge(&mut self, class: u8, bytes: u64) {
        self.arbiter.charge(class, bytes);
    }

    /// A lane's limiter lets it go on.
    pub(crate) fn replenished(&mut self, lane: usize) {
        self.lanes[lane].limited = false;
        self.list(lane);
    }
}
