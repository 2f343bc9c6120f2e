//! What can be wrong with a claim, said with file, line, key, value and remedy.

use std::collections::BTreeMap;

/// Why claims could not be read or planned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum ClaimError {
    /// A claim file that is not valid.
    #[error("{file}:{line}: {message}")]
    File {
        /// Path of the file inside the repository.
        file: String,
        line: usize,
        /// What is wrong and what would be right.
        message: String,
    },
    #[error("{file}: id {id:?} is already used by {other}: ids are unique over all systems")]
    Duplicate {
        file: String,
        id: String,
        other: String,
    },
    #[error(
        "no claim matches {pattern:?}{nearest}; `isolane claims --list` shows all ids, of the systems {systems}"
    )]
    NoMatch {
        pattern: String,
        /// `, did you mean ...` or nothing.
        nearest: String,
        systems: String,
    },
    #[error(
        "no selected claim is about {kind} {number}; the selected claims have these {kind}s: {named}"
    )]
    NoFigure {
        kind: &'static str,
        number: String,
        named: String,
    },
}

/// The member of `names` closest to `wanted`, as `, did you mean "x"?`, or nothing when none is close.
pub(crate) fn nearest<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    names
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(wanted, name), name))
        .filter(|(distance, name)| *distance <= name.len().div_ceil(3).max(1))
        .min()
        .map(|(_, name)| format!(", did you mean {name:?}?"))
        .unwrap_or_default()
}

/// The number `field` of what is called `name`, in the `numbers` of `whole`, where that is `known`; none if there is no
/// such number.
pub(crate) fn number(
    numbers: &BTreeMap<String, f64>,
    (whole, known): (&str, &str),
    (name, field): (&str, &str),
) -> Result<Option<f64>, String> {
    match name == known {
        true => Ok(numbers.get(field).copied()),
        false => Err(format!(
            "{whole} has no {name:?}, but {known}: write label:{known}.{field}"
        )),
    }
}
