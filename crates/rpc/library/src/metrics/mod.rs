//! What the table counted, as OpenMetrics text.
//!
//! Problem: 100,000 destinations are too many series, and the few that matter change.
//! Method: families without a destination hold the totals of each class. Beside them some destinations have
//! series of their own, as many as the settings say: the first ones, and for each that leaves the table the one with most
//! calls. Whoever is shown stays until it leaves the table, and what happens to all others is counted under `other`. A destination's calls from before it was shown stay in
//! `other` too if it was not shown from the first one on, so that no counter ever falls; sums are to be taken from the totals.
//! Units: seconds in histograms, parts of 1 for probabilities.

mod text;

pub use isolane_common_text_output::openmetrics::CONTENT_TYPE;
pub use text::render;

use crate::table::Counts;
use isolane_rpc_policy::aequitas::Probability;
use std::collections::BTreeMap;

/// Everything that is reported, at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Destinations in the table.
    pub destinations: usize,
    /// Destinations that ever left it.
    pub evicted: u64,
    /// Calls whose destination found no room.
    pub overflowed: u64,
    /// By class, over all destinations that ever were.
    pub totals: Vec<Counts>,
    /// The shown destinations, by name.
    pub shown: Vec<Destination>,
    /// By class, what happened to those that are not shown.
    pub other: Vec<Counts>,
}

/// A shown destination.
#[derive(Clone, Debug, PartialEq)]
pub struct Destination {
    /// Its name, with replacements where it is no text.
    pub name: String,
    /// By class.
    pub classes: Vec<(Counts, Probability)>,
}

/// Which destinations have series of their own.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    /// By slot what each had counted before it was shown, by class: looked up under the table's lock, by newcomers too.
    listed: BTreeMap<u32, Vec<Counts>>,
    /// What departed ones counted while they were shown, by class.
    gone: Vec<Counts>,
    /// Most slots.
    max: usize,
}

impl Shown {
    /// At most so many.
    pub(crate) fn new(max: usize) -> Self {
        Self {
            max,
            ..Self::default()
        }
    }

    /// A destination has come; while there is room it is shown from its first call on.
    pub(crate) fn came(&mut self, slot: u32, classes: usize) {
        if self.listed.len() < self.max {
            self.listed.insert(slot, vec![Counts::default(); classes]);
        }
    }

    /// Fills free places with those of `candidates` (slot and calls) that have most calls.
    pub(crate) fn fill(
        &mut self,
        max: usize,
        candidates: Vec<(u32, u64)>,
        counts: impl Fn(u32) -> Vec<Counts>,
    ) {
        self.max = max;
        let mut new: Vec<_> = candidates
            .into_iter()
            .filter(|(slot, _)| !self.listed.contains_key(slot))
            .collect();
        new.sort_by_key(|&(slot, calls)| (std::cmp::Reverse(calls), slot));
        new.truncate(max.saturating_sub(self.listed.len()));
        let places = new.into_iter().map(|(slot, _)| (slot, counts(slot)));
        self.listed.extend(places);
    }

    /// Slots that are shown.
    pub(crate) fn slots(&self) -> Vec<u32> {
        self.listed.keys().copied().collect()
    }

    /// A destination leaves the table with these counts in `class`.
    pub(crate) fn departed(&mut self, slot: u32, class: usize, counts: &Counts) {
        if let Some(base) = self.listed.get(&slot) {
            let own = difference(counts, &base[class]);
            self.gone
                .resize(self.gone.len().max(class + 1), Counts::default());
            self.gone[class].add(&own);
        }
    }

    /// The slot is another's from here on.
    pub(crate) fn forget(&mut self, slot: u32) {
        self.listed.remove(&slot);
    }

    /// What of `totals` happened to others than the shown ones while they were shown.
    pub(crate) fn other(
        &self,
        totals: &[Counts],
        counts: impl Fn(u32) -> Vec<Counts>,
    ) -> Vec<Counts> {
        let mut other = totals.to_vec();
        for (class, sum) in other.iter_mut().enumerate() {
            if let Some(gone) = self.gone.get(class) {
                *sum = difference(sum, gone);
            }
        }
        for (slot, base) in &self.listed {
            for (class, now) in counts(*slot).iter().enumerate() {
                other[class] = difference(&other[class], &difference(now, &base[class]));
            }
        }
        other
    }
}

/// `a` less `b`; zero where calls in between make it negative.
fn difference(a: &Counts, b: &Counts) -> Counts {
    let mut histogram = a.histogram;
    for (count, less) in histogram.iter_mut().zip(b.histogram) {
        *count = count.saturating_sub(less);
    }
    Counts {
        admitted: a.admitted.saturating_sub(b.admitted),
        downgraded: a.downgraded.saturating_sub(b.downgraded),
        leased: a.leased.saturating_sub(b.leased),
        missed: a.missed.saturating_sub(b.missed),
        histogram,
        latency_sum_ns: a.latency_sum_ns.saturating_sub(b.latency_sum_ns),
    }
}

#[cfg(test)]
mod tests;
