//! A packet-level simulator of datacenter networks, fast enough for whole clusters.
//!
//! Who does what, from the wire upwards:
//!
//! * [`packet`] - what travels;
//! * [`topology`] - hosts, switches, links, and which way leads where;
//! * [`discipline`] - the order in which a port sends (weighted fair, deficit round robin, strict, pFabric, ...);
//! * [`network`] - ports, buffers, marks and pauses, and the event loop, without flows and calls;
//! * [`transport`] - how a host turns messages into packets and back;
//! * `rpc` - calls: when they begin, how large they are, in which class they run, how long they took;
//! * [`run`] - one scenario from start to result;
//! * [`leaf`] - the RNIC model as the NIC of some hosts.
//!
//! Same scenario, seed and version: same bytes on every machine. Time is in picoseconds, randomness from named streams.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]
#![forbid(unsafe_code)]

pub mod discipline;
pub mod leaf;
pub mod network;
pub mod packet;
mod rpc;
pub mod run;
pub mod topology;
pub mod transport;
