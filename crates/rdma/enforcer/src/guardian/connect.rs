//! The enforcer's client of the guardian.

use super::table::Table;
use super::{LISTENER, LISTENER_HEADER, OnDeath, POLICY, REFUSED, SHED, WELCOME, guardian_path};
use crate::arrival::{Arrival, BYTES_MAX};
use crate::error::EnforceError;
use crate::handoff;
use crate::seccomp::notify::Listener;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time until a new guardian listens.
const START_MAX: Duration = Duration::from_secs(10);
/// Longest time that an ending enforcer still occupies the guardian. Its successor retries for this time.
const ENDING_MAX: Duration = Duration::from_secs(1);
/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(5);

/// A connection to the guardian.
#[derive(Debug)]
pub struct Link {
    socket: OwnedFd,
}

/// A listener received from a sender.
#[derive(Debug)]
pub struct Handed {
    /// The seccomp listener.
    pub listener: Listener,
    /// Its row in the table of taken calls.
    pub slot: usize,
    /// Process id of the sender, from the kernel.
    pub sender: u32,
    /// User id of the sender, from the kernel.
    pub user: u32,
    /// Whether the sender may send listeners of other processes, as a container runtime does.
    pub has_authority: bool,
    /// The sender's message, if it could be parsed.
    pub arrival: Option<Arrival>,
}

impl Link {
    /// Connects to the guardian in `directory`. Starts one with `command` where none answers. Fails if another enforcer
    /// stays connected for one second, no guardian can be started, or the permission is missing.
    pub fn open(
        directory: &Path,
        command: &[OsString],
        on_death: OnDeath,
    ) -> Result<(Self, Table), EnforceError> {
        let path = guardian_path(directory);
        let failed = |source| EnforceError::Guardian {
            path: path.clone(),
            source,
        };
        let begun = Instant::now();
        let (socket, memory) = loop {
            let socket = reach_or_start(&path, command).map_err(failed)?;
            if let Some(memory) = welcome(&socket).map_err(failed)? {
                break (socket, memory);
            }
            if begun.elapsed() > ENDING_MAX {
                return Err(EnforceError::Busy { path });
            }
            std::thread::sleep(PAUSE);
        };
        let table = Table::open(memory).map_err(failed)?;
        let policy = [POLICY, u8::from(on_death == OnDeath::Closed)];
        handoff::send(&socket, &policy, &[]).map_err(failed)?;
        Ok((Self { socket }, table))
    }

    /// Reports to the guardian that another process takes the calls of the listener in `slot`.
    pub fn shed(&self, slot: usize) -> io::Result<()> {
        let mut message = vec![SHED];
        message.extend((slot as u32).to_le_bytes());
        handoff::send(&self.socket, &message, &[])
    }

    /// Receives the next listener; blocks. `None` when the guardian has ended.
    pub fn receive(&self) -> io::Result<Option<Handed>> {
        let mut buffer = vec![0; LISTENER_HEADER + BYTES_MAX];
        loop {
            let (bytes, descriptors) = match handoff::receive(&self.socket, &mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            let message = &buffer[..bytes];
            if message.is_empty() {
                return Ok(None);
            }
            let listener = descriptors
                .into_iter()
                .find_map(|fd| Listener::adopt(fd).ok());
            let (Some(listener), true) =
                (listener, message[0] == LISTENER && bytes >= LISTENER_HEADER)
            else {
                continue;
            };
            let number = |at: usize| {
                let bytes = message[at..at + 4].try_into().expect("four bytes");
                u32::from_le_bytes(bytes)
            };
            return Ok(Some(Handed {
                listener,
                slot: number(1) as usize,
                sender: number(5),
                user: number(9),
                has_authority: message[13] == 1,
                arrival: Arrival::parse(&message[LISTENER_HEADER..]).ok(),
            }));
        }
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn reach(path: &Path) -> io::Result<OwnedFd> {
    let socket = socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Connects to the guardian; starts one with `command` where none answers.
fn reach_or_start(path: &Path, command: &[OsString]) -> io::Result<OwnedFd> {
    match reach(path) {
        Err(error) if error.kind() != io::ErrorKind::PermissionDenied => start(command)?,
        answer => return answer,
    }
    let begun = Instant::now();
    loop {
        match reach(path) {
            Err(_) if begun.elapsed() <= START_MAX => std::thread::sleep(PAUSE),
            answer => return answer,
        }
    }
}

/// Receives the table's memory; `None` when the guardian has another enforcer.
fn welcome(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut buffer = [0; 256];
    let (bytes, descriptors) = handoff::receive(socket, &mut buffer)?;
    match buffer[..bytes].split_first() {
        Some((&WELCOME, _)) => Ok(descriptors.into_iter().next()),
        Some((&REFUSED, reason)) => {
            let reason = String::from_utf8_lossy(reason).into_owned();
            Err(io::Error::new(io::ErrorKind::PermissionDenied, reason))
        }
        _ => Ok(None),
    }
}

/// Starts the guardian in its own process group, so a terminal's signal stops only the enforcer.
fn start(command: &[OsString]) -> io::Result<()> {
    let (program, arguments) = command
        .split_first()
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut child = Command::new(program)
        .args(arguments)
        .process_group(0)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    // Collects the guardian's exit status, so that it does not stay a zombie.
    std::thread::Builder::new()
        .name("isolane-guard".to_owned())
        .spawn(move || child.wait())?;
    Ok(())
}
