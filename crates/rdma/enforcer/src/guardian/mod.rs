//! The guardian: a small process that keeps every listener, so that a tenant survives its enforcer.
//!
//! Problem: when the last descriptor of a listener is closed, the kernel fails trapped calls with ENOSYS, and a filter
//! cannot be taken off a process. An enforcer that is killed, stopped or upgraded would break its tenants. Method: the
//! listeners belong to a process that does next to nothing. It takes them from launchers and runtimes, keeps them, and
//! passes copies to the enforcer, with a table of the calls that the enforcer has taken ([`table`]). While no enforcer is
//! connected, control verbs go on, or wait for the next one, as the last one said ([`OnDeath`]). It ends by itself when
//! no tenant and no enforcer are left.
//!
//! * [`serve`] - the process; [`senders`] - who may hand over; [`kept`] - what is kept of whom;
//! * [`connect`] - the enforcer's end.
//!
//! Limits: when both are killed, the kernel's ENOSYS is what tenants see: closed, whatever was configured. The guardian
//! parses nothing but the end of a JSON value.

pub mod connect;
pub mod kept;
pub mod senders;
pub mod serve;
pub mod table;

pub use connect::{Handed, Link};
pub use isolane_rdma_scenario::enforcement::OnDeath;

use std::path::{Path, PathBuf};

/// Where the sockets lie unless somebody says otherwise.
pub const DIRECTORY: &str = "/run/isolane";

/// Where launchers and runtimes hand listeners over: the `listenerPath` of a seccomp profile. Its folder is the one that
/// containers may see.
pub fn agent_path(directory: &Path) -> PathBuf {
    directory.join("clients/enforce.sock")
}

/// Where the enforcer connects. Its folder is the superuser's alone.
pub fn guardian_path(directory: &Path) -> PathBuf {
    directory.join("control/guardian.sock")
}

/// First byte of a message to the enforcer: the table comes with it.
const WELCOME: u8 = b'W';
/// First byte of a message to the enforcer: it may not enforce; the reason follows.
const REFUSED: u8 = b'R';
/// First byte of a message to the enforcer: a listener comes with it; slot, process and user of the sender follow, whether
/// the sender may speak for other processes, and what the sender said.
const LISTENER: u8 = b'L';
/// First byte of a message to the guardian: what to do without an enforcer follows.
const POLICY: u8 = b'P';
/// First byte of a message to the guardian: somebody else takes the calls of the listener whose slot follows.
const SHED: u8 = b'S';
/// Bytes before what the sender said.
const LISTENER_HEADER: usize = 14;

#[cfg(test)]
mod tests;
