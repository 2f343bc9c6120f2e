//! The connection to the daemon: one socket, one shared region.
//!
//! Problem: identify the process, receive the region, request the meters of devices, and detect the end. Method:
//! SEQPACKET messages of [`isolane_rdma_session::message`]. Every wait for the daemon is bounded by
//! [`Settings::answer_ms`], and after any failure the application runs unpaced.

use crate::descriptor::Descriptor;
use crate::settings::Settings;
use crate::table::lock;
use isolane_rdma_session::message::{
    Class, MESSAGE_MAX, NO_METER, PortAddress, TEXT_MAX, ToDaemon, ToShim,
};
use isolane_rdma_session::region::{Region, SLOTS};
use rustix::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, recvmsg, send, socket_with,
};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The part of a session that queue pairs and meters use.
#[derive(Debug)]
pub struct Shared {
    /// The shared memory.
    pub region: Region,
    /// Whether the daemon has ended or closed the session.
    pub lost: AtomicBool,
    wake: Option<Descriptor>,
    slots: Mutex<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    free: Vec<u16>,
    high: u16,
}

impl Shared {
    /// A session over a region; `wake` is the daemon's event counter.
    pub fn new(region: Region, wake: Option<OwnedFd>) -> Self {
        Self {
            region,
            lost: AtomicBool::new(false),
            wake: wake.map(Descriptor::new),
            slots: Mutex::default(),
        }
    }

    /// Wakes the daemon. Errors are ignored.
    pub fn wake(&self) {
        if let Some(wake) = &self.wake {
            let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
        }
    }

    /// Takes a slot for a queue pair. Queue pairs without a free slot share the last one.
    pub fn take_slot(&self) -> usize {
        let mut slots = lock(&self.slots);
        if let Some(index) = slots.free.pop() {
            return usize::from(index);
        }
        let index = slots.high;
        let header = &self.region.header;
        if usize::from(index) + 1 < SLOTS {
            slots.high += 1;
            header
                .slots_high
                .store(u32::from(slots.high), Ordering::Release);
        } else {
            header.slots_high.store(SLOTS as u32, Ordering::Release);
        }
        usize::from(index)
    }

    /// Frees the slot of a queue pair.
    pub fn give_slot_back(&self, index: usize) {
        if index + 1 < SLOTS {
            lock(&self.slots).free.push(index as u16);
        }
    }
}

/// The socket, and the class that the daemon assigned.
#[derive(Debug)]
pub struct Session {
    /// The part for meters and queue pairs.
    pub shared: std::sync::Arc<Shared>,
    /// The class after the operator's rules.
    pub class: Class,
    /// Session number at the daemon.
    pub number: u64,
    socket: Option<Descriptor>,
}

impl Session {
    /// A session without a socket, over the caller's region; for tests.
    pub fn local(region: Region, class: Class) -> Self {
        Self {
            shared: std::sync::Arc::new(Shared::new(region, None)),
            class,
            number: 0,
            socket: None,
        }
    }

    /// Connects and sends `Hello`. The error says why there is no session.
    pub fn begin(settings: &Settings) -> Result<Self, String> {
        let path = settings.socket.display();
        let problem = |what: &str, error: rustix::io::Errno| format!("{what} {path}: {error}");
        let socket = socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .map(Descriptor::new)
        .map_err(|error| problem("cannot make a socket for", error))?;
        let patience = Some(Duration::from_millis(settings.answer_ms));
        for which in [Timeout::Send, Timeout::Recv] {
            set_socket_timeout(&socket, which, patience)
                .map_err(|error| problem("cannot bound the wait for", error))?;
        }
        let address = SocketAddrUnix::new(&settings.socket)
            .map_err(|error| problem("cannot address", error))?;
        connect(&socket, &address).map_err(|error| problem("no daemon answers at", error))?;
        let hello = ToDaemon::Hello {
            class: settings.class,
            weight: settings.weight,
            tenant: settings.tenant.clone(),
            program: program(),
        };
        send(&socket, &hello.encode(), SendFlags::NOSIGNAL)
            .map_err(|error| problem("cannot send Hello to the daemon at", error))?;
        let (answer, files) = receive(&socket, RecvFlags::empty())
            .map_err(|error| format!("the daemon at {path} does not answer: {error}"))?;
        match answer {
            ToShim::Welcome {
                session,
                region_bytes: _,
                class,
            } => {
                let mut files = files.into_iter();
                let memory = files.next().ok_or("the daemon sent no shared memory")?;
                let region = Region::map(&memory).map_err(|error| error.to_string())?;
                Ok(Self {
                    shared: std::sync::Arc::new(Shared::new(region, files.next())),
                    class,
                    number: session,
                    socket: Some(socket),
                })
            }
            ToShim::Refused { reason } => Err(format!(
                "the daemon at {path} rejected this process: {reason}"
            )),
            other => Err(format!("the daemon at {path} answered {other:?} to Hello")),
        }
    }

