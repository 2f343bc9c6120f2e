//! The guardian: a small process that keeps every listener, so tenants survive the end of their enforcer.
//!
//! Problem: a filter cannot be removed from a process, and the kernel fails trapped calls with ENOSYS when the last
//! descriptor of a listener is closed. An enforcer that is killed, stopped or upgraded would break its tenants. Method:
//! the guardian receives listeners from launchers and runtimes, keeps them, and sends copies to the enforcer, with a
//! table of the calls that the enforcer has taken ([`table`]). While no enforcer is connected, control verbs go on or
//! wait, as the last enforcer configured ([`OnDeath`]). The guardian ends when no tenant and no enforcer are left.
//!
//! * [`serve`] - the process;
//! * [`custody`] - what it decides;
//! * [`senders`] - unfinished messages;
//! * [`kept`] - kept listeners;
//! * [`connect`] - the enforcer's client.
//!
//! Limits: if guardian and enforcer are both killed, control verbs fail with ENOSYS regardless of the configuration.
//! The guardian parses no message; it only detects the end of a JSON value.

pub mod connect;
pub mod custody;
pub mod kept;
pub mod senders;
pub mod serve;
pub mod table;

pub use connect::{Handed, Link};
pub use isolane_rdma_scenario::enforcement::OnDeath;

use std::path::{Path, PathBuf};

/// Default directory of the sockets.
pub const DIRECTORY: &str = "/run/isolane";

/// The socket for launchers and runtimes: the `listenerPath` of a seccomp profile. Containers may see its directory.
pub fn agent_path(directory: &Path) -> PathBuf {
    directory.join("clients/enforce.sock")
}

/// The enforcer's socket. Only the superuser may open its directory.
pub fn guardian_path(directory: &Path) -> PathBuf {
    directory.join("control/guardian.sock")
}

/// First byte of a message to the enforcer: accepted; the table's descriptor comes with it.
const WELCOME: u8 = b'W';
/// First byte of a message to the enforcer: rejected; the reason follows.
const REFUSED: u8 = b'R';
/// First byte of a message to the enforcer: a listener comes with it. Then follow the slot, the sender's process and
/// user, its authority over other processes, and its message.
const LISTENER: u8 = b'L';
/// First byte of a message to the guardian: the policy without an enforcer follows.
const POLICY: u8 = b'P';
/// First byte of a message to the guardian: the slot of a listener follows whose calls another process takes.
const SHED: u8 = b'S';
/// Bytes before the sender's message.
const LISTENER_HEADER: usize = 14;

#[cfg(test)]
mod tests;
