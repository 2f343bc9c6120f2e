//! Errors of enforcement.

use isolane_common_linux::HostError;
use std::io;
use std::path::PathBuf;

/// Why something cannot be enforced.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum EnforceError {
    #[error("cannot reach the guardian at {}: {source}; run as root, or name a directory of yours with --directory", path.display())]
    Guardian { path: PathBuf, source: io::Error },
    #[error("another enforcer is connected to the guardian at {}: stop it first", path.display())]
    Busy { path: PathBuf },
    #[error("control verbs cannot be trapped here: {source}{}", remedy(.source))]
    Filter { source: io::Error },
    #[error("control verbs cannot be trapped on {architecture}: x86_64 and aarch64 only")]
    Architecture { architecture: &'static str },
    #[error("no enforcer at {}; start `isolane rdma enforce` first, or leave --enforce out", path.display())]
    NoEnforcer { path: PathBuf, source: io::Error },
    /// A selector or option that matches no object.
    #[error("{0}")]
    BadInput(String),
    #[error("this machine has no RDMA device; `isolane rdma doctor` says what is missing")]
    NoDevice,
    /// An error of the host's files or inventory.
    #[error(transparent)]
    Host(#[from] HostError),
    #[error("{action}: {source}")]
    System {
        action: &'static str,
        source: io::Error,
    },
}

impl EnforceError {
    /// Whether the input is wrong, rather than the machine.
    pub fn is_bad_input(&self) -> bool {
        matches!(self, Self::BadInput(_))
    }
}

fn remedy(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EBUSY) => {
            "; this process is already supervised by another listener (a container runtime's, or another `isolane rdma run \
             --enforce`), and the kernel allows one"
        }
        Some(libc::EINVAL | libc::ENOSYS) => "; Linux 5.5 or later is needed",
        _ => "",
    }
}
