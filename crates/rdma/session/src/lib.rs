//! The protocol between the shim in an application's process and the daemon.
//!
//! Problem: a daemon sets how fast each tenant of an RDMA NIC may post. Thousands of processes, some of them broken or
//! hostile, must learn their rate within a millisecond and without a system call per message. Method: a process is a
//! *session*: one Unix socket of type SEQPACKET ([`message`]) and one private page range ([`region`]) that only this
//! process and the daemon map. A tenant can therefore neither read nor disturb another's. The daemon writes leases (a
//! rate that holds until a point in time), the shim writes counters. Each word has one writer and nothing is locked. A
//! side that ends between any two instructions leaves words that the other side can use. Values written by the other
//! side are never trusted; the reader clamps them. Units: bytes, operations (messages), nanoseconds of CLOCK_MONOTONIC.
//! Versions: [`VERSION`] changes with every change of a layout or a message. Both sides reject another version, and the
//! application then runs unpaced. Limits: [`region::METERS`] meters and [`region::SLOTS`] queue pairs
//! per process have their own entry; further queue pairs share the last slot. Linux, 64 bit, little endian. Source:
//! justitia 4 and appendix F for the content; the protocol is ours.
#![allow(unsafe_code)]
#![deny(unsafe_op_in_unsafe_fn)]

pub mod message;
pub mod region;
pub mod slot;
pub mod words;

/// Version of the layout and of the messages.
pub const VERSION: u32 = 7;

/// Default path of the daemon's socket.
pub const SOCKET_PATH: &str = "/run/isolane/clients/isolaned.sock";

/// Names of the environment variables that the shim reads.
pub mod environment {
    /// Path of the daemon's socket.
    pub const SOCKET: &str = "ISOLANE_SOCKET";
    /// The class of the process: `latency`, `throughput`, `bandwidth` or `auto`.
    pub const CLASS: &str = "ISOLANE_CLASS";
    /// Name of the tenant; the daemon's rules and `trust_names` decide whether it counts.
    pub const TENANT: &str = "ISOLANE_TENANT";
    /// Weight among the tenant's processes, from 1 to [`crate::message::WEIGHT_MAX`].
    pub const WEIGHT: &str = "ISOLANE_WEIGHT";
    /// Amount of messages on standard error: `off`, `line` (the default) or `debug`.
    pub const LOG: &str = "ISOLANE_LOG";
    /// Any value except `0` disables the shim.
    pub const DISABLE: &str = "ISOLANE_DISABLE";
    /// Path of the shim, for programs that start others under it.
    pub const SHIM: &str = "ISOLANE_SHIM";
}
