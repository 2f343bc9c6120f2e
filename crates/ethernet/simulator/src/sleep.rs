//! Sleep states of a processor, chosen as Linux's `menu` governor does.
//!
//! Problem: a processor with nothing to do sleeps, the deeper the longer it expects to, and a deep state takes 0.1 ms to
//! leave. So an interrupt takes effect late where little happens, and at once where much does.
//! Method: the governor predicts the length of a sleep. If the last eight sleeps, or those without the longest, were of
//! about the same length, the prediction is their mean; else it is the time to the next timer, times the part of it that
//! earlier sleeps lasted. It chooses the deepest state whose residency and exit latency the prediction covers. The two threads of
//! a core sleep as deep as the one that sleeps less, so a thread wakes as from the lightest state while the other runs. Waking takes
//! the state's exit latency and no processor time (Linux counts it as idle).
//! Units: whole microseconds, rounded down, as in the kernel. Limits: the next timer is always a retransmission timer
//! (200 ms) away; the load of processes, which makes the governor more careful, counts as none; exit latencies are the
//! largest ones. Source: Linux 4.4, `drivers/cpuidle/governors/menu.c` and `drivers/idle/intel_idle.c`.

use isolane_common_quantities::units::{Duration, Instant};

/// Sleep states, from the lightest to the deepest.
const STATES: usize = 4;
/// Sleeps that the governor remembers.
const INTERVALS: usize = 8;
/// The fewest of these that it takes a mean of.
const LEAST: usize = 6;
/// Fixed-point one of the correction factor, and the part of it that a sleep replaces (one eighth).
const RESOLUTION: u64 = 1_024;
const DECAY: u64 = 8;
/// A sleep this long counts as the whole time to the next timer, in microseconds.
const MAX_INTERESTING: u64 = 50_000;
/// The governor takes a mean whose standard deviation is at most this, in microseconds.
const DEVIATION_MOST: u64 = 20;

/// One sleep state of a processor.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct State {
    /// How long waking takes.
    pub(crate) exit: Duration,
    /// The least sleep that is worth it, in microseconds.
    pub(crate) residency_us: u64,
}

/// What a host's processors can do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sleep {
    pub(crate) states: [State; STATES],
    /// Time to the next timer, in microseconds.
    pub(crate) timer_us: u64,
}

/// The governor of one processor.
#[derive(Clone, Debug)]
pub(crate) struct Governor {
    /// When the present sleep began.
    since: Instant,
    /// Lengths of the last sleeps in microseconds, their sum, and the sum of their squares.
    lengths: [u64; INTERVALS],
    sum: u64,
    squares: u64,
    next: usize,
    /// The part of the time to the next timer that sleeps last, times [`RESOLUTION`] and [`DECAY`].
    factor: u64,
    /// The state that the governor chooses after these sleeps.
    state: usize,
}

impl Default for Governor {
    fn default() -> Self {
        Self {
            since: Instant::ZERO,
            lengths: [0; INTERVALS],
            sum: 0,
            squares: 0,
            next: 0,
            factor: RESOLUTION * DECAY,
            // Nothing has woken it yet.
            state: STATES - 1,
        }
    }
}

impl Governor {
    /// The processor has nothing to do from `now` on.
    #[inline]
    pub(crate) fn sleep(&mut self, now: Instant) {
        self.since = now;
    }

    /// The state in which it sleeps.
    #[inline]
    pub(crate) fn state(&self) -> usize {
        self.state
    }

    /// Something wakes it at `now`: remembers how long it slept, and chooses the state of the next sleep.
    pub(crate) fn wake(&mut self, now: Instant, sleep: &Sleep) {
        let whole = now.saturating_since(self.since).as_ps() / Duration::from_us(1).as_ps();
        let slept = whole.min(sleep.timer_us);
        let part = match slept < MAX_INTERESTING && sleep.timer_us > 0 {
            true => RESOLUTION * slept / sleep.timer_us,
            false => RESOLUTION,
        };
        self.factor = self.factor - self.factor / DECAY + part;
        let oldest = std::mem::replace(&mut self.lengths[self.next], slept);
        self.sum = self.sum - oldest + slept;
        self.squares = self.squares - oldest * oldest + slept * slept;
        self.next = (self.next + 1) % INTERVALS;
        self.state = self.choose(sleep);
    }

    /// The deepest state that the predicted sleep covers.
    fn choose(&self, sleep: &Sleep) -> usize {
        let corrected = sleep.timer_us * self.factor;
        let by_timer = (corrected + RESOLUTION * DECAY / 2) / (RESOLUTION * DECAY);
        let typical = self.typical().filter(|mean| *mean < sleep.timer_us);
        let predicted = typical.unwrap_or(by_timer);
        let fits = |state: &State| {
            state.residency_us <= predicted && state.exit <= Duration::from_us(predicted)
        };
        sleep.states.iter().rposition(fits).unwrap_or(0)
    }

