//! A connection to the broker: one per open context, and a short one to list devices.

use crate::attributes::DeviceFacts;
use crate::wire::{
    HOST_VARIABLE, MESSAGE_MAX, PROBE, Reader, SOCKET_VARIABLE, VERSION, Writer, op, receive, send,
};
use rustix::fd::OwnedFd;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How the names of devices begin; the number of the host follows.
pub const DEVICE_PREFIX: &str = "rnic";

/// A word at a known place: the broker reads it to find out whether it may.
static PROBE_WORD: u64 = PROBE;

/// A connection; a call is an exchange of two messages.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
    buffer: Mutex<Vec<u8>>,
}

/// An answer without its error code, and the descriptor that came with it.
#[derive(Debug)]
pub struct Answer {
    bytes: Vec<u8>,
    /// The descriptor.
    pub fd: Option<OwnedFd>,
}

impl Answer {
    /// Its words after the error code.
    pub fn reader(&self) -> Reader<'_> {
        Reader::new(&self.bytes)
    }
}

/// Takes a lock that a panic elsewhere cannot make unusable.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connection {
    /// Connects to the broker that the environment names.
    pub(crate) fn new() -> Result<Self, c_int> {
        let path = std::env::var_os(SOCKET_VARIABLE).ok_or(libc::ENOSYS)?;
        let path = std::path::PathBuf::from(path);
        let address = SocketAddrUnix::new(&path).map_err(|error| error.raw_os_error())?;
        let socket = socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        );
        let socket = socket.map_err(|error| error.raw_os_error())?;
        connect(&socket, &address).map_err(|error| {
            say(&format!(
                "no emulator answers at {} ({error}): start the program with `isolane rdma emulate`",
                path.display()
            ));
            error.raw_os_error()
        })?;
        if let Ok(peer) = socket_peercred(&socket) {
            // Yama's restricted mode lets no other process read ours unless we name it.
            // SAFETY: this option takes a number and touches no memory.
            unsafe {
                libc::prctl(
                    libc::PR_SET_PTRACER,
                    peer.pid.as_raw_nonzero().get() as libc::c_ulong,
                    0,
                    0,
                    0,
                )
            };
        }
        Ok(Self {
            socket,
            buffer: Mutex::new(vec![0; MESSAGE_MAX]),
        })
    }

    /// The devices that this program may see. The error is an `errno` value: `ENOSYS` when the program does not run
    /// under `isolane rdma emulate`.
    pub fn list() -> Result<Vec<DeviceFacts>, c_int> {
        let host = std::env::var(HOST_VARIABLE).ok();
        let host = host.and_then(|text| text.parse::<u64>().ok());
        let devices = Self::list_of(host)?;
        if let (Some(host), true) = (host, devices.is_empty()) {
            say(&format!(
                "there is no host {host}: the model has fewer --hosts; give a lower --host"
            ));
        }
        Ok(devices)
    }

    /// The device of `host`, or those of all hosts.
    pub(crate) fn list_of(host: Option<u64>) -> Result<Vec<DeviceFacts>, c_int> {
        let connection = Self::new()?;
        let answer =
            connection.call(&Writer::of(&[op::LIST, VERSION, host.unwrap_or(u64::MAX)]))?;
        let mut reader = answer.reader();
        let count = reader.word().ok_or(libc::EPROTO)?;
        let facts = |_| DeviceFacts::read(&mut reader).ok_or(libc::EPROTO);
        (0..count).map(facts).collect()
    }

    /// Opens the device of `host`; its asynchronous events arrive on the descriptor. The error is an `errno` value:
    /// `EPERM` when the broker may not read this process's memory.
    pub fn open(host: u32) -> Result<(Self, OwnedFd), c_int> {
        let connection = Self::new()?;
        let probe = (&raw const PROBE_WORD).expose_provenance() as u64;
        let request = Writer::of(&[op::OPEN, VERSION, u64::from(host), probe]);
        match connection.call(&request) {
            Ok(answer) => Ok((connection, answer.fd.ok_or(libc::EPROTO)?)),
            Err(errno) => {
                if errno == libc::EPERM {
                    say(
                        "the emulator may not read this process's memory: run both as one user, and allow process_vm_readv in the container",
                    );
                }
                Err(errno)
            }
        }
    }

    /// The socket, in place of a device's file.
    pub fn descriptor(&self) -> c_int {
        self.socket.as_raw_fd()
    }

    /// Sends a request and waits for its answer. The error is the answer's `errno` value, or `EIO` when the broker has
    /// gone.
    pub fn call(&self, request: &Writer) -> Result<Answer, c_int> {
        let mut buffer = lock(&self.buffer);
        send(&self.socket, request.bytes(), None, true).map_err(|_| libc::EIO)?;
        let (length, fd) = receive(&self.socket, &mut buffer, true).map_err(|_| libc::EIO)?;
        let mut reader = Reader::new(&buffer[..length]);
        match reader.word() {
            Some(0) => Ok(Answer {
                bytes: buffer[8..length].to_vec(),
                fd,
            }),
            Some(errno) => Err(c_int::try_from(errno).unwrap_or(libc::EPROTO)),
            None => Err(libc::EIO),
        }
    }

    /// Sends a request that has no answer. Fails with `EIO` when the broker has gone.
    pub fn post(&self, request: &Writer) -> Result<(), c_int> {
        send(&self.socket, request.bytes(), None, true).map_err(|_| libc::EIO)
    }
}

/// One line for the person who started the program.
pub(crate) fn say(text: &str) {
    use std::io::Write;
    // A program whose standard error is full or closed must not end by a panic.
    let _ = writeln!(std::io::stderr(), "isolane: {text}");
}
