//! Colloid: places hot pages so that the loaded latencies of near and far memory become equal.
//!
//! Problem: a policy that packs near memory with the hottest pages assumes that near memory is faster. Under load it
//! may not be: when its channels are nearly full, a request to it waits longer than a request to far memory takes.
//! Method: the latency of a tier is the number of requests inside divided by their rate (Little's law), both smoothed.
//! Once in [`PERIOD`](crate::memtis::PERIOD) the two latencies are compared. If near memory is faster, the share `p` of
//! requests that it serves shall grow, otherwise it shall shrink. The best `p` is searched between two bounds: the last
//! `p` at which near memory was faster, and the last one at which it was slower. The target is their middle. When the
//! bounds meet or cross, a changed load has made the older one wrong: it moves back to 0 or 1.
//! Latencies that differ by less than [`CLOSE`] of the near one are equal, and nothing moves. The policy beneath
//! ([`crate::memtis`]) says which pages are hot; Colloid says how many of them move and in which direction:
//! at most as many as carry the missing share of requests, and no more bytes per second than that share of the requests
//! carries, so that moving costs no more bandwidth than it shifts.
//!
//! Units: nanoseconds, requests per nanosecond, shares from 0 to 1. Limits: two tiers; more than one far tier counts as
//! one with their mean latency. Where moving 1 % of the requests changes a latency by more than [`CLOSE`], the bounds
//! meet before the latencies are equal, and the search begins again. Equal latencies are the optimum only where all
//! requests count alike: Colloid knows no objectives, priorities or owners.
//!
//! Source: Vuppalapati and Agarwal, "Tiered Memory Management: Access Latency is the Key!", SOSP 2024; intervals,
//! thresholds and smoothing as in its authors' public integration with Memtis (`colloid-mon.c`).

use crate::memtis::Plan;
use isolane_common_quantities::OptionError;
use isolane_common_quantities::units::{Bytes, Duration};

/// Relative difference of latencies that counts as none (`COLLOID_DELTA_PERCENT`).
pub const CLOSE: f64 = 0.05;
/// Bounds that are nearer to each other than this have met (`COLLOID_EPSILON_PERCENT`).
const MET: f64 = 0.01;
/// Time between two readings of the hardware's counters.
const READING: Duration = Duration::from_ms(10);
/// Weight of the earlier readings against a new one: the smoothed value is 1/16 new.
const KEPT: f64 = 15.0 / 16.0;
/// Bytes of a request.
const LINE: f64 = 64.0;

/// What the counters of one tier show.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Requests inside, on average.
    pub occupancy: f64,
    /// Rate of requests to the tier, requests/ns, at least 0.
    pub rate: f64,
}

/// Hot pages of one tier.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HotPages {
    /// Size of these pages together, bytes.
    pub bytes: Bytes,
    /// Their share of all requests, as sampled.
    pub share: f64,
}

/// Where requests shall go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Near memory is faster.
    Near,
    /// Far memory is faster.
    Far,
}

/// How much of the load should change its tier next, and to which tier.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shift {
    /// The tier that gets the pages.
    pub to: Direction,
    /// Share of all requests that shall change the tier.
    pub share: f64,
    /// Most bytes to move per second.
    pub bytes_per_s: u64,
}

impl Shift {
    /// Bytes of `hot` that move within `time`; rounds down.
    pub fn bytes(&self, hot: HotPages, time: Duration) -> Bytes {
        let part = match hot.share > self.share {
            true => self.share / hot.share,
            false => 1.0,
        };
        let most = self.bytes_per_s as f64 * time.as_secs_f64();
        Bytes::new((hot.bytes.get() as f64 * part).min(most) as u64)
    }
}

/// The search for equal latencies.
///
/// ```
/// use isolane_common_quantities::units::Duration;
/// use isolane_memory_policy::colloid::{Colloid, Direction, Load};
/// let mut colloid = Colloid::new(Duration::from_ns(70), Duration::from_ns(135))?;
/// // 500 requests wait in near memory, which serves 2.5 per nanosecond: 200 ns. Far memory is idle: 135 ns.
/// let near = Load { occupancy: 500.0, rate: 2.5 };
/// colloid.observe(Duration::from_ms(500), near, Load::default());
/// let shift = colloid.decide().expect("the latencies differ");
/// assert_eq!((shift.to, shift.share), (Direction::Far, 0.5));
/// # Ok::<(), isolane_common_quantities::OptionError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Colloid {
    /// Latencies of idle tiers, nanoseconds: no measured latency is below.
    idle: [f64; 2],
    /// Smoothed loads, near and far.
    loads: Option<[Load; 2]>,
    /// The last share at which near memory was faster.
    low: f64,
    /// The last share at which it was slower.
    high: f64,
}

impl Colloid {
    /// A search that knows nothing yet; `near` and `far` are the latencies of idle tiers.
    ///
    /// # Errors
    /// A latency of zero.
    pub fn new(near: Duration, far: Duration) -> Result<Self, OptionError> {
        OptionError::require_positive(&[("near", near.as_ps()), ("far", far.as_ps())])?;
        Ok(Self {
            idle: [near.as_ns_f64(), far.as_ns_f64()],
            loads: None,
            low: 0.0,
            high: 1.0,
        })
    }

