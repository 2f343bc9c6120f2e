//! What a Linux host says of its processes, and how programs of this project speak to its kernel and to each other.
//!
//! Everything that is a file is read below a [`Root`], so that a test can make one up; everything that is a socket has a
//! parser that takes bytes.
//!
//! * [`root`] - files below a root directory;
//! * [`netlink`] - messages and attributes as bytes, and the socket;
//! * [`process`] - what `/proc` says of a process;
//! * [`cgroup`] - cgroup membership, container names, the rdma controller;
//! * [`key`] - keys that machines share, in files;
//! * [`peer`] - who is at the other end of a Unix socket, and what it may;
//! * [`account`] - whom a client is counted for, and how many places each may hold;
//! * [`pool`] - places of connections, and who loses one when all are taken;
//! * [`private`] - a directory of journals that only its owner writes to;
//! * [`open_files`] - the limit of open files;
//! * [`socket`] - files of Unix sockets and their folders;
//! * [`timed`] - TCP streams with a deadline;
//! * [`command`] - running `ip`, `tc` and the like;
//! * [`namespaces`] - network namespaces for tests and labs.
//!
//! Units end the names of numbers. Limits: Linux only; needs no privilege to read, except where an item says so.
#![allow(unsafe_code)]
#![deny(unsafe_op_in_unsafe_fn)]

pub mod account;
pub mod cgroup;
pub mod command;
pub mod error;
pub mod key;
pub mod namespaces;
pub mod netlink;
pub mod open_files;
pub mod peer;
pub mod pool;
pub mod private;
pub mod process;
pub mod root;
pub mod socket;
pub mod timed;

pub use error::HostError;
pub use root::Root;
