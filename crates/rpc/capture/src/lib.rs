//! Compares the priority that calls declare with the code point (DSCP) of their packets on the wire.
//!
//! Problem: a network can keep an objective only if calls of one priority run in the class of that priority. Where
//! teams mark hosts, ports or connections on their own, priority and class differ: calls are *misaligned*.
//! Method (phase 1 of the paper): [`audit`] reads a capture, pcap or pcapng, packet by packet. `packet` finds the TCP
//! segments and their DSCP. `stream` puts the segments of a direction in order. `http2` follows the frames of gRPC
//! in plain text, so that each byte belongs to a call, and a call's class is in a header of its request. Connections
//! whose calls are not readable have the class of [`declared`], a table. [`tally`] sums bytes and calls by client,
//! server, class and DSCP, and judges.
//! Units: bytes of TCP payload, without headers and without repetitions.
//! Limits: TLS and connections that began before the capture are not readable. A hole in a direction ends its reading.
//! Memory is bounded by the constants of each module; the report counts what exceeds a bound.
//! Source: Aequitas (in the thesis "cloud QoS"), section 3.4: deployment in phases, first the alignment.
#![forbid(unsafe_code)]

mod audit;
pub mod declared;
mod http2;
mod packet;
mod stream;
pub mod tally;
#[cfg(test)]
mod tests;

pub use audit::audit;

use declared::Declared;

/// A class and its code point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// Name, as in the calls' header and in tables.
    pub name: String,
    /// DSCP that its packets must have, 0 to 63.
    pub dscp: u8,
}

/// What to look for.
#[derive(Clone, Debug)]
pub struct Options {
    /// All classes, at most [`CLASSES_MAX`].
    pub classes: Vec<Class>,
    /// Header of a request with the name of its class; lower case.
    pub header: String,
    /// Classes of connections whose calls declare none.
    pub declared: Declared,
    /// Whether responses are judged too. They keep the request's DSCP only where the server's kernel reflects it.
    pub responses: bool,
    /// Part of a class's bytes of a pair that may have another DSCP, 0 to 1.
    pub tolerance: f64,
}

/// Most classes: one for each code point.
pub const CLASSES_MAX: usize = 64;

/// Why a capture was not read.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum CaptureError {
    #[error("not a capture: give a pcap or pcapng file, as tcpdump -w writes it")]
    Unknown,
    #[error("cannot read the capture after {packets} packets")]
    Read { packets: u64 },
    #[error(
        "the capture's block after packet {packets} is invalid ({what}); the file is damaged there"
    )]
    Damaged { packets: u64, what: String },
    #[error(
        "the capture's block after packet {packets} has more than {} bytes; no packet is that long, so the file is damaged",
        audit::BLOCK_MAX
    )]
    Long { packets: u64 },
}
