//! Aequitas 2 in the table: one level for each host and class, and each destination's part of the level.
//!
//! Problem: two destinations on one host (two services) share the host's network port, and each alone sees few misses.
//! Method: [`isolane_rpc_policy::aequitas2`] decides. Its channel is a destination and class here, and its port is a host
//! and class. The host of a destination is its name without a port number, so these destinations share their evidence. A
//! channel and a port have a lock each, which a call holds for some 100 ns. A call that does not get a lock in
//! [`TRIES`](super::TRIES) attempts does not wait: it is admitted, and its end is no evidence. Only the first call to a new
//! destination waits. It empties its channels and, for a new host, its ports, so it waits for calls that still hold these
//! locks for the place's last owner. It holds the roster's lock meanwhile. Units: nanoseconds of the caller's clock; gaps in picoseconds. Memory: 72 bytes for a destination and class, 88 for a host and class, allocated
//! only with this algorithm. Limits: levels are forgotten every 100 days of the machine's clock; destinations without a slot have no level. Their calls are admitted, because one
//! rate for any number of destinations would fit none of them.

use super::{BLOCK, roster::OVERFLOW, try_lock};
use crate::hash::Hash;
use isolane_common_quantities::units::{Duration, Instant};
use isolane_rpc_policy::aequitas::{Decision, Probability};
use isolane_rpc_policy::aequitas2::{Aequitas2Options, Channel, Outcome, Port};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Blocks that are allocated when first used.
type Blocks<T> = Box<[OnceLock<Box<[T]>>]>;

#[derive(Debug)]
pub(super) struct Levels {
    classes: usize,
    /// By slot, then class.
    channels: Blocks<Mutex<Aged<Channel>>>,
    /// By slot: its host's place in `ports`.
    port_of: Box<[AtomicU32]>,
    /// By place, then class. The first place is not used.
    ports: Blocks<Shared>,
    hosts: Mutex<Hosts>,
}

/// A port, and its gap for readers without the lock.
#[derive(Debug)]
struct Shared {
    gap: AtomicU64,
    port: Mutex<Aged<Port>>,
}

/// A state with the epoch in which its times lie.
#[derive(Debug)]
struct Aged<T> {
    state: T,
    epoch: u32,
}

impl<T> Aged<T> {
    fn new(state: T, now_ns: u64) -> Self {
        let epoch = epoch(now_ns);
        Self { state, epoch }
    }

    /// The state; one of another epoch is replaced by a new one.
    fn at(&mut self, now_ns: u64, new: impl FnOnce() -> T) -> &mut T {
        if self.epoch != epoch(now_ns) {
            *self = Self::new(new(), now_ns);
        }
        &mut self.state
    }
}

/// The places of hosts, with the number of each host's destinations.
#[derive(Debug, Default)]
struct Hosts {
    places: BTreeMap<(u64, u64), (u32, u32)>,
    /// By place less one: the host.
    owners: Vec<(u64, u64)>,
    free: Vec<u32>,
}

impl Levels {
    /// For `slots` destinations with slots of their own and `classes` classes with objectives.
    pub(super) fn new(slots: usize, classes: usize) -> Self {
        fn blocks<T>(slots: usize) -> Blocks<T> {
            (0..=slots / BLOCK).map(|_| OnceLock::new()).collect()
        }
        Self {
            classes,
            channels: blocks(slots),
            port_of: (0..=slots).map(|_| AtomicU32::new(0)).collect(),
            ports: blocks(slots),
            hosts: Mutex::default(),
        }
    }

    /// Gives a slot to a destination of this host.
    pub(super) fn sit(&self, slot: u32, host: Hash, now_ns: u64) {
        if slot == OVERFLOW {
            return;
        }
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        let (place, is_new) = hosts.join((host.high, host.low));
        self.port_of[slot as usize].store(place, Relaxed);
        for class in 0..self.classes {
            let channel = self.channel(slot, class);
            *channel.lock().unwrap_or_else(PoisonError::into_inner) =
                Aged::new(Channel::default(), now_ns);
            if is_new {
                let shared = self.port(place, class);
                let mut port = shared.port.lock().unwrap_or_else(PoisonError::into_inner);
                // A little earlier than the first call, so that this call is evidence.
                let port_since = instant((now_ns % EPOCH_NS).saturating_sub(1));
                *port = Aged::new(Port::new(port_since), now_ns);
                shared.gap.store(0, Relaxed);
            }
        }
    }

    /// The destination of a slot leaves.
    pub(super) fn leave(&self, slot: u32) {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        hosts.part(self.port_of[slot as usize].load(Relaxed));
    }

    /// Whether a call of `mtus` MTUs may run in the class that it requests.
    pub(super) fn admits(
        &self,
        (slot, class): (u32, u8),
        options: &Aequitas2Options,
        now_ns: u64,
        mtus: u32,
    ) -> bool {
        if slot == OVERFLOW {
            return true;
        }
        let class = usize::from(class);
        let gap = self.shared(slot, class).gap.load(Relaxed);
        let Some(mut channel) = try_lock(self.channel(slot, class)) else {
            return true;
        };
        let channel = channel.at(now_ns, Channel::default);
        channel.decide(options, gap, instant(now_ns), mtus) == Decision::Admit
    }

