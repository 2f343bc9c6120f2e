//! What stops the soft card, by whose fault.

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum SoftNicError {
    /// An option has a value that cannot be.
    #[error("{0}")]
    Input(String),
    /// This machine lacks something; the message says what to do.
    #[error("{0}")]
    Machine(String),
    /// A program of the testbed ended early or sent invalid output.
    #[error("`{program}` {problem}; it wrote last: {words}")]
    Program {
        program: String,
        problem: String,
        words: String,
    },
    #[error("interrupted; the namespaces and devices are removed")]
    Interrupted,
}

impl From<isolane_common_linux::command::CommandError> for SoftNicError {
    fn from(error: isolane_common_linux::command::CommandError) -> Self {
        Self::Machine(error.to_string())
    }
}

impl From<isolane_ethernet_bpf::EbpfError> for SoftNicError {
    fn from(error: isolane_ethernet_bpf::EbpfError) -> Self {
        Self::Machine(error.to_string())
    }
}