    /// Requests the meters of a device; `None` if it is not served or the daemon fails.
    pub fn open(&self, device: &str) -> Option<[u16; 2]> {
        let device = device.to_owned();
        let meters = self.request(&ToDaemon::Open { device })?;
        meters
            .iter()
            .all(|meter| *meter != NO_METER)
            .then_some(meters)
    }

    /// Requests the meter of READs from a port; `None` if the daemon has no more or fails.
    pub fn open_reads(&self, device: &str, source: PortAddress) -> Option<u16> {
        let device = device.to_owned();
        let [_, meter] = self.request(&ToDaemon::OpenReads { device, source })?;
        (meter != NO_METER).then_some(meter)
    }

    fn request(&self, message: &ToDaemon) -> Option<[u16; 2]> {
        let socket = self.socket.as_ref()?;
        send(socket, &message.encode(), SendFlags::NOSIGNAL).ok()?;
        // A `Look` may come in between. Any other message is a protocol error.
        for _ in 0..1_000 {
            match receive(socket, RecvFlags::empty()).ok()?.0 {
                ToShim::Opened {
                    outgoing,
                    remote_read,
                } => return Some([outgoing, remote_read]),
                ToShim::Look => {}
                _ => return None,
            }
        }
        None
    }

    /// Reads the daemon's messages; false when the daemon has ended.
    pub fn listen(&self) -> bool {
        let Some(socket) = self.socket.as_ref() else {
            return !self.shared.lost.load(Ordering::Relaxed);
        };
        loop {
            match receive(socket, RecvFlags::DONTWAIT) {
                Ok((ToShim::Look, _)) => {}
                Err(ReceiveError::Kernel(rustix::io::Errno::AGAIN)) => return true,
                _ => return false,
            }
        }
    }

    /// The socket, for `ppoll`.
    pub fn socket(&self) -> Option<RawFd> {
        let socket = self.socket.as_ref();
        socket.map(|socket| socket.as_fd().as_raw_fd())
    }
}

/// Why no message was received.
#[derive(Debug)]
enum ReceiveError {
    Kernel(rustix::io::Errno),
    End,
    Message(isolane_rdma_session::message::MessageError),
}

impl std::fmt::Display for ReceiveError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Kernel(rustix::io::Errno::AGAIN) => formatter.write_str("time is over"),
            Self::Kernel(error) => write!(formatter, "{error}"),
            Self::End => formatter.write_str("it closed the connection"),
            Self::Message(error) => write!(formatter, "{error}"),
        }
    }
}

fn receive(socket: impl AsFd, flags: RecvFlags) -> Result<(ToShim, Vec<OwnedFd>), ReceiveError> {
    let mut bytes = [0u8; MESSAGE_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let count = loop {
        let answer = recvmsg(
            &socket,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut ancillary,
            flags | RecvFlags::CMSG_CLOEXEC,
        );
        match answer {
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(ReceiveError::Kernel(error)),
            Ok(received) => break received.bytes,
        }
    };
    let mut files = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            files.extend(rights);
        }
    }
    if count == 0 {
        return Err(ReceiveError::End);
    }
    let message = ToShim::decode(&bytes[..count]).map_err(ReceiveError::Message)?;
    Ok((message, files))
}

/// The program's name without control characters.
fn program() -> String {
    let name = std::env::args_os().next().unwrap_or_default();
    let name = std::path::Path::new(&name)
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    name.chars()
        .filter(|character| !character.is_control())
        .take(TEXT_MAX / 4)
        .collect()
}