    /// Takes in the mean loads of the last `time`, of which whole intervals of 10 ms count, and at least one.
    pub fn observe(&mut self, time: Duration, near: Load, far: Load) {
        let Some(loads) = &mut self.loads else {
            self.loads = Some([near, far]);
            return;
        };
        let readings = (time.as_ps() / READING.as_ps()).max(1);
        let kept = (0..readings).fold(1.0, |kept, _| kept * KEPT);
        for (smooth, new) in loads.iter_mut().zip([near, far]) {
            smooth.occupancy = kept * smooth.occupancy + (1.0 - kept) * new.occupancy;
            smooth.rate = kept * smooth.rate + (1.0 - kept) * new.rate;
        }
    }

    /// Loaded latencies, near and far, nanoseconds; `None` before anything was observed.
    pub fn latencies(&self) -> Option<[f64; 2]> {
        let loads = self.loads?;
        let of = |tier: usize| {
            let Load { occupancy, rate } = loads[tier];
            match rate > 0.0 {
                true => (occupancy / rate).max(self.idle[tier]),
                false => self.idle[tier],
            }
        };
        Some([of(0), of(1)])
    }

    /// What to shift until the next decision; `None` where the latencies are equal, or nothing is requested.
    pub fn decide(&mut self) -> Option<Shift> {
        let [near, far] = self.latencies()?;
        let [near_load, far_load] = self.loads?;
        let rate = near_load.rate + far_load.rate;
        if rate <= 0.0 || (near - far).abs() <= CLOSE * near {
            return None;
        }
        let share = near_load.rate / rate;
        let to = match near < far {
            true => Direction::Near,
            false => Direction::Far,
        };
        self.narrow(share, to);
        let target = f64::midpoint(self.low, self.high);
        let missing = (target - share).abs();
        Some(Shift {
            to,
            share: missing,
            bytes_per_s: (missing * rate * 1e9 * LINE) as u64,
        })
    }

    /// Moves one bound to `share`, and the other one back where it is no longer beyond it.
    fn narrow(&mut self, share: f64, to: Direction) {
        match to {
            Direction::Near => self.low = share,
            Direction::Far => self.high = share,
        }
        if self.high - self.low < MET {
            match to {
                Direction::Near => self.high = 1.0,
                Direction::Far => self.low = 0.0,
            }
        }
    }