    /// Learns from the end of a call that ran in the class. Returns the part of its calls that the destination admits;
    /// `None` when nothing was learned.
    pub(super) fn learn(
        &self,
        (slot, class): (u32, u8),
        options: &Aequitas2Options,
        now_ns: u64,
        (latency_ns, met): (u64, bool),
    ) -> Option<Probability> {
        if slot == OVERFLOW {
            return None;
        }
        let class = usize::from(class);
        let channel = *try_lock(self.channel(slot, class))?.at(now_ns, Channel::default);
        let (now, shared) = (instant(now_ns), self.shared(slot, class));
        // No call is older than its epoch.
        let latency = Duration::from_ns(latency_ns.min(now_ns % EPOCH_NS));
        let outcome = Outcome {
            issued: Instant::from_ps(now.as_ps() - latency.as_ps()),
            latency,
            met,
            gap: channel.gap(options, now),
        };
        let mut port = try_lock(&shared.port)?;
        // A little older than the call, so that this call is evidence.
        let older = Instant::from_ps(outcome.issued.as_ps().saturating_sub(1));
        let port = port.at(now_ns, || Port::new(older));
        port.on_outcome(options, now, outcome);
        shared.gap.store(port.gap(), Relaxed);
        Some(channel.probability(options, port.gap()))
    }

    fn channel(&self, slot: u32, class: usize) -> &Mutex<Aged<Channel>> {
        let made = || Mutex::new(Aged::new(Channel::default(), 0));
        &place(&self.channels, slot, self.classes, made)[class]
    }

    fn shared(&self, slot: u32, class: usize) -> &Shared {
        self.port(self.port_of[slot as usize].load(Relaxed), class)
    }

    fn port(&self, index: u32, class: usize) -> &Shared {
        let made = || Shared {
            gap: AtomicU64::new(0),
            port: Mutex::new(Aged::new(Port::new(Instant::ZERO), 0)),
        };
        &place(&self.ports, index, self.classes, made)[class]
    }
}

impl Hosts {
    /// The place of a host with one more destination, and whether the place is new.
    fn join(&mut self, host: (u64, u64)) -> (u32, bool) {
        if let Some((place, destinations)) = self.places.get_mut(&host) {
            *destinations += 1;
            return (*place, false);
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.owners.push(host);
            self.owners.len() as u32
        });
        self.owners[place as usize - 1] = host;
        self.places.insert(host, (place, 1));
        (place, true)
    }

    /// The host of a place has one destination less.
    fn part(&mut self, place: u32) {
        let Some(host) = self.owners.get((place as usize).wrapping_sub(1)) else {
            return;
        };
        if let Some((_, destinations)) = self.places.get_mut(host) {
            *destinations -= 1;
            if *destinations == 0 {
                self.places.remove(host);
                self.free.push(place);
            }
        }
    }
}

/// The entries of all classes at `index`.
fn place<T>(blocks: &Blocks<T>, index: u32, classes: usize, made: impl Fn() -> T) -> &[T] {
    let index = index as usize;
    let block =
        blocks[index / BLOCK].get_or_init(|| (0..BLOCK * classes).map(|_| made()).collect());
    let begin = index % BLOCK * classes;
    &block[begin..begin + classes]
}

/// Time since the begin of the epoch.
fn instant(ns: u64) -> Instant {
    Instant::from_ps(ns % EPOCH_NS * 1_000)
}

fn epoch(ns: u64) -> u32 {
    (ns / EPOCH_NS) as u32
}

/// u64 picoseconds last 213 days, and a machine may run for longer: levels are learned again before that.
const EPOCH_NS: u64 = 100 * 86_400 * 1_000_000_000;

/// The host of a destination: its name without the port number. A name that is not `host:number` or `[host]:number` is
/// a host as a whole.
pub(super) fn host_of(name: &[u8]) -> &[u8] {
    let Some(colon) = name.iter().rposition(|&byte| byte == b':') else {
        return name;
    };
    let (host, number) = (&name[..colon], &name[colon + 1..]);
    let is_number = !number.is_empty() && number.iter().all(u8::is_ascii_digit);
    let is_bracketed = host.ends_with(b"]");
    match is_number && (is_bracketed || !host.contains(&b':')) {
        true => host,
        false => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_a_destination_has_no_port_number() {
        for (name, host) in [
            ("10.0.0.2:443", "10.0.0.2"),
            ("storage:50051", "storage"),
            ("[fd00::1]:443", "[fd00::1]"),
            ("fd00::1", "fd00::1"),
            ("storage", "storage"),
            ("unix:/run/s", "unix:/run/s"),
            ("storage:", "storage:"),
            ("", ""),
        ] {
            assert_eq!(host_of(name.as_bytes()), host.as_bytes(), "{name}");
        }
    }

    #[test]
    fn a_place_is_free_when_its_hosts_last_destination_has_left() {
        let mut hosts = Hosts::default();
        assert_eq!(hosts.join((1, 1)), (1, true));
        assert_eq!(hosts.join((2, 2)), (2, true));
        assert_eq!(hosts.join((1, 1)), (1, false));
        hosts.part(1);
        assert_eq!(hosts.join((3, 3)), (3, true));
        hosts.part(1);
        assert_eq!(hosts.join((4, 4)), (1, true));
        hosts.part(0);
    }
}
