//! What can go wrong between a device and its programs.

use std::io;
use std::path::PathBuf;

/// Why the programs cannot be loaded, attached, read or removed.
#[derive(Debug, thiserror::Error)]
pub enum EbpfError {
    /// Settings that no device can have.
    #[error("{0}")]
    BadInput(String),
    /// The kernel or its policy says no.
    #[error(
        "the kernel refuses BPF programs: {reason}; run as root (CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON) on Linux 6.0 or newer with BTF"
    )]
    Refused {
        /// What it said.
        reason: String,
    },
    /// Something already has this place.
    #[error("{} holds programs already: detach them first, or open them", path.display())]
    Exists {
        /// The directory of pins.
        path: PathBuf,
    },
    /// Nothing was loaded here.
    #[error("no programs at {}: attach first", path.display())]
    Absent {
        /// The directory of pins.
        path: PathBuf,
    },
    /// Pins of another version of this crate.
    #[error("{} holds programs of another version ({detail}): detach with the version that attached them, or remove the directory", path.display())]
    OtherVersion {
        /// The directory of pins.
        path: PathBuf,
        /// What differs.
        detail: String,
    },
    /// Called in another network namespace than the device's.
    #[error("the device of {} is in another network namespace: run this command there", path.display())]
    OtherNamespace {
        /// The directory of pins.
        path: PathBuf,
    },
    /// A file or directory.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A request to the kernel.
    #[error("cannot {action}: {source}")]
    Kernel {
        /// What was tried.
        action: String,
        /// Why.
        source: io::Error,
    },
    /// More containers than the table holds.
    #[error("no room for another container: {most} have weights already; remove one")]
    Containers {
        /// How many fit.
        most: usize,
    },
}

impl EbpfError {
    pub(crate) fn kernel(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let action = action.into();
        move |source| Self::Kernel { action, source }
    }
}
