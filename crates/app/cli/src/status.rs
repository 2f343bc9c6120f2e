//! Exit codes, so scripts can distinguish wrong usage from a full disk.

use isolane_common_toml_input::error::{CommandError, InputError};
use isolane_rpc_policy::queueing::QueueingError;
use isolane_study_audit::AuditError;
use isolane_study_explain::ExplainError;
use isolane_study_hunt::HuntError;
use isolane_study_recommend::RecommendError;
use isolane_study_testbed::TestbedError;
use std::io;
use std::process::ExitCode;

/// How a command ended without an error.
#[cfg_attr(
    not(feature = "rdma-hosts"),
    allow(dead_code, reason = "some endings are those of programs on hosts")
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Done,
    /// Done, and the answer is no.
    No,
    /// Done, and the machine lacks what the command is about; the output says what.
    Missing,
    /// Stopped by the user; what was done is written.
    Interrupted,
    /// The machine cannot; why is said already.
    Machine,
    /// Another program's status, or what shells use in its place.
    Exit(u8),
}

/// Wrong usage that no parser below reports.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BadInput(pub(crate) String);

const FAILED: u8 = 1;
/// Wrong usage or bad input.
pub(crate) const BAD_INPUT: u8 = 2;
const MACHINE: u8 = 3;
/// 128 plus SIGINT, as shells report it.
pub(crate) const INTERRUPTED: u8 = 130;

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        match status {
            Status::Done => Self::SUCCESS,
            Status::No => Self::from(1),
            Status::Missing => Self::from(MACHINE),
            Status::Interrupted => Self::from(INTERRUPTED),
            Status::Machine => Self::from(MACHINE),
            Status::Exit(code) => Self::from(code),
        }
    }
}

/// The exit code of `error`, by what it was at its root.
pub(crate) fn exit_code(error: &anyhow::Error) -> u8 {
    let bad = error.chain().any(|cause| {
        cause.is::<BadInput>()
            || cause.is::<InputError>()
            || cause.is::<CommandError>()
            || cause.downcast_ref().is_some_and(is_bad_audit)
            || cause.downcast_ref().is_some_and(is_bad_question)
            || cause.downcast_ref().is_some_and(is_bad_hunt)
            || cause.is::<ExplainError>()
            || cause.is::<QueueingError>()
            || is_bad_for_hosts(cause)
            || cause.downcast_ref().is_some_and(is_bad_scenario)
    });
    let of_testbed = |wanted: fn(&TestbedError) -> bool| {
        error.chain().any(|cause| match cause.downcast_ref() {
            Some(AuditError::Testbed(error)) => wanted(error),
            _ => cause.downcast_ref().is_some_and(wanted),
        })
    };
    match bad {
        true => BAD_INPUT,
        false if of_testbed(|error| matches!(error, TestbedError::Interrupted)) => INTERRUPTED,
        false if error.chain().any(is_interrupted_lab) => INTERRUPTED,
        false if of_testbed(|error| matches!(error, TestbedError::Failed { .. })) => FAILED,
        false => MACHINE,
    }
}

/// Bad input to a command of the features for real hosts.
#[allow(
    unused_variables,
    reason = "a program without these features has none of the errors"
)]
fn is_bad_for_hosts(cause: &(dyn std::error::Error + 'static)) -> bool {
    #[cfg(feature = "rdma-hosts")]
    {
        use isolane_common_linux::HostError;
        use isolane_rdma_enforcer::EnforceError;
        use isolane_study_testbed_verbs::identity::IdentityError;
        if matches!(cause.downcast_ref(), Some(IdentityError::Name { .. }))
            || matches!(cause.downcast_ref(), Some(HostError::NoDevice { .. }))
            || cause.downcast_ref().is_some_and(EnforceError::is_bad_input)
        {
            return true;
        }
    }
    #[cfg(feature = "nic-hosts")]
    {
        use isolane_ethernet_attach::NicError;
        use isolane_ethernet_software_card::SoftNicError;
        if cause.downcast_ref().is_some_and(NicError::is_bad_input)
            || matches!(cause.downcast_ref(), Some(SoftNicError::Input(_)))
        {
            return true;
        }
    }
    #[cfg(feature = "rpc")]
    {
        use isolane_rpc::admission::SettingsError;
        use isolane_rpc_agent::AgentError;
        use isolane_rpc_demo::error::LabError;
        if matches!(cause.downcast_ref(), Some(LabError::Input(_)))
            || cause.is::<SettingsError>()
            || cause.downcast_ref().is_some_and(AgentError::is_bad_input)
        {
            return true;
        }
    }
    false
}

/// A lab of remote procedure calls that the user stopped.
#[allow(
    unused_variables,
    reason = "a program without the feature has no such lab"
)]
fn is_interrupted_lab(cause: &(dyn std::error::Error + 'static)) -> bool {
    #[cfg(feature = "rpc")]
    {
        use isolane_rpc_demo::error::LabError;
        if matches!(cause.downcast_ref(), Some(LabError::Interrupted)) {
            return true;
        }
    }
    false
}

fn is_bad_audit(error: &AuditError) -> bool {
    match error {
        AuditError::Empty
        | AuditError::NoMatch { .. }
        | AuditError::OtherAudit { .. }
        | AuditError::Busy { .. }
        | AuditError::JournalOther { .. }
        | AuditError::Tenants { .. }
        | AuditError::JournalVersion { .. }
        | AuditError::JournalDamaged { .. } => true,
        AuditError::Testbed(error) => is_bad_scenario(error),
        AuditError::Read { .. }
        | AuditError::Write { .. }
        | AuditError::Workers { .. }
        | AuditError::NoTenant { .. } => false,
    }
}

fn is_bad_question(error: &RecommendError) -> bool {
    match error {
        RecommendError::NoNeeds { .. } | RecommendError::NoPolicy { .. } => true,
        RecommendError::Testbed(error) => is_bad_scenario(error),
        RecommendError::Workers { .. } => false,
    }
}

fn is_bad_hunt(error: &HuntError) -> bool {
    match error {
        HuntError::Testbed(error) => is_bad_scenario(error),
        HuntError::Write { .. } | HuntError::NoBound { .. } => false,
        _ => true,
    }
}

fn is_bad_scenario(error: &TestbedError) -> bool {
    match error {
        TestbedError::ProfileMismatch { .. }
        | TestbedError::Unsupported { .. }
        | TestbedError::Refused { .. }
        | TestbedError::Network { .. }
        | TestbedError::Declined { .. } => true,
        TestbedError::Unavailable { .. }
        | TestbedError::Failed { .. }
        | TestbedError::Interrupted
        | TestbedError::Broken { .. } => false,
    }
}

/// True when the reader of our output has gone (`isolane ... | head`), which is no failure.
pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let io = cause.downcast_ref::<io::Error>();
        io.is_some_and(|io| io.kind() == io::ErrorKind::BrokenPipe)
    })
}
