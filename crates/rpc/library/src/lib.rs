//! Admission of remote procedure calls for real RPC stacks: Aequitas as a library.
//!
//! Problem: under overload a class of a weighted fair network keeps its delay only while its share of the traffic stays
//! small. The sender must therefore send some calls in the lowest class, and report it to the application. The
//! algorithm is [`isolane_rpc_policy::aequitas`]; this crate adds what a program needs.
//!
//! * [`table`] - destinations and classes for many threads: no wait and no allocation in the decision on a known destination;
//! * [`settings`] - classes, objectives and mode, as checked values and as a TOML file;
//! * `metrics` - admitted, downgraded and met calls as OpenMetrics text;
//! * [`admission`] - the application's handle, with the machine's clock and randomness;
//! * `meter` - network latency of a call, from the kernel and the server;
//! * [`quota`] - leases of admitted traffic for tenants, from a server that calls never wait for;
//! * [`ffi`] - the interface for C;
//! * `tonic` (feature `tonic`) - a layer for clients of the gRPC library tonic, and for its servers (`tonic-server`).
//!
//! Units: durations in nanoseconds where a name says `_ns`, sizes in bytes, sizes in MTUs rounded up. Limits: the
//! sender's side only; a response travels in the class of its connection. Source: Aequitas (in the thesis "cloud QoS"),
//! section 3.5. Prose: `docs/internals/rpc.md`.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod admission;
mod clock;
pub mod ffi;
mod hash;
#[cfg(feature = "tonic")]
mod meter;
mod metrics;
pub mod quota;
pub mod settings;
pub mod table;
#[cfg(feature = "tonic")]
pub mod tonic;
