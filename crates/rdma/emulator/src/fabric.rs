//! All objects of all clients, their events and completions.
//!
//! Handles are numbers of one series; each object knows its client, and a client reaches no other one's objects by
//! handle. Keys and queue pair numbers are for the whole fabric, as a peer names them.

use crate::answer::event_pipe;
use crate::connections::Connections;
use crate::faults::Faults;
use crate::held::Held;
use crate::memory::Span;
use crate::pair::{Pair, Receive, Work};
use isolane_common_quantities::units::Instant;
use isolane_rdma_emulated_verbs::attributes::DeviceFacts;
use isolane_rdma_emulated_verbs::ring::{Entry, Ring};
use isolane_rdma_emulated_verbs::wire::pack;
use isolane_rdma_scenario::model::Transport;
use isolane_rdma_simulator::rnic::live::{Core, LiveNics, LivePair};
use isolane_rdma_verbs_sys::*;
use rustix::fd::OwnedFd;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// Queue pair numbers have 24 bits; the first ones are special.
pub(crate) const FIRST_PAIR: u32 = 0x100;
/// One past the largest.
pub(crate) const PAIRS_END: u32 = 1 << 24;
/// Queue pairs of the model in use or kept for later: they take memory here.
pub(crate) const LIVE_MAX: usize = 1 << 17;

/// A client that opened a device.
#[derive(Debug)]
pub(crate) struct Client {
    /// Its process.
    pub pid: i32,
    /// Its host.
    pub host: u32,
    /// The thread that it is in the model.
    pub core: Core,
    /// Where its asynchronous events go.
    pub(crate) events: OwnedFd,
    /// Counts of its objects and bytes, for its limits.
    pub(crate) held: Held,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    pub(crate) client: u32,
    pub(crate) domain: u32,
    /// Its place.
    pub(crate) span: Span,
    /// The address that work requests give its first byte.
    pub(crate) iova: u64,
    /// `ibv_access_flags`.
    pub(crate) access: u32,
    /// Windows that are bound to it.
    pub(crate) bound: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) client: u32,
    pub(crate) domain: u32,
    pub(crate) kind: ibv_mw_type,
    /// Its key: the upper bits stay, the lowest 8 belong to the program.
    pub key: u32,
    /// What it is bound to: region, first address, bytes, access, queue pair (of type 2).
    pub bound: Option<Bound>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    pub region: u32,
    /// First address.
    pub addr: u64,
    /// Bytes.
    pub length: u64,
    /// `ibv_access_flags`.
    pub access: u32,
    /// The pair that may use it, for windows of type 2.
    pub pair: Option<u32>,
}

#[derive(Debug)]
pub(crate) struct Completions {
    pub(crate) client: u32,
    pub(crate) ring: Ring,
    pub(crate) channel: Option<u32>,
    pub(crate) overrun: bool,
    /// Datagrams in send queues that complete here.
    pub(crate) datagrams: u64,
}

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) client: u32,
    pub domain: u32,
    pub(crate) depth: u32,
    /// Receives that were not used, oldest first.
    pub receives: VecDeque<Receive>,
    pub(crate) limit: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Timer {
    pub pair: u32,
    /// The work request.
    pub sequence: u64,
    /// The other end did not answer: the last try fails.
    pub last: bool,
}

