//! The pure core of Isolane: quantities, randomness, statistics and policies.
//!
//! Nothing here reads a clock, a file, the environment or a random device: time, randomness and input are
//! arguments. The same policy therefore runs in the simulator and in the daemon, and gives the same answers.
//!
//! * [`units`] - instants, durations, bytes and rates as integer types;
//! * [`policy`] - the contract and the policies;
//! * [`queueing`] - delay bounds of weighted fair queueing;
//! * [`rng`] - named random streams derived from one run seed;
//! * [`settle`] - when a run has settled;
//! * [`stats`] - quantiles, histograms, fairness;
//! * [`text`] - tables for terminals, counts with their noun.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]
#![forbid(unsafe_code)]

pub mod policy;
pub mod queueing;
pub mod rng;
pub mod settle;
pub mod stats;
pub mod text;
pub mod units;
