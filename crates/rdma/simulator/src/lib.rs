//! The deterministic simulator: models of RDMA NICs on the common event queue.
//!
//! Time is an integer count of picoseconds, randomness comes from named streams of the run seed, equal times run
//! in the order in which they were scheduled. The same scenario, profile and seed give the same bytes on every
//! machine. Models explain devices; no result of a paper is written into one.
//!
//! * [`monitor`] - a monitor on a NIC's PCIe port, which counts per tenant from packet headers alone;
//! * [`rnic`] - two RDMA NICs, their hosts and what joins them.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]
#![forbid(unsafe_code)]

pub mod monitor;
pub mod rnic;
