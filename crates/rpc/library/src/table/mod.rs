//! Destinations and classes: decides on calls in a few nanoseconds on any number of threads.
//!
//! Problem: a host calls up to 100,000 destinations from many threads, and each call needs a decision. The decision
//! must not wait for another thread, must not allocate, and the memory must not grow with the number of destinations
//! ever used. Method: a destination has one cell of 128 bytes for each class, in blocks that are allocated when first
//! used. A decision hashes the name, finds the slot in an index that is read without a lock, and reads and writes the
//! cell's atomics. Only the first call to a new destination takes a lock; if another thread holds it, the call uses the
//! shared overflow cell instead of waiting. The locks of Aequitas 2, and what waits for them, are in `level`. Idle destinations leave as newcomers arrive. Units: times in nanoseconds of
//! the caller's clock, sizes in bytes; time and randomness are arguments. Limits: at most [`DESTINATIONS_MAX`]
//! destinations. Those without a place share one cell and its learned state; with Aequitas 2 their calls are admitted.
//! Counters of one destination are read one by one, so a concurrent reader may see sums that differ by the calls in
//! between. Source: Aequitas, section 3.5.1; the rules are [`isolane_rpc_policy::aequitas`]'s or
//! [`isolane_rpc_policy::aequitas2`]'s, as the settings choose.

mod cell;
mod index;
mod lease;
mod level;
mod outside;
mod parameters;
mod report;
mod roster;
mod shown;
mod ticket;

pub use cell::{BUCKET_ENDS_NS, BUCKETS, Counts};
pub use lease::{BURST_NS, GROUPS_MAX};
pub use roster::NAME_MAX;
pub use ticket::{CLASSES_MAX, Ticket};

use crate::hash::Keys;
use crate::settings::{Algorithm, Mode, Settings};
use cell::Cell;
use index::Index;
use isolane_rpc_policy::aequitas::Probability;
use lease::Lease;
use level::{Levels, host_of};
use parameters::Parameters;
use roster::{OVERFLOW, Roster};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

/// Largest number of destinations with their own cells.
pub const DESTINATIONS_MAX: usize = index::SLOTS_MAX - 1;

/// Slots of one block.
const BLOCK: usize = 256;

/// Attempts to take a lock before a newcomer uses the overflow cell, and before a call goes on without a level: a holder
/// needs about 100 ns.
const TRIES: u32 = 200;

/// A call that needs a decision.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Destination; any bytes, usually host and port.
    pub destination: &'a [u8],
    /// Requested class; 0 is the highest.
    pub class: u8,
    /// Payload, bytes.
    pub bytes: u64,
}

/// A lease of a group and class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// Rate, bytes per second.
    pub rate_bytes_per_s: u64,
    /// End of the lease, nanoseconds of the table's clock.
    pub until_ns: u64,
}

/// The decision on a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Argument of the report when the call ends.
    pub ticket: Ticket,
    /// The class to send the call in.
    pub class: u8,
    /// Whether that is lower than the requested class.
    pub downgraded: bool,
    /// Whether it would be lower outside shadow mode.
    pub would_downgrade: bool,
}

/// Why a ticket was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum TicketError {
    #[error(
        "the ticket was not given by this table; pass back the word that the decision returned"
    )]
    Foreign,
    #[error("the ticket's destination has left the table")]
    Departed,
}

/// Destinations and classes of one process.
#[derive(Debug)]
pub struct Table {
    keys: Keys,
    index: Index,
    blocks: Box<[OnceLock<Box<[Cell]>>]>,
    classes: usize,
    parameters: Parameters,
    /// With [`Algorithm::Aequitas2`].
    levels: Option<Levels>,
    /// Leases by group (from 1) and class.
    leases: Box<[Lease]>,
    /// Patterns of the groups' destinations.
    groups: Vec<String>,
    roster: Mutex<Roster>,
}

