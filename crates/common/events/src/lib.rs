//! Common parts of the simulators' loops: the event queue and the processor's prefetch hint.
//!
//! * [`EventQueue`] - events in order of time, equal times in order of scheduling;
//! * [`prefetch`] - a hint that loads memory that will be read soon.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]
#![deny(unsafe_op_in_unsafe_fn)]

pub mod prefetch;
mod queue;

pub use queue::*;
