//! Why one tenant hurts another: the causal story of one audit cell.
//!
//! The audit says that a victim lost; its counters say what was busy. This crate runs the victim alone and under attack
//! with the simulator's recorder on (`isolane_rdma_simulator::rnic::trace`), compares where each message's time went,
//! and reports a chain: what the attacker does, which resource filled up, how long the victim waited for the resource,
//! and what the wait cost.
//!
//! * `subject` - victims and attackers by name, or of a scenario;
//! * [`measure`] - the two runs;
//! * [`explanation`] - the result, as plain data;
//! * `analyse` - from traces to the result;
//! * [`words`] - resources and sentences;
//! * [`text`] - the result for a terminal.
#![forbid(unsafe_code)]

mod analyse;
pub mod explanation;
pub mod measure;
mod sentences;
mod subject;
pub mod text;
mod times;
pub mod words;

use isolane_rdma_simulator::rnic::SimError;
use isolane_study_audit::AuditError;

pub use analyse::explain;
pub use explanation::Explanation;
pub use subject::Subject;

/// Why there is nothing to explain.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum ExplainError {
    #[error(transparent)]
    Testbed(#[from] isolane_study_testbed::TestbedError),
    /// A name that is not in the catalogue or in the scenario.
    #[error(transparent)]
    Names(#[from] AuditError),
    #[error("{role} {pattern:?} matches {count} of them: name one, such as {first}")]
    Several {
        role: &'static str,
        /// The request: victim, attacker, device and policy.
        pattern: String,
        count: usize,
        first: String,
    },
    #[error(
        "no attacker is left besides the victim {0}; name another tenant as attacker, or add one to the scenario"
    )]
    NoAttacker(String),
    #[error("not on profile {profile}: {reason}; choose another profile or workload")]
    NotApplicable { profile: String, reason: String },
    /// The victim sends no messages that can be followed one by one.
    #[error(
        "victim {victim} {reason}, so its messages are not followed one by one; name a tenant with data traffic, or \
         compare two runs of `isolane sim`"
    )]
    NotFollowed {
        victim: String,
        reason: &'static str,
    },
    #[error(
        "no message of {victim} completed alone between {from_us} us and {to_us} us of measured time; raise --duration"
    )]
    NothingAlone {
        victim: String,
        from_us: f64,
        to_us: f64,
    },
    #[error(transparent)]
    Policy(#[from] SimError),
}
