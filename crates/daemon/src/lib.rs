//! The daemon: it tells every process on this machine how fast it may post to the RDMA NIC.
//!
//! * [`config`] - the operator's file.
#![forbid(unsafe_code)]

pub mod config;
