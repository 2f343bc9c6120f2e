//! Start times of the calls of one open-loop generator.
//!
//! Problem: arrivals at a mean load, in bursts of a higher load with idle time between them (thesis figure 3.7).
//! Method: time is counted within bursts only. A burst lasts `period * load / burst`, and gaps are drawn at the burst's
//! rate in that time, exponential or even, and carried from one burst into the next; then each burst's idle time is put
//! back. Bursts begin together, as in the analysis of section 3.4.1, or at a random part of the period, which may be
//! within a burst. Units: picoseconds. An even gap is rounded to one, at most 2e-7 of a 32 KB call's time at 100 Gb/s.
//! Limits: even gaps begin at a random part of one, so that callers do not march in step.

use isolane_common_quantities::rng::Stream;
use isolane_common_quantities::units::{Duration, Instant};
use isolane_network_scenario::model::{Arrivals, BurstPhase};

#[derive(Clone, Debug)]
pub(super) struct Clock {
    start: Instant,
    /// Length of a burst and of burst and idle time; none without bursts.
    burst: Option<(u64, u64)>,
    /// Mean gap within a burst.
    gap: Duration,
    poisson: bool,
    /// Time within bursts up to the last arrival.
    spent: u64,
    /// What of the first period is over at the start.
    ahead: u64,
}

impl Clock {
    /// The arrivals of a caller whose calls take `call_time` of its line on average. `None` for a closed loop.
    pub(super) fn new(
        arrivals: &Arrivals,
        call_time: Duration,
        start: Instant,
        gaps: &mut Stream,
    ) -> Option<Self> {
        let Arrivals::Open {
            load,
            burst,
            period,
            bursts: phase,
            poisson,
        } = *arrivals
        else {
            return None;
        };
        let bursts = !period.is_zero() && burst > load;
        let rate = if bursts { burst } else { load };
        let gap = Duration::from_ps((call_time.as_ps() as f64 / rate).round().max(1.0) as u64);
        let length = (period.as_ps() as f64 * load / burst).round().max(1.0) as u64;
        let mut clock = Self {
            start,
            burst: bursts.then_some((length, period.as_ps())),
            gap,
            poisson,
            spent: 0,
            ahead: 0,
        };
        if bursts && phase != BurstPhase::Together {
            clock.ahead = gaps.below(period.as_ps());
            // Past its burst, the first one begins with the next period.
            clock.spent = clock.ahead.min(length);
        }
        if !poisson {
            // The first call comes after this part of a gap: `next` adds a whole one.
            let part = gaps.duration_up_to(gap).as_ps();
            clock.spent += part;
        }
        Some(clock)
    }

    /// When the next call begins.
    #[inline]
    pub(super) fn next(&mut self, gaps: &mut Stream) -> Instant {
        let gap = match self.poisson {
            true => gaps.exponential(self.gap),
            false => self.gap,
        };
        self.spent = self.spent.saturating_add(gap.as_ps());
        let offset = match self.burst {
            None => self.spent,
            Some((length, period)) => {
                let idle = u128::from(self.spent / length) * u128::from(period - length);
                let offset = u128::from(self.spent) + idle - u128::from(self.ahead);
                u64::try_from(offset).unwrap_or(u64::MAX)
            }
        };
        self.start.saturating_add(Duration::from_ps(offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals_us(arrivals: &Arrivals, count: usize) -> Vec<f64> {
        let mut gaps = Stream::named(1, "gaps");
        let mut clock = Clock::new(arrivals, Duration::from_us(1), Instant::ZERO, &mut gaps)
            .expect("an open loop");
        (0..count)
            .map(|_| clock.next(&mut gaps).as_ps() as f64 / 1e6)
            .collect()
    }

    fn open(load: f64, burst: f64, period_us: u64, poisson: bool) -> Arrivals {
        Arrivals::Open {
            load,
            burst,
            period: Duration::from_us(period_us),
            bursts: BurstPhase::Together,
            poisson,
        }
    }

    #[test]
    fn even_calls_keep_their_distance() {
        let times = arrivals_us(&open(0.5, 0.5, 0, false), 10);
        for pair in times.windows(2) {
            assert!((pair[1] - pair[0] - 2.0).abs() < 1e-6, "{times:?}");
        }
    }

    #[test]
    fn bursts_hold_all_calls_and_the_mean_load_is_kept() {
        for poisson in [false, true] {
            let times = arrivals_us(&open(0.8, 1.6, 1_000, poisson), 80_000);
            assert!(times.iter().all(|time| time % 1_000.0 <= 500.0));
            let last = times[times.len() - 1];
            assert!(
                (last / 100_000.0 - 1.0).abs() < 0.02,
                "{last} us for 80,000 calls"
            );
        }
    }

    #[test]
    fn bursts_of_their_own_begin_anywhere_and_keep_the_load() {
        let own = Arrivals::Open {
            load: 0.8,
            burst: 1.6,
            period: Duration::from_us(1_000),
            bursts: BurstPhase::PerPair,
            poisson: true,
        };
        // Calls of a thousand clocks in each tenth of the first two periods: as even as without bursts.
        let mut tenths = [0u32; 20];
        for index in 0..1_000 {
            let mut gaps = Stream::indexed(1, "gaps", index);
            let mut clock = Clock::new(&own, Duration::from_us(10), Instant::ZERO, &mut gaps)
                .expect("an open loop");
            loop {
                let tenth = clock.next(&mut gaps).as_ps() / 100_000_000;
                match tenths.get_mut(tenth as usize) {
                    Some(count) => *count += 1,
                    None => break,
                }
            }
        }
        assert!(
            tenths.iter().all(|count| (7_200..8_800).contains(count)),
            "{tenths:?}"
        );
    }

    #[test]
    fn within_a_burst_calls_come_at_its_load() {
        let times = arrivals_us(&open(0.8, 1.6, 1_000, false), 800);
        let first = times.iter().filter(|time| **time < 500.0).count();
        assert!(
            (798..=800).contains(&first),
            "{first} calls in the first burst of 500 us at 1.6 per us"
        );
    }
}
