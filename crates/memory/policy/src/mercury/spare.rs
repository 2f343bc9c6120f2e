//! Uses free near memory before a change costs another application performance.
//!
//! Problem: figure 5.8 takes bandwidth from less important streams first, then processor time, and near memory last,
//! "to ensure local memory is maximized among all applications" (mercury 5.5.4). Where near memory is idle, this order
//! helps no application. A throttled stream stays far, where its requests load the far tier and hold the shared slots.
//! The applications that it was throttled for give back near memory, which stays unused. Method: as long as near memory
//! is free, steps without cost come before steps that cost an application something:
//!
//! 1. a throttled stream that is short takes free near memory, within what the near tier carries in health. Its far
//!    traffic falls with every page that moves near, so the application that it was throttled for gains too;
//! 2. who is short takes free near memory before it throttles a stream that is short itself;
//! 3. no application gives near memory back while a stream that was throttled for it is short.
//!
//! Without free near memory nothing of this applies, and the order is that of figure 5.8. A stream that was never
//! throttled, and one that has more than its objective, are treated as there too. Where no near memory is free, the
//! band in which nothing happens costs another application. So:
//!
//! 4. a surplus begins at the aim instead of the band's end while a less important application is short of near memory.
//!
//! Units: bytes, bytes per second. Limits: the near tier's health is its bandwidth, so this needs that reading where a
//! more important application is sensitive to latency. Source: ours, for mercury 5.5.4.

use super::adapt::Round;
use super::state::held;
use super::{AppView, Objective, Reading};

