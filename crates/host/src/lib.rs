//! What a Linux host says of its RDMA devices, their users and their limits.
//!
//! The kernel is the witness here, never a tenant's word: the inventory of queue pairs, completion queues and memory
//! regions comes from the kernel's resource tracking, processes are tied to tenants by user and cgroup, and counters
//! are the device's own. Everything that is a file is read below a [`Root`], so that a test can make one up; everything
//! that is a socket has a parser that takes bytes.
//!
//! * [`root`] - files below a root directory;
//! * [`netlink`] - messages and attributes as bytes, and the socket;
//! * [`rdma`] - devices, links, resources and statistics over NETLINK_RDMA;
//! * [`process`] - what `/proc` says of a process that holds resources;
//! * [`cgroup`] - cgroup membership, container names, the rdma controller;
//! * [`inventory`] - resources per process, per cgroup and per tenant;
//! * [`counters`] - a link's counters under names common to all vendors, and what happened between two readings;
//! * [`dcb`] - priority flow control and traffic classes;
//! * [`doctor`] - the checks of `isolane doctor`;
//! * [`key`] - keys that machines share, in files;
//! * [`peer`] - who is at the other end of a Unix socket, and what it may;
//! * [`account`] - whom a client is counted for, and how many places each may hold;
//! * [`private`] - a directory of journals that nobody else writes to;
//! * [`open_files`] - the limit of open files;
//! * [`socket`] - files of Unix sockets and their folders;
//! * [`command`] - running `ip`, `tc` and the like;
//! * [`namespaces`] - network namespaces for tests and labs.
//!
//! Units end the names of numbers. Limits: Linux only; needs no privilege to read, except where an item says so.
#![allow(unsafe_code)]
#![deny(unsafe_op_in_unsafe_fn)]

pub mod account;
pub mod cgroup;
pub mod command;
pub mod counters;
pub mod dcb;
pub mod doctor;
pub mod error;
pub mod inventory;
pub mod key;
pub mod namespaces;
pub mod netlink;
pub mod open_files;
pub mod peer;
pub mod pool;
pub mod private;
pub mod process;
pub mod rdma;
pub mod root;
pub mod socket;

pub use error::HostError;
pub use root::Root;