impl Table {
    /// Makes an empty table. `seed` keys its hash; use a random seed if names are from untrusted sources.
    pub fn new(settings: &Settings, seed: u64, now_ns: u64) -> Self {
        let slots = settings.destinations_max.clamp(1, DESTINATIONS_MAX);
        let classes = settings.classes.len();
        assert!(
            (2..=CLASSES_MAX).contains(&classes),
            "settings have 2 to {CLASSES_MAX} classes"
        );
        let table = Self {
            keys: Keys::new(seed),
            index: Index::new(slots),
            blocks: (0..=slots / BLOCK).map(|_| OnceLock::new()).collect(),
            classes,
            parameters: Parameters::new(settings),
            levels: (settings.algorithm == Algorithm::Aequitas2)
                .then(|| Levels::new(slots, classes - 1)),
            leases: (0..settings.groups.len() * classes)
                .map(|_| Lease::default())
                .collect(),
            groups: (settings.groups.iter())
                .map(|group| group.destinations.clone())
                .collect(),
            roster: Mutex::new(Roster::new(slots, classes, settings.metrics_destinations)),
        };
        table.renew(OVERFLOW, 0, now_ns);
        table
    }

    /// Applies new objectives, mode, MTU and idle time; classes and sizes stay.
    pub fn reconfigure(&self, settings: &Settings) {
        assert_eq!(settings.classes.len(), self.classes, "the caller checks");
        self.parameters.set(settings);
    }

    /// Decides on a call at `now_ns` with a uniformly distributed `random` number. Panics if the settings do not have
    /// the class.
    #[inline]
    pub fn decide(&self, ask: Ask<'_>, now_ns: u64, random: u32) -> Verdict {
        assert!(usize::from(ask.class) < self.classes, "no such class");
        let hash = self.keys.hash(ask.destination);
        let slot = match self.index.find(hash) {
            Some(slot) => slot,
            None => self.newcomer(ask.destination, now_ns),
        };
        self.decide_at(slot, ask, now_ns, random)
    }

    #[inline]
    fn decide_at(&self, slot: u32, ask: Ask<'_>, now_ns: u64, random: u32) -> Verdict {
        let cell = self.cell(slot, ask.class);
        let probability = cell.touch(now_ns, self.parameters.idle_after_ns());
        let last = self.parameters.last_class();
        let mode = self.parameters.mode();
        let free = mode == Mode::Off || ask.class == last;
        let leased = cell.group() != 0
            && !free
            && self.lease(cell.group(), ask.class).take(ask.bytes, now_ns);
        let mtus = self.parameters.mtus(ask.bytes);
        let admit = free
            || leased
            || match &self.levels {
                None => probability.draws(random),
                Some(levels) => {
                    let options = self.parameters.level(ask.class);
                    levels.admits((slot, ask.class), &options, now_ns, mtus)
                }
            };
        match (admit, leased) {
            (true, true) => cell.count_leased(),
            (true, false) => cell.count_admitted(),
            (false, _) => cell.count_downgraded(),
        }
        let downgraded = !admit && mode == Mode::Enforce;
        let class = if downgraded { last } else { ask.class };
        Verdict {
            ticket: Ticket::new(slot, cell.generation(), class, ask.class, mtus),
            class,
            downgraded,
            would_downgrade: !admit,
        }
    }

    /// Reports the end of a call at `now_ns`, `latency_ns` after it was passed to the transport; its class learns from
    /// it. Fails if the ticket is not from this table, or its destination has left; then nothing is counted.
    pub fn complete(
        &self,
        ticket: Ticket,
        latency_ns: u64,
        now_ns: u64,
    ) -> Result<(), TicketError> {
        self.learn(ticket, ticket.mtus(), latency_ns, now_ns)
    }

    /// The same for a call with a response of `response_bytes`: the objective covers the packets of both directions.
    /// The last packet of the response counts only when it is full, because every call has a response. Fails as
    /// [`Table::complete`] does.
    pub fn complete_read(
        &self,
        ticket: Ticket,
        response_bytes: u64,
        latency_ns: u64,
        now_ns: u64,
    ) -> Result<(), TicketError> {
        let response = self.parameters.full_mtus(response_bytes);
        let mtus = ticket.mtus().saturating_add(response);
        self.learn(ticket, mtus, latency_ns, now_ns)
    }

