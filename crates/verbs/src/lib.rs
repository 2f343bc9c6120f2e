//! Traffic on real RDMA devices: what a scenario's tenant does, done, and measured at both ends.
//!
//! * [`worker`] - a tenant's side as a process that a coordinator steers over two pipes: the messages, and how a
//!   scenario becomes jobs.
#![allow(unsafe_code)]
#![deny(unsafe_op_in_unsafe_fn)]

pub mod worker;
