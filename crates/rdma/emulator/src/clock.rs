//! Real time and the model's time.
//!
//! The model's clock runs slower than the real one by the dilation. A broker that falls behind does not catch up in a
//! burst, since programs would answer events of the past: beyond a tolerance the model's clock stops instead, and the
//! time of the stop is counted.

use isolane_common_quantities::units::Instant;
use std::time::{Duration, Instant as Wall};

/// How far the model may lag behind its clock before the clock stops, real time.
const TOLERANCE: Duration = Duration::from_millis(5);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Wall,
    dilation: f64,
    /// Time for which the clock was stopped, ps of the model.
    slipped: u64,
    /// Real time for which there was work.
    worked: Duration,
}

impl Clock {
    /// A clock that starts now and runs `dilation` times slower than the real one.
    pub(crate) fn new(dilation: f64) -> Self {
        Self {
            start: Wall::now(),
            dilation,
            slipped: 0,
            worked: Duration::ZERO,
        }
    }

    fn ps(&self, real: Duration) -> u64 {
        (real.as_nanos() as f64 * 1000.0 / self.dilation) as u64
    }

    /// The model's time.
    pub(crate) fn now(&self) -> Instant {
        let all = self.ps(self.start.elapsed());
        Instant::from_ps(all.saturating_sub(self.slipped))
    }

    /// Real time until the model's clock shows `at`; zero when it has passed.
    pub(crate) fn until(&self, at: Instant) -> Duration {
        let ahead = at.saturating_since(self.now());
        let ns = ahead.as_ps() as f64 * self.dilation / 1000.0;
        Duration::from_nanos(ns.ceil() as u64)
    }

    /// Stops the clock for as long as something that was due at `due` is later than the tolerance.
    pub(crate) fn late(&mut self, due: Instant) {
        let behind = self.now().saturating_since(due).as_ps();
        self.slipped += behind.saturating_sub(self.ps(TOLERANCE));
    }

    /// There was work for this time.
    pub(crate) fn worked(&mut self, time: Duration) {
        self.worked += time;
    }

    /// The part of the time with work for which the clock was stopped, 0 to 1.
    pub(crate) fn stood_still(&self) -> f64 {
        let all = self.ps(self.worked).max(1);
        (self.slipped as f64 / all as f64).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_event_stops_the_clock_beyond_the_tolerance() {
        let mut clock = Clock::new(1.0);
        clock.start -= Duration::from_secs(1);
        let due = clock.now();
        clock.start -= Duration::from_millis(105);
        clock.late(due);
        clock.worked(Duration::from_millis(1105));
        let behind = clock.now().saturating_since(due).as_ps();
        assert!(behind >= 5_000_000_000, "{behind} ps");
        assert!(clock.slipped >= 100_000_000_000, "{} ps", clock.slipped);
        assert!(clock.stood_still() > 0.08 && clock.stood_still() < 0.1);
    }

    #[test]
    fn dilation_slows_it() {
        let mut clock = Clock::new(1000.0);
        clock.start -= Duration::from_secs(1);
        let now = clock.now();
        assert!(now.as_ps() >= 1_000_000_000);
        let far = Instant::from_ps(now.as_ps() + 1_000_000_000);
        assert!(clock.until(far) > Duration::from_millis(500));
        assert_eq!(clock.until(Instant::ZERO), Duration::ZERO);
    }
}
