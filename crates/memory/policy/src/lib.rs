//! Decisions about applications and pages on tiered memory, pure.
//!
//! * [`mercury`] - admission, near memory, bandwidth limits and their adaptation;
//! * [`memtis`] - which pages are hot, by samples of requests; [`colloid`] - how many of them belong near, by latency.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]
#![forbid(unsafe_code)]

pub mod colloid;
pub mod memtis;
pub mod mercury;
