//! Quantities with units, named random streams and statistics: what every other crate computes with.
//!
//! Nothing here reads a clock, a file, the environment or a random device: time, randomness and input are arguments.
//!
//! * [`units`] - instants, durations, bytes and rates as integer types;
//! * [`rng`] - named random streams derived from one run seed;
//! * [`settle`] - when a run has settled;
//! * [`stats`] - quantiles, histograms, fairness;
//! * [`OptionError`] - why a policy or a model rejects a setting.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]
#![forbid(unsafe_code)]

mod option_error;
pub mod rng;
pub mod settle;
pub mod stats;
pub mod units;

pub use option_error::OptionError;
