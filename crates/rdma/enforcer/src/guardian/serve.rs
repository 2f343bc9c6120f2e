//! The guardian's process: one thread, poll(2), no parsing of messages.
//!
//! No sender can block it: sockets do not block, receiving a call is bounded ([`crate::seccomp::interrupt`]), and each
//! account has a bounded number of listeners ([`super::kept`]) and unfinished messages ([`super::senders`]). Before it
//! listens, it raises its limit of open files to the largest need, or fails.

use super::custody::{Custody, Origin, Seen, Successor, Told};
use super::senders::{Heard, SENDERS, Sender, Senders};
use super::table::{SLOTS, Table};
use super::{OnDeath, POLICY, REFUSED, SHED, WELCOME, agent_path, guardian_path};
use crate::handoff;
use crate::seccomp::interrupt::{Armed, Interrupter};
use crate::seccomp::notify::{Listener, Received};
use isolane_common_linux::open_files;
use isolane_common_linux::peer::Peer;
use isolane_common_linux::private::PrivateDirectory;
use isolane_common_linux::socket::{listen_at, make_client_folder};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, accept_with, socket_with};
use rustix::time::Timespec;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Largest number of accepted connections per round.
const ACCEPTED_PER_ROUND: usize = 16;
/// Connections that the kernel queues before they are accepted.
const BACKLOG: i32 = 128;
/// Interval at which deadlines and full sockets are checked.
const TICK: Duration = Duration::from_millis(100);
/// How long a new guardian waits for an ending one.
const ENDING_MAX: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(5);
/// Limit of open files: all listeners, all senders with their descriptors and processes, and a few of its own.
const FILES: u64 = (SLOTS + SENDERS.total * (2 + 2 * handoff::DESCRIPTORS_MAX) + 64) as u64;

struct Guardian {
    directory: PathBuf,
    agents: OwnedFd,
    enforcers: OwnedFd,
    senders: Senders,
    custody: Custody<Listener, OwnedFd>,
    interrupter: Interrupter,
    /// Whether no descriptor was left for a sender; the next accept happens after a tick.
    is_short_of_files: bool,
    /// Released last, after the sockets are closed.
    _lock: PrivateDirectory,
}

/// Serves until no tenant and no enforcer are left. The sockets are in `directory`. Fails if the sockets cannot be
/// made, for example because another guardian runs, or the limit of open files is too low.
pub fn serve(directory: &Path) -> io::Result<()> {
    open_files::raise(FILES)?;
    let (agent, control) = (agent_path(directory), guardian_path(directory));
    make_client_folder(folder_of(&agent))?;
    let lock = lock(folder_of(&control))?;
    // Agents see their socket last: from then on, an enforcer reaches this guardian and starts no second one.
    let enforcers = listening(&control, SocketType::SEQPACKET, 0o600)?;
    let agents = listening(&agent, SocketType::STREAM, 0o666)?;
    let mut guardian = Guardian {
        directory: directory.to_owned(),
        agents,
        enforcers,
        senders: Senders::default(),
        custody: Custody::new(Table::create()?, Instant::now()),
        interrupter: Interrupter::of_this_thread()?,
        is_short_of_files: false,
        _lock: lock,
    };
    while !guardian.is_done() {
        guardian.round()?;
    }
    Ok(())
}

fn folder_of(socket: &Path) -> &Path {
    socket.parent().expect("a socket is in a directory")
}

