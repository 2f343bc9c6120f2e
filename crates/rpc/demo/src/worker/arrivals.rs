//! When which call is due: a Poisson stream that runs only while a burst lasts.
//!
//! Units: microseconds from the start. Method: exponential gaps on a clock that stops between bursts; the class by one
//! more draw.

use crate::job::ClientJob;
use isolane_common_quantities::rng::Stream;
use isolane_common_quantities::units::Duration;

/// The calls of a job, in order of time.
#[derive(Clone, Debug)]
pub struct Arrivals {
    stream: Stream,
    gap: Duration,
    mix: [f64; crate::plan::CLASSES],
    period_us: u64,
    burst_us: u64,
    end_us: u64,
    /// Time on the clock that stops between bursts.
    burst_clock: Duration,
}

impl Arrivals {
    /// The calls of `job`.
    pub fn new(job: &ClientJob) -> Self {
        Self {
            stream: Stream::named(job.seed, "calls of the lab"),
            gap: Duration::from_ps((1e12 / job.burst_calls_per_s) as u64),
            mix: job.mix,
            period_us: job.period_us,
            burst_us: job.burst_us.max(1),
            end_us: job.issue_us,
            burst_clock: Duration::ZERO,
        }
    }

    fn class(&mut self) -> u8 {
        let point = self.stream.next_u64() as f64 / u64::MAX as f64;
        let mut below = 0.0;
        let last = self.mix.len() - 1;
        for (class, part) in self.mix[..last].iter().enumerate() {
            below += part;
            if point < below {
                return class as u8;
            }
        }
        last as u8
    }
}

impl Iterator for Arrivals {
    /// When, and in which class.
    type Item = (u64, u8);

    fn next(&mut self) -> Option<(u64, u8)> {
        self.burst_clock += self.stream.exponential(self.gap);
        let clock_us = self.burst_clock.as_ps() / 1_000_000;
        let at = clock_us / self.burst_us * self.period_us + clock_us % self.burst_us;
        (at < self.end_us).then(|| (at, self.class()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> ClientJob {
        ClientJob {
            server: "127.0.0.1:1".to_owned(),
            call_bytes: 32_768,
            period_us: 250_000,
            burst_us: 142_857,
            burst_calls_per_s: 500.0,
            mix: [0.5, 0.35, 0.15],
            dscp: [46, 26, 10],
            issue_us: 50_000_000,
            drain_us: 1_000_000,
            seed: 7,
            admission: None,
        }
    }

    #[test]
    fn calls_come_in_bursts_at_their_rate_and_mix() {
        let calls: Vec<(u64, u8)> = Arrivals::new(&job()).collect();
        assert!(calls.is_sorted_by_key(|call| call.0));
        assert!(calls.iter().all(|call| call.0 % 250_000 < 142_857));
        // 200 bursts of 71.4 calls: 14,286, with a deviation of 120.
        assert!((13_800..14_800).contains(&calls.len()), "{}", calls.len());
        let high = calls.iter().filter(|call| call.1 == 0).count() as f64;
        assert!((high / calls.len() as f64 - 0.5).abs() < 0.02);
    }

    #[test]
    fn equal_seeds_ask_for_equal_calls() {
        let first: Vec<(u64, u8)> = Arrivals::new(&job()).collect();
        let again: Vec<(u64, u8)> = Arrivals::new(&job()).collect();
        let other = Arrivals::new(&ClientJob { seed: 8, ..job() });
        assert_eq!(first, again);
        assert_ne!(first, other.collect::<Vec<_>>());
    }
}
