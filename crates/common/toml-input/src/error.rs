//! Input errors: what is wrong in a text, where, and what is allowed.
//!
//! Every message names the file, the line if known, the tenant or section, the key, the value and the remedy, and for a
//! misspelt name the nearest valid one.

use std::fmt;

/// Lowest similarity of a suggested spelling (Jaro-Winkler, 0 to 1).
const SIMILARITY_MIN: f64 = 0.7;

/// A mistake in a scenario, a catalogue or a profile.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub struct InputError {
    /// Name of the text, given by the caller.
    pub file: String,
    /// Line number, from 1.
    pub line: Option<usize>,
    /// Part of the text, such as `tenant "redis"`.
    pub place: Option<String>,
    /// The mistake.
    pub problem: Box<Problem>,
}

/// A mistake in a device profile.
pub type ProfileError = InputError;

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        f.write_str(": ")?;
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        self.problem.fmt(f)
    }
}

/// Kinds of mistakes.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum Problem {
    #[error("not valid TOML: {message}")]
    Syntax { message: String },
    #[error("unknown key {key}{}", suggestion(.nearest.as_deref(), .known))]
    UnknownKey {
        key: String,
        nearest: Option<String>,
        known: Vec<String>,
    },
    /// Parts of a policy that do not fit together or do not fit the device.
    #[error("policy {0}")]
    Policy(String),
    /// Guarantees or demands that cannot hold together, with the computation.
    #[error("{problem}")]
    Promise { problem: String },
    #[error("{key} is missing: {expected}")]
    Missing { key: String, expected: String },
    /// A value out of range, of the wrong type, in the wrong unit, or one that contradicts another.
    #[error("{key} = {value}: {expected}")]
    Value {
        key: String,
        value: String,
        /// The allowed range or form, and the remedy.
        expected: String,
    },
    /// A name that is not one of a list.
    #[error("{key} = {value}: unknown{}", suggestion(.nearest.as_deref(), .known))]
    UnknownName {
        key: String,
        value: String,
        nearest: Option<String>,
        known: Vec<String>,
    },
    /// A device profile that does not exist.
    #[error("profile = {value}: unknown{hint}")]
    UnknownProfile {
        value: String,
        /// The name that was meant, or the nearest device, and the way to add one.
        hint: String,
    },
    /// A command line that is not supported.
    #[error("{key}: {source}")]
    Command { key: String, source: CommandError },
}

/// A command line that is not supported.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{option}: {reason}{}", .nearest.as_ref().map(|name| format!("; did you mean {name}?")).unwrap_or_default())]
pub struct CommandError {
    /// The wrong program, option or argument, as written.
    pub option: String,
    /// The reason and the remedy.
    pub reason: String,
    /// The nearest valid spelling of an unknown option.
    pub nearest: Option<String>,
}

impl CommandError {
    /// Makes the error for `option`.
    pub fn new(option: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            option: option.into(),
            reason: reason.into(),
            nearest: None,
        }
    }
}

/// Most names that are listed if none is similar.
const LISTED_MAX: usize = 24;

fn suggestion(nearest: Option<&str>, known: &[String]) -> String {
    match nearest {
        Some(name) => format!("; did you mean {name}?"),
        None if known.is_empty() => "; none is allowed here".to_owned(),
        None if known.len() > LISTED_MAX => format!(
            "; must be one of {}, ... ({} in all)",
            known[..LISTED_MAX].join(", "),
            known.len()
        ),
        None => format!("; must be one of {}", known.join(", ")),
    }
}

/// The most similar member of `known`; the first of equals, `None` if none is similar.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let mut best: Option<(f64, &str)> = None;
    for name in known {
        let similarity = strsim::jaro_winkler(&word.to_lowercase(), &name.to_lowercase());
        if similarity >= SIMILARITY_MIN && best.is_none_or(|(most, _)| similarity > most) {
            best = Some((similarity, name));
        }
    }
    best.map(|(_, name)| name)
}

impl Problem {
    /// The error for a `value` of `key` that is not in `known`.
    pub fn unknown_name<'a>(
        key: &str,
        value: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let known: Vec<&str> = known.into_iter().collect();
        Self::UnknownName {
            key: key.to_owned(),
            value: format!("{value:?}"),
            nearest: nearest(value, known.iter().copied()).map(str::to_owned),
            known: known.into_iter().map(str::to_owned).collect(),
        }
    }

    /// The error for a wrong `value` of `key`; `expected` says what is allowed.
    pub fn value(key: &str, value: impl Into<String>, expected: impl Into<String>) -> Self {
        Self::Value {
            key: key.to_owned(),
            value: value.into(),
            expected: expected.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_spelling_ignores_case_and_far_words() {
        let known = ["queue_pairs", "post_list", "depth"];
        assert_eq!(nearest("queue_pair", known), Some("queue_pairs"));
        assert_eq!(nearest("POSTLIST", known), Some("post_list"));
        assert_eq!(nearest("zzz", known), None);
    }

    #[test]
    fn a_message_names_file_line_place_key_and_remedy() {
        let error = InputError {
            file: "scenarios/x.toml".into(),
            line: Some(12),
            place: Some("tenant \"redis\"".into()),
            problem: Box::new(Problem::value("queue_pairs", "0", "must be 1 to 20000")),
        };
        assert_eq!(
            error.to_string(),
            "scenarios/x.toml:12: tenant \"redis\": queue_pairs = 0: must be 1 to 20000"
        );
    }
}