    fn learn(
        &self,
        ticket: Ticket,
        mtus: u32,
        latency_ns: u64,
        now_ns: u64,
    ) -> Result<(), TicketError> {
        let class = ticket.run_class();
        let cells = self.cells(ticket.slot()).ok_or(TicketError::Foreign)?;
        if usize::from(class) >= self.classes || usize::from(ticket.asked_class()) >= self.classes {
            return Err(TicketError::Foreign);
        }
        let cell = &cells[usize::from(class)];
        if cell.generation() != ticket.generation() {
            return Err(TicketError::Departed);
        }
        cell.count_latency(latency_ns);
        let Some(rule) = self.parameters.rule(class) else {
            return Ok(());
        };
        let met = rule.is_met(latency_ns, mtus);
        let learns = self.parameters.mode() != Mode::Off;
        if let Some(levels) = self.levels.as_ref().filter(|_| learns) {
            let options = self.parameters.level(class);
            let place = (ticket.slot(), class);
            if let Some(part) = levels.learn(place, &options, now_ns, (latency_ns, met)) {
                cell.show(part);
            }
            if !met {
                cell.count_missed();
            }
            return Ok(());
        }
        match met {
            true if learns => cell.raise(rule.increment, rule.window_ns, now_ns),
            true => {}
            false => {
                cell.count_missed();
                if learns {
                    cell.lower(rule.decrement_per_mtu, mtus, rule.floor);
                }
            }
        }
        Ok(())
    }

    /// Reports the end of a call without an answer at `now_ns`, `elapsed_ns` after it was passed to the transport: by
    /// its deadline, by cancellation or with its connection. `elapsed_ns` is a lower bound of its latency: beyond the
    /// objective it counts as a miss, below it counts as nothing. Returns whether it counted as a miss. Fails as
    /// [`Table::complete`] does.
    pub fn give_up(
        &self,
        ticket: Ticket,
        elapsed_ns: u64,
        now_ns: u64,
    ) -> Result<bool, TicketError> {
        let rule = self.parameters.rule(ticket.run_class());
        let missed = rule.is_some_and(|rule| !rule.is_met(elapsed_ns, ticket.mtus()));
        if missed {
            self.complete(ticket, elapsed_ns, now_ns)?;
        }
        Ok(missed)
    }

    /// Removes a destination. Returns whether it was present.
    pub fn forget(&self, destination: &[u8]) -> bool {
        let hash = self.keys.hash(destination);
        let mut roster = self.roster();
        let Some(slot) = self.index.find(hash) else {
            return false;
        };
        self.evict(&mut roster, slot);
        true
    }

    /// Removes all destinations that are idle at `now_ns`; returns their number.
    pub fn sweep(&self, now_ns: u64) -> usize {
        let idle_after_ns = self.parameters.idle_after_ns();
        let mut roster = self.roster();
        let idle: Vec<u32> = roster
            .seats()
            .map(|(slot, _)| slot)
            .filter(|&slot| {
                let last = self.cells_of(slot).iter().map(Cell::last_call_ns).max();
                now_ns.saturating_sub(last.unwrap_or(0)) > idle_after_ns
            })
            .collect();
        for &slot in &idle {
            self.evict(&mut roster, slot);
        }
        idle.len()
    }

