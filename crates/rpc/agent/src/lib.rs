//! Aequitas for programs without the admission library: measures and marks what their TCP connections send.
//!
//! Problem: a program in any language takes part in admission only with the library. Method: BPF programs at a cgroup
//! (`bpf/agent.bpf.c`) delimit the *messages* of each connection, draw with the admit probability, and set the code point
//! of a message before its first packet has a header. The [`Agent`] passes each ended message to the table of
//! [`isolane_rpc`] and writes the probabilities back.
//!
//! * [`Agent`] - load, attach, process messages, verify the code points;
//! * [`rules`] - which class a connection has;
//! * [`view`] - messages of an interval by destination and class.
//!
//! Units: nanoseconds, bytes of the TCP stream, packets of `mtu_bytes`. Limits: Linux 6.0 with BTF and version 2 cgroups;
//! root; 16,384 destinations; what a message is not, is in `docs/internals/rpc-enforce.md`. Source: Aequitas (in the
//! thesis "cloud QoS"), section 3.5.1.
#![forbid(unsafe_code)]

mod agent;
mod error;
mod histogram;
mod kernel;
pub mod rules;
pub mod view;
mod wire;

pub use agent::{Agent, Effect, Options};
pub use error::AgentError;