    /// The mean of the last sleeps, of all of them or without the longest one or two, if they are of about the same length. The kernel
    /// leaves out all that are as long as the longest; on a real host no two are equal to the microsecond for long.
    #[inline]
    fn typical(&self) -> Option<u64> {
        let (mut sum, mut squares) = (self.sum, self.squares);
        if let Some(mean) = even(INTERVALS as u64, sum, squares) {
            return Some(mean);
        }
        let mut lengths = self.lengths;
        lengths.sort_unstable();
        for (count, longest) in lengths.iter().enumerate().skip(LEAST).rev() {
            sum -= longest;
            squares -= longest * longest;
            if let Some(mean) = even(count as u64, sum, squares) {
                return Some(mean);
            }
        }
        None
    }
}

/// The mean of `count` lengths with this sum and sum of squares, if they are about the same.
#[inline]
fn even(count: u64, sum: u64, squares: u64) -> Option<u64> {
    let mean = sum / count;
    // The kernel sums squares of differences from the rounded mean.
    let deviation = ((squares + count * mean * mean - 2 * mean * sum) / count).isqrt();
    (mean > 6 * deviation || deviation <= DEVIATION_MOST).then_some(mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of a Sandy Bridge server.
    fn sandy_bridge() -> Sleep {
        let state = |exit, residency_us| State {
            exit: Duration::from_us(exit),
            residency_us,
        };
        Sleep {
            states: [state(2, 2), state(10, 20), state(80, 211), state(104, 345)],
            timer_us: 200_000,
        }
    }

    /// The state after sleeps of these lengths, in microseconds, over and over.
    fn after(lengths: &[u64]) -> usize {
        let (sleep, mut governor, mut now) = (sandy_bridge(), Governor::default(), Instant::ZERO);
        for length in lengths.iter().cycle().take(200) {
            governor.sleep(now);
            now += Duration::from_us(*length);
            governor.wake(now, &sleep);
        }
        governor.state()
    }

    #[test]
    fn regular_interrupts_keep_a_processor_from_deep_sleep() {
        assert_eq!(after(&[1]), 0);
        assert_eq!(after(&[40]), 1);
        assert_eq!(after(&[250]), 2);
        assert_eq!(after(&[10_000]), 3);
    }

    #[test]
    fn a_processor_that_nothing_has_woken_sleeps_most_deeply() {
        assert_eq!(after(&[]), STATES - 1);
    }

    /// Two outliers of eight are discarded, so the prediction is 40 us.
    #[test]
    fn rare_long_sleeps_do_not_count() {
        assert_eq!(after(&[40, 40, 40, 9_000, 40, 40, 40, 5_000]), 1);
    }

    /// A ping every 10 ms and the completion of its reply: no typical length, so the mean part of the timer decides.
    #[test]
    fn a_processor_that_only_answers_pings_sleeps_deeply() {
        assert_eq!(after(&[9_950, 50]), 3);
    }

    /// An independent computation, in the kernel's order of steps; no two lengths are equal.
    #[test]
    fn the_typical_length_is_the_kernels() {
        let kernel = |lengths: &[u64; INTERVALS]| {
            let mut limit = u64::MAX;
            loop {
                let kept: Vec<u64> = lengths.iter().copied().filter(|v| *v <= limit).collect();
                let count = kept.len() as u64;
                let mean = kept.iter().sum::<u64>() / count;
                let squares: u64 = kept.iter().map(|v| v.abs_diff(mean).pow(2)).sum();
                let deviation = (squares / count).isqrt();
                if (mean > deviation * 6 && count * 4 >= 24) || deviation <= 20 {
                    return Some(mean);
                }
                if count * 4 <= 24 {
                    return None;
                }
                limit = kept.iter().max().expect("none is empty") - 1;
            }
        };
        let mut random = isolane_common_quantities::rng::Stream::named(1, "sleeps");
        let mut found = 0;
        for _ in 0..20_000 {
            let mut governor = Governor::default();
            let scale = 1 << random.below(18);
            for (place, length) in governor.lengths.iter_mut().enumerate() {
                *length = 8 * (30 + random.below(scale + 1)) + place as u64;
            }
            governor.sum = governor.lengths.iter().sum();
            governor.squares = governor.lengths.iter().map(|v| v * v).sum();
            let expected = kernel(&governor.lengths);
            assert_eq!(governor.typical(), expected, "{:?}", governor.lengths);
            found += u32::from(expected.is_some());
        }
        assert!((1_000..19_000).contains(&found), "{found}");
    }
}
