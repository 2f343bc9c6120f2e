//! What can go wrong between an operator and enforcement.

use isolane_common_linux::HostError;
use std::io;
use std::path::PathBuf;

/// Why something cannot be enforced.
#[derive(Debug, thiserror::Error)]
pub enum EnforceError {
    /// No guardian.
    #[error("cannot reach the guardian at {}: {source}; run as root, or name a directory of yours with --directory", path.display())]
    Guardian {
        /// Its socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A second enforcer.
    #[error("another enforcer is connected to the guardian at {}: stop it first", path.display())]
    Busy {
        /// The guardian's socket.
        path: PathBuf,
    },
    /// A kernel or machine without the filter.
    #[error("control verbs cannot be trapped here: {source}{}", remedy(.source))]
    Filter {
        /// Why.
        source: io::Error,
    },
    /// An architecture whose calling conventions are not known.
    #[error("control verbs cannot be trapped on {architecture}: x86_64 and aarch64 only")]
    Architecture {
        /// This one.
        architecture: &'static str,
    },
    /// Nobody to hand a listener to.
    #[error("no enforcer at {}; start `isolane rdma enforce` first, or leave --enforce out", path.display())]
    NoEnforcer {
        /// Where it should listen.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The command does not run.
    #[error("cannot run `{command}`")]
    Command {
        /// The program.
        command: String,
        /// Why.
        source: io::Error,
    },
    /// A selector or option that names nothing.
    #[error("{0}")]
    BadInput(String),
    /// Nothing to share.
    #[error("this machine has no RDMA device; `isolane rdma doctor` says what is missing")]
    NoDevice,
    /// The host.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The system lacks something we need.
    #[error("{action}: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// Why.
        source: io::Error,
    },
}

impl EnforceError {
    /// Whether the question was wrong, rather than the machine.
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
