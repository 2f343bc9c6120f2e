//! How hot the pages of an application look to a policy that samples requests.
//!
//! Problem: with a few samples per page, hotness is noise as much as knowledge: of pages that are used alike, some look
//! hot and some cold, and the policy moves them. So a mean per page would be too good. Method: for each bucket and tier
//! the bytes of pages by their number of samples. Each page of a bucket is sampled at random at the same rate, so in a
//! short time a small part of every state goes to the next one. Halving an odd count drops half a sample; below one
//! sample only the bin is known. New pages are in the bin that the policy gives them; pages that go leave all states
//! alike. Units: bytes, samples. Limits: counts end at [`SAMPLES_MAX`]; samples of one page are
//! independent. `tests` compares with pages that are followed one by one.

use crate::pages::Pages;
use isolane_memory_policy::memtis::{BINS, SAMPLE};
use isolane_memory_policy::mercury::TIERS_MAX;
use std::ops::Range;

/// States of pages with less than one sample: the bins below that of one sample.
const FRACTIONS: usize = SAMPLE.ilog2() as usize;
/// Pages with more samples than this count as having this many. Half of it is still in the bin before the last one.
const SAMPLES_MAX: usize = 127;
/// All states: fractions of a sample by bin, then one sample, two, and so on.
const STATES: usize = FRACTIONS + SAMPLES_MAX;
/// Bytes of the smallest page that a machine may have.
const PAGE_MIN: f64 = 4096.0;
/// Most samples per page in one step of the distribution: a page gets at most one in it.
const STEP_MAX: f64 = 0.1;

/// Pages of one bucket in one tier.
#[derive(Clone, Debug, PartialEq)]
struct Cell {
    /// Bytes of the pages in each of [`STATES`] states, B.
    states: Vec<f64>,
    /// States from here on are empty.
    top: usize,
    /// Sum of all states.
    bytes: f64,
}

impl Cell {
    fn new() -> Self {
        Self {
            states: vec![0.0; STATES],
            top: 0,
            bytes: 0.0,
        }
    }

    /// Bytes in `states`.
    fn sum(&self, states: &Range<usize>) -> f64 {
        let end = states.end.min(self.top);
        self.states[states.start.min(end)..end].iter().sum()
    }

    /// Follows `held` bytes: new ones are in bin `fresh`.
    fn follow(&mut self, held: f64, fresh: usize) {
        if held > self.bytes {
            self.states[state_of(fresh)] += held - self.bytes;
            self.top = self.top.max(state_of(fresh) + 1);
        } else if self.bytes > 0.0 {
            let kept = held / self.bytes;
            self.states[..self.top]
                .iter_mut()
                .for_each(|bytes| *bytes *= kept);
        }
        self.bytes = held;
    }

    /// Gives each page `samples` on average.
    fn sample(&mut self, samples: f64) {
        let steps = (samples / STEP_MAX).ceil();
        let part = samples / steps.max(1.0);
        for _ in 0..steps as u64 {
            let last = self.top.min(STATES - 1);
            for state in (FRACTIONS..last).rev() {
                let up = part * self.states[state];
                self.states[state] -= up;
                self.states[state + 1] += up;
            }
            let mut first = 0.0;
            for bytes in &mut self.states[..FRACTIONS] {
                first += part * *bytes;
                *bytes *= 1.0 - part;
            }
            self.states[FRACTIONS] += first;
            self.top = (last + 1).max(FRACTIONS + 1);
        }
        self.trim();
    }

    /// Counts a part of a page at the top with the state below: it is no page, and costs as much time as a full state.
    fn trim(&mut self) {
        while self.top > 1 && self.states[self.top - 1] < PAGE_MIN {
            self.top -= 1;
            let rest = std::mem::take(&mut self.states[self.top]);
            self.states[self.top - 1] += rest;
        }
    }

    /// Halves the samples of every page, as Memtis does in each cooling period.
    fn cool(&mut self) {
        for state in 1..self.top {
            let to = match (state + 1).checked_sub(FRACTIONS) {
                Some(samples) if samples > 1 => FRACTIONS - 1 + samples / 2,
                _ => state - 1,
            };
            let bytes = std::mem::take(&mut self.states[state]);
            self.states[to] += bytes;
        }
        self.trim();
        self.bytes = self.states[..self.top].iter().sum();
    }
}

/// Sampled hotness of an application's pages.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Heat {
    /// Of each bucket, by tier.
    buckets: Vec<[Cell; TIERS_MAX]>,
}

