//! One process at the socket: its identity from the kernel, its messages, and its end.
//!
//! Problem: any local user may connect, send anything at any rate, and end at any instruction. Method: everything is
//! non-blocking. A connection is a *guest* until its `Hello` is answered; silent guests are disconnected. A session
//! ends when the process's pidfd or its socket reports the end, whichever is first; a child that inherited the socket
//! does not extend the session. Descriptors sent by a process are never received. A process that sends too many
//! messages is disconnected; one that signals too often is muted for a while. Cost: three file descriptors and one
//! region per session.

use crate::governor::SessionKey;
use crate::identity::Who;
use isolane_common_linux::account::Account;
use isolane_common_linux::cgroup;
use isolane_common_linux::peer::Peer;
use isolane_rdma_session::message::{MESSAGE_MAX, ToDaemon, ToShim};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv, send, sendmsg,
};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A connection.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) socket: OwnedFd,
    /// The process, from the kernel.
    pub(crate) peer: Peer,
    pub(crate) account: Account,
    /// Time of the connection, ns.
    pub(crate) since_ns: u64,
    /// Whether it opened a device.
    pub(crate) opened: bool,
    /// The process signals this event counter; from `Welcome` on.
    pub(crate) signal_counter: Option<OwnedFd>,
    /// Its session, once it exists.
    pub(crate) key: Option<SessionKey>,
    messages: Allowance,
    signals: Allowance,
    /// Whether it may send messages at any rate.
    trusted: bool,
}

/// A rate limit.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    most: u32,
    window_ns: u64,
    used: u32,
    since_ns: u64,
}

impl Allowance {
    fn new(most: u32, window_ns: u64) -> Self {
        Self {
            most,
            window_ns,
            used: 0,
            since_ns: 0,
        }
    }

    /// Counts one more; false if the limit is exceeded.
    fn take(&mut self, now_ns: u64) -> bool {
        if now_ns.saturating_sub(self.since_ns) >= self.window_ns {
            self.since_ns = now_ns;
            self.used = 0;
        }
        self.used += 1;
        self.used <= self.most
    }
}

/// Result of reading a socket.
#[derive(Debug)]
pub(crate) enum Heard {
    /// No complete message.
    Nothing,
    Message(ToDaemon),
    /// The peer has closed.
    Gone,
    /// A protocol violation; the process receives the reason.
    Nonsense(String),
}

impl Link {
    /// A new connection; the kernel identifies the peer.
    pub(crate) fn new(socket: OwnedFd, now_ns: u64) -> std::io::Result<Self> {
        let peer = Peer::of(&socket)?;
        Ok(Self {
            socket,
            account: peer.account(),
            peer,
            since_ns: now_ns,
            opened: false,
            signal_counter: None,
            key: None,
            messages: Allowance::new(MESSAGES_PER_SECOND, 1_000_000_000),
            signals: Allowance::new(SIGNALS_PER_WINDOW, SIGNAL_WINDOW_NS),
            trusted: false,
        })
    }

    /// Reads the next message.
    pub(crate) fn hear(&mut self, now_ns: u64) -> Heard {
        // One byte more than the limit reveals a packet that is too long.
        let mut buffer = [0u8; MESSAGE_MAX + 1];
        let length = match recv(&self.socket, &mut buffer, RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Heard::Gone,
            Ok((length, _)) => length,
            Err(Errno::AGAIN | Errno::INTR) => return Heard::Nothing,
            Err(_) => return Heard::Gone,
        };
        if !self.messages.take(now_ns) && !self.trusted {
            let reason = format!("more than {MESSAGES_PER_SECOND} messages in a second");
            return Heard::Nonsense(reason);
        }
        match ToDaemon::decode(&buffer[..length]) {
            Ok(message) => Heard::Message(message),
            Err(error) => Heard::Nonsense(error.to_string()),
        }
    }

    /// Removes the rate limit: the enforcer sends a table of a thousand tenants at once.
    pub(crate) fn trust(&mut self) {
        self.trusted = true;
    }

    /// Sends a message; a process that does not read loses it.
    pub(crate) fn say(&self, message: &ToShim) -> Result<(), Errno> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        send(&self.socket, &message.encode(), flags).map(drop)
    }

    /// Answers with the meters of a device, outgoing and of READs.
    pub(crate) fn open(&mut self, [outgoing, remote_read]: [u16; 2]) -> Result<(), String> {
        self.opened = true;
        let answer = ToShim::Opened {
            outgoing,
            remote_read,
        };
        self.say(&answer).map_err(|error| error.to_string())
    }

    /// Sends the start of the session with its memory and its event counter.
    pub(crate) fn welcome(&mut self, message: &ToShim, memory: OwnedFd) -> Result<(), Errno> {
        let signal_counter = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let files = [memory.as_fd(), signal_counter.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(
            control.push(SendAncillaryMessage::ScmRights(&files)),
            "there is room for two"
        );
        let bytes = message.encode();
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg(&self.socket, &[IoSlice::new(&bytes)], &mut control, flags)?;
        self.signal_counter = Some(signal_counter);
        Ok(())
    }

    /// Resets the event counter; false if the process signals too often and must be muted.
    pub(crate) fn take_signal(&mut self, now_ns: u64) -> bool {
        if let Some(signal_counter) = &self.signal_counter {
            let mut count = [0u8; 8];
            // An error means that the counter was zero.
            let _ = rustix::io::read(signal_counter, &mut count);
        }
        self.signals.take(now_ns)
    }

    /// Facts and claims about the process that sent `hello`.
    pub(crate) fn who(&self, hello: ToDaemon) -> Option<Who> {
        let ToDaemon::Hello {
            class,
            weight,
            tenant,
            program,
        } = hello
        else {
            return None;
        };
        let file = format!("/proc/{}/cgroup", self.peer.process());
        let cgroups = std::fs::read_to_string(file).unwrap_or_default();
        Some(Who {
            pid: self.peer.process(),
            user: self.peer.user(),
            account: self.account.clone(),
            cgroup: cgroup::path(&cgroups).to_owned(),
            claim: tenant,
            program,
            class,
            weight,
        })
    }

    /// The process's pidfd, which the loop watches beside the socket.
    pub(crate) fn process(&self) -> Option<BorrowedFd<'_>> {
        self.peer.pidfd()
    }
}

/// A process opens devices when it starts and needs no more messages.
const MESSAGES_PER_SECOND: u32 = 256;
/// A process without a lease signals about once a millisecond per device and direction.
const SIGNALS_PER_WINDOW: u32 = 64;
const SIGNAL_WINDOW_NS: u64 = 10_000_000;
/// How long a process that signals too often is muted.
pub(crate) const DEAF_NS: u64 = 50_000_000;
/// A guest must send `Hello` within this time.
pub(crate) const GUEST_NS: u64 = 2_000_000_000;
