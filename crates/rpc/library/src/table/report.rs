//! Collects the table's counters for a report.

use super::roster::OVERFLOW;
use super::{Counts, Table};
use crate::metrics::{Destination, Report};

impl Table {
    /// The counters, with at most `shown_max` destinations of their own. Reads all cells under the roster's lock;
    /// newcomers use the overflow cell meanwhile.
    pub fn report(&self, shown_max: usize) -> Report {
        let mut roster = self.roster();
        let counts = |slot: u32| -> Vec<Counts> {
            let cells = self.cells_of(slot);
            cells.iter().map(super::cell::Cell::counts).collect()
        };
        let mut totals = roster.retired.clone();
        let overflow = counts(OVERFLOW);
        let mut candidates = Vec::with_capacity(roster.len());
        let add = |totals: &mut Vec<Counts>, counts: &[Counts]| -> u64 {
            for (sum, counts) in totals.iter_mut().zip(counts) {
                sum.add(counts);
            }
            counts.iter().map(Counts::issued).sum()
        };
        let overflowed = add(&mut totals, &overflow);
        for (slot, _) in roster.seats() {
            let calls = add(&mut totals, &counts(slot));
            candidates.push((slot, calls));
        }
        roster.shown.fill(shown_max, candidates, counts);
        let other = roster.shown.other(&totals, counts);
        let mut shown: Vec<Destination> = roster
            .shown
            .slots()
            .into_iter()
            .filter_map(|slot| {
                let name = roster.name(slot)?;
                let cells = self.cells_of(slot).iter();
                Some(Destination {
                    name: String::from_utf8_lossy(name).into_owned(),
                    classes: cells
                        .map(|cell| (cell.counts(), cell.probability()))
                        .collect(),
                })
            })
            .collect();
        shown.sort_by(|a, b| a.name.cmp(&b.name));
        Report {
            destinations: roster.len(),
            evicted: roster.evicted,
            overflowed,
            totals,
            shown,
            other,
        }
    }
}
