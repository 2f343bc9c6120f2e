//! LS: latency of random accesses, one after the other.
//!
//! Problem: a thread that the scheduler takes off its processor for 4 ms has not waited 4 ms for memory; on a busy
//! machine the mean of such samples was 1,231 ns where half of them took at most 309. Method: each address depends on
//! the last loaded word, so that no two accesses overlap; it comes from a linear congruential generator, so that no
//! pointers have to be laid out first. A sample is the mean of [`PER_SAMPLE`] accesses, because reading a clock costs
//! as much as an access. A sample counts only if the thread ran all the time: its processor time must not be less than
//! the time that passed. The cost of the loop itself is measured on memory in the first cache, and reported beside, not
//! subtracted. Address translation is part of an access. Units: nanoseconds. Limits: time that a hypervisor gives to
//! another machine looks like time of this thread; it is in the high quantiles and in the mean, and moves the median
//! only if it hits half of the samples. Source: mercury 5.3.1 (random access over 4 GB).

use super::region::Region;
use isolane_common_quantities::stats::Histogram;
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Accesses per sample.
pub const PER_SAMPLE: u32 = 64;

/// What a walk found.
#[derive(Clone, Debug)]
pub struct Walk {
    /// Samples during which the thread ran all the time, in picoseconds per access.
    pub samples: Histogram,
    /// Samples that do not count: the thread was taken off its processor.
    pub interrupted: u64,
}

/// Time that has passed and processor time that this thread has had, both in nanoseconds from any origin.
#[derive(Clone, Copy)]
struct Moment {
    passed: u64,
    own: u64,
}

/// How long a walk lasts.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Least processor time of this thread: a thread that was taken off its processor has measured nothing meanwhile.
    pub length: Duration,
    /// Counted samples with which a walk may end after `length`.
    pub enough: u64,
    /// Most processor time of this thread, with however few samples.
    pub most: Duration,
    /// Most time on the clock, with however few samples.
    pub passed: Duration,
}

/// Walks for `length` on the clock.
pub fn run(region: &Region, length: Duration) -> Walk {
    let extent = Extent {
        length,
        enough: 0,
        most: length,
        passed: length,
    };
    run_within(region, &extent)
}

/// Walks as long as `extent` says.
pub fn run_within(region: &Region, extent: &Extent) -> Walk {
    let words = region.words();
    let mut state = SEED;
    sample(extent, now, || state = walk(words, state, PER_SAMPLE))
}

/// Samples `work` by the clock `now`.
fn sample(extent: &Extent, mut now: impl FnMut() -> Moment, mut work: impl FnMut()) -> Walk {
    let mut found = Walk {
        samples: Histogram::new(),
        interrupted: 0,
    };
    let mut start = now();
    let begun = start;
    let [length, most, longest] =
        [extent.length, extent.most, extent.passed].map(|time| time.as_nanos() as u64);
    loop {
        work();
        let after = now();
        let passed = after.passed.saturating_sub(start.passed);
        // The two clocks are read one after the other: a small difference is theirs.
        if after.own.saturating_sub(start.own) + passed / CLOCK_ERROR_PARTS < passed {
            found.interrupted += 1;
        } else {
            found.samples.record(passed * 1_000 / u64::from(PER_SAMPLE));
        }
        let is_enough = found.samples.count() >= extent.enough;
        let had = after.own.saturating_sub(begun.own);
        let all = after.passed.saturating_sub(begun.passed);
        if all >= longest || had >= most || had >= length && is_enough {
            return found;
        }
        start = after;
    }
}

fn now() -> Moment {
    let nanoseconds = |clock| {
        let time = clock_gettime(clock);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    };
    Moment {
        passed: nanoseconds(ClockId::Monotonic),
        own: nanoseconds(ClockId::ThreadCPUTime),
    }
}

/// The clocks may differ by this part of a sample: a sixteenth.
const CLOCK_ERROR_PARTS: u64 = 16;

