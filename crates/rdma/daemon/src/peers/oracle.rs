//! The latency oracle: the latency of the reference flow on an idle device (justitia 4.3.3).
//!
//! Problem: the target of the reference flow depends on RNIC, network and distance; the paper measures it on the idle
//! cluster. Method: at its start, the daemon sends [`SAMPLES`] reference messages one after the other with a pause of
//! [`PAUSE`], in [`WINDOWS`] windows. The smallest 99th percentile of a window counts, so a burst of other traffic in
//! one window does no harm. Limits: on a machine that is never idle, set the target in the file.

use std::time::{Duration, Instant};

/// Number of messages.
pub const SAMPLES: usize = 1_000;
/// Number of windows that are evaluated separately.
pub const WINDOWS: usize = 4;
/// Pause between a completion and the next message.
pub const PAUSE: Duration = Duration::from_millis(1);

/// One measurement.
#[derive(Debug)]
pub(super) struct Oracle {
    samples: Vec<Duration>,
    /// Time of the next message; `None` while a message is in flight.
    due: Option<Instant>,
    began: Instant,
}

/// A message that is lost with its link is sent again after this time.
const PATIENCE: Duration = Duration::from_secs(2);

impl Oracle {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            samples: Vec::with_capacity(SAMPLES),
            due: Some(now),
            began: now,
        }
    }

    /// When to call [`Self::wants_message`] next.
    pub(super) fn due(&self) -> Instant {
        self.due.unwrap_or(self.began + PATIENCE)
    }

    /// Whether a message is due; if so, it counts as in flight.
    pub(super) fn wants_message(&mut self, now: Instant) -> bool {
        let wants = self.due() <= now;
        if wants {
            (self.due, self.began) = (None, now);
        }
        wants
    }

    /// Records a latency. Returns the result after the last one.
    pub(super) fn took(&mut self, now: Instant, took: Duration) -> Option<Duration> {
        self.samples.push(took);
        self.due = Some(now + PAUSE);
        (self.samples.len() >= SAMPLES).then(|| idle(&self.samples))
    }
}

/// The smallest 99th percentile (nearest rank) of the windows.
fn idle(samples: &[Duration]) -> Duration {
    let windows = samples.chunks(samples.len().div_ceil(WINDOWS));
    let tail = |window: &[Duration]| {
        let mut sorted = window.to_vec();
        sorted.sort_unstable();
        sorted[(window.len() * 99).div_ceil(100) - 1]
    };
    windows.map(tail).min().expect("there are samples")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_in_one_window_does_no_harm() {
        let mut samples: Vec<Duration> = (0..SAMPLES).map(|_| Duration::from_micros(3)).collect();
        samples[..SAMPLES / WINDOWS].fill(Duration::from_micros(900));
        // The 248th of 250 samples in the other windows: two outliers do not count, the third does.
        samples[SAMPLES - 2..].fill(Duration::from_micros(90));
        assert_eq!(idle(&samples), Duration::from_micros(3));
        for window in samples.chunks_mut(SAMPLES / WINDOWS) {
            window[..3].fill(Duration::from_micros(7));
        }
        assert_eq!(idle(&samples), Duration::from_micros(7));
    }

    #[test]
    fn one_message_is_under_way_at_a_time_and_the_last_gives_the_answer() {
        let mut now = Instant::now();
        let mut oracle = Oracle::new(now);
        for sample in 1..=SAMPLES {
            assert!(oracle.wants_message(now));
            assert!(!oracle.wants_message(now));
            let answer = oracle.took(now, Duration::from_micros(5));
            assert_eq!(answer.is_some(), sample == SAMPLES);
            assert!(!oracle.wants_message(now));
            now += PAUSE;
        }
    }

    #[test]
    fn a_lost_message_is_sent_again() {
        let now = Instant::now();
        let mut oracle = Oracle::new(now);
        assert!(oracle.wants_message(now));
        assert!(oracle.wants_message(now + PATIENCE));
    }
}
