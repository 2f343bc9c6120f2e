//! What the guardian decides, without sockets and clock: which listeners it keeps, who answers their calls, and when it ends.
//!
//! Method: a state machine. [`super::serve`] tells it what happened, with the time, and polls what it has; the listeners and
//! the enforcer's connection are behind traits. `crates/tools/models` runs the same code with simulated ones under random
//! faults.

use super::kept::{Kept, NotKept, Shelf, Trap};
use super::table::Table;
use super::{LISTENER, LISTENER_HEADER, OnDeath};
use isolane_common_linux::account::Account;
use std::time::{Duration, Instant};

/// How long a guardian without tenants waits for its first enforcer.
const ALONE_MAX: Duration = Duration::from_secs(10);

/// The connection to an enforcer.
pub trait Successor<L> {
    /// Sends a listener. False: the connection is full or has ended; it is sent again.
    fn hand(&self, message: &[u8], listener: &L) -> bool;
}

/// Who sent a listener.
#[derive(Clone, Debug)]
pub struct Origin<'a> {
    /// The sending process, as the guardian's PID namespace numbers it.
    pub process: u32,
    /// The user ID of that process.
    pub user: u32,
    /// Whether it may send listeners of other processes.
    pub has_authority: bool,
    /// The account whose places the listener takes.
    pub account: Account,
    /// The message that came with the listener.
    pub bytes: &'a [u8],
}

/// What a readable listener has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A call, which no enforcer receives.
    Call(u64),
    /// Nobody calls any more.
    Ended,
    /// Another process takes its calls.
    Taken,
}

/// What an enforcer said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// What happens to calls without an enforcer.
    OnDeath(OnDeath),
    /// Another process takes the calls of the listener in this slot.
    Shed(usize),
    /// Its connection has ended.
    Gone,
}

/// See the module.
#[derive(Debug)]
pub struct Custody<L, E> {
    enforcer: Option<E>,
    on_death: OnDeath,
    kept: Shelf<L>,
    table: Table,
    alone_since: Option<Instant>,
    had_enforcer: bool,
}

impl<L: Trap, E: Successor<L>> Custody<L, E> {
    /// Keeps nothing yet.
    pub fn new(table: Table, now: Instant) -> Self {
        Self {
            enforcer: None,
            on_death: OnDeath::Open,
            kept: Shelf::default(),
            table,
            alone_since: Some(now),
            had_enforcer: false,
        }
    }

    /// The connected enforcer.
    pub fn enforcer(&self) -> Option<&E> {
        self.enforcer.as_ref()
    }

    /// The table of taken calls.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The listener in a slot.
    pub fn listener(&self, slot: usize) -> Option<&L> {
        self.kept.get(slot).map(|kept| &kept.listener)
    }

    /// The kept listeners with their slots.
    pub fn listeners(&self) -> impl Iterator<Item = (usize, &L)> {
        self.kept.iter().map(|(slot, kept)| (slot, &kept.listener))
    }

    /// Whether calls go on without an enforcer at this moment.
    pub fn resumes(&self) -> bool {
        self.enforcer.is_none() && self.on_death == OnDeath::Open
    }

    /// Whether the guardian ends, if no sender is connected.
    pub fn is_done(&self, now: Instant) -> bool {
        self.alone_since.is_some_and(|since| {
            now.saturating_duration_since(since) > ALONE_MAX
                || self.kept.was_used()
                || self.had_enforcer
        }) && self.enforcer.is_none()
            && self.kept.is_empty()
    }

    /// Keeps a listener.
    pub fn keep(&mut self, listener: L, from: Origin<'_>, now: Instant) -> Result<(), NotKept> {
        let mut message = vec![LISTENER];
        // The slot is filled in later.
        message.extend([0; 4]);
        message.extend(from.process.to_le_bytes());
        message.extend(from.user.to_le_bytes());
        message.push(u8::from(from.has_authority));
        debug_assert_eq!(message.len(), LISTENER_HEADER);
        message.extend(from.bytes);
        let kept = Kept {
            listener,
            message,
            sent: false,
            account: (!from.has_authority).then_some(from.account),
        };
        let slot = self.kept.keep(kept, now)?;
        self.table.clear(slot);
        Ok(())
    }

    /// An enforcer is connected, and gets every listener.
    pub fn connected(&mut self, enforcer: E) {
        self.enforcer = Some(enforcer);
        self.alone_since = None;
        self.kept.iter_mut().for_each(|(_, kept)| kept.sent = false);
    }

    /// Takes what the enforcer said.
    pub fn told(&mut self, told: Told, now: Instant) {
        match told {
            Told::OnDeath(on_death) => self.on_death = on_death,
            Told::Shed(slot) => self.kept.shed(slot, now),
            Told::Gone => self.enforcer_gone(now),
        }
    }

    /// The calls that an enforcer took before its end go on, or wait for the next enforcer.
    fn enforcer_gone(&mut self, now: Instant) {
        self.enforcer = None;
        self.alone_since = Some(now);
        self.had_enforcer = true;
        if self.on_death == OnDeath::Closed {
            return;
        }
        for (slot, kept) in self.kept.iter() {
            let taken = self.table.perhaps_taken(slot);
            for id in taken.filter(|&id| kept.listener.is_waiting(id)) {
                kept.listener.resume(id);
            }
            self.table.set(slot, None, None);
        }
    }

    /// Resumes a call, removes a listener without callers, and drops one whose calls another process takes.
    pub fn seen(&mut self, slot: usize, seen: Seen, now: Instant) {
        match seen {
            Seen::Call(id) => {
                if let Some(listener) = self.listener(slot) {
                    listener.resume(id);
                }
            }
            Seen::Ended => drop(self.kept.remove(slot)),
            Seen::Taken => self.kept.shed(slot, now),
        }
    }

    /// Sends pending listeners to the enforcer until its connection is full.
    pub fn pass_on(&mut self) {
        let Some(enforcer) = &self.enforcer else {
            return;
        };
        for (slot, kept) in self.kept.iter_mut().filter(|(_, kept)| !kept.sent) {
            kept.message[1..5].copy_from_slice(&(slot as u32).to_le_bytes());
            kept.sent = enforcer.hand(&kept.message, &kept.listener);
            if !kept.sent {
                return;
            }
        }
    }
}
