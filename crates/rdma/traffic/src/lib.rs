//! Traffic on real RDMA devices: what a scenario's tenant does, done, and measured at both ends.
//!
//! * [`worker`] - a tenant's side as a process that a coordinator steers over two pipes: the messages, and how a
//!   scenario becomes jobs;
//! * [`engine`] - what such a worker does;
//! * [`coordinator`] - steers the workers of one tenant through a run;
//! * [`tcp`] - workers at the end of a TCP connection, and inside this process;
//! * [`summary`] - both ends' reports as the figures people ask for.
#![allow(unsafe_code)]
#![deny(unsafe_op_in_unsafe_fn)]

pub mod coordinator;
pub mod engine;
pub mod summary;
pub mod tcp;
pub mod worker;
