//! Errors of enforcement.

use isolane_common_linux::HostError;
use std::io;
use std::path::PathBuf;

/// Why something cannot be enforced.
#[derive(Debug, thiserror::Error)]
pub enum EnforceError {
    /// The guardian cannot be reached.
    #[error("cannot reach the guardian at {}: {source}; run as root, or name a directory of yours with --directory", path.display())]
    Guardian {
        /// The guardian's socket.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// A second enforcer.
    #[error("another enforcer is connected to the guardian at {}: stop it first", path.display())]
    Busy {
        /// The guardian's socket.
        path: PathBuf,
    },
    /// The kernel has no seccomp listeners, or refuses this one.
    #[error("control verbs cannot be trapped here: {source}{}", remedy(.source))]
    Filter {
        /// The kernel's error.
        source: io::Error,
    },
    /// An architecture without known calling conventions.
    #[error("control verbs cannot be trapped on {architecture}: x86_64 and aarch64 only")]
    Architecture {
        /// Name of the architecture.
        architecture: &'static str,
    },
    /// No enforcer accepts listeners.
    #[error("no enforcer at {}; start `isolane rdma enforce` first, or leave --enforce out", path.display())]
    NoEnforcer {
        /// Path of the missing socket.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The command cannot be run.
    #[error("cannot run `{command}`")]
    Command {
        /// The program.
        command: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// A selector or option that matches no object.
    #[error("{0}")]
    BadInput(String),
    /// The machine has no RDMA device.
    #[error("this machine has no RDMA device; `isolane rdma doctor` says what is missing")]
    NoDevice,
    /// An error of the host's files or inventory.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A required system call failed.
    #[error("{action}: {source}")]
    System {
        /// What the call was for.
        action: &'static str,
        /// The kernel's error.
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
