//! The network simulator against theory, its scenarios and its baselines.

mod baselines;
mod parameters;
mod scenarios;
mod theory;
