//! Why an end stops.

use crate::worker::{Failure, FailureKind};
use isolane_rdma_verbs_sys::safe::VerbsError;

/// Why an end stops.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub(crate) enum EndError {
    /// The device or the library reports an error.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    #[error("the peer of {end} sent {what} {value}: {remedy}")]
    Peer {
        end: String,
        what: &'static str,
        value: String,
        remedy: &'static str,
    },
    #[error("{device}: {what}; {remedy}")]
    Device {
        device: String,
        what: String,
        remedy: &'static str,
    },
}

impl EndError {
    /// The error as a failure report, if it happens before the start.
    pub(crate) fn failure(&self) -> Failure {
        let kind = match self {
            Self::Verbs(_) | Self::Device { .. } => FailureKind::Machine,
            Self::Peer { .. } => FailureKind::Traffic,
        };
        Failure {
            kind,
            message: self.to_string().replace('\n', " "),
        }
    }
}
