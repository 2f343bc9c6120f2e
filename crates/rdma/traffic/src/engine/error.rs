//! Why an end stops.

use crate::nodes::NoNode;
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
    #[error(transparent)]
    NoNode(#[from] NoNode),
    #[error(
        "buffers of {device} need {needed} bytes on NUMA node {node}, and {room} are free there; use fewer or smaller regions"
    )]
    NoRoom {
        device: String,
        node: u32,
        needed: u64,
        room: u64,
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
            Self::NoNode(_) | Self::NoRoom { .. } => FailureKind::Job,
            Self::Peer { .. } => FailureKind::Traffic,
        };
        Failure {
            kind,
            message: self.to_string().replace('\n', " "),
        }
    }
}
