//! Why an end stops.

use crate::worker::{Failure, FailureKind};
use isolane_rdma_verbs_sys::safe::VerbsError;

/// Why an end stops.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EndError {
    /// The device or the library reports an error.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// The peer's address is invalid.
    #[error("the peer of {end} sent {what} {value}: {remedy}")]
    Peer {
        /// Name of the end's workload.
        end: String,
        /// The invalid part.
        what: &'static str,
        /// Its value.
        value: String,
        /// What is allowed.
        remedy: &'static str,
    },
    /// The device cannot do the work.
    #[error("{device}: {what}; {remedy}")]
    Device {
        /// Device name.
        device: String,
        /// What is missing.
        what: String,
        /// What to do.
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
