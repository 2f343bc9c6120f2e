//! Facts about a Linux host's processes, and the interfaces to its kernel and between programs of this project.
//!
//! Every file is read below a [`Root`], so a test can supply a tree; every socket has a parser that takes bytes.
//!
//! * [`root`] - files below a root directory;
//! * [`netlink`] - messages and attributes as bytes, and the socket;
//! * [`process`] - the data of a process in `/proc`;
//! * [`cgroup`] - cgroup membership, container names, the rdma controller;
//! * [`key`] - keys that machines share, in files;
//! * [`peer`] - the process at the peer end of a Unix socket, and its authority;
//! * [`listener`] - the listening sockets of every service, and which connections they take;
//! * [`pool`] - places and memory of connections, and which one is dropped when all are taken;
//! * [`account`] - accounts of clients, and how many places each may hold;
//! * [`stream`] - streams of sockets, with a deadline;
//! * [`tally`] - counters of each service;
//! * [`private`] - a directory of journals that only its owner may write to;
//! * [`network_namespace`] - the network namespace of the calling thread, as a journal keeps it;
//! * [`notify`] - messages to the service manager;
//! * [`open_files`] - the limit of open files;
//! * [`socket`] - files of Unix sockets and their directories;
//! * [`events`] - waits for events of descriptors;
//! * [`command`] - runs `ip`, `tc` and similar programs;
//! * [`namespaces`] - network namespaces for tests and labs;
//! * [`skip`] - tests that a machine cannot run.
//!
//! Units end the names of numbers. Limits: Linux only; needs no privilege to read, except where an item names one.
#![allow(unsafe_code)]
#![deny(unsafe_op_in_unsafe_fn)]

pub mod account;
pub mod cgroup;
pub mod command;
pub mod error;
pub mod events;
pub mod key;
pub mod listener;
pub mod namespaces;
pub mod netlink;
pub mod network_namespace;
pub mod notify;
pub mod open_files;
pub mod peer;
pub mod pool;
pub mod private;
pub mod process;
pub mod root;
pub mod skip;
pub mod socket;
pub mod stream;
pub mod tally;

pub use error::HostError;
pub use root::Root;

/// Prints a line on standard error. Unlike `eprintln!` it does not panic where the line cannot be written, as on a full
/// disk: a service continues without its log.
pub fn say_error(line: &str) {
    use std::io::Write;
    // Nowhere is left to report the failure.
    let _ = writeln!(std::io::stderr(), "{line}");
}
