//! Errors of runs on real devices.

use crate::target::TargetError;
use isolane_study_testbed::TestbedError;

/// Why a run on real devices gave no result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum VerbsError {
    /// The target's text.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// No such device.
    #[error("{machine} has no RDMA device {device:?}; it has {known}")]
    UnknownDevice {
        /// Where.
        machine: String,
        /// The requested name.
        device: String,
        /// What there is.
        known: String,
    },
    /// No device at all.
    #[error(
        "{machine} has no RDMA device; `isolane rdma doctor` there says what is missing, and Soft-RoCE makes one of any \
         network interface: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0"
    )]
    NoDevice {
        /// Where.
        machine: String,
    },
    /// The scenario or its policy needs something that this testbed cannot do.
    #[error("scenario {scenario} cannot run on {target}: {reason}")]
    Scenario {
        /// The scenario.
        scenario: String,
        /// The target.
        target: String,
        /// What, and the remedy.
        reason: String,
    },
    /// The other machine's agent could not be reached.
    #[error("cannot reach the agent on {machine}: {reason}")]
    Unreachable {
        /// Which.
        machine: String,
        /// Why.
        reason: String,
    },
    /// The agent said something else than expected.
    #[error("the agent on {machine}: {reason}")]
    Agent {
        /// Which.
        machine: String,
        /// What.
        reason: String,
    },
    /// A device cannot do what a tenant wants of it.
    #[error("tenant {tenant:?} on {place}: {reason}")]
    Job {
        /// Whose worker.
        tenant: String,
        /// Its device and machine.
        place: String,
        /// Why.
        reason: String,
    },
    /// A machine lacks what a worker needs: a library, a permission, memory.
    #[error("tenant {tenant:?} on {place}: {reason}")]
    Machine {
        /// Whose worker.
        tenant: String,
        /// Its device and machine.
        place: String,
        /// Why.
        reason: String,
    },
    /// Traffic broke: a worker was killed, a device was removed, a peer went.
    #[error("tenant {tenant:?} on {place}: {reason}")]
    Traffic {
        /// Whose worker.
        tenant: String,
        /// Its device and machine.
        place: String,
        /// What happened.
        reason: String,
    },
    /// The user stopped the run.
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