/// Everything.
pub(crate) struct Fabric {
    /// The model.
    pub nics: LiveNics,
    /// How many times slower than real time the model runs.
    pub dilation: f64,
    /// The devices by host.
    pub facts: Vec<DeviceFacts>,
    pub(crate) clients: BTreeMap<u32, Client>,
    pub(crate) domains: BTreeMap<u32, u32>,
    pub(crate) regions: BTreeMap<u32, Region>,
    pub(crate) windows: BTreeMap<u32, Window>,
    pub(crate) channels: BTreeMap<u32, (u32, OwnedFd)>,
    pub(crate) completions: BTreeMap<u32, Completions>,
    /// Shared receive queues by handle.
    pub shared: BTreeMap<u32, Shared>,
    /// Queue pairs by number.
    pub pairs: BTreeMap<u32, Pair>,
    /// The queue pair behind each pair of the model.
    pub owners: BTreeMap<LivePair, u32>,
    /// Timers by time, ps.
    pub timers: BinaryHeap<Reverse<(u64, Timer)>>,
    /// How many objects use that of a handle, if any.
    pub(crate) users: BTreeMap<u32, usize>,
    /// Threads of the model whose clients are gone.
    pub(crate) cores: Vec<Core>,
    pub(crate) next_handle: u32,
    pub(crate) next_key: u32,
    pub(crate) next_pair: u32,
    /// Queue pairs that the model may have.
    pub(crate) live_max: usize,
    /// Who connects to whom.
    pub(crate) connections: Connections,
    /// What goes wrong on request.
    pub faults: Faults,
    /// Messages that took effect.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl std::fmt::Debug for Fabric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fabric")
            .field("clients", &self.clients.len())
            .field("pairs", &self.pairs.len())
            .finish_non_exhaustive()
    }
}

impl Fabric {
    /// A fabric of these devices.
    pub(crate) fn new(
        nics: LiveNics,
        dilation: f64,
        facts: Vec<DeviceFacts>,
        faults: Faults,
    ) -> Self {
        Self {
            nics,
            dilation,
            facts,
            clients: BTreeMap::new(),
            domains: BTreeMap::new(),
            regions: BTreeMap::new(),
            windows: BTreeMap::new(),
            channels: BTreeMap::new(),
            completions: BTreeMap::new(),
            shared: BTreeMap::new(),
            pairs: BTreeMap::new(),
            owners: BTreeMap::new(),
            timers: BinaryHeap::new(),
            users: BTreeMap::new(),
            cores: Vec::new(),
            next_handle: 1,
            next_key: 1,
            next_pair: FIRST_PAIR,
            live_max: LIVE_MAX,
            connections: Connections::default(),
            faults,
            messages: 0,
            bytes: 0,
        }
    }

    /// Adds a client; the end of its events that it reads. Fails with `ENODEV` for a host that is not there, or with
    /// the kernel's error.
    pub(crate) fn open(&mut self, client: u32, pid: i32, host: u32) -> Result<OwnedFd, i32> {
        if host as usize >= self.facts.len() {
            return Err(libc::ENODEV);
        }
        let (reader, events) = event_pipe()?;
        let core = self.cores.pop().unwrap_or_else(|| self.nics.core());
        let state = Client {
            pid,
            host,
            core,
            events,
            held: Held::default(),
        };
        self.clients.insert(client, state);
        Ok(reader)
    }

    /// Whether a client has opened a device.
    pub(crate) fn is_open(&self, client: u32) -> bool {
        self.clients.contains_key(&client)
    }

    /// A client that opened a device.
    pub(crate) fn client(&self, client: u32) -> &Client {
        &self.clients[&client]
    }

    /// A client is gone, however it went: so is all that it had.
    pub(crate) fn close(&mut self, client: u32) {
        let pairs = self.pairs.iter().filter(|(_, pair)| pair.client == client);
        for number in pairs.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.remove_pair(number);
        }
        let handles = self.domains.iter().map(|(handle, of)| (handle, *of));
        let handles = handles.chain(self.channels.iter().map(|(handle, of)| (handle, of.0)));
        let queues = self.completions.iter();
        let handles = handles.chain(queues.map(|(handle, queue)| (handle, queue.client)));
        let shared = self.shared.iter();
        let handles = handles.chain(shared.map(|(handle, queue)| (handle, queue.client)));
        for (handle, _) in handles.filter(|(_, of)| *of == client) {
            self.users.remove(handle);
        }
        self.windows.retain(|_, window| window.client != client);
        self.regions.retain(|_, region| region.client != client);
        self.completions.retain(|_, queue| queue.client != client);
        self.channels.retain(|_, channel| channel.0 != client);
        self.shared.retain(|_, queue| queue.client != client);
        self.domains.retain(|_, owner| *owner != client);
        self.connections.close(client);
        let gone = self.clients.remove(&client);
        self.cores.extend(gone.map(|client| client.core));
    }

    /// Sends an asynchronous event; one that finds no room is lost.
    pub(crate) fn tell(&self, client: u32, event: ibv_event_type, handle: u32) {
        if let Some(state) = self.clients.get(&client) {
            let _ = rustix::io::write(&state.events, &pack(event, handle).to_ne_bytes());
        }
    }

    /// Writes a completion, and wakes who waits for it.
    pub(crate) fn complete(&mut self, handle: u32, entry: &Entry, solicited: bool) {
        let Some(queue) = self.completions.get_mut(&handle) else {
            return;
        };
        if !queue.ring.push(entry) {
            let first = !std::mem::replace(&mut queue.overrun, true);
            let client = queue.client;
            if first {
                self.tell(client, IBV_EVENT_CQ_ERR, handle);
            }
            return;
        }
        let wakes = solicited || entry.status != IBV_WC_SUCCESS;
        if let Some(channel) = queue.channel
            && queue.ring.take_armed(wakes)
            && let Some((_, events)) = self.channels.get(&channel)
        {
            let _ = rustix::io::write(events, &u64::from(handle).to_ne_bytes());
        }
    }

    /// When the next thing happens.
    pub(crate) fn next_time(&self) -> Option<Instant> {
        let timer = self
            .timers
            .peek()
            .map(|Reverse((at, _))| Instant::from_ps(*at));
        [timer, self.nics.next_time()].into_iter().flatten().min()
    }
}

