//! The audit: which attacker breaks which victim under which isolation policy, and why (husky 4.4).
//!
//! * [`matrix`] - the result: a verdict per policy, victim and attacker.
#![forbid(unsafe_code)]

pub mod matrix;
