//! All targets, by who writes the bytes.

pub mod files;
pub mod kernel;
pub mod messages;
pub mod shared;

use crate::Target;

/// Every target.
pub const ALL: [&[Target]; 4] = [
    messages::TARGETS,
    files::TARGETS,
    kernel::TARGETS,
    shared::TARGETS,
];

/// The text in the bytes, with replacements for what is no text.
fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}
