//! Errors of runs on real devices.

use crate::target::TargetError;
use isolane_study_testbed::TestbedError;

/// Why a run on real devices gave no result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum VerbsError {
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error("{machine} has no RDMA device {device:?}; it has {known}")]
    UnknownDevice {
        machine: String,
        device: String,
        known: String,
    },
    #[error(
        "{machine} has no RDMA device; `isolane rdma doctor` there says what is missing, and Soft-RoCE makes one of any \
         network interface: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0"
    )]
    NoDevice { machine: String },
    /// The scenario or its policy needs something that this testbed cannot do.
    #[error("scenario {scenario} cannot run on {target}: {reason}")]
    Scenario {
        scenario: String,
        target: String,
        reason: String,
    },
    #[error("cannot reach the agent on {machine}: {reason}")]
    Unreachable { machine: String, reason: String },
    /// The agent said something else than expected.
    #[error("the agent on {machine}: {reason}")]
    Agent { machine: String, reason: String },
    /// A device cannot do what a tenant wants of it.
    #[error("tenant {tenant:?} on {place}: {reason}")]
    Job {
        tenant: String,
        place: String,
        reason: String,
    },
    /// A machine lacks what a worker needs: a library, a permission, memory.
    #[error("tenant {tenant:?} on {place}: {reason}")]
    Machine {
        tenant: String,
        place: String,
        reason: String,
    },
    /// Traffic broke: a worker was killed, a device was removed, a peer went.
    #[error("tenant {tenant:?} on {place}: {reason}")]
    Traffic {
        tenant: String,
        place: String,
        reason: String,
    },
    #[error("interrupted; every process of the run has been stopped")]
    Interrupted,
}

impl From<VerbsError> for TestbedError {
    fn from(error: VerbsError) -> Self {
        let reason = error.to_string();
        match error {
            VerbsError::Target(_)
            | VerbsError::UnknownDevice { .. }
            | VerbsError::Job { .. }
            | VerbsError::Scenario { .. } => Self::Declined { reason },
            VerbsError::NoDevice { .. }
            | VerbsError::Unreachable { .. }
            | VerbsError::Agent { .. }
            | VerbsError::Machine { .. } => Self::Unavailable { reason },
            VerbsError::Traffic { .. } => Self::Failed { reason },
            VerbsError::Interrupted => Self::Interrupted,
        }
    }
}
