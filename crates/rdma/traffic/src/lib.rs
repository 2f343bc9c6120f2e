//! Traffic on real RDMA devices: runs the workload of a scenario's tenant and measures it at both ends.
//!
//! * [`worker`] - a tenant's part as a process that a coordinator controls over two pipes: the messages, and the jobs
//!   made from a scenario;
//! * [`engine`] - the work of such a worker;
//! * [`coordinator`] - runs the workers of one tenant;
//! * [`tcp`] - workers over TCP, and inside this process;
//! * [`nodes`] - NUMA nodes of a machine, and the one of a tenant's buffers;
//! * [`summary`] - combines both ends' reports.
#![allow(unsafe_code)]
#![deny(unsafe_op_in_unsafe_fn)]

pub mod coordinator;
pub mod engine;
pub mod nodes;
pub mod summary;
pub mod tcp;
pub mod worker;
