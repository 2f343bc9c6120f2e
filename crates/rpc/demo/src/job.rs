//! The documents between the controller and the lab's programs: one JSON document per line, on stdin and stdout.
//!
//! A program is started with its role as the last argument, reads one job, prepares, and prints `{"ready":true}`. A
//! client then reads one [`Start`], issues its calls, and prints one [`ClientResult`]. A server prints one
//! [`ServerResult`] when its stdin ends. A program whose stdin ends too early ends itself, so a killed controller
//! leaves nothing running. Units end the names. Times of calls are microseconds after the start. The programs in Python
//! (`python/isolane/lab.py`), Go (`go/cmd/isolane-rpc-lab`), C++ (`crates/rpc/demo/cpp`) and Java
//! (`java/src/main/java/dev/isolane/rpc/lab`) read the same documents.

use crate::plan::CLASSES;
use serde::{Deserialize, Serialize};

/// The method that clients call: the request is the payload, the response is empty.
pub(crate) const METHOD: &str = "/isolane.lab.Lab/Write";

/// Job of a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientJob {
    /// Address and port of the server.
    pub server: String,
    /// Payload of a call, bytes.
    pub call_bytes: u32,
    /// Time from the start of one burst to the next.
    pub period_us: u64,
    /// Duration of a burst.
    pub burst_us: u64,
    /// Calls per second of this client during a burst.
    pub burst_calls_per_s: f64,
    /// Fraction of the calls that request each class.
    pub mix: [f64; CLASSES],
    /// Code point of each class.
    pub dscp: [u8; CLASSES],
    /// How long calls are issued.
    pub issue_us: u64,
    /// How long the client then waits for answers.
    pub drain_us: u64,
    /// Seed of times and classes.
    pub seed: u64,
    /// Parameters of admission control, if used.
    pub admission: Option<Admission>,
}

/// Aequitas for all classes except the last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Admission {
    /// Shadow mode: decide and report, but do not downgrade.
    pub shadow: bool,
    /// Payload of one MTU, bytes.
    pub mtu_bytes: u32,
    /// Controlled classes, the highest first.
    pub classes: Vec<AdmissionClass>,
}

/// Parameters of one class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AdmissionClass {
    /// Objective per MTU of a call.
    pub target_per_mtu_us: f64,
    /// Percentage of calls that must meet it.
    pub percentile: f64,
    /// Increase of the admit probability after a window without a miss.
    pub increment: f64,
    /// Decrease per MTU of a miss.
    pub decrement_per_mtu: f64,
    /// Smallest admit probability.
    pub floor: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ServerJob {
    /// Listening address and port.
    pub listen: String,
}

/// Sent when a program can begin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ready {
    /// Always true.
    pub ready: bool,
}

/// The common start of all clients, on the machine's clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Start {
    /// Microseconds since 1970.
    pub start_unix_us: u64,
}

/// One call: requested class, class it ran in, 1 if downgraded (in shadow mode: if it would be), microseconds from the
/// start to its issue, microseconds until its answer.
pub(crate) type Call = (u8, u8, u8, u64, u64);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ClientResult {
    /// Number of issued calls.
    pub issued: u64,
    /// Number of calls that ended in an error.
    pub failed: u64,
    /// Number of calls without an answer when the client stopped waiting.
    pub unanswered: u64,
    /// The first error, if any.
    pub first_error: Option<String>,
    /// Largest delay of a call's issue: shows how busy the machine was.
    pub late_us_max: u64,
    /// Final admit probability of each controlled class, if admission ran.
    pub probability: Vec<f64>,
    pub calls: Vec<Call>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ServerResult {
    /// Number of answered calls.
    pub calls: u64,
    /// Bytes of their payloads.
    pub bytes: u64,
    /// Number of calls whose metadata reports a downgrade.
    pub downgraded: u64,
}
