//! Errors of the half that changes the host.

use crate::setting::{Target, Value};
use isolane_common_linux::HostError;
use std::io;
use std::path::{Path, PathBuf};

/// Why settings were not made or not restored.
#[derive(Debug, thiserror::Error)]
pub enum HardwareError {
    /// The kernel rejected a request.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The journal cannot be read or written.
    #[error("the journal {}: {source}; run as root, or choose another directory with --journals", .path.display())]
    Journal {
        /// Path of the journal or its directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The journal has a line that this program did not write.
    #[error("the journal {}, line {line}: {detail}; restore by hand what its lines say, then remove it", .path.display())]
    Damaged {
        /// Path of the journal.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        detail: String,
    },
    /// Another process uses the journal.
    #[error("another process changes this card now (it has the journal {}); wait until it ends", .path.display())]
    Busy {
        /// Path of the journal.
        path: PathBuf,
    },
    /// An object of the plan does not exist.
    #[error("the {target} does not exist; run `isolane rdma plan` again")]
    Gone {
        /// The object.
        target: Box<Target>,
    },
    /// A driver accepted a value and has another one.
    #[error("the {target}: wrote {wanted}, and the driver has {found}; this card cannot do it")]
    NotKept {
        /// The object.
        target: Box<Target>,
        /// The written value.
        wanted: Box<Value>,
        /// The value that was read back.
        found: Box<Value>,
    },
    /// A setting failed, and all previous values are restored.
    #[error("{cause}; nothing is changed: every setting has its previous value again")]
    Restored {
        /// Why the setting failed.
        cause: Box<HardwareError>,
    },
    /// A setting failed, and so did the restoration.
    #[error("{cause}; then the restoration failed: {restoration}; run `isolane rdma rollback`")]
    Left {
        /// Why the setting failed.
        cause: Box<HardwareError>,
        /// Why a previous value was not restored.
        restoration: String,
    },
}

impl HardwareError {
    pub(crate) fn journal(path: &Path, source: io::Error) -> Self {
        Self::Journal {
            path: path.to_owned(),
            source,
        }
    }
}
