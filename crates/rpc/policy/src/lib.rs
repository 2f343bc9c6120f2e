//! Decisions about remote procedure calls and the ports that carry them, pure.
//!
//! * [`aequitas`] - admission of calls into traffic classes, by probability;
//! * [`aequitas2`] - the same by equal parts of a port, with evidence shared among callers;
//! * [`evidence`] - what a process learns from the host's other processes, and how much at most;
//! * [`quota`] - guarantees of admitted bytes per second for tenants;
//! * [`queueing`] - delay bounds of weighted fair queueing.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]
#![forbid(unsafe_code)]

pub mod aequitas;
pub mod aequitas2;
pub mod evidence;
pub mod queueing;
pub mod quota;
