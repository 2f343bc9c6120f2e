//! Weighted fair queueing: packet-by-packet generalised processor sharing with its true virtual time.
//!
//! Problem: a port shares its line by weight between the classes that have something to send, and a packet must leave
//! no later than one largest packet's time after a fluid server would be done with it.
//! Method (Parekh and Gallager 1993): beside the packets runs that fluid server, at the line's rate. Its virtual time
//! grows by time / (summed weight of the classes with fluid backlog). A packet begins at the later of the virtual time
//! of its arrival and the finish of the one before it in its class, and finishes bytes / weight later. The waiting
//! packet with the smallest finish goes next; of equal ones that of the higher class.
//! Arithmetic: integer. A tick of virtual time is 1/scale picoseconds at weight 1, `scale` a multiple of every weight
//! where that is small, so that finishes are exact; the clock keeps its last corner exactly, and only the start of a
//! class that had no fluid backlog is rounded down by less than a tick (a millionth of a byte at 100 Gb/s). Values
//! wrap, and only differences count.
//! Pauses: virtual time stands for a class that is paused, and the fluid server divides the line among the others. When
//! it is let go, its finishes move by what it missed: it neither catches up nor has lost its turn. A pause counts from the
//! port's next choice on.
//! Cost: constant while classes stay backlogged, O(classes) when one begins or runs dry; nothing is allocated.
//! Limits: backlog of a class and time between two corners stay below 2^63 ticks, about nine minutes with weights of
//! which the least common multiple is at most 2^14.

use super::queues::ClassQueues;
use crate::packet::{Packet, PacketId, Packets};
use isolane_common_quantities::units::{BitRate, Instant};
use isolane_network_scenario::model::CLASSES_MAX;

/// The queues of one port under weighted fair queueing. The layout is part of the speed: a run touches every port in no
/// order, and what a packet needs of up to four classes fills four cache lines.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct WeightedFair {
    queues: ClassQueues,
    fluid: Fluid,
    /// What each class's pauses have added to the finishes in its packets.
    missed: [u64; CLASSES_MAX],
}

impl WeightedFair {
    /// Queues of a line of `rate` whose class `i` has `weights[i]`; further classes have weight 1.
    pub fn new(weights: &[u32], rate: BitRate) -> Self {
        Self {
            queues: ClassQueues::default(),
            fluid: Fluid::new(weights, rate),
            missed: [0; CLASSES_MAX],
        }
    }

    /// Takes in `id`.
    #[inline]
    pub fn push(&mut self, packets: &mut Packets, now: Instant, id: PacketId) {
        let packet = &mut packets[id];
        let class = usize::from(packet.class);
        let finish = self.fluid.arrive(now, class, packet.bytes);
        packet.tag = finish.wrapping_sub(self.missed(class));
        if self.queues.push(packets, class, id) {
            self.fluid.ends[class].first = finish;
        }
    }

    /// Takes note of a packet that goes to the line at once.
    #[inline]
    pub fn pass(&mut self, now: Instant, packet: &Packet) {
        self.fluid.pass(now, packet);
    }

    /// Takes out the packet whose fluid service ends first among the classes that are not `paused`.
    #[inline]
    pub fn pop(&mut self, packets: &Packets, now: Instant, paused: u8) -> Option<PacketId> {
        if paused != self.fluid.held {
            self.hold(now, paused);
        }
        let ready = self.queues.waiting() & !paused;
        let class = smallest(&self.fluid.ends, ready, |ends| ends.first)?;
        let (id, next) = self.queues.pop(packets, class);
        if let Some(next) = next {
            let finish = packets[next].tag.wrapping_add(self.missed(class));
            self.fluid.ends[class].first = finish;
        }
        Some(id)
    }

    #[inline]
    fn missed(&self, class: usize) -> u64 {
        match self.fluid.has_paused {
            true => self.missed[class],
            false => 0,
        }
    }

    /// From now on exactly the classes of `paused` are.
    #[cold]
    fn hold(&mut self, now: Instant, paused: u8) {
        for (class, missed) in self.fluid.hold(now, paused).into_iter().enumerate() {
            self.missed[class] = self.missed[class].wrapping_add(missed);
            let first = &mut self.fluid.ends[class].first;
            *first = first.wrapping_add(missed);
        }
    }

    /// What waits.
    #[inline]
    pub fn queues(&self) -> &ClassQueues {
        &self.queues
    }
}

/// The class of `among` (a bit for each) with the smallest value, which may have wrapped; the highest of equals.
#[inline]
pub(super) fn smallest<T>(
    classes: &[T; CLASSES_MAX],
    among: u8,
    value: impl Fn(&T) -> u64,
) -> Option<usize> {
    if among == 0 {
        return None;
    }
    let first = among.trailing_zeros() as usize;
    let end = CLASSES_MAX - among.leading_zeros() as usize;
    let (mut best, mut least) = (first, value(&classes[first]));
    // Every class up to the last is looked at: which of them hold packets changes too often to be predicted.
    for (class, own) in (first + 1..).zip(&classes[first + 1..end]) {
        let own = value(own);
        let is_less = among >> class & 1 != 0 && is_before(own, least);
        best = std::hint::select_unpredictable(is_less, class, best);
        least = std::hint::select_unpredictable(is_less, own, least);
    }
    Some(best)
}

