//! The daemon: it tells every process on this machine how fast it may post to the RDMA NIC.
//!
//! Problem: thousands of processes of tenants that do not trust each other share a few devices; what each may send
//! depends on all the others and changes within a millisecond; and the daemon may not burn a core for it.
//! Method: one thread, one event loop. What decides ([`governor`]) takes time and counters as arguments; what speaks
//! to the kernel moves bytes and asks it.
//!
//! * [`config`] - what an operator sets;
//! * [`settings`] - the operator's file;
//! * [`identity`] - whose process it is: the kernel's word over the process's;
//! * [`governor`] - sessions, tenants and devices in, leases and orders out;
//! * [`attachment`] - what else the loop waits for: reference flows, peers, metrics;
//! * [`peers`] - reference flow, and other machines' daemons;
//! * [`reload`] - the file read anew; [`notify`] - what the service manager is told;
//! * [`attached`] - all of them, made from the settings;
//! * [`memory`] - the memory service beside it, or alone;
//! * [`port`] - what a device's port carries;
//! * [`server`] - the loop, sockets, the death of processes;
//! * [`show`] - metrics and snapshots for those who watch;
//! * [`snapshot`] - what the daemon knows, for metrics and people.
//!
//! Units: bytes and operations per second, nanoseconds of CLOCK_MONOTONIC. Source: justitia 4, 5 and appendix F.
//! Limits: see `docs/internals/daemon.md`.
#![forbid(unsafe_code)]

pub mod attached;
pub mod attachment;
pub mod config;
pub mod governor;
pub mod identity;
pub mod memory;
pub mod notify;
pub mod peers;
pub mod port;
pub mod reload;
pub mod server;
mod session;
pub mod settings;
pub mod show;
pub mod snapshot;
