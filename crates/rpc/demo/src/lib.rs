//! Runs real gRPC programs through an overloaded weighted fair port, with and without Aequitas.
//!
//! Problem: simulators show that admission control keeps latency objectives; a platform team wants to test it with its
//! own RPC stacks, kernels and sockets. Method (as in section 3.6.11): network namespaces on one machine represent
//! hosts, joined by a router whose port to the servers is a hierarchy of token buckets with one class for each DSCP.
//! Clients in Rust, Python and Go issue calls of 32 KiB in bursts, at times that do not depend on answers. Three runs:
//! with the mix of classes that the port was planned for, whose latencies become the objectives; with the mix that the
//! applications request; and with that mix under Aequitas.
//!
//! * [`network`] - namespaces, links, the port, and their removal;
//! * [`plan`] - the traffic, and what theory predicts for it;
//! * `job` - the documents between the controller and the programs;
//! * [`fleet`] - the programs, from start to their last line;
//! * `measure` - latencies and mixes computed from calls;
//! * [`lab`] - the runs in order and the objectives;
//! * `twin` - the same calls in a model: an ideal port, and the random variation of a mix;
//! * `verdict` - the verdicts;
//! * [`report`] - the results as JSON;
//! * [`worker`] - the client and the server in Rust.
//!
//! Units: microseconds, bits per second and fractions of one; the unit ends the name. Limits: all hosts share this
//! machine's processors, so a busy machine affects the latencies; the lab reports how late the clients ran. Needs root
//! and a kernel with veth and HTB. Source: Aequitas (in the thesis "cloud QoS"), sections 3.2.2.1, 3.5 and 3.6.11.
#![forbid(unsafe_code)]

pub mod error;
pub mod fleet;
mod job;
pub mod lab;
mod measure;
pub mod network;
pub mod plan;
pub mod report;
mod twin;
mod verdict;
pub mod worker;
