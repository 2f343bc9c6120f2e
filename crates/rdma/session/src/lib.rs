//! What the shim in an application's process and the daemon say to each other.
//!
//! Problem: a daemon decides how fast each tenant of an RDMA NIC may post, and thousands of processes, some of them
//! broken or hostile, have to learn it within a millisecond and without a system call per message.
//! Method: a process is a *session*: one Unix socket of type SEQPACKET ([`message`]) and one private page range
//! ([`region`]) that only this process and the daemon map. A tenant can therefore neither read nor disturb another's.
//! The daemon writes leases (a rate that holds until a point in time), the shim writes counters; each word has one
//! writer, nothing is locked, and a side that dies between any two instructions leaves words that the other side
//! can use. What the other side wrote is never trusted: it is clamped where it is read.
//! Units: bytes, operations (messages), nanoseconds of CLOCK_MONOTONIC.
//! Versions: [`VERSION`] changes with every change of a layout or a message; both sides refuse another's politely,
//! and the application then runs as if we were not there.
//! Limits: [`region::METERS`] devices and directions and [`region::SLOTS`] queue pairs per process are shown one by
//! one; further queue pairs share the last slot. Linux, 64 bit, little endian.
//! Source: justitia 4 and appendix F for what has to be said; the way of saying it is ours.
#![allow(unsafe_code)]
#![deny(unsafe_op_in_unsafe_fn)]

pub mod message;
pub mod region;

/// Version of the layout and of the messages together.
pub const VERSION: u32 = 3;

/// Where the daemon listens when nobody says otherwise.
pub const SOCKET_PATH: &str = "/run/isolane/clients/isolaned.sock";

/// Names of the environment variables that the shim reads.
pub mod environment {
    /// Path of the daemon's socket.
    pub const SOCKET: &str = "ISOLANE_SOCKET";
    /// What the process needs: `latency`, `throughput`, `bandwidth` or `auto`.
    pub const CLASS: &str = "ISOLANE_CLASS";
    /// Name of the tenant, where neither cgroup nor user tells.
    pub const TENANT: &str = "ISOLANE_TENANT";
    /// Weight inside the tenant's host, from 1 to [`crate::message::WEIGHT_MAX`].
    pub const WEIGHT: &str = "ISOLANE_WEIGHT";
    /// What the shim prints on standard error: `off`, `line` (the default) or `debug`.
    pub const LOG: &str = "ISOLANE_LOG";
    /// Any value but `0`: the shim does nothing.
    pub const DISABLE: &str = "ISOLANE_DISABLE";
    /// Path of the shim, for whoever starts programs under it.
    pub const SHIM: &str = "ISOLANE_SHIM";
}
