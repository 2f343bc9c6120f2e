//! Why a policy or a model rejects a setting.

/// Why a policy or a model rejects a setting.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("option {name} is {value}; {remedy}")]
pub struct OptionError {
    /// The option's field name.
    pub name: &'static str,
    /// The given value.
    pub value: String,
    /// What is allowed.
    pub remedy: String,
}

impl OptionError {
    /// `name` may not be `value`; `remedy` says what to write instead.
    pub fn new(name: &'static str, value: impl ToString, remedy: impl Into<String>) -> Self {
        Self {
            name,
            value: value.to_string(),
            remedy: remedy.into(),
        }
    }

    /// Checks that no option of `options` is zero. The error names the first option that is.
    pub fn require_positive(options: &[(&'static str, u64)]) -> Result<(), Self> {
        let zero = options.iter().find(|(_, value)| *value == 0);
        zero.map_or(Ok(()), |&(name, value)| {
            Err(Self::new(name, value, "give a positive value"))
        })
    }
}