    /// What of `plan` may go on in the next `time`, and which hot pages leave near memory; `near` and `far` are the hot
    /// pages of both tiers. Cold pages leave near memory as the plan says.
    pub fn bound(&mut self, plan: Plan, near: HotPages, far: HotPages, time: Duration) -> Plan {
        let (promote, demote_hot) = match self.decide() {
            None => (Bytes::ZERO, Bytes::ZERO),
            Some(shift) => match shift.to {
                Direction::Near => (plan.promote.min(shift.bytes(far, time)), Bytes::ZERO),
                Direction::Far => (Bytes::ZERO, shift.bytes(near, time)),
            },
        };
        Plan {
            promote,
            demote_hot,
            ..plan
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const QUANTUM: Duration = Duration::from_ms(500);

    fn colloid() -> Colloid {
        Colloid::new(Duration::from_ns(100), Duration::from_ns(200)).expect("positive")
    }

    /// Loads of `latency` nanoseconds at `rate`.
    fn load(latency: f64, rate: f64) -> Load {
        Load {
            occupancy: latency * rate,
            rate,
        }
    }

    #[test]
    fn latency_is_occupancy_over_rate_and_never_below_that_of_an_idle_tier() {
        let mut colloid = colloid();
        assert_eq!(colloid.latencies(), None);
        assert_eq!(colloid.decide(), None);
        colloid.observe(QUANTUM, load(150.0, 2.0), Load::default());
        assert_eq!(colloid.latencies(), Some([150.0, 200.0]));
        let mut colloid = self::colloid();
        colloid.observe(QUANTUM, load(90.0, 2.0), load(300.0, 1.0));
        assert_eq!(colloid.latencies(), Some([100.0, 300.0]));
    }

    #[test]
    fn ten_milliseconds_count_for_one_sixteenth() {
        let mut colloid = colloid();
        colloid.observe(READING, load(160.0, 1.0), load(200.0, 1.0));
        colloid.observe(READING, load(320.0, 1.0), load(200.0, 1.0));
        assert_eq!(colloid.latencies(), Some([170.0, 200.0]));
    }

    #[test]
    fn latencies_within_five_percent_are_equal() {
        let decide = |near| {
            let mut colloid = colloid();
            colloid.observe(QUANTUM, load(near, 1.0), load(200.0, 1.0));
            colloid.decide().map(|shift| shift.to)
        };
        assert_eq!(decide(191.0), None);
        assert_eq!(decide(210.0), None);
        assert_eq!(decide(190.0), Some(Direction::Near));
        assert_eq!(decide(211.0), Some(Direction::Far));
    }

    #[test]
    fn what_moves_carries_the_share_and_costs_no_more_than_it_shifts() {
        let shift = Shift {
            to: Direction::Far,
            share: 0.2,
            bytes_per_s: 10_000,
        };
        let hot = |bytes, share| HotPages {
            bytes: Bytes::new(bytes),
            share,
        };
        assert_eq!(shift.bytes(hot(4_000, 0.8), QUANTUM), Bytes::new(1_000));
        assert_eq!(shift.bytes(hot(4_000, 0.1), QUANTUM), Bytes::new(4_000));
        assert_eq!(shift.bytes(hot(40_000, 0.4), QUANTUM), Bytes::new(5_000));
        assert_eq!(shift.bytes(hot(0, 0.0), QUANTUM), Bytes::ZERO);
    }

    #[test]
    fn hot_pages_go_one_way_and_cold_pages_as_the_plan_says() {
        let plan = Plan {
            promote: Bytes::new(1_000),
            demote: Bytes::new(700),
            ..Plan::default()
        };
        let hot = HotPages {
            bytes: Bytes::new(1_000_000),
            share: 0.5,
        };
        let bound = |near| {
            let mut colloid = colloid();
            colloid.observe(QUANTUM, load(near, 1.0), load(200.0, 1.0));
            let Plan {
                promote,
                demote,
                demote_hot,
                ..
            } = colloid.bound(plan, hot, hot, QUANTUM);
            [promote, demote, demote_hot].map(Bytes::get)
        };
        assert_eq!(bound(110.0), [1_000, 700, 0]);
        assert_eq!(bound(200.0), [0, 700, 0]);
        assert_eq!(bound(300.0), [0, 700, 500_000]);
    }

    #[test]
    fn an_idle_latency_of_zero_is_refused() {
        assert!(Colloid::new(Duration::ZERO, Duration::from_ns(1)).is_err());
    }

    /// Two queues whose latency grows with their rate; `share` of `demand` goes near.
    #[derive(Clone, Copy, Debug)]
    struct Plant {
        demand: f64,
        near: (f64, f64),
        far: (f64, f64),
    }

    impl Plant {
        fn loads(&self, share: f64) -> [Load; 2] {
            let of = |(idle, capacity): (f64, f64), rate: f64| {
                let used = (rate / capacity).min(0.999);
                load(idle / (1.0 - used), rate)
            };
            [
                of(self.near, self.demand * share),
                of(self.far, self.demand * (1.0 - share)),
            ]
        }

        /// How far apart the latencies are, of the near one; negative where near memory is faster.
        fn apart(&self, share: f64) -> f64 {
            let [near, far] = self.loads(share).map(|load| load.occupancy / load.rate);
            (near - far) / near
        }

        /// The slow, obvious way: tries ten thousand shares.
        fn best(&self) -> f64 {
            let shares = (1..10_000).map(|share| f64::from(share) / 10_000.0);
            let order = |a: &f64, b: &f64| self.apart(*a).abs().total_cmp(&self.apart(*b).abs());
            shares.min_by(order).expect("there are some")
        }
    }

    /// Lets `colloid` move requests of `plant`, which start with `share` near; returns the shares of the last 20 rounds.
    fn settle(colloid: &mut Colloid, plant: &Plant, mut share: f64) -> Vec<f64> {
        let rounds = (0..60).map(|_| {
            let [near, far] = plant.loads(share);
            // Long enough that nothing of the earlier load is left.
            colloid.observe(Duration::from_secs(10), near, far);
            if let Some(shift) = colloid.decide() {
                let way = match shift.to {
                    Direction::Near => 1.0,
                    Direction::Far => -1.0,
                };
                share = (share + way * shift.share).clamp(0.0001, 0.9999);
            }
            share
        });
        rounds.skip(40).collect()
    }

    fn plant() -> impl Strategy<Value = Plant> {
        let near = (50.0..150.0_f64, 1.0..4.0_f64);
        let far = (150.0..400.0_f64, 0.5..2.0_f64);
        (0.1..0.9_f64, near, far).prop_map(|(load, near, far)| Plant {
            demand: load * (near.1 + far.1),
            near,
            far,
        })
    }

    proptest! {
        /// The search comes to equal latencies, or as near to the best share as its bounds may come to each other; also
        /// after the load changed and its bounds were wrong.
        #[test]
        fn the_search_finds_the_share_that_trying_all_shares_finds(
            first in plant(), second in plant(), start in 0.01..0.99_f64,
        ) {
            let mut colloid = Colloid::new(Duration::from_ns(1), Duration::from_ns(1)).expect("positive");
            let mut share = start;
            for plant in [first, second] {
                let (shares, best) = (settle(&mut colloid, &plant, share), plant.best());
                let found = |share: &f64| plant.apart(*share).abs() <= CLOSE || (share - best).abs() <= MET;
                prop_assert!(shares.iter().any(found), "{plant:?}: {shares:?}, {best} is best");
                share = shares[shares.len() - 1];
            }
        }
    }
}
