//! Decisions about flows on Ethernet NICs, pure.
//!
//! * [`titan`] - which transmit queue a flow takes, queue weights, segment sizes.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]
#![forbid(unsafe_code)]

pub mod titan;
