//! Statistics of a run: quantiles, histograms, fairness, summaries of repeats.
//!
//! * [`SlidingQuantile`] - exact quantiles of the last N samples, for policies that act on them;
//! * [`Histogram`] - quantiles of a whole run within a stated error, in fixed memory;
//! * [`bounds`] - bounds of a quantile for any distribution;
//! * [`fairness`] - the Jain index, and FM and NFM over intervals;
//! * [`summary`] - the median of repeated runs.

pub mod bounds;
pub mod fairness;
mod histogram;
mod order_tree;
mod quantile;
pub mod summary;

pub use histogram::{Histogram, HistogramSummary};
pub use quantile::SlidingQuantile;