#[inline]
fn is_before(a: u64, b: u64) -> bool {
    a.wrapping_sub(b).cast_signed() < 0
}

/// The fluid server. Scaled time is picoseconds times `scale`.
#[derive(Clone, Debug)]
#[repr(C)]
struct Fluid {
    /// Classes with fluid backlog, and maybe some that ran dry since the last corner.
    backlogged: u8,
    /// Classes that are paused, and so not among those.
    held: u8,
    /// Class of a packet that began a busy period and is not counted yet; none beyond [`CLASSES_MAX`].
    passed: u8,
    /// Some class was ever paused.
    has_paused: bool,
    passed_bytes: u16,
    passed_at: Instant,
    /// The summed weight of the backlogged ones.
    weight: u64,
    /// Ticks per picosecond and unit of weight.
    scale: u64,
    /// Virtual time at the last corner, ticks.
    clock: u64,
    /// When that was, scaled time.
    corner: u64,
    /// No class runs dry before this much scaled time after the corner.
    none_dry_for: u64,
    ends: [Ends; CLASSES_MAX],
    shares: [Share; CLASSES_MAX],
    /// Virtual time at which each held class was paused, ticks.
    held_at: [u64; CLASSES_MAX],
}

/// When packets of a class are done, ticks.
#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    /// The first that waits at the port, if one does.
    first: u64,
    /// The newest.
    last: u64,
}

/// What a class gets.
#[derive(Clone, Copy, Debug)]
struct Share {
    /// Ticks per byte, with [`FRACTION`] more bits.
    cost: u64,
    weight: u64,
}

impl Share {
    /// Ticks of `bytes`.
    #[inline]
    fn cost(&self, bytes: u16) -> u64 {
        ((u128::from(bytes) * u128::from(self.cost)) >> FRACTION) as u64
    }
}

/// [`Fluid::passed`] of none.
const NO_CLASS: u8 = u8::MAX;

impl Fluid {
    fn new(weights: &[u32], rate: BitRate) -> Self {
        let mut all = [1; CLASSES_MAX];
        all[..weights.len()].copy_from_slice(weights);
        assert!(all.iter().all(|weight| *weight > 0), "weights are above 0");
        let scale = scale_of(&all, rate);
        let of_weight_1 =
            ((u128::from(scale) * PS_BITS_PER_BYTE_S) << FRACTION) / u128::from(rate.as_bps());
        let share = |weight| Share {
            cost: u64::try_from(of_weight_1 / u128::from(weight))
                .expect("a byte costs less than 2^64 parts of a tick on a line above 1 kb/s"),
            weight: u64::from(weight),
        };
        Self {
            backlogged: 0,
            held: 0,
            passed: NO_CLASS,
            has_paused: false,
            passed_bytes: 0,
            passed_at: Instant::ZERO,
            weight: 0,
            scale,
            clock: 0,
            corner: 0,
            none_dry_for: 0,
            ends: [Ends::default(); CLASSES_MAX],
            shares: all.map(share),
            held_at: [0; CLASSES_MAX],
        }
    }

    #[inline]
    fn scaled(&self, now: Instant) -> u64 {
        now.as_ps().wrapping_mul(self.scale)
    }

    /// A packet of `bytes` arrives in `class`: its finish.
    #[inline]
    fn arrive(&mut self, now: Instant, class: usize, bytes: u16) -> u64 {
        let bit = 1 << class;
        let scaled = self.scaled(now);
        if scaled.wrapping_sub(self.corner) >= self.none_dry_for {
            self.catch_up(scaled);
        }
        let cost = self.shares[class].cost(bytes);
        if self.backlogged & bit == 0 {
            if self.held & bit == 0 {
                self.join(scaled, class, cost);
            } else if is_before(self.ends[class].last, self.held_at[class]) {
                self.ends[class].last = self.held_at[class];
            }
        }
        let last = &mut self.ends[class].last;
        *last = last.wrapping_add(cost);
        *last
    }

    /// A packet goes to the line where nothing waits and nothing is being sent, so neither does the fluid server. It is
    /// counted when another packet arrives behind it, which is rare.
    #[inline]
    fn pass(&mut self, now: Instant, packet: &Packet) {
        self.passed = packet.class;
        self.passed_bytes = packet.bytes;
        self.passed_at = now;
        // The next arrival catches up.
        self.none_dry_for = 0;
        self.corner = 0;
    }

