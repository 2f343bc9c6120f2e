//! The rate of a tenant's control verbs: one bucket over all calls, and one for each class with a limit.
//!
//! Method: a bucket gains one call per interval and holds at most `burst` calls. It is stored as one number: the time
//! at which it would be full again. A call that finds the bucket empty gets a turn. Turns follow the order of arrival
//! and are never withdrawn, even if the caller ends while it waits.
//!
//! A call first waits for its class, then for the whole ([`Paces::of_class`], then [`Paces::of_all`]). A slow class
//! therefore uses no turns of the whole while it waits.
//!
//! Units: nanoseconds since any fixed point, calls per second. The interval is rounded up: a tenant never exceeds its
//! rate. Source: harmonic 5.5.2, which has no burst (a burst of 1).

use crate::seccomp::call::Class;

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;
/// The default burst is what the rate admits in this time, ns. Timers are late by tens of microseconds; without a
/// burst, rates above some thousand per second would not be reached.
const BURST_TIME: u64 = 1_000_000;

/// One bucket.
///
/// ```
/// use isolane_rdma_enforcer::control::pace::Pace;
/// let mut pace = Pace::new(200, None);
/// assert_eq!(pace.turn(1_000), 1_000);
/// assert_eq!(pace.turn(1_000), 5_001_000);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    interval: u64,
    /// Duration of a full burst, ns.
    tolerance: u64,
    /// Time at which the bucket is full again, ns.
    full: u64,
}

impl Pace {
    /// A bucket of `rate` calls per second with a `burst` of at least 1; the default burst is the calls of one
    /// millisecond. Panics if the rate is zero: the profile reader rejects zero.
    pub fn new(rate: u64, burst: Option<u64>) -> Self {
        assert!(rate > 0, "a rate of zero stops a tenant forever");
        let interval = SECOND.div_ceil(rate);
        let burst = burst.unwrap_or(BURST_TIME / interval).max(1);
        Self {
            interval,
            tolerance: interval.saturating_mul(burst - 1),
            full: 0,
        }
    }

    /// The time at which a call that arrives at `now` may go on; `now` if it need not wait.
    pub fn turn(&mut self, now: u64) -> u64 {
        let turn = now.max(self.full.saturating_sub(self.tolerance));
        self.full = self.full.max(now).saturating_add(self.interval);
        turn
    }
}

/// Limits of one tenant, calls per second.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Limit of all calls together.
    pub all: Option<u64>,
    /// Limits of single classes.
    pub classes: Vec<(Class, u64)>,
    /// Burst of every limit, calls; the default is the calls of one millisecond.
    pub burst: Option<u64>,
}

/// The buckets of one tenant.
#[derive(Clone, Debug)]
pub struct Paces {
    all: Option<Pace>,
    classes: [Option<Pace>; Class::ALL.len()],
}

impl Paces {
    /// Makes full buckets with these limits.
    pub fn new(limits: &Limits) -> Self {
        let mut classes = [None; Class::ALL.len()];
        for &(class, rate) in &limits.classes {
            classes[class as usize] = Some(Pace::new(rate, limits.burst));
        }
        Self {
            all: limits.all.map(|rate| Pace::new(rate, limits.burst)),
            classes,
        }
    }

    /// The time at which a call of `class` may call [`Self::of_all`].
    pub fn of_class(&mut self, now: u64, class: Class) -> u64 {
        self.classes[class as usize]
            .as_mut()
            .map_or(now, |pace| pace.turn(now))
    }

    /// The time at which a call may go on.
    pub fn of_all(&mut self, now: u64) -> u64 {
        self.all.as_mut().map_or(now, |pace| pace.turn(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reference model of a bucket: whole calls in the bucket, one more per interval.
    fn bucket(interval: u64, burst: u64, arrivals: &[u64]) -> Vec<u64> {
        // Turns already given. The n-th call may continue when fewer than `burst` turns are within the bucket's memory.
        let mut turns = Vec::new();
        let mut full = 0_u64;
        for &now in arrivals {
            let mut turn = now;
            while full.saturating_sub(turn) > interval * (burst - 1) {
                turn += 1;
            }
            full = full.max(now) + interval;
            turns.push(turn);
        }
        turns
    }

    proptest! {
        #[test]
        fn turns_are_those_of_a_bucket(
            rate in 1_000_000_u64..100_000_000,
            burst in 1_u64..5,
            gaps in prop::collection::vec(0_u64..2_000, 1..40),
        ) {
            let mut now = 0;
            let arrivals: Vec<u64> = gaps.iter().map(|gap| { now += gap; now }).collect();
            let mut pace = Pace::new(rate, Some(burst));
            let turns: Vec<u64> = arrivals.iter().map(|&now| pace.turn(now)).collect();
            prop_assert_eq!(turns, bucket(SECOND.div_ceil(rate), burst, &arrivals));
        }

        /// No window sees more calls than rate x length + burst.
        #[test]
        fn no_window_sees_more_than_the_rate_and_a_burst(
            rate in 1_u64..1_000_000,
            burst in 1_u64..20,
            gaps in prop::collection::vec(0_u64..3_000_000, 1..100),
        ) {
            let (mut now, mut pace) = (0, Pace::new(rate, Some(burst)));
            let turns: Vec<u64> = gaps.iter().map(|gap| { now += gap; pace.turn(now) }).collect();
            prop_assert!(turns.is_sorted());
            for first in 0..turns.len() {
                for last in first..turns.len() {
                    let window = turns[last] - turns[first];
                    let most = window / SECOND.div_ceil(rate) + burst;
                    prop_assert!((last - first + 1) as u64 <= most);
                }
            }
        }

        /// No time value overflows.
        #[test]
        fn any_time_has_a_turn(times in prop::collection::vec(any::<u64>(), 1..50), rate in 1_u64..) {
            let mut pace = Pace::new(rate, None);
            for now in times {
                prop_assert!(pace.turn(now) >= now);
            }
        }
    }

    #[test]
    fn a_slow_class_takes_no_turn_of_the_whole_while_it_waits() {
        let mut paces = Paces::new(&Limits {
            all: Some(100),
            classes: vec![(Class::MemoryRegions, 1)],
            burst: Some(1),
        });
        assert_eq!(paces.of_class(0, Class::MemoryRegions), 0);
        assert_eq!(paces.of_all(0), 0);
        // The second registration waits one second for its class; a query waits only 10 ms.
        assert_eq!(paces.of_class(0, Class::MemoryRegions), SECOND);
        assert_eq!(paces.of_class(0, Class::Queries), 0);
        assert_eq!(paces.of_all(0), 10_000_000);
    }

    #[test]
    fn the_default_burst_is_a_millisecond() {
        let at_once = |rate| {
            let mut pace = Pace::new(rate, None);
            (0..1_000).take_while(|_| pace.turn(0) == 0).count()
        };
        assert_eq!((at_once(200), at_once(1_000), at_once(50_000)), (1, 1, 50));
    }
}