impl Fabric {
    pub(crate) fn held(&mut self, client: u32) -> &mut Held {
        let client = self.clients.get_mut(&client);
        &mut client.expect("a client outlives what it has").held
    }

    /// An object uses that of `handle`.
    pub(crate) fn begin_use(&mut self, handle: u32) {
        *self.users.entry(handle).or_default() += 1;
    }

    /// An object that used that of `handle` goes.
    pub(crate) fn end_use(&mut self, handle: u32) {
        if let Some(users) = self.users.get_mut(&handle) {
            *users -= 1;
            if *users == 0 {
                self.users.remove(&handle);
            }
        }
    }

    /// Whether an object uses that of `handle`.
    pub(crate) fn is_used(&self, handle: u32) -> bool {
        self.users.contains_key(&handle)
    }

    /// Binds a window, or ends its binding.
    pub(crate) fn set_bound(&mut self, handle: u32, bound: Option<Bound>) {
        let Some(window) = self.windows.get_mut(&handle) else {
            return;
        };
        if let Some(before) = std::mem::replace(&mut window.bound, bound) {
            if let Some(region) = self.regions.get_mut(&before.region) {
                region.bound -= 1;
            }
            if let Some(pair) = before.pair.and_then(|pair| self.pairs.get_mut(&pair)) {
                pair.windows.remove(&handle);
            }
        }
        let Some(bound) = bound else { return };
        if let Some(region) = self.regions.get_mut(&bound.region) {
            region.bound += 1;
        }
        if let Some(pair) = bound.pair.and_then(|pair| self.pairs.get_mut(&pair)) {
            pair.windows.insert(handle);
        }
    }

    /// Appends a work request to a pair's queue.
    pub(crate) fn enqueue(&mut self, number: u32, work: Work) {
        let pair = self.pairs.get_mut(&number).expect("the caller found it");
        let is_datagram = completes_by_itself(pair.transport, &work);
        let handle = pair.send_completions;
        pair.work.push_back(work);
        if is_datagram && let Some(queue) = self.completions.get_mut(&handle) {
            queue.datagrams += 1;
        }
    }

    /// Removes the oldest work request of a pair's queue.
    pub(crate) fn dequeue(&mut self, number: u32) -> Option<Work> {
        let pair = self.pairs.get_mut(&number)?;
        let work = pair.work.pop_front()?;
        if completes_by_itself(pair.transport, &work)
            && let Some(queue) = self.completions.get_mut(&pair.send_completions)
        {
            queue.datagrams -= 1;
        }
        Some(work)
    }
}

/// Whether a work request completes without a peer: a datagram with a completion.
fn completes_by_itself(transport: Transport, work: &Work) -> bool {
    transport == Transport::Ud && work.request.flags & IBV_SEND_SIGNALED != 0
}

#[cfg(test)]
mod tests;
