//! The daemon: it tells every process on this machine how fast it may post to the RDMA NIC.
//!
//! * [`config`] - what an operator sets;
//! * [`settings`] - the operator's file;
//! * [`show`] - metrics and snapshots for those who watch;
//! * [`snapshot`] - what the daemon knows, for metrics and people.
#![forbid(unsafe_code)]

pub mod config;
pub mod settings;
pub mod show;
pub mod snapshot;
