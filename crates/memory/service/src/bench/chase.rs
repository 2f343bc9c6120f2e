//! LS: latency of random accesses, one after the other.
//!
//! Method: each address depends on the last loaded word, so that no two accesses overlap; it comes from a linear congruential
//! generator, so that no pointers have to be laid out first. A sample is the mean of [`PER_SAMPLE`] accesses, because
//! reading a clock costs as much as an access. What the loop itself costs is measured on memory that lies in the first
//! cache and reported beside, not taken off. Address translation is part of an access.
//! Units: nanoseconds. Source: mercury 5.3.1 (random access over 4 GB).

use super::region::Region;
use isolane_common_quantities::stats::Histogram;
use std::time::{Duration, Instant};

/// Accesses per sample.
pub const PER_SAMPLE: u32 = 64;

/// Runs for `length` and returns the histogram of samples, in picoseconds per access.
pub fn run(region: &Region, length: Duration) -> Histogram {
    let mut histogram = Histogram::new();
    let mut state = SEED;
    let end = Instant::now() + length;
    loop {
        let start = Instant::now();
        state = walk(region.words(), state, PER_SAMPLE);
        let now = Instant::now();
        let nanoseconds = now.duration_since(start).as_nanos() as u64;
        histogram.record(nanoseconds * 1_000 / u64::from(PER_SAMPLE));
        if now >= end {
            return histogram;
        }
    }
}

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
}
