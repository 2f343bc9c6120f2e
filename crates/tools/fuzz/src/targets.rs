//! All targets, by who writes the bytes.

pub mod files;
pub mod kernel;
pub mod messages;

use crate::Target;

/// Every target.
pub const ALL: [&[Target]; 3] = [messages::TARGETS, files::TARGETS, kernel::TARGETS];

/// The text in the bytes, with replacements for what is no text.
fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}