impl Round<'_> {
    /// Rule 1: a throttled stream takes free near memory. Whether it did.
    pub(super) fn comes_near(&mut self, index: usize, strain: f64) -> bool {
        let ready = self.book.apps[index].control.regrow.ready(self.step);
        if !ready || self.relieves_above(index) || self.squeezed_for(index).is_none() {
            return false;
        }
        let wanted = self.wanted(index, strain).min(self.unclaimed());
        let healthy = self.healthy_growth(index);
        let step = self.options.memory_step.get();
        let got = wanted.min(healthy);
        // A sliver is not worth the change; the last one is.
        got >= step.min(wanted) && self.add_near(index, got)
    }

    /// Near bytes whose traffic the near tier can take in health, as far as a more important application depends on it.
    fn healthy_growth(&self, index: usize) -> u64 {
        if !self.more_important_latency(index) {
            return u64::MAX;
        }
        let Some(now) = self.near_bandwidth else {
            return 0;
        };
        let seen = self.view(index);
        let own = seen.and_then(|seen| seen.bandwidth.as_ref());
        let own = own.and_then(Reading::fresh).unwrap_or(0).max(1);
        let left = self.options.thresholds.local_bandwidth.saturating_sub(now);
        let all = u128::from(seen.map_or(0, held));
        u64::try_from(all * u128::from(left) / u128::from(own)).unwrap_or(u64::MAX)
    }

    /// Rule 2: takes free near memory where otherwise a stream would be throttled that is short itself. Whether it did.
    pub(super) fn spares_the_short(&mut self, index: usize, strain: f64) -> bool {
        let throttled = self
            .victims(index)
            .into_iter()
            .find(|&place| self.may_be_throttled(place, index));
        let short = throttled.is_some_and(|place| {
            self.book.apps[place].spec.objective != Objective::BestEffort
                && self.strains[place].is_some_and(|strain| strain > 1.0)
        });
        if !short {
            return false;
        }
        let wanted = self.wanted(index, strain).min(self.unclaimed());
        self.add_near(index, wanted)
    }

    /// Rule 4: whether a less important application is short, has pages that could move near, and no near memory is
    /// free.
    pub(super) fn is_waited_for(&self, index: usize) -> bool {
        if self.unclaimed() >= self.options.memory_step.get() {
            return false;
        }
        (0..index).any(|place| {
            let short = self.strains[place].is_some_and(|strain| strain > 1.0);
            let far = |seen: &AppView| held(seen) > seen.held[0].get();
            short && self.view(place).is_some_and(far)
        })
    }

    /// Rule 3: whether near memory that it gave back would be idle while a stream that was throttled for it is short.
    pub(super) fn would_be_idle(&self, index: usize) -> bool {
        if self.unclaimed() < self.options.memory_step.get() {
            return false;
        }
        (0..self.book.apps.len()).any(|place| {
            self.squeezed_for(place) == Some(index)
                && self.strains[place].is_some_and(|strain| strain > 1.0)
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::mercury::*;
    use isolane_common_quantities::units::{Bytes, Duration, Instant};

    const GB: u64 = 1_000_000_000;
    const REDIS: AppId = AppId(2);
    const STREAM: AppId = AppId(1);

    /// One moment of a machine with Redis (150 ns) and, less important, a stream (40 GB/s).
    #[derive(Clone, Copy)]
    struct Moment {
        capacity: u64,
        latency_ns: u64,
        stream_gb: u64,
        near_gb: u64,
    }

    /// Redis is worse than its objective, the stream too, and both have pages that could come near.
    const BOTH_SHORT: Moment = Moment {
        capacity: 40,
        latency_ns: 200,
        stream_gb: 20,
        near_gb: 50,
    };

    struct Bench {
        policy: Mercury,
        now: Instant,
    }

    impl Bench {
        fn new() -> Self {
            let thresholds = Thresholds {
                local_bandwidth: 100 * GB,
                hint_faults_per_s: 1e6,
            };
            let options = MercuryOptions::new(thresholds, Bytes::new(40 * GB));
            let mut policy = Mercury::new(options).expect("the defaults are sound");
            let spec = |id: AppId, objective, priority| AppSpec {
                name: id.to_string(),
                ..AppSpec::new(id, objective, priority, Bytes::new(40 * GB))
            };
            let limits = |near, cpu| Limits {
                tiers: [Some(Bytes::new(near)), None, None, None],
                cpu,
            };
            let redis = spec(REDIS, Objective::Latency(Duration::from_ns(150)), 2);
            let stream = spec(STREAM, Objective::Bandwidth(40 * GB), 1);
            let mut adopt = |spec, limits| policy.adopt(Instant::ZERO, spec, limits);
            adopt(redis, limits(10 * GB, CPU_ONE)).expect("new");
            adopt(stream, limits(10 * GB, 900)).expect("new");
            Self {
                policy,
                now: Instant::ZERO,
            }
        }

        /// Pages are where the limits put them.
        fn step(&mut self, moment: Moment) -> Vec<Action> {
            self.now += PERIOD;
            let near = |id| {
                let limits = self.policy.limits(id).expect("it is here");
                limits.tiers[0].map_or(0, Bytes::get).min(40 * GB)
            };
            let view = |id, latency, bandwidth: u64| AppView {
                id,
                held: [
                    Bytes::new(near(id)),
                    Bytes::new(40 * GB - near(id)),
                    Bytes::ZERO,
                    Bytes::ZERO,
                ],
                latency: reading(Duration::from_ns(latency)),
                bandwidth: reading(bandwidth),
                cpu_used: None,
            };
            let tier = |capacity, used, bandwidth| TierView {
                capacity: Bytes::new(capacity),
                used: Bytes::new(used),
                bandwidth: reading(bandwidth),
            };
            let seen = Observation {
                tiers: vec![
                    tier(
                        moment.capacity * GB,
                        near(STREAM) + near(REDIS),
                        moment.near_gb * GB,
                    ),
                    tier(500 * GB, 0, 10 * GB),
                ],
                hint_faults_per_s: reading(0.0),
                apps: vec![
                    view(STREAM, 300, moment.stream_gb * GB),
                    view(REDIS, moment.latency_ns, GB),
                ],
            };
            self.policy.step(self.now, &seen);
            std::iter::from_fn(|| self.policy.poll_action()).collect()
        }

        /// Actions of the first of ten steps that has some.
        fn first(&mut self, moment: Moment) -> Vec<Action> {
            let mut steps = (0..10).map(|_| self.step(moment));
            steps.find(|some| !some.is_empty()).unwrap_or_default()
        }
    }

    fn reading<T>(value: T) -> Option<Reading<T>> {
        Some(Reading {
            value,
            age: Duration::ZERO,
            source: Source::Model,
        })
    }

    fn near(action: &Action) -> u64 {
        action.limits.tiers[0].map_or(u64::MAX, Bytes::get)
    }

    #[test]
    fn free_near_memory_is_taken_before_a_stream_that_is_short_is_throttled() {
        let actions = Bench::new().first(BOTH_SHORT);
        let redis = actions.iter().find(|action| action.app == REDIS);
        let redis = redis.expect("Redis takes free near memory");
        assert!(near(redis) > 10 * GB && redis.reason == Reason::Shortage);
        let throttled = |action: &Action| matches!(action.reason, Reason::YieldsBandwidth(_));
        assert!(!actions.iter().any(throttled), "{actions:?}");
    }

    #[test]
    fn where_no_near_memory_is_free_the_stream_is_throttled_first_as_in_figure_5_8() {
        let full = Moment {
            capacity: 20,
            ..BOTH_SHORT
        };
        let actions = Bench::new().first(full);
        assert_eq!(actions.len(), 1, "{actions:?}");
        assert_eq!(actions[0].app, STREAM);
        assert_eq!(actions[0].reason, Reason::YieldsBandwidth(REDIS));
    }

    #[test]
    fn a_stream_with_more_than_its_objective_is_throttled_first_at_any_free_memory() {
        let rich = Moment {
            stream_gb: 60,
            ..BOTH_SHORT
        };
        let actions = Bench::new().first(rich);
        let first = actions.iter().find(|action| action.app == STREAM);
        let first = first.expect("the stream is throttled");
        assert_eq!(first.reason, Reason::YieldsBandwidth(REDIS));
    }

    /// A stream that was throttled for Redis, which now has its objective, and nothing to spare.
    fn throttled() -> Bench {
        let mut bench = Bench::new();
        let full = Moment {
            capacity: 20,
            ..BOTH_SHORT
        };
        assert!(!bench.first(full).is_empty());
        bench
    }

    const JUST_MET: Moment = Moment {
        latency_ns: 149,
        ..BOTH_SHORT
    };

    #[test]
    fn a_throttled_stream_comes_near_as_far_as_near_memory_is_free() {
        let mut bench = throttled();
        let before = bench.policy.limits(STREAM).expect("it is here");
        let actions = bench.first(JUST_MET);
        let stream = actions.iter().find(|action| action.app == STREAM);
        let stream = stream.expect("the stream takes free near memory");
        assert!(stream.limits.tiers[0] > before.tiers[0], "{stream:?}");
        assert_eq!(stream.limits.cpu, before.cpu);
        let claimed = near(stream) + 10 * GB;
        assert!(claimed <= 40 * GB, "{claimed} of what there is");
    }

    #[test]
    fn a_throttled_stream_stays_where_the_near_tier_is_full_or_unhealthy_or_unknown() {
        let full = Moment {
            capacity: 10,
            ..JUST_MET
        };
        let crowded = Moment {
            near_gb: 120,
            ..JUST_MET
        };
        for moment in [full, crowded] {
            let mut bench = throttled();
            let near = |bench: &Bench| bench.policy.limits(STREAM).and_then(|l| l.tiers[0]);
            let before = near(&bench);
            for _ in 0..50 {
                bench.step(moment);
            }
            assert!(near(&bench) <= before, "{before:?} {:?}", near(&bench));
        }
    }

    #[test]
    fn near_memory_is_not_given_back_to_be_idle() {
        let roomy = Moment {
            latency_ns: 100,
            ..BOTH_SHORT
        };
        let mut bench = throttled();
        for _ in 0..5 {
            let actions = bench.step(roomy);
            let redis = actions.iter().find(|action| action.app == REDIS);
            assert_eq!(redis, None, "while the stream is short");
        }
        let mut never_throttled = Bench::new();
        let content = Moment {
            stream_gb: 40,
            ..roomy
        };
        let actions = never_throttled.first(content);
        let redis = actions.iter().find(|action| action.app == REDIS);
        assert!(redis.is_some_and(|redis| near(redis) < 10 * GB));
    }

    #[test]
    fn the_band_is_given_to_an_application_that_waits_for_it() {
        // Within the band, but better than the aim.
        let inside = Moment {
            capacity: 20,
            latency_ns: 145,
            ..BOTH_SHORT
        };
        let mut bench = Bench::new();
        let actions: Vec<Action> = (0..10).flat_map(|_| bench.step(inside)).collect();
        let redis = actions.iter().find(|action| action.app == REDIS);
        let redis = redis.expect("Redis gives up what is beyond its aim");
        assert_eq!(redis.reason, Reason::Surplus);
        let nobody_waits = Moment {
            stream_gb: 40,
            ..inside
        };
        assert_eq!(Bench::new().first(nobody_waits), []);
    }
}
