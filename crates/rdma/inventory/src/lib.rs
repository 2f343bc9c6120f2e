//! What a Linux host says of its RDMA devices, their users and their limits.
//!
//! The kernel is the witness here, never a tenant's word: the inventory of queue pairs, completion queues and memory
//! regions comes from the kernel's resource tracking, processes are tied to tenants by user and cgroup, and counters
//! are the device's own. Everything that is a file is read below an `isolane_common_linux::Root`, so that a test can make one up; everything
//! that is a socket has a parser that takes bytes.
//!
//! * [`rdma`] - devices, links, resources and statistics over NETLINK_RDMA;
//! * [`inventory`] - resources per process, per cgroup and per tenant;
//! * [`counters`] - a link's counters under names common to all vendors, and what happened between two readings;
//! * [`dcb`] - priority flow control and traffic classes;
//! * [`doctor`] - the checks of `isolane rdma doctor`;
//!
//! Units end the names of numbers. Limits: Linux only; needs no privilege to read, except where an item says so.
#![allow(unsafe_code)]
#![deny(unsafe_op_in_unsafe_fn)]

pub mod counters;
pub mod dcb;
pub mod doctor;
pub mod inventory;
pub mod rdma;