impl Heat {
    /// No pages yet, in `buckets`.
    pub(crate) fn new(buckets: usize) -> Self {
        let cells = || std::array::from_fn(|_| Cell::new());
        Self {
            buckets: (0..buckets).map(|_| cells()).collect(),
        }
    }

    /// Follows pages that came and went; new ones are in bin `fresh`.
    pub(crate) fn follow(&mut self, pages: &Pages, fresh: usize) {
        for (cells, bucket) in self.buckets.iter_mut().zip(&pages.buckets) {
            for (cell, held) in cells.iter_mut().zip(&bucket.held) {
                if (cell.bytes - held).abs() > 0.5 || *held <= 0.0 {
                    cell.follow(held.max(0.0), fresh);
                }
            }
        }
    }

    /// Gives each page of `bucket` `samples` on average.
    pub(crate) fn sample(&mut self, bucket: usize, samples: f64) {
        let cells = &mut self.buckets[bucket];
        let held = cells.iter_mut().filter(|cell| cell.bytes > 0.0);
        held.for_each(|cell| cell.sample(samples));
    }

    /// Halves the hotness of all pages.
    pub(crate) fn cool(&mut self) {
        for cell in self.buckets.iter_mut().flatten() {
            if cell.bytes > 0.0 {
                cell.cool();
            }
        }
    }

    /// Adds the bytes in `tier`, by bin, to `bins`.
    pub(crate) fn count(&self, tier: usize, bins: &mut [f64; BINS]) {
        for cell in self.buckets.iter().map(|cells| &cells[tier]) {
            for (bin, sum) in bins.iter_mut().enumerate() {
                *sum += cell.sum(&states(&(bin..bin + 1)));
            }
        }
    }

    /// Bytes in `tier` of the pages in `bins`.
    pub(crate) fn held(&self, tier: usize, bins: &Range<usize>) -> f64 {
        let states = states(bins);
        self.buckets
            .iter()
            .map(|cells| cells[tier].sum(&states))
            .sum()
    }

    /// Samples of the pages in `tier` from bin `from` on, times their bytes.
    pub(crate) fn requests(&self, tier: usize, from: usize) -> f64 {
        let cells = self.buckets.iter().map(|cells| &cells[tier]);
        let of = |cell: &Cell| -> f64 {
            let counted = first(from)..cell.top;
            counted
                .map(|state| cell.states[state] * samples_of(state))
                .sum()
        };
        cells.map(of).sum()
    }

    /// Moves the share `part` of the pages of `bins` between tiers; returns how many bytes moved.
    pub(crate) fn shift(
        &mut self,
        pages: &mut Pages,
        (from, to): (usize, usize),
        bins: Range<usize>,
        part: f64,
    ) -> f64 {
        let states = states(&bins);
        let mut all = 0.0;
        for (cells, bucket) in self.buckets.iter_mut().zip(&mut pages.buckets) {
            let mut moved = 0.0;
            let end = states.end.min(cells[from].top);
            for state in states.start..end {
                let bytes = part * cells[from].states[state];
                cells[from].states[state] -= bytes;
                cells[to].states[state] += bytes;
                moved += bytes;
            }
            cells[to].top = cells[to].top.max(end);
            cells[from].bytes -= moved;
            cells[to].bytes += moved;
            bucket.held[from] -= moved;
            bucket.held[to] += moved;
            all += moved;
        }
        all
    }
}

/// The state with the fewest samples in `bin`.
fn state_of(bin: usize) -> usize {
    match bin.checked_sub(FRACTIONS) {
        Some(more) => FRACTIONS - 1 + (1 << more),
        None => bin,
    }
}

/// The states of `bins`.
fn states(bins: &Range<usize>) -> Range<usize> {
    first(bins.start)..first(bins.end)
}

/// The first state in `bin` or above.
fn first(bin: usize) -> usize {
    match bin < BINS {
        true => state_of(bin),
        false => STATES,
    }
}

