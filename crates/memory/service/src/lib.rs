//! Tiered memory on a Linux host: what it has, what it can measure, what it can enforce.
//!
//! Problem: the policy of `isolane_memory_policy::mercury` says how many bytes of each memory tier an application may
//! hold, and wants to know how its accesses fare. The original needs a patched kernel for the first and one processor
//! vendor's counters for the second. Here the running kernel is probed, and the best of what it has is used.
//!
//! * [`host`] - the files of one machine, and their paths; [`tiers`] - memory tiers and their nodes;
//! * [`cgroup`] - the control groups of applications: memory, processor time, owner;
//! * [`backend`] - what moves pages so that limits hold, behind one trait;
//! * [`indicator`] - what is measured, behind one trait, each number with its source and age;
//! * [`application`] - an application and its objective, as files, pods and options have it;
//! * [`controller`] - the control loop, over the traits above; [`journal`] - what survives a crash;
//! * [`protocol`] - requests and answers of the service; [`service`] - the loop on a clock, behind a socket;
//! * [`mod@bench`] - microbenchmarks of latency and bandwidth; [`profile`] - what a machine bears and an application needs;
//! * [`fleet`] - many machines: which one suits an application, for people and for the Kubernetes scheduler;
//! * [`allocation`] - bandwidth that the processor allocates;
//! * [`probe`] - which backends work here, and the choice; [`doctor`] - a report on the machine for people;
//! * `sys` - system calls; `error` - what can go wrong, with object, value and remedy.
//!
//! Units: bytes, thousandths of a processor core, picoseconds in the policy's types. Every path is below a root, so that
//! a made-up tree tests all of it. Limits: Linux, version 2 of control groups.
//! Source: Mercury 5.5.1 and 5.5.4; the kernel's documentation of cgroup-v2, DAMON and resctrl.
#![allow(unsafe_code)]
#![deny(unsafe_op_in_unsafe_fn)]

pub mod allocation;
pub mod application;
pub mod backend;
pub mod bench;
pub mod cgroup;
pub mod controller;
pub mod doctor;
mod error;
pub mod fleet;
#[cfg(test)]
mod fuzz;
pub mod host;
pub mod indicator;
pub mod journal;
pub mod probe;
pub mod profile;
pub mod protocol;
pub mod service;
mod sys;
#[cfg(test)]
pub(crate) mod testing;
pub mod tiers;

pub use backend::{Backend, BackendKind, Progress};
pub use cgroup::Cgroup;
pub use error::MemError;
pub use host::MemoryHost;
pub use indicator::{Sensors, SourceInfo};
