//! Enforces limits on untrusted tenants with Linux alone: Harmonic without its PCIe switch.
//!
//! Tenants of this crate need not cooperate, unlike tenants of the shim. Their control verbs pass a seccomp filter that
//! they cannot remove, the kernel's inventory lists their objects, and the RNIC's congestion control slows their data.
//!
//! * [`seccomp`] - traps control verbs, finds their verb, resumes them;
//! * [`control`] - the rate of control verbs: delays, never errors;
//! * `cnp` - congestion notifications to this host's own RNIC;
//! * [`guardian`] - keeps the listeners when the enforcer ends;
//! * `tenants` - the tenant of a process;
//! * `caps` - hard caps of the rdma cgroup controller;
//! * [`law`] - who uses too much, from counters;
//! * [`enforcer`] - combines all of these;
//! * `status` - its report;
//! * [`pacing`] - sends the rates of cooperating tenants to the daemon;
//! * [`launch`] - starts a program under supervision;
//! * [`arrival`], [`container`] - messages and profiles of launchers and container runtimes;
//! * [`handoff`] - bytes and descriptors over a Unix socket.
//!
//! Units end the names of numbers at borders. Source: harmonic (chapter 5), sections 5.3 to 5.5.
#![allow(unsafe_code)]
#![deny(unsafe_op_in_unsafe_fn)]
#![cfg_attr(not(test), deny(clippy::print_stderr))]

pub mod arrival;
mod caps;
mod cnp;
pub mod container;
pub mod control;
pub mod enforcer;
mod error;
pub mod guardian;
pub mod handoff;
pub mod launch;
pub mod law;
pub mod pacing;
pub mod seccomp;
mod status;
mod tenants;
#[cfg(test)]
mod testing;

pub use error::EnforceError;
