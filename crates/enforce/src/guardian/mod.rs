//! The guardian: a small process that keeps every listener, so that a tenant survives its enforcer.
//!
//! Problem: when the last descriptor of a listener is closed, the kernel fails trapped calls with ENOSYS, and a filter
//! cannot be taken off a process. An enforcer that is killed, stopped or upgraded would break its tenants. Method: the
//! listeners belong to a process that does next to nothing. It takes them from launchers and runtimes, keeps them, and
//! passes copies to the enforcer, with a table of the calls that the enforcer has taken ([`table`]). While no enforcer is
//! connected, control verbs go on, or wait for the next one, as the last one said ([`OnDeath`]). It ends by itself when
//! no tenant and no enforcer are left.
//!
//! * [`serve`] - the process;
//! * [`connect`] - the enforcer's end.
//!
//! Limits: when both are killed, the kernel's ENOSYS is what tenants see: closed, whatever was configured. The guardian
//! parses nothing but the end of a JSON value.

pub mod connect;
pub mod serve;
pub mod table;

pub use connect::{Handed, Link};
pub use isolane_scenario::enforcement::OnDeath;

use std::path::{Path, PathBuf};

/// Where the sockets lie unless somebody says otherwise.
pub const DIRECTORY: &str = "/run/isolane";

/// Where launchers and runtimes hand listeners over: the `listenerPath` of a seccomp profile.
pub fn agent_path(directory: &Path) -> PathBuf {
    directory.join("enforce.sock")
}

/// Where the enforcer connects.
pub fn guardian_path(directory: &Path) -> PathBuf {
    directory.join("guardian.sock")
}

/// First byte of a message to the enforcer: the table comes with it.
const WELCOME: u8 = b'W';
/// First byte of a message to the enforcer: a listener comes with it; slot, process and user of the sender follow, and
/// what the sender said.
const LISTENER: u8 = b'L';
/// First byte of a message to the guardian: what to do without an enforcer follows.
const POLICY: u8 = b'P';
/// Bytes before what the sender said.
const LISTENER_HEADER: usize = 13;

#[cfg(test)]
mod tests;
