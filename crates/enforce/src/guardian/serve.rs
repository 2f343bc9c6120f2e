//! The guardian's process: one thread, poll(2), no parsing of what tenants say.

use super::table::{SLOTS, Table};
use super::{LISTENER, LISTENER_HEADER, OnDeath, POLICY, WELCOME, agent_path, guardian_path};
use crate::arrival::{BYTES_MAX, is_whole};
use crate::handoff;
use crate::seccomp::notify::Listener;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
    sockopt,
};
use rustix::time::Timespec;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Senders that are in the middle of their message, at most.
const SENDERS_MAX: usize = 64;
/// How long a sender may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often deadlines and full sockets are looked at.
const TICK: Duration = Duration::from_millis(100);
/// How long a guardian without tenants waits for its first enforcer.
const ALONE_MAX: Duration = Duration::from_secs(10);

struct Kept {
    listener: Listener,
    /// The message for the enforcer.
    message: Vec<u8>,
    sent: bool,
}

struct Sender {
    socket: OwnedFd,
    since: Instant,
    bytes: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

struct Guardian {
    directory: PathBuf,
    agents: OwnedFd,
    enforcers: OwnedFd,
    enforcer: Option<OwnedFd>,
    on_death: OnDeath,
    senders: Vec<Sender>,
    kept: Vec<Option<Kept>>,
    next: usize,
    table: Table,
    alone_since: Option<Instant>,
}

/// Guards until no tenant and no enforcer are left. The sockets lie in `directory`.
///
/// # Errors
/// When the sockets cannot be made, for example because another guardian has them.
pub fn serve(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let agents = listening(&agent_path(directory), SocketType::STREAM, 0o666)?;
    let enforcers = listening(&guardian_path(directory), SocketType::SEQPACKET, 0o600)?;
    let mut guardian = Guardian {
        directory: directory.to_owned(),
        agents,
        enforcers,
        enforcer: None,
        on_death: OnDeath::Open,
        senders: Vec::new(),
        kept: Vec::new(),
        next: 0,
        table: Table::create()?,
        alone_since: Some(Instant::now()),
    };
    while !guardian.is_done() {
        guardian.round()?;
    }
    Ok(())
}

/// A socket that listens at `path`; a stale one there is replaced, one that answers is not.
fn listening(path: &Path, kind: SocketType, mode: u32) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let probe = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    if rustix::net::connect(&probe, &address).is_ok() {
        return Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            format!("somebody answers at {} already", path.display()),
        ));
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let socket = socket_with(AddressFamily::UNIX, kind, flags, None)?;
    bind(&socket, &address)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    listen(&socket, SENDERS_MAX as i32)?;
    Ok(socket)
}

impl Guardian {
    fn is_done(&self) -> bool {
        self.alone_since
            .is_some_and(|since| since.elapsed() > ALONE_MAX || self.next > 0)
            && self.enforcer.is_none()
            && self.senders.is_empty()
            && self.kept.iter().all(Option::is_none)
    }