/// Samples of a page in `state`; of a fraction the middle of its bin.
fn samples_of(state: usize) -> f64 {
    match (state + 1).checked_sub(FRACTIONS) {
        Some(samples) if samples > 0 => samples as f64,
        _ => 1.5 * (1u64 << state) as f64 / SAMPLE as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_common_quantities::rng::Stream;
    use isolane_memory_policy::memtis::bin;
    use proptest::prelude::*;

    const GB: f64 = 1e9;

    fn near(bytes: f64) -> (Heat, Pages) {
        let mut pages = Pages::new(1.0);
        pages.add(0, bytes);
        let mut heat = Heat::new(1);
        heat.follow(&pages, 2);
        (heat, pages)
    }

    fn bins(heat: &Heat, tier: usize) -> [f64; BINS] {
        let mut bins = [0.0; BINS];
        heat.count(tier, &mut bins);
        bins
    }

    /// The bin of the pages in `state`.
    fn bin_of(state: usize) -> usize {
        match (state + 1).checked_sub(FRACTIONS) {
            Some(samples) if samples > 0 => bin(samples as u64 * SAMPLE),
            _ => state,
        }
    }

    #[test]
    fn states_and_bins_agree() {
        assert_eq!((FRACTIONS, STATES), (9, 136));
        for bin in 0..BINS {
            assert_eq!(bin_of(state_of(bin)), bin);
            assert!(bin == 0 || bin_of(state_of(bin) - 1) == bin - 1);
        }
        assert_eq!((bin_of(STATES - 1), first(BINS)), (BINS - 1, STATES));
        assert_eq!(
            (samples_of(9), samples_of(10), samples_of(8)),
            (1.0, 2.0, 0.75)
        );
    }

    #[test]
    fn new_pages_are_in_the_bin_for_new_ones_and_all_leave_alike() {
        let (mut heat, mut pages) = near(GB);
        assert_eq!(bins(&heat, 0)[2], GB);
        pages.add(0, GB);
        heat.follow(&pages, 10);
        assert_eq!((bins(&heat, 0)[2], bins(&heat, 0)[10]), (GB, GB));
        pages.remove(GB);
        heat.follow(&pages, 10);
        assert_eq!(
            (bins(&heat, 0)[2], bins(&heat, 0)[10]),
            (GB / 2.0, GB / 2.0)
        );
        pages.remove(GB);
        heat.follow(&pages, 10);
        assert_eq!(bins(&heat, 0), [0.0; BINS]);
    }

    #[test]
    fn a_shift_takes_its_part_of_the_bins_and_no_other_page() {
        let (mut heat, mut pages) = near(GB);
        heat.sample(0, 0.1);
        let moved = heat.shift(&mut pages, (0, 1), 9..BINS, 0.5);
        let close = |found: f64, part: f64| (found - part * GB).abs() < 1.0;
        assert!(close(moved, 0.05), "{moved}");
        assert!(close(pages.held(1), 0.05));
        assert!(close(bins(&heat, 1)[9], 0.05) && close(bins(&heat, 0)[2], 0.9));
        assert!(close(heat.held(0, &(9..BINS)), 0.05));
        assert!(close(heat.requests(0, 9), 0.05));
    }

    /// The same by following each page: counts of samples at random times, halved between the rounds.
    fn one_by_one(samples: &[f64], seed: u64) -> [f64; BINS] {
        const PAGES: usize = 20_000;
        let mut random = Stream::named(seed, "pages");
        let mut counts = vec![64u64; PAGES];
        for (round, samples) in samples.iter().enumerate() {
            for count in &mut counts {
                *count >>= u32::from(round > 0);
                *count += SAMPLE * poisson(&mut random, *samples);
            }
        }
        let mut bins = [0.0; BINS];
        for count in counts {
            bins[bin(count)] += 1.0 / PAGES as f64;
        }
        bins
    }

    /// How many independent events, of which `mean` are expected.
    fn poisson(random: &mut Stream, mean: f64) -> u64 {
        let (limit, mut product, mut events) = (libm::exp(-mean), 1.0, 0);
        loop {
            product *= random.next_u64() as f64 / u64::MAX as f64;
            if product <= limit {
                return events;
            }
            events += 1;
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn the_distribution_is_that_of_pages_followed_one_by_one(
            samples in prop::collection::vec(0.0..8.0_f64, 1..5), seed in 0u64..1_000,
        ) {
            let mut pages = Pages::new(1.0);
            pages.add(0, GB);
            let mut heat = Heat::new(1);
            heat.follow(&pages, bin(64));
            for (round, samples) in samples.iter().enumerate() {
                if round > 0 {
                    heat.cool();
                }
                heat.sample(0, *samples);
            }
            let (found, slow) = (bins(&heat, 0), one_by_one(&samples, seed));
            for (bin, (found, slow)) in found.iter().zip(&slow).enumerate() {
                let found = found / GB;
                prop_assert!((found - slow).abs() < 0.04, "bin {bin}: {found} and {slow} of {samples:?}");
            }
            prop_assert!((found.iter().sum::<f64>() - GB).abs() < 1.0);
        }
    }
}
