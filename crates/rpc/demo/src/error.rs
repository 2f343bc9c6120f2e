//! What stops the lab, by whose fault.

/// Why the lab gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// An option has a value that cannot be.
    #[error("{0}")]
    Input(String),
    /// This machine lacks something; the message says what to do.
    #[error("{0}")]
    Machine(String),
    /// A program of the lab ended early or spoke nonsense.
    #[error("the {language} {role} {problem}; its last words: {words}")]
    Program {
        /// In which language.
        language: &'static str,
        /// Client or server.
        role: &'static str,
        /// What it did.
        problem: String,
        /// The end of what it wrote on stderr.
        words: String,
    },
    /// Ctrl-C.
    #[error("interrupted; the lab's namespaces are removed")]
    Interrupted,
}

impl From<isolane_common_linux::command::CommandError> for LabError {
    fn from(error: isolane_common_linux::command::CommandError) -> Self {
        Self::Machine(error.to_string())
    }
}
