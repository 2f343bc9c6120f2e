//! Real gRPC programs behind a really overloaded weighted fair port, with and without Aequitas.
//!
//! Problem: that admission control keeps latency objectives is shown by simulators; a platform team wants to see it with
//! its own RPC stacks, kernels and sockets before it believes it.
//! Method (as in section 3.6.11): network namespaces on one machine stand for hosts, joined by a router whose port to the
//! servers is a hierarchy of token buckets with one class for each DSCP. Clients in Rust, Python and Go issue calls of
//! 32 KiB in bursts, at times that do not depend on answers. Three runs: with the mix of classes the port was planned for,
//! whose latencies become the objectives; with the mix the applications ask for; and with that mix under Aequitas.
//! * [`network`] - namespaces, links, the port, and their removal;
//! * [`plan`] - what is asked of the network, and what theory says of it;
//! * [`job`] - what the controller and the programs say to each other;
//! * [`fleet`] - the programs, from start to their last line;
//! * [`measure`] - latencies and mixes out of calls;
//! * [`lab`] - the runs in order and the objectives;
//! * `twin` - the same calls in a model: what an ideal port makes of them, and what chance does to a mix;
//! * [`verdict`] - the answers;
//! * [`report`] - what was found, as JSON;
//! * [`worker`] - the client and the server in Rust.
//!
//! Units: microseconds, bits per second and parts of one, as the names say.
//! Limits: all hosts share this machine's processors, so a busy machine shows in the latencies; the lab says how late the
//! clients ran. Needs root and a kernel with veth and HTB.
//! Source: Aequitas (in the thesis "cloud QoS"), sections 3.2.2.1, 3.5 and 3.6.11.
#![forbid(unsafe_code)]

pub mod error;
pub mod fleet;
pub mod job;
pub mod lab;
pub mod measure;
pub mod network;
pub mod plan;
pub mod report;
mod twin;
pub mod verdict;
pub mod worker;