/// Locks the directory of the sockets for this guardian. Retries for one second while another guardian ends. Fails with
/// `AddrInUse` when another guardian holds the lock.
fn lock(folder: &Path) -> io::Result<PrivateDirectory> {
    let directory = PrivateDirectory::open_or_make(folder)?;
    let begun = Instant::now();
    loop {
        match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(directory),
            Err(Errno::AGAIN) if begun.elapsed() < ENDING_MAX => std::thread::sleep(PAUSE),
            Err(Errno::AGAIN) => {
                return Err(io::Error::new(
                    io::ErrorKind::AddrInUse,
                    format!("another guardian serves {} already", folder.display()),
                ));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Opens a listening socket at `path`; replaces the socket of a killed guardian.
fn listening(path: &Path, kind: SocketType, mode: u32) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, kind, flags, None)?;
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    listen_at(&socket, path, mode, BACKLOG)?;
    Ok(socket)
}

impl Guardian {
    fn is_done(&self) -> bool {
        self.senders.is_empty() && self.custody.is_done(Instant::now())
    }

    fn round(&mut self) -> io::Result<()> {
        let flags = |wanted: bool| match wanted {
            true => PollFlags::IN,
            false => PollFlags::empty(),
        };
        let answers = flags(self.custody.resumes());
        let mut polled = vec![
            PollFd::new(&self.agents, flags(!self.is_short_of_files)),
            PollFd::new(&self.enforcers, PollFlags::IN),
        ];
        let enforcer = self.custody.enforcer().into_iter();
        polled.extend(enforcer.map(|socket| PollFd::new(socket, PollFlags::IN)));
        let sockets = self.senders.sockets();
        polled.extend(sockets.map(|socket| PollFd::from_borrowed_fd(socket, PollFlags::IN)));
        let senders = polled.len();
        let listeners = self.custody.listeners();
        polled.extend(listeners.map(|(_, listener)| PollFd::new(listener, answers)));
        let slots: Vec<usize> = self.custody.listeners().map(|(slot, _)| slot).collect();
        let tick = Timespec::try_from(TICK).expect("a tenth of a second");
        match poll(&mut polled, Some(&tick)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let seen: Vec<PollFlags> = polled.iter().map(PollFd::revents).collect();
        drop(polled);
        let is_seen = |at: usize| !seen[at].is_empty();
        self.is_short_of_files = false;
        self.listeners_ready(&slots, &seen[senders..]);
        let has_enforcer = self.custody.enforcer().is_some();
        let first_sender = 2 + usize::from(has_enforcer);
        if has_enforcer && is_seen(2) {
            self.hear_enforcer();
        }
        let ready: Vec<bool> = (first_sender..senders).map(is_seen).collect();
        for sender in self.senders.hear(&ready, Instant::now()) {
            self.keep(sender);
        }
        if is_seen(0) {
            self.accept_senders();
        }
        if is_seen(1) {
            self.accept_enforcer();
        }
        self.custody.pass_on();
        Ok(())
    }

    fn listeners_ready(&mut self, slots: &[usize], flags: &[PollFlags]) {
        if flags.iter().all(|flags| flags.is_empty()) {
            return;
        }
        let bounded = self.interrupter.arm();
        for (&slot, &flags) in slots.iter().zip(flags) {
            let listener = self.custody.listener(slot);
            if let Some(seen) = listener.and_then(|listener| look(listener, flags, &bounded)) {
                self.custody.seen(slot, seen, Instant::now());
            }
        }
    }

    fn accept_senders(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        for _ in 0..ACCEPTED_PER_ROUND {
            let socket = match accept_with(&self.agents, flags) {
                Ok(socket) => socket,
                Err(error) => {
                    self.is_short_of_files = matches!(error, Errno::MFILE | Errno::NFILE);
                    return;
                }
            };
            // A sender that has ended has a closed connection.
            let Ok(mut sender) = Sender::new(socket, Instant::now()) else {
                continue;
            };
            match sender.hear() {
                Heard::More => self.senders.add(sender),
                Heard::Whole => self.keep(sender),
                Heard::Nothing => {}
            }
        }
    }

    /// Keeps a listener and confirms it to the sender. A rejected sender sees a closed connection.
    fn keep(&mut self, mut sender: Sender) {
        let adopted = sender
            .descriptors
            .drain(..)
            .find_map(|fd| Listener::adopt(fd).ok());
        let Some(listener) = adopted else { return };
        let from = Origin {
            process: sender.peer.process(),
            user: sender.peer.user(),
            has_authority: sender.has_authority,
            account: sender.account,
            bytes: &sender.bytes,
        };
        if self.custody.keep(listener, from, Instant::now()).is_ok() {
            // Runtimes do not wait for the confirmation.
            let _ = handoff::send(&sender.socket, b"k", &[]);
        }
    }

    fn accept_enforcer(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let Ok(socket) = accept_with(&self.enforcers, flags) else {
            return;
        };
        // A sender that has ended has a closed connection.
        let Ok(peer) = Peer::of(&socket) else { return };
        if let Err(reason) = peer.check_authority() {
            let mut refusal = vec![REFUSED];
            refusal.extend(reason.to_string().as_bytes());
            let _ = handoff::send(&socket, &refusal, &[]);
            return;
        }
        if self.custody.enforcer().is_some() {
            return;
        }
        if handoff::send(&socket, &[WELCOME], &[self.custody.table()]).is_ok() {
            self.custody.connected(socket);
        }
    }

    fn hear_enforcer(&mut self) {
        let Some(socket) = self.custody.enforcer() else {
            return;
        };
        let mut buffer = [0; 16];
        let told = match handoff::receive(socket, &mut buffer) {
            Ok((2, _)) if buffer[0] == POLICY => Told::OnDeath(match buffer[1] {
                0 => OnDeath::Open,
                _ => OnDeath::Closed,
            }),
            Ok((5, _)) if buffer[0] == SHED => {
                let slot = u32::from_le_bytes(buffer[1..5].try_into().expect("four bytes"));
                Told::Shed(slot as usize)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Ok((0, _)) | Err(_) => Told::Gone,
            Ok(_) => return,
        };
        self.custody.told(told, Instant::now());
    }
}

impl Successor<Listener> for OwnedFd {
    fn hand(&self, message: &[u8], listener: &Listener) -> bool {
        handoff::send(self, message, &[listener]).is_ok()
    }
}

/// What a listener with these flags has.
fn look(listener: &Listener, flags: PollFlags, bounded: &Armed<'_>) -> Option<Seen> {
    if !flags.contains(PollFlags::IN) {
        let is_ended = flags.intersects(PollFlags::HUP | PollFlags::ERR);
        return is_ended.then_some(Seen::Ended);
    }
    match listener.receive(bounded) {
        Ok(Received::Call(call)) => Some(Seen::Call(call.id)),
        Ok(Received::Taken) => Some(Seen::Taken),
        Ok(Received::Gone) | Err(_) => None,
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        let _ = fs::remove_file(agent_path(&self.directory));
        let _ = fs::remove_file(guardian_path(&self.directory));
    }
}
