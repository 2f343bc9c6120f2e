//! What Palos refuses.

use super::tables::{OBJECTS_MAX, WEIGHT_MAX};
use std::fmt;

/// A group or a queue pair, for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object {
    /// A group: a tenant, or an application of one.
    Group(u32),
    /// A queue pair.
    QueuePair(u32),
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Group(number) => write!(f, "group {number}"),
            Self::QueuePair(number) => write!(f, "queue pair {number}"),
        }
    }
}

/// Why a call of the control path is refused; nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum PalosError {
    #[error("{object}: weight {weight} is not 1 to {WEIGHT_MAX}: choose a weight in this range")]
    Weight { object: Object, weight: u32 },
    #[error("{object} does not exist (numbers so far are below {numbers}): create it first")]
    Unknown { object: Object, numbers: u32 },
    #[error("group {group} has no queue pairs, so no chunk size: create a queue pair in it first")]
    NoMembers { group: u32 },
    #[error("{object} would be one more than the {OBJECTS_MAX} a table holds: destroy some first")]
    Full { object: Object },
}
