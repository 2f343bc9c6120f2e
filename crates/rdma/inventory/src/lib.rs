//! Reads a Linux host's RDMA devices, their users and their limits.
//!
//! The kernel supplies all facts, never a tenant: its resource tracking lists queue pairs, completion queues and memory
//! regions, user and cgroup assign processes to tenants, and counters are the device's own. Every file is read below an
//! `isolane_common_linux::Root`, so a test can supply a tree; every socket has a parser that takes bytes.
//!
//! * [`rdma`] - devices, links and resources over NETLINK_RDMA;
//! * [`inventory`] - resources per process, per cgroup and per tenant;
//! * [`counters`] - a link's counters under names common to all vendors, and what happened between two readings;
//! * [`dcb`] - priority flow control and traffic classes;
//! * [`mod@environment`] - firmware, driver, kernel and settings that a measurement ran on;
//! * [`doctor`] - the checks of `isolane rdma doctor`;
//! * [`unheld`] - processes whose work the preload library cannot pace;
//! * [`watch`] - users of the devices, and the distance to each known limit, from counters alone.
//!
//! Units end the names of numbers. Limits: Linux only; needs no privilege to read, except where an item names one.
#![allow(unsafe_code)]
#![deny(unsafe_op_in_unsafe_fn)]

pub mod counters;
pub mod dcb;
pub mod doctor;
pub mod environment;
pub mod inventory;
pub mod rdma;
pub mod unheld;
pub mod watch;
