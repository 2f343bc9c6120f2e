//! The daemon over real sockets with real processes.

#[path = "support/application.rs"]
mod application;
mod hostile;
mod kills;
mod limits;
mod memory;
mod monitoring;
#[path = "../../../preload/tests/null/mod.rs"]
#[allow(missing_docs, unsafe_code)]
#[allow(clippy::unwrap_used, clippy::cast_possible_wrap)]
#[allow(clippy::undocumented_unsafe_blocks)]
mod null;
mod sessions;
mod support;
