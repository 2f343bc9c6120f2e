//! Errors of the lab, by cause.

/// Why the lab has no result.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum LabError {
    /// An option has an invalid value.
    #[error("{0}")]
    Input(String),
    /// This machine lacks something; the message says what to do.
    #[error("{0}")]
    Machine(String),
    /// A program of the lab ended early or sent an invalid document.
    #[error("the {language} {role} {problem}; it wrote last: {words}")]
    Program {
        language: &'static str,
        role: &'static str,
        problem: String,
        /// The end of its standard error.
        words: String,
    },
    #[error("interrupted; the lab's namespaces are removed")]
    Interrupted,
}

impl From<isolane_common_linux::command::CommandError> for LabError {
    fn from(error: isolane_common_linux::command::CommandError) -> Self {
        Self::Machine(error.to_string())
    }
}
