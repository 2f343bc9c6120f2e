//! Decisions about applications on tiered memory, pure.
//!
//! * [`mercury`] - admission, near memory, bandwidth limits and their adaptation.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]
#![forbid(unsafe_code)]

pub mod mercury;
