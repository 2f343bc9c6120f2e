//! What the controller and the lab's programs say to each other: one JSON document a line, on stdin and stdout.
//!
//! A program is started with its role as the last argument, reads one job, prepares, and prints `{"ready":true}`. A client
//! then reads one [`Start`], issues its calls, and prints one [`ClientResult`]. A server prints one [`ServerResult`] when its
//! stdin ends. A program whose stdin ends too early ends itself, so a controller that was killed leaves nothing running.
//! Units end the names. Times of calls are microseconds after the start.
//! The programs in Python (`python/isolane/lab.py`) and Go (`go/cmd/isolane-rpc-lab`) read the same documents.

use crate::plan::CLASSES;
use serde::{Deserialize, Serialize};

/// The method that clients call: the request is the payload, the response is empty.
pub const METHOD: &str = "/isolane.lab.Lab/Write";

/// What a client does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientJob {
    /// Address and port.
    pub server: String,
    /// Payload of a call.
    pub call_bytes: u32,
    /// From one burst to the next.
    pub period_us: u64,
    /// How long a burst lasts.
    pub burst_us: u64,
    /// Calls per second of this client while a burst lasts.
    pub burst_calls_per_s: f64,
    /// Part of the calls that ask for each class.
    pub mix: [f64; CLASSES],
    /// Code point of each class.
    pub dscp: [u8; CLASSES],
    /// How long calls are issued.
    pub issue_us: u64,
    /// How long after that the client waits for answers.
    pub drain_us: u64,
    /// Seed of times and classes.
    pub seed: u64,
    /// Admission control, if any.
    pub admission: Option<Admission>,
}

/// Aequitas for all classes but the last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Admission {
    /// Decide and report, do not act.
    pub shadow: bool,
    /// Payload that counts as one MTU.
    pub mtu_bytes: u32,
    /// Controlled classes, the highest first.
    pub classes: Vec<AdmissionClass>,
}

/// How one class is controlled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AdmissionClass {
    /// Objective for each MTU of a call.
    pub target_per_mtu_us: f64,
    /// How many calls of a hundred must meet it.
    pub percentile: f64,
    /// What a window without a miss adds to the admit probability.
    pub increment: f64,
    /// What each MTU of a miss takes from it.
    pub decrement_per_mtu: f64,
    /// The least admit probability.
    pub floor: f64,
}

/// What a server does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerJob {
    /// Address and port to listen at.
    pub listen: String,
}

/// A program can begin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    /// Always true.
    pub ready: bool,
}

/// When all clients begin, by the machine's clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// Microseconds since 1970.
    pub start_unix_us: u64,
}

/// One call: class asked for, class it ran in, 1 if the application was told of a downgrade (in shadow mode: of one that would be), microseconds from the start
/// to its issue, microseconds until its answer.
pub type Call = (u8, u8, u8, u64, u64);

/// What a client saw.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientResult {
    /// Calls issued.
    pub issued: u64,
    /// Calls that ended in an error.
    pub failed: u64,
    /// Calls without an answer when the client stopped waiting.
    pub unanswered: u64,
    /// The first error, if any.
    pub first_error: Option<String>,
    /// The longest that a call was issued after its time: how busy the machine was.
    pub late_us_max: u64,
    /// Admit probability of each controlled class at the end, if admission ran.
    pub probability: Vec<f64>,
    /// The calls that were answered.
    pub calls: Vec<Call>,
}

/// What a server saw.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerResult {
    /// Calls answered.
    pub calls: u64,
    /// Bytes of their payloads.
    pub bytes: u64,
    /// Calls that said they were downgraded.
    pub downgraded: u64,
}
