//! Admission of remote procedure calls for real RPC stacks: Aequitas behind a library's interface.
//!
//! Problem: under overload a class of a weighted fair network keeps its delay only while its share of the traffic
//! stays small, so the sender must send some calls in the lowest class, and tell the application. The algorithm is
//! [`isolane_rpc_policy::aequitas`]; here is what a program needs around it.
//!
//! * [`table`] - destinations and classes, made for many threads: no lock, no allocation in a decision;
//! * [`settings`] - classes, objectives and mode, as checked values and as a TOML file;
//! * [`metrics`] - what was admitted, downgraded and met, as OpenMetrics text;
//! * [`admission`] - all of it with the machine's clock and randomness: what an application holds;
//! * [`meter`] - network latency of a call, from what the kernel and the server say;
//! * [`quota`] - leases of admitted traffic for tenants, from a server that nothing waits for;
//! * [`ffi`] - the same for C;
//! * `tonic` (feature `tonic`) - a layer for clients of the gRPC library tonic, and for its servers (`tonic-server`).
//!
//! Units: durations in nanoseconds where a name says `_ns`, sizes in bytes, sizes in MTUs rounded up.
//! Limits: the sender's side only; a response travels in the class of its connection.
//! Source: Aequitas (in the thesis "cloud QoS"), section 3.5. Prose: `docs/internals/rpc.md`.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod admission;
mod clock;
pub mod ffi;
mod hash;
pub mod meter;
pub mod metrics;
pub mod quota;
pub mod settings;
pub mod table;
#[cfg(feature = "tonic")]
pub mod tonic;
