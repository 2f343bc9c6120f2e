//! How fast a tenant's control verbs go on: one pace over all calls, and one for each class that has a limit.
//!
//! Method: a pace is a bucket that gains one call every interval and holds at most `burst`; in the form that needs one
//! number, the time at which the bucket would be full again. A call that finds the bucket empty waits for its turn;
//! turns are given out in order of arrival and never taken back, also not when the caller dies waiting.
//!
//! A class that is slower than the whole must not use up turns of the whole while it waits: a call first waits for its
//! class, and asks the whole when that turn has come ([`Paces::of_class`], then [`Paces::of_all`]).
//!
//! Units: nanoseconds since any fixed point, calls per second. The interval is rounded up: a tenant never exceeds its
//! rate. Source: harmonic 5.5.2, which has no burst; the published behaviour is a burst of 1.

use crate::seccomp::call::Class;

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;
/// Time whose calls a bucket holds unless the profile names a burst: timers are late by tens of microseconds, and without
/// it a rate above some thousand per second would not be reached.
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
    /// What a full bucket saves.
    tolerance: u64,
    /// When the bucket is full again.
    full: u64,
}

impl Pace {
    /// `rate` calls per second; a `burst` of at least 1, or what a millisecond brings.
    ///
    /// # Panics
    /// When the rate is zero: profiles are checked before.
    pub fn new(rate: u64, burst: Option<u64>) -> Self {
        assert!(rate > 0, "a rate of zero would stop a tenant for ever");
        let interval = SECOND.div_ceil(rate);
        let burst = burst.unwrap_or(BURST_TIME / interval).max(1);
        Self {
            interval,
            tolerance: interval.saturating_mul(burst - 1),
            full: 0,
        }
    }

    /// When a call that arrives at `now` may go on; `now` for one that need not wait.
    pub fn turn(&mut self, now: u64) -> u64 {
        let turn = now.max(self.full.saturating_sub(self.tolerance));
        self.full = self.full.max(now).saturating_add(self.interval);
        turn
    }
}

/// Limits of one tenant, calls per second.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// All calls together.
    pub all: Option<u64>,
    /// Calls of one class.
    pub classes: Vec<(Class, u64)>,
    /// Calls that may come at once after a pause, of every limit; what a millisecond brings unless set.
    pub burst: Option<u64>,
}

/// The paces of one tenant.
#[derive(Clone, Debug)]
pub struct Paces {
    all: Option<Pace>,
    classes: [Option<Pace>; Class::ALL.len()],
}

impl Paces {
    /// Full buckets with these limits.
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

    /// When a call of `class` may ask [`Self::of_all`].
    pub fn of_class(&mut self, now: u64, class: Class) -> u64 {
        self.classes[class as usize]
            .as_mut()
            .map_or(now, |pace| pace.turn(now))
    }

    /// When a call may go on.
    pub fn of_all(&mut self, now: u64) -> u64 {
        self.all.as_mut().map_or(now, |pace| pace.turn(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A bucket as one would draw it: whole calls in hand, one more every interval.
    fn bucket(interval: u64, burst: u64, arrivals: &[u64]) -> Vec<u64> {
        // Turns already given; the n-th call may go on when fewer than `burst` turns lie in the bucket's memory.
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

        /// No window of any length sees more calls than the rate brings in it, and the burst.
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

        /// Nothing overflows, whatever the clock says.
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
        // The second registration waits a second for its class, a query meanwhile only 10 ms.
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
