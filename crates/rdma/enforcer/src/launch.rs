//! Supervises the control verbs of a program before it starts (`isolane rdma run --enforce`).
//!
//! Method: connect to the enforcer's socket, install the filter on this thread, send the listener, and wait for the
//! confirmation; the caller then execs the program. The filter survives exec, and all children inherit it. A tenant cannot remove
//! the filter.
//!
//! Without CAP_SYS_ADMIN the kernel requires `no_new_privs`: setuid programs then run without the bit.
//!
//! Limits: one listener above a process ([`EnforceError::Filter`] reports a second one). Filters are per thread: call
//! this module in a program with one thread, or from the thread that calls exec.

use crate::arrival::Arrival;
use crate::error::EnforceError;
use crate::guardian::agent_path;
use crate::handoff;
use crate::seccomp::filter::{RDMA_VERBS_IOCTL, conventions, program};
use crate::seccomp::notify::install;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with, sockopt};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Longest wait for the guardian's confirmation.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// How to start a program.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Directory of the guardian's sockets.
    pub directory: PathBuf,
    /// The tenant that the process claims. It counts only for tenants that have no other condition.
    pub tenant: Option<String>,
}

/// Supervises the calling thread and everything that it starts from now on. Fails if no enforcer runs, or the filter
/// cannot be installed.
pub fn supervise_self(launch: &Launch) -> Result<(), EnforceError> {
    let Some(conventions) = conventions() else {
        return Err(EnforceError::Architecture {
            architecture: std::env::consts::ARCH,
        });
    };
    let path = agent_path(&launch.directory);
    let absent = |source| EnforceError::NoEnforcer {
        path: path.clone(),
        source,
    };
    let connect = || -> io::Result<_> {
        let socket = socket_with(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(&path)?)?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(ANSWER_MAX))?;
        Ok(socket)
    };
    let socket = connect().map_err(absent)?;
    let program = program(conventions, RDMA_VERBS_IOCTL);
    let refused = |source| EnforceError::Filter { source };
    let listener = match install(&program) {
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => {
            rustix::thread::set_no_new_privs(true).map_err(|error| refused(error.into()))?;
            install(&program).map_err(refused)?
        }
        other => other.map_err(refused)?,
    };
    let message = Arrival::message(std::process::id(), launch.tenant.as_deref());
    handoff::send(&socket, &message, &[&listener]).map_err(absent)?;
    let mut answer = [0; 1];
    match handoff::receive(&socket, &mut answer).map_err(absent)? {
        (1, _) => Ok(()),
        _ => Err(absent(io::Error::other(
            "it rejected the listener; it may hold too many",
        ))),
    }
}
