//! The daemon: it sets how fast each process on this machine may post to the RDMA NIC.
//!
//! Problem: thousands of processes of mutually untrusted tenants share a few devices. The rate of each process depends
//! on all others and changes within a millisecond, and the daemon must not use a whole core. Method: one thread, one
//! event loop. The deciding part ([`governor`]) takes time and counters as arguments; the adapters only move bytes.
//!
//! * [`config`] - the configuration;
//! * [`settings`] - the operator's file;
//! * [`assignments`] - tenant, class and weight of workloads that a scheduler starts and ends;
//! * [`identity`] - the tenant of a process;
//! * [`governor`] - sessions, tenants and devices in, leases and orders out;
//! * [`attachment`] - what else the loop waits for;
//! * [`peers`] - the reference flow and other machines' daemons;
//! * `reload` - reloads the file;
//! * [`watchdog`] - messages that the service manager requires;
//! * [`attached`] - builds all attachments from the settings;
//! * [`memory`] - the memory service, beside the devices or alone;
//! * [`port`] - the rate of a device's port;
//! * `ports` - the bytes of the devices' ports;
//! * [`dilation`] - the slower clock of emulated devices;
//! * [`server`] - the loop, sockets, the end of processes;
//! * [`show`] - metrics and snapshots;
//! * `unheld` - processes whose work is not paced;
//! * [`snapshot`] - the daemon's state for metrics and people.
//!
//! Units: bytes and operations per second, nanoseconds of CLOCK_MONOTONIC. Source: justitia 4, 5 and appendix F.
//! Limits: see `docs/internals/daemon.md`.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stderr))]

pub mod assignments;
pub mod attached;
pub mod attachment;
mod cgroups;
pub mod config;
pub mod dilation;
pub mod governor;
pub mod identity;
pub mod memory;
pub mod order;
pub mod peers;
pub mod port;
mod ports;
mod reload;
pub mod server;
mod session;
pub mod settings;
pub mod show;
pub mod snapshot;
mod unheld;
pub mod watchdog;
mod worker;
