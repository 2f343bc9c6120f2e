//! Senders whose message is incomplete.
//!
//! Problem: any local user may connect and send nothing. Method: a sender whose complete message is already in the
//! socket takes no place. The others share [`SENDERS`] places with a limit per account. When an account's places are
//! full, its oldest sender is dropped. When all places are full, the oldest sender of the account that holds most is
//! dropped ([`Waiting`]). Silent senders therefore never block another account's sender. Limits: [`PATIENCE`] for a message;
//! [`PLAIN_BYTES_MAX`] bytes from a sender without authority, which has no container to describe.

use crate::arrival::{BYTES_MAX, is_whole};
use crate::handoff;
use isolane_common_linux::account::{Account, PlaceLimits, Waiting};
use isolane_common_linux::peer::Peer;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Places for senders with an incomplete message.
pub const SENDERS: PlaceLimits = PlaceLimits {
    total: 128,
    per_account: 8,
    reserve: 32,
    few: 2,
};
/// Longest time until a message is complete.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Longest message of a sender without authority, bytes.
pub const PLAIN_BYTES_MAX: usize = 4_096;

#[derive(Debug)]
pub(super) struct Sender {
    pub(super) socket: OwnedFd,
    pub(super) peer: Peer,
    /// Whether the sender may send listeners of other processes.
    pub(super) has_authority: bool,
    pub(super) account: Account,
    pub(super) bytes: Vec<u8>,
    pub(super) descriptors: Vec<OwnedFd>,
    since: Instant,
}

/// Result of reading a sender's socket.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// The message is still incomplete.
    More,
    /// The message is complete.
    Whole,
    /// The sender closed, failed or sent too much.
    Nothing,
}

impl Sender {
    pub(super) fn new(socket: OwnedFd, now: Instant) -> io::Result<Self> {
        let peer = Peer::of(&socket)?;
        Ok(Self {
            socket,
            has_authority: peer.check_authority().is_ok(),
            account: peer.account(),
            peer,
            bytes: Vec::new(),
            descriptors: Vec::new(),
            since: now,
        })
    }

    /// Reads the available bytes.
    pub(super) fn hear(&mut self) -> Heard {
        let mut buffer = [0; 4_096];
        match handoff::receive(self.socket.as_fd(), &mut buffer) {
            Ok((0, _)) => Heard::Nothing,
            Ok((bytes, descriptors)) => {
                self.bytes.extend(&buffer[..bytes]);
                self.descriptors.extend(descriptors);
                let most = match self.has_authority {
                    true => BYTES_MAX,
                    false => PLAIN_BYTES_MAX,
                };
                let too_much =
                    self.bytes.len() > most || self.descriptors.len() > handoff::DESCRIPTORS_MAX;
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

/// The unfinished senders, oldest first; see the module.
#[derive(Debug)]
pub(super) struct Senders {
    /// Each with its number, in the order of arrival.
    waiting: Vec<(u64, Sender)>,
    places: Waiting<u64>,
    next: u64,
}

impl Default for Senders {
    fn default() -> Self {
        Self {
            waiting: Vec::new(),
            places: Waiting::new(SENDERS),
            next: 0,
        }
    }
}

impl Senders {
    /// Adds a sender; drops others for which no place is left.
    pub(super) fn add(&mut self, sender: Sender) {
        while let Some(number) = self.places.in_the_way(&sender.account) {
            self.places.remove(number);
            self.waiting.retain(|(other, _)| *other != number);
        }
        self.places.add(self.next, sender.account.clone());
        self.waiting.push((self.next, sender));
        self.next += 1;
    }

    /// Reads the senders marked in `ready` and returns those whose message is complete. Drops senders that took too
    /// long.
    pub(super) fn hear(&mut self, ready: &[bool], now: Instant) -> Vec<Sender> {
        let mut whole = Vec::new();
        for at in (0..self.waiting.len()).rev() {
            let (_, sender) = &mut self.waiting[at];
            let is_late = now - sender.since > PATIENCE;
            let heard = match ready.get(at) {
                Some(true) => sender.hear(),
                _ => Heard::More,
            };
            match heard {
                Heard::Whole if !is_late => whole.push(self.remove(at)),
                Heard::More if !is_late => {}
                _ => drop(self.remove(at)),
            }
        }
        whole.reverse();
        whole
    }

    pub(super) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.waiting.iter().map(|(_, sender)| sender.socket.as_fd())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    fn remove(&mut self, at: usize) -> Sender {
        let (number, sender) = self.waiting.remove(at);
        self.places.remove(number);
        sender
    }
}
