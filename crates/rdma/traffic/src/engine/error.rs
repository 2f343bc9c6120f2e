//! Why an end cannot go on.

use crate::worker::{Failure, FailureKind};
use isolane_rdma_verbs_sys::safe::VerbsError;

/// Why an end cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EndError {
    /// The device or the library refuses.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// The other end's address cannot be.
    #[error("the other end of {end} sent {what} {value}: {remedy}")]
    Peer {
        /// The end's workload.
        end: String,
        /// Which part.
        what: &'static str,
        /// Its value.
        value: String,
        /// What it must be.
        remedy: &'static str,
    },
    /// The device cannot do this.
    #[error("{device}: {what}; {remedy}")]
    Device {
        /// The device.
        device: String,
        /// What is wrong.
        what: String,
        /// What to do.
        remedy: &'static str,
    },
}

impl EndError {
    /// As it is told to the coordinator when it happens before the start.
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