/// `accesses` dependent loads; returns where to go on.
fn walk(words: &[u64], mut state: u64, accesses: u32) -> u64 {
    let lines = (words.len() / WORDS_PER_LINE).max(1) as u64;
    let mut loaded = 0u64;
    for _ in 0..accesses {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407)
            .wrapping_add(loaded);
        let line = ((state >> 32) * lines) >> 32;
        loaded = words[line as usize * WORDS_PER_LINE];
    }
    std::hint::black_box(loaded);
    state
}

const WORDS_PER_LINE: usize = 8;
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: random accesses reach the whole region evenly. Method: count lines of a small one.
    #[test]
    fn the_walk_visits_every_line() {
        let lines = 64;
        let mut words = vec![0u64; lines * WORDS_PER_LINE];
        let mut visited = vec![0u32; lines];
        let mut state = SEED;
        for _ in 0..64_000 {
            state = walk(&words, state, 1);
            let line = ((state >> 32) * lines as u64) >> 32;
            visited[line as usize] += 1;
        }
        assert!(visited.iter().all(|&count| (800..1_200).contains(&count)));
        // A loaded word changes the way: accesses depend on each other.
        let before = walk(&words, SEED, 10);
        words.fill(1);
        assert_ne!(walk(&words, SEED, 10), before);
    }

    /// Samples of 6.4 us, by a clock that says for each how long the thread was off its processor, in nanoseconds.
    fn by_clock(absences: &[u64]) -> Walk {
        let (mut at, mut asked) = (Moment { passed: 0, own: 0 }, 0);
        let length = absences.iter().sum::<u64>() + 6_400 * absences.len() as u64;
        let clock = || {
            if asked > 0 {
                at.passed += 6_400 + absences[asked - 1];
                at.own += 6_400;
            }
            asked += 1;
            at
        };
        let length = Duration::from_nanos(length);
        let extent = Extent {
            length,
            enough: 0,
            most: length,
            passed: length,
        };
        sample(&extent, clock, || ())
    }

    /// Counted samples of 64 us with so many us off the processor after each.
    fn walked(enough: u64, off_us: u64) -> u64 {
        let mut at = Moment { passed: 0, own: 0 };
        let clock = || {
            at.passed += 64_000 + off_us * 1_000;
            at.own += 64_000;
            at
        };
        let [length, most, passed] = [500, 2_000, 20_000].map(Duration::from_micros);
        let extent = Extent {
            length,
            enough,
            most,
            passed,
        };
        let walk = sample(&extent, clock, || ());
        walk.samples.count() + walk.interrupted
    }

    #[test]
    fn a_slow_tier_is_walked_until_samples_suffice() {
        assert_eq!((walked(0, 0), walked(8, 0), walked(20, 0)), (8, 8, 20));
        assert_eq!(walked(100, 0), 32);
    }

    #[test]
    fn the_time_of_others_is_not_the_walks() {
        assert_eq!((walked(0, 400), walked(8, 400)), (8, 32));
        assert_eq!(walked(8, 4_000), 5);
    }

    #[test]
    fn time_without_a_processor_is_no_latency() {
        let mut absences = [0; 100];
        for place in (0..100).step_by(3) {
            absences[place] = 4_000_000;
        }
        let walk = by_clock(&absences);
        assert_eq!((walk.interrupted, walk.samples.count()), (34, 66));
        assert_eq!(walk.samples.mean(), Some(100_000.0));
    }

    #[test]
    fn a_difference_between_two_clocks_interrupts_nothing() {
        let walk = by_clock(&[100; 50]);
        assert_eq!((walk.interrupted, walk.samples.count()), (0, 50));
    }

    #[test]
    fn a_thread_that_never_ran_through_has_no_latency() {
        let walk = by_clock(&[50_000; 5]);
        assert_eq!((walk.interrupted, walk.samples.quantile(0.5)), (5, None));
    }
}
