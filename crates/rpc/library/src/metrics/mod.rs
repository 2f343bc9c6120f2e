//! The table's counters as OpenMetrics text.
//!
//! Problem: 100,000 destinations are too many series, and the important ones change. Method: families without a
//! destination hold the totals of each class. Up to a configured number of destinations also have series of their own:
//! first the earliest ones, and for each that leaves the table the one with most calls. A shown destination stays until
//! it leaves the table; all others are counted under `other`. The calls of a destination before it was shown stay in
//! `other`, so no counter ever falls; take sums from the totals. Units: seconds in histograms, parts of 1 for
//! probabilities.

mod text;

pub(crate) use text::render;

use crate::table::Counts;
use isolane_rpc_policy::aequitas::Probability;

/// All reported values at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Destinations in the table.
    pub destinations: usize,
    /// Destinations that have left the table.
    pub evicted: u64,
    /// Calls whose destination found no free place.
    pub overflowed: u64,
    /// Counters by class, over all destinations ever.
    pub totals: Vec<Counts>,
    /// The shown destinations, sorted by name.
    pub shown: Vec<Destination>,
    /// Counters by class of the destinations that are not shown.
    pub other: Vec<Counts>,
}

/// A destination with series of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Destination {
    /// Its name, with replacement characters where it is not text.
    pub name: String,
    /// Counters and admit probability by class.
    pub classes: Vec<(Counts, Probability)>,
}

#[cfg(test)]
mod tests;
