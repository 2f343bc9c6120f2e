//! One process at the socket: who it is by the kernel's word, what it says, and that it died.
//!
//! Problem: any local user may connect, send anything as often as it likes, and die at any instruction.
//! Method: everything is non-blocking. A connection is a *guest* until its `Hello` is answered; guests that say
//! nothing are shown out. A process's death shows in its pidfd, its departure in the end of its socket, whichever
//! comes first; a child that inherited the socket keeps nobody alive. File descriptors that somebody sends along are
//! never received. Who talks or knocks too much is shown out, or not listened to for a while.
//! Cost: three file descriptors and one region for each session.

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
    /// The process, by the kernel's word.
    pub(crate) peer: Peer,
    /// What it is counted for.
    pub(crate) account: Account,
    /// When it connected.
    pub(crate) since_ns: u64,
    /// Whether it opened a device.
    pub(crate) opened: bool,
    /// The process knocks here; from `Welcome` on.
    pub(crate) knocker: Option<OwnedFd>,
    /// Its session, once it has one.
    pub(crate) key: Option<SessionKey>,
    messages: Allowance,
    knocks: Allowance,
    /// It may talk as much as it likes.
    trusted: bool,
}

/// So many per second.
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

    /// One more; false when it is one too many.
    fn take(&mut self, now_ns: u64) -> bool {
        if now_ns.saturating_sub(self.since_ns) >= self.window_ns {
            self.since_ns = now_ns;
            self.used = 0;
        }
        self.used += 1;
        self.used <= self.most
    }
}

/// What comes from a socket.
#[derive(Debug)]
pub(crate) enum Heard {
    /// Nothing more for now.
    Nothing,
    /// A message.
    Message(ToDaemon),
    /// The other end is gone.
    Gone,
    /// It says what it may not; the reason is for the process.
    Nonsense(String),
}

impl Link {
    /// A new connection, identified by the kernel.
    pub(crate) fn new(socket: OwnedFd, now_ns: u64) -> std::io::Result<Self> {
        let peer = Peer::of(&socket)?;
        Ok(Self {
            socket,
            account: peer.account(),
            peer,
            since_ns: now_ns,
            opened: false,
            knocker: None,
            key: None,
            messages: Allowance::new(MESSAGES_PER_SECOND, 1_000_000_000),
            knocks: Allowance::new(KNOCKS_PER_WINDOW, KNOCK_WINDOW_NS),
            trusted: false,
        })
    }

    /// The next thing it says.
    pub(crate) fn hear(&mut self, now_ns: u64) -> Heard {
        // One byte more than allowed shows that a packet is too long.
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

    /// It is the enforcer: a table of a thousand tenants comes at once.
    pub(crate) fn trust(&mut self) {
        self.trusted = true;
    }

    /// Says something; a process that does not read misses it.
    pub(crate) fn say(&self, message: &ToShim) -> Result<(), Errno> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        send(&self.socket, &message.encode(), flags).map(drop)
    }

    /// Says that the session begins, with its memory and the counter on which it knocks.
    pub(crate) fn welcome(&mut self, message: &ToShim, memory: OwnedFd) -> Result<(), Errno> {
        let knocker = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let files = [memory.as_fd(), knocker.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(
            control.push(SendAncillaryMessage::ScmRights(&files)),
            "there is room for two"
        );
        let bytes = message.encode();
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg(&self.socket, &[IoSlice::new(&bytes)], &mut control, flags)?;
        self.knocker = Some(knocker);
        Ok(())
    }

    /// Takes what was knocked; false where it knocks too often to be listened to now.
    pub(crate) fn take_knock(&mut self, now_ns: u64) -> bool {
        if let Some(knocker) = &self.knocker {
            let mut count = [0u8; 8];
            // An error means that nothing was there.
            let _ = rustix::io::read(knocker, &mut count);
        }
        self.knocks.take(now_ns)
    }

    /// Everything known of the process that says `hello` of itself.
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

    /// What the loop waits for besides the socket.
    pub(crate) fn process(&self) -> Option<BorrowedFd<'_>> {
        self.peer.pidfd()
    }
}

/// A process opens devices when it starts; nobody needs more.
const MESSAGES_PER_SECOND: u32 = 256;
/// A process that has no lease knocks about once a millisecond for each device and direction.
const KNOCKS_PER_WINDOW: u32 = 64;
const KNOCK_WINDOW_NS: u64 = 10_000_000;
/// Who knocks more is not listened to for so long.
pub(crate) const DEAF_NS: u64 = 50_000_000;
/// A guest must say `Hello` in this time.
pub(crate) const GUEST_NS: u64 = 2_000_000_000;