    /// Number of destinations with their own cells.
    pub fn len(&self) -> usize {
        self.roster().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The admit probability of a destination and class; `None` for an unknown destination.
    pub fn probability(&self, destination: &[u8], class: u8) -> Option<Probability> {
        let slot = self.index.find(self.keys.hash(destination))?;
        self.cells(slot)?
            .get(usize::from(class))
            .map(Cell::probability)
    }

    /// The counters of a destination and class; `None` for an unknown destination.
    pub fn counts(&self, destination: &[u8], class: u8) -> Option<Counts> {
        let slot = self.index.find(self.keys.hash(destination))?;
        self.cells(slot)?.get(usize::from(class)).map(Cell::counts)
    }

    /// Number of classes.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Whether decisions need the exact time: the time of a probability's decision may be some milliseconds late.
    pub(crate) fn needs_exact_time(&self) -> bool {
        self.levels.is_some()
    }

    /// The current mode.
    pub fn mode(&self) -> Mode {
        self.parameters.mode()
    }

    /// Gives a new destination a slot without waiting for the roster.
    #[cold]
    fn newcomer(&self, name: &[u8], now_ns: u64) -> u32 {
        let Some(mut roster) = self.try_roster() else {
            return OVERFLOW;
        };
        let hash = self.keys.hash(name);
        if let Some(slot) = self.index.find(hash) {
            return slot;
        }
        let idle_after_ns = self.parameters.idle_after_ns();
        let leaver = roster.leaver(now_ns, idle_after_ns, |slot| self.cells_of(slot));
        if let Some(slot) = leaver {
            self.evict(&mut roster, slot);
        }
        let Some(slot) = roster.take() else {
            return OVERFLOW;
        };
        self.renew(slot, self.group(name), now_ns);
        if let Some(levels) = &self.levels {
            levels.sit(slot, self.keys.hash(host_of(name)), now_ns);
        }
        roster.sit(slot, hash, name);
        self.index.insert(hash, slot);
        slot
    }

    fn evict(&self, roster: &mut Roster, slot: u32) {
        if let Some(hash) = roster.leave(slot, self.cells_of(slot)) {
            self.index.remove(hash);
            if let Some(levels) = &self.levels {
                levels.leave(slot);
            }
            // Tickets of calls in flight are void from here on.
            let generation = next_generation(self.cells_of(slot)[0].generation());
            for cell in self.cells_of(slot) {
                cell.renew(generation, 0, 0);
            }
        }
    }

    /// The group of a destination, from 1; 0 for none. The first matching pattern counts.
    fn group(&self, name: &[u8]) -> u16 {
        if self.groups.is_empty() {
            return 0;
        }
        let name = String::from_utf8_lossy(name);
        let fits = |globs: &String| isolane_common_toml_input::glob::matches(globs, &name);
        self.groups
            .iter()
            .position(fits)
            .map_or(0, |group| group as u16 + 1)
    }

    #[inline]
    fn lease(&self, group: u16, class: u8) -> &Lease {
        &self.leases[usize::from(group - 1) * self.classes + usize::from(class)]
    }

    /// Admits calls to group `group` (from 0, in the order of the settings) in `class` at this rate from `now_ns` until
    /// `until_ns`, at any admit probability. Panics if the group or class does not exist.
    pub fn set_lease(&self, group: usize, class: u8, grant: Grant, now_ns: u64) {
        self.lease(group as u16 + 1, class)
            .set(grant.rate_bytes_per_s, grant.until_ns, now_ns);
    }

    /// The lease of group `group` in `class`, which may have ended. Panics if the group or class does not exist.
    pub fn granted(&self, group: usize, class: u8) -> Grant {
        self.lease(group as u16 + 1, class).granted()
    }

    /// Bytes that calls to group `group` have requested in `class`, admitted or not. Panics if the group or class does
    /// not exist.
    pub fn asked_bytes(&self, group: usize, class: u8) -> u64 {
        self.lease(group as u16 + 1, class).asked_bytes()
    }

    /// Prepares a slot for its next destination.
    fn renew(&self, slot: u32, group: u16, now_ns: u64) {
        let generation = next_generation(self.cells_of(slot)[0].generation());
        for cell in self.cells_of(slot) {
            cell.renew(generation, group, now_ns);
        }
    }

    #[inline]
    fn cell(&self, slot: u32, class: u8) -> &Cell {
        &self.cells_of(slot)[usize::from(class)]
    }

    /// The cells of a slot from the index or the roster; the block is allocated at its first use.
    #[inline]
    fn cells_of(&self, slot: u32) -> &[Cell] {
        let slot = slot as usize;
        let block = self.blocks[slot / BLOCK]
            .get_or_init(|| (0..BLOCK * self.classes).map(|_| Cell::default()).collect());
        let begin = slot % BLOCK * self.classes;
        &block[begin..begin + self.classes]
    }

    /// The cells of a slot from an untrusted number.
    fn cells(&self, slot: u32) -> Option<&[Cell]> {
        let slot = slot as usize;
        let block = self.blocks.get(slot / BLOCK)?.get()?;
        let begin = slot % BLOCK * self.classes;
        Some(&block[begin..begin + self.classes])
    }

    /// Takes the lock and waits for it; only for threads that do not send calls.
    fn roster(&self) -> MutexGuard<'_, Roster> {
        self.roster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_roster(&self) -> Option<MutexGuard<'_, Roster>> {
        try_lock(&self.roster)
    }
}

/// Takes a lock without waiting for a thread that the kernel has suspended.
fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    for _ in 0..TRIES {
        match mutex.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
        }
    }
    None
}

fn next_generation(generation: u16) -> u16 {
    generation.wrapping_add(1).max(1)
}

#[cfg(test)]
mod tests;
