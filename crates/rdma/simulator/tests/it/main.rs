//! The RDMA simulator as a whole.
//!
//! `allocation` and `monitor_allocation` are programs of their own: each counts what its process allocates.

mod applications;
#[path = "../common/mod.rs"]
mod common;
mod conservation;
mod determinism;
mod distributed;
mod harmonic;
mod hosts;
mod lanes;
mod live;
mod mechanisms;
mod micro;
mod palos;
mod policies;
mod progress;
mod random;
mod trace;
mod weights;
