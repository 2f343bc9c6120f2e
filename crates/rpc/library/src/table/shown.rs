//! The destinations that have series of their own in the metrics, by slot, and which destinations get them.

use super::cell::Counts;
use std::collections::BTreeMap;

/// The destinations with series of their own.
#[derive(Debug, Default)]
pub(super) struct Shown {
    /// By slot and class, the counters before the destination was shown. Read under the table's lock, by newcomers too.
    listed: BTreeMap<u32, Vec<Counts>>,
    /// Counters of departed destinations while they were shown, by class.
    gone: Vec<Counts>,
    /// Largest number of slots.
    max: usize,
}

impl Shown {
    /// Shows at most `max` destinations.
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            ..Self::default()
        }
    }

    /// Handles a new destination; while there is room it is shown from its first call on.
    pub(super) fn came(&mut self, slot: u32, classes: usize) {
        if self.listed.len() < self.max {
            self.listed.insert(slot, vec![Counts::default(); classes]);
        }
    }

    /// Fills free places with the `candidates` (slot and calls) that have most calls.
    pub(super) fn fill(
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

    pub(super) fn slots(&self) -> Vec<u32> {
        self.listed.keys().copied().collect()
    }

    /// Records the final counters of a departing destination in `class`.
    pub(super) fn departed(&mut self, slot: u32, class: usize, counts: &Counts) {
        if let Some(base) = self.listed.get(&slot) {
            let own = difference(counts, &base[class]);
            self.gone
                .resize(self.gone.len().max(class + 1), Counts::default());
            self.gone[class].add(&own);
        }
    }

    /// Frees the slot for another destination.
    pub(super) fn forget(&mut self, slot: u32) {
        self.listed.remove(&slot);
    }

    /// The part of `totals` that does not belong to shown destinations.
    pub(super) fn other(
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

/// `a` less `b`; zero if calls in between make it negative.
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
