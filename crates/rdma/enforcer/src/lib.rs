//! Harmonic for tenants that are not trusted, without its PCIe switch: what a host can enforce with Linux alone.
//!
//! A tenant of the shim cooperates; one of this crate need not. Its control verbs pass a seccomp filter that it cannot
//! remove, its objects are known from the kernel's own books, and its data is slowed by the NIC's congestion control.
//!
//! * [`seccomp`] - trapping control verbs, naming them, letting them go on;
//! * [`control`] - the rate of control verbs: a delay, never an error;
//! * [`cnp`] - congestion notifications to this host's own NIC;
//! * [`guardian`] - whoever keeps the listeners when the enforcer dies;
//! * [`tenants`] - which tenant a process is of; [`caps`] - hard caps of the rdma cgroup controller;
//! * [`law`] - who uses too much, by counters; [`enforcer`] - all of it together; [`status`] - what it says;
//! * [`pacing`] - rates of tenants that cooperate, told to the daemon;
//! * [`launch`] - starting a program under supervision; [`arrival`], [`container`] - what launchers and container runtimes say and need;
//! * [`handoff`] - bytes and descriptors over a Unix socket.
//!
//! Units end the names of numbers at borders. Source: harmonic (chapter 5), sections 5.3 to 5.5.
#![allow(unsafe_code)]
#![deny(unsafe_op_in_unsafe_fn)]

pub mod arrival;
pub mod caps;
pub mod cnp;
pub mod container;
pub mod control;
pub mod enforcer;
pub mod error;
pub mod guardian;
pub mod handoff;
pub mod launch;
pub mod law;
pub mod pacing;
pub mod seccomp;
pub mod status;
pub mod tenants;
#[cfg(test)]
mod testing;

pub use error::EnforceError;
