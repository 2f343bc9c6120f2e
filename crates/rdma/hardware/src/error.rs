//! Errors of the half that changes the host.

use crate::setting::{Target, Value};
use isolane_common_linux::HostError;
use std::io;
use std::path::{Path, PathBuf};

/// Why settings were not made or not restored.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum HardwareError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error("the journal {}: {source}; run as root, or choose another directory with --journals", .path.display())]
    Journal {
        /// Path of the journal or its directory.
        path: PathBuf,
        source: io::Error,
    },
    #[error("the journal {}, line {line}: {detail}; restore by hand what its lines say, then remove it", .path.display())]
    Damaged {
        path: PathBuf,
        line: usize,
        detail: String,
    },
    #[error("another process changes this device now (it has the journal {}); wait until it ends", .path.display())]
    Busy { path: PathBuf },
    #[error("the journal {} is of network namespace {of}, and this is {here}; run the command in that namespace (`lsns -t net` and `nsenter`), or remove the journal if that namespace has ended", .path.display())]
    OtherNamespace {
        path: PathBuf,
        /// Inode number of the journal's namespace.
        of: u64,
        here: u64,
    },
    #[error("the {target}, which an earlier plan changed: {reason}")]
    OtherDevice {
        target: Box<Target>,
        /// Where the device is, and what to do.
        reason: String,
    },
    #[error("the {target} does not exist; run `isolane rdma plan` again")]
    Gone { target: Box<Target> },
    #[error("the {target}: wrote {wanted}, and the driver has {found}; this device cannot do it")]
    NotKept {
        target: Box<Target>,
        wanted: Box<Value>,
        found: Box<Value>,
    },
    #[error("{cause}; nothing is changed: every setting has its previous value again")]
    Restored { cause: Box<HardwareError> },
    #[error("{cause}; then the restoration failed: {restoration}; run `isolane rdma rollback`")]
    Left {
        cause: Box<HardwareError>,
        /// Why a previous value was not restored.
        restoration: String,
    },
}

impl HardwareError {
    /// The error of a journal that is opened and locked: [`Self::Busy`] where another process has the lock.
    pub(crate) fn locked(path: &Path, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::WouldBlock => Self::Busy {
                path: path.to_owned(),
            },
            _ => Self::journal(path, source),
        }
    }

    pub(crate) fn journal(path: &Path, source: io::Error) -> Self {
        Self::Journal {
            path: path.to_owned(),
            source,
        }
    }
}