    fn round(&mut self) -> io::Result<()> {
        let answers = self.enforcer.is_none() && self.on_death == OnDeath::Open;
        let wanted = match answers {
            true => PollFlags::IN,
            false => PollFlags::empty(),
        };
        let mut places = Vec::new();
        let mut polled = vec![
            PollFd::new(&self.agents, PollFlags::IN),
            PollFd::new(&self.enforcers, PollFlags::IN),
        ];
        polled.extend(
            self.enforcer
                .iter()
                .map(|socket| PollFd::new(socket, PollFlags::IN)),
        );
        polled.extend(
            self.senders
                .iter()
                .map(|sender| PollFd::new(&sender.socket, PollFlags::IN)),
        );
        for (place, kept) in self.kept.iter().enumerate() {
            if let Some(kept) = kept {
                places.push(place);
                polled.push(PollFd::new(&kept.listener, wanted));
            }
        }
        let tick = Timespec::try_from(TICK).expect("a tenth of a second");
        match poll(&mut polled, Some(&tick)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let flags: Vec<PollFlags> = polled.iter().map(PollFd::revents).collect();
        drop(polled);
        let mut flags = flags.into_iter();
        let mut next = || flags.next().unwrap_or(PollFlags::empty());
        let (agent, newcomer) = (next(), next());
        let from_enforcer = match self.enforcer {
            Some(_) => next(),
            None => PollFlags::empty(),
        };
        let from_senders: Vec<PollFlags> = self.senders.iter().map(|_| next()).collect();
        for &place in &places {
            self.listener_ready(place, next());
        }
        if !from_enforcer.is_empty() {
            self.hear_enforcer();
        }
        self.hear_senders(&from_senders);
        if !agent.is_empty() {
            self.accept_sender();
        }
        if !newcomer.is_empty() {
            self.accept_enforcer();
        }
        self.pass_on();
        Ok(())
    }

    /// Lets a call go on, or drops a listener that nobody can call any more.
    fn listener_ready(&mut self, place: usize, flags: PollFlags) {
        let Some(kept) = &self.kept[place] else {
            return;
        };
        if flags.contains(PollFlags::IN) {
            if let Ok(Some(call)) = kept.listener.receive() {
                let _ = kept.listener.resume(call.id);
            }
        } else if flags.intersects(PollFlags::HUP | PollFlags::ERR) {
            self.kept[place] = None;
        }
    }

    fn accept_sender(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let Ok(socket) = accept_with(&self.agents, flags) else {
            return;
        };
        // One too many is told by a closed connection.
        if self.senders.len() < SENDERS_MAX {
            self.senders.push(Sender {
                socket,
                since: Instant::now(),
                bytes: Vec::new(),
                descriptors: Vec::new(),
            });
        }
    }

    fn hear_senders(&mut self, flags: &[PollFlags]) {
        let senders = std::mem::take(&mut self.senders);
        for (mut sender, flags) in senders.into_iter().zip(flags) {
            let over = sender.since.elapsed() > PATIENCE;
            if flags.is_empty() && !over {
                self.senders.push(sender);
                continue;
            }
            match sender.hear() {
                _ if over => {}
                Heard::More => self.senders.push(sender),
                Heard::Whole => self.keep(sender),
                Heard::Nothing => {}
            }
        }
    }

    /// Keeps what a sender handed over and tells it so.
    fn keep(&mut self, mut sender: Sender) {
        let Ok(credentials) = sockopt::socket_peercred(&sender.socket) else {
            return;
        };
        let free = (0..SLOTS)
            .map(|step| (self.next + step) % SLOTS)
            .find(|&slot| self.kept.get(slot).is_none_or(Option::is_none));
        let adopted = sender
            .descriptors
            .drain(..)
            .find_map(|fd| Listener::adopt(fd).ok());
        let (Some(slot), Some(listener)) = (free, adopted) else {
            return;
        };
        // Not the same slot again soon: the last enforcer may still write to it.
        self.next = slot + 1;
        self.table.clear(slot);
        let mut message = vec![LISTENER];
        message.extend((slot as u32).to_le_bytes());
        message.extend((credentials.pid.as_raw_nonzero().get() as u32).to_le_bytes());
        message.extend(credentials.uid.as_raw().to_le_bytes());
        debug_assert_eq!(message.len(), LISTENER_HEADER);
        message.extend(&sender.bytes);
        if self.kept.len() <= slot {
            self.kept.resize_with(slot + 1, || None);
        }
        self.kept[slot] = Some(Kept {
            listener,
            message,
            sent: false,
        });
        // Runtimes do not wait for it.
        let _ = handoff::send(&sender.socket, b"k", &[]);
    }

    fn accept_enforcer(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let Ok(socket) = accept_with(&self.enforcers, flags) else {
            return;
        };
        if self.enforcer.is_some() {
            return;
        }
        if handoff::send(&socket, &[WELCOME], &[&self.table]).is_ok() {
            self.enforcer = Some(socket);
            self.alone_since = None;
            self.kept
                .iter_mut()
                .flatten()
                .for_each(|kept| kept.sent = false);
        }
    }

    fn hear_enforcer(&mut self) {
        let Some(socket) = &self.enforcer else { return };
        let mut buffer = [0; 16];
        match handoff::receive(socket, &mut buffer) {
            Ok((2, _)) if buffer[0] == POLICY => {
                self.on_death = match buffer[1] {
                    0 => OnDeath::Open,
                    _ => OnDeath::Closed,
                };
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok((0, _)) | Err(_) => self.enforcer_gone(),
            Ok(_) => {}
        }
    }

    /// The calls that it had taken go on, or stay for the next one.
    fn enforcer_gone(&mut self) {
        self.enforcer = None;
        self.alone_since = Some(Instant::now());
        self.next = self.next.max(1);
        if self.on_death == OnDeath::Closed {
            return;
        }
        for (slot, kept) in self.kept.iter().enumerate() {
            let Some(kept) = kept else { continue };
            let taken = self.table.perhaps_taken(slot);
            for id in taken.filter(|&id| kept.listener.is_waiting(id)) {
                let _ = kept.listener.resume(id);
            }
            self.table.set(slot, None, None);
        }
    }

    /// Sends the enforcer what it does not have yet, as far as its socket takes it.
    fn pass_on(&mut self) {
        let Some(socket) = &self.enforcer else { return };
        for kept in self.kept.iter_mut().flatten().filter(|kept| !kept.sent) {
            match handoff::send(socket, &kept.message, &[&kept.listener]) {
                Ok(()) => kept.sent = true,
                Err(_) => return,
            }
        }
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        let _ = fs::remove_file(agent_path(&self.directory));
        let _ = fs::remove_file(guardian_path(&self.directory));
    }
}

enum Heard {
    More,
    Whole,
    Nothing,
}

impl Sender {
    fn hear(&mut self) -> Heard {
        let mut buffer = [0; 4_096];
        match handoff::receive(self.socket.as_fd(), &mut buffer) {
            Ok((0, _)) => Heard::Nothing,
            Ok((bytes, descriptors)) => {
                self.bytes.extend(&buffer[..bytes]);
                self.descriptors.extend(descriptors);
                let too_much = self.bytes.len() > BYTES_MAX
                    || self.descriptors.len() > handoff::DESCRIPTORS_MAX;
                match () {
                    () if too_much => Heard::Nothing,
                    () if !is_whole(&self.bytes) => Heard::More,
                    () if self.descriptors.is_empty() => Heard::Nothing,
                    () => Heard::Whole,
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Heard::More,
            Err(_) => Heard::Nothing,
        }
    }
}
