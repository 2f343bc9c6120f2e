//! Starting a program whose control verbs are supervised: what `isolane rdma run --enforce` does last.
//!
//! Method: connect to the enforcer's socket, install the filter on this thread, hand the listener over, wait until it is
//! kept, then become the program. The filter stays through exec and is inherited by everything the program starts; a
//! tenant cannot take it off, whatever it does with `LD_PRELOAD`.
//!
//! Without CAP_SYS_ADMIN the kernel asks for `no_new_privs`: programs with the setuid bit then run without it.
//!
//! Limits: one listener above a process ([`EnforceError::Filter`] says so). Call from a program with one thread, or from
//! the thread that becomes the program: filters are per thread.

use crate::arrival::Arrival;
use crate::error::EnforceError;
use crate::guardian::agent_path;
use crate::handoff;
use crate::seccomp::filter::{RDMA_VERBS_IOCTL, conventions, program};
use crate::seccomp::notify::install;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with, sockopt};
use std::convert::Infallible;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// How long the guardian may take to say that it has the listener.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// How a program is to be started.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Where the guardian's sockets lie.
    pub directory: PathBuf,
    /// The tenant it claims to be of; counts only for tenants that are reached by name alone.
    pub tenant: Option<String>,
}

/// Puts this process under supervision and becomes `command`.
///
/// # Errors
/// When there is no enforcer, the filter cannot be installed, or the command cannot be run. Nothing of it can be undone
/// once the filter is installed, so the caller should end.
pub fn install_and_exec(launch: &Launch, command: &[OsString]) -> Result<Infallible, EnforceError> {
    let Some((name, arguments)) = command.split_first() else {
        return Err(EnforceError::BadInput("no command after --".to_owned()));
    };
    supervise_self(launch)?;
    let source = Command::new(name).args(arguments).exec();
    Err(EnforceError::Command {
        command: name.to_string_lossy().into_owned(),
        source,
    })
}

/// Puts the calling thread, and what it starts from now on, under supervision.
///
/// # Errors
/// When there is no enforcer, or the filter cannot be installed.
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
            "it did not take the listener, perhaps because it has too many",
        ))),
    }
}