    /// Counts the packet that began the busy period.
    fn count_passed(&mut self) {
        let class = usize::from(std::mem::replace(&mut self.passed, NO_CLASS));
        let Share { weight, .. } = self.shares[class];
        let cost = self.shares[class].cost(self.passed_bytes);
        self.backlogged = 1 << class;
        self.weight = weight;
        // No packet waits for the end of a pause; if there is one, the next choice finds it again.
        self.held = 0;
        self.corner = self.scaled(self.passed_at);
        self.ends[class].last = self.clock.wrapping_add(cost);
        self.none_dry_for = cost.saturating_mul(weight);
    }

    /// `class` begins to be served now, with a packet of `cost`.
    fn join(&mut self, scaled: u64, class: usize, cost: u64) {
        self.turn(scaled);
        self.backlogged |= 1 << class;
        self.weight += self.shares[class].weight;
        self.ends[class].last = self.clock;
        // With more weight the others take longer, so their bound stays one.
        self.none_dry_for = self.none_dry_for.min(cost.saturating_mul(self.weight));
    }

    /// Makes `scaled` a corner, to within a tick.
    fn turn(&mut self, scaled: u64) {
        if self.backlogged == 0 {
            self.corner = scaled;
            self.none_dry_for = u64::MAX;
        } else {
            let gone = scaled.wrapping_sub(self.corner) / self.weight;
            self.clock = self.clock.wrapping_add(gone);
            self.corner = self.corner.wrapping_add(gone * self.weight);
            self.none_dry_for -= gone * self.weight;
        }
    }

    /// Takes the classes of `paused` out of the service and the others in again: how far each has moved, ticks.
    fn hold(&mut self, now: Instant, paused: u8) -> [u64; CLASSES_MAX] {
        let scaled = self.scaled(now);
        self.catch_up(scaled);
        self.turn(scaled);
        self.has_paused = true;
        let mut missed = [0; CLASSES_MAX];
        for (class, missed) in missed.iter_mut().enumerate() {
            let (bit, Share { weight, .. }) = (1 << class, self.shares[class]);
            let last = &mut self.ends[class].last;
            if paused & !self.held & bit != 0 {
                self.held_at[class] = self.clock;
                if self.backlogged & bit != 0 {
                    self.backlogged &= !bit;
                    self.weight -= weight;
                } else {
                    // What it sent in an earlier busy period is over at any time of the clock.
                    *last = self.clock;
                }
            } else if self.held & !paused & bit != 0 {
                *missed = self.clock.wrapping_sub(self.held_at[class]);
                *last = last.wrapping_add(*missed);
                if is_before(self.clock, *last) {
                    self.backlogged |= bit;
                    self.weight += weight;
                }
            }
        }
        self.held = paused;
        // Which class runs dry first is open now: the next arrival looks.
        self.none_dry_for = if self.backlogged == 0 { u64::MAX } else { 0 };
        missed
    }

    /// Lets classes run dry up to `scaled`.
    fn catch_up(&mut self, scaled: u64) {
        if self.passed != NO_CLASS {
            self.count_passed();
            if scaled.wrapping_sub(self.corner) < self.none_dry_for {
                return;
            }
        }
        while let Some(class) = smallest(&self.ends, self.backlogged, |ends| ends.last) {
            let left = self.ends[class].last.wrapping_sub(self.clock);
            let needed = left.saturating_mul(self.weight);
            if needed > scaled.wrapping_sub(self.corner) {
                self.none_dry_for = needed;
                return;
            }
            self.clock = self.ends[class].last;
            self.corner = self.corner.wrapping_add(needed);
            self.backlogged &= !(1 << class);
            self.weight -= self.shares[class].weight;
        }
        self.corner = scaled;
        self.none_dry_for = u64::MAX;
    }
}

/// Ticks per picosecond: the largest multiple of all weights up to 2^14, or, where they have none, as many as keep the
/// rounding of the heaviest class's cost below 2^-12 ticks per byte.
fn scale_of(weights: &[u32; CLASSES_MAX], rate: BitRate) -> u64 {
    let common = weights.iter().try_fold(1u64, |common, weight| {
        let weight = u64::from(*weight);
        let next = common / gcd(common, weight) * weight;
        (next <= SCALE_MAX).then_some(next)
    });
    if let Some(common) = common {
        return SCALE_MAX / common * common;
    }
    let heaviest = u128::from(*weights.iter().max().expect("there are classes"));
    let scale = (heaviest << 12) * u128::from(rate.as_bps()) / PS_BITS_PER_BYTE_S;
    u64::try_from(scale)
        .unwrap_or(u64::MAX)
        .clamp(SCALE_MAX, SCALE_MAX << 20)
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Further bits of a cost per byte, for lines whose byte takes no whole number of ticks.
const FRACTION: u32 = 16;
/// Ticks per picosecond at most where the weights allow exact finishes.
const SCALE_MAX: u64 = 1 << 14;
/// Picoseconds of a second times bits of a byte.
const PS_BITS_PER_BYTE_S: u128 = 8_000_000_000_000;
