//! The recorder: logs per timeline, causes of the waits of the victim's messages, and series per tenant.

use super::attribution::{Log, Piece, Use};
use super::story::{Phase, Probe, Story};
use super::{
    CacheName, Evictions, FollowedMessage, Lookups, Occupancy, Part, Resource, Stage, Trace,
    TraceOptions,
};
use crate::rnic::nic::Nic;
use crate::rnic::queue_pair::{NONE, QueuePair};
use isolane_rdma_scenario::model::Scenario;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Parts of the run; messages of each part are kept.
pub(super) const PERIODS: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timeline {
    Requester,
    Responder,
    ToNic,
    ToHost,
    Loopback,
    /// The wire as this priority sees it.
    Wire(usize),
}

impl Timeline {
    pub(super) fn index(self) -> usize {
        match self {
            Self::Requester => 0,
            Self::Responder => 1,
            Self::ToNic => 2,
            Self::ToHost => 3,
            Self::Loopback => 4,
            Self::Wire(priority) => 5 + priority,
        }
    }

    /// The timeline that hands work on to this one.
    fn front(self) -> Option<Self> {
        match self {
            Self::Requester | Self::Responder => None,
            Self::ToNic => Some(Self::Requester),
            Self::Loopback | Self::Wire(_) => Some(Self::ToNic),
            Self::ToHost => Some(Self::Responder),
        }
    }

    pub(super) fn resource(self) -> Resource {
        match self {
            Self::Requester => Resource::RequesterUnits,
            Self::Responder => Resource::ResponderUnits,
            Self::ToNic => Resource::PcieToNic,
            Self::ToHost => Resource::PcieToHost,
            Self::Loopback => Resource::Loopback,
            Self::Wire(_) => Resource::Wire,
        }
    }
}

/// Where contexts wait for the transmitter: a lane, and the class it is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) lane: usize,
    pub(crate) class: u8,
}

/// What keeps the transmitter from its next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    Nothing,
    /// A timeline, which the transmitter may run ahead of by so much, ps.
    Timeline(Timeline, u64),
}

#[derive(Clone, Debug)]
pub(super) struct NicTrace {
    pub(super) logs: Vec<Log>,
    /// Who holds each miss slot: contexts, translations, receives.
    pub(super) slots: [Vec<u16>; 3],
    pub(super) hold: Hold,
    /// Since when the transmitter is held, ps.
    pub(super) since: u64,
    /// What kept the contexts of a lane waiting so far, by [`slot`], ps; for lanes in which the victim waits.
    pub(super) held: BTreeMap<Place, Vec<u64>>,
    /// Classes that are paused, and lanes that wait for their rate limiter.
    pub(super) paused: u16,
    pub(super) limited: BTreeSet<usize>,
    /// Bytes in the receive buffer by tenant, and when those that were processed leave it.
    pub(super) buffered: Vec<u64>,
    pub(super) leaving: VecDeque<(u64, u64, u16)>,
    /// The host that pauses this one.
    pub(super) pauser: usize,
    /// Per cache: whose entry it is, and who removed one that is gone.
    pub(super) owners: [BTreeMap<u64, u16>; 4],
    pub(super) removers: [BTreeMap<u64, u16>; 4],
    pub(super) deregistered_by: u16,
}

impl NicTrace {
    /// Cuts a wait for `timeline` into pieces by cause. Where the timeline was kept free for work booked ahead, that
    /// work was still at the timeline in front: what held it there is the cause. Where none did it was on its way, and
    /// where nothing was booked, `own` waited for no other tenant.
    pub(super) fn cut(
        &self,
        timeline: Timeline,
        from: u64,
        to: u64,
        own: u16,
        mut each: impl FnMut(Piece),
    ) {
        self.cut_booked(timeline, (from, to), None, own, &mut each);
    }

    fn cut_booked(
        &self,
        timeline: Timeline,
        (from, to): (u64, u64),
        booked: Option<u16>,
        own: u16,
        each: &mut dyn FnMut(Piece),
    ) {
        let mut gaps = Vec::new();
        let log = &self.logs[timeline.index()];
        log.cut(from, to, &mut *each, |from, to, by| {
            gaps.push((from, to, by.or(booked)));
        });
        for (from, to, booked) in gaps {
            if let Some(front) = timeline.front() {
                self.cut_booked(front, (from, to), booked, own, each);
                continue;
            }
            each(Piece {
                resource: match booked {
                    Some(_) => Resource::Refill,
                    None => Resource::Way,
                },
                tenant: booked.unwrap_or(own),
                ps: to - from,
            });
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Tracer {
    pub(super) victim: u16,
    pub(super) tenants: usize,
    pub(super) start: u64,
    pub(super) bucket: u64,
    pub(super) points: usize,
    pub(super) now: u64,
    pub(super) actor: u16,
    pub(super) pair: u32,
    pub(super) tenant_of: Vec<u16>,
    pub(super) nics: Vec<NicTrace>,
    pub(super) stories: Vec<Option<Box<Story>>>,
    /// A ping-pong message between the two halves of its round trip.
    pub(super) handed: Option<Probe>,
    /// Who removed the entry of the latest miss.
    pub(super) remover: u16,
    pub(super) occupancy: BTreeMap<(usize, Resource, u16), Vec<u64>>,
    pub(super) capacity: Vec<(u8, Resource, u64)>,
    pub(super) waits: BTreeMap<Part, Vec<u64>>,
    pub(super) messages: Vec<u64>,
    pub(super) followed: Vec<FollowedMessage>,
    pub(super) kept: [usize; PERIODS],
    pub(super) lookups: BTreeMap<(usize, CacheName, u16), [Vec<u64>; 2]>,
    pub(super) evictions: BTreeMap<(usize, CacheName, u16, u16), Vec<u64>>,
}

impl Tracer {
    /// A recorder for a world of `nics` and `pairs`, before it runs.
    pub(crate) fn new(
        nics: &[Nic],
        pairs: &[QueuePair],
        scenario: &Scenario,
        options: TraceOptions,
    ) -> Self {
        let tenants = scenario.tenants.len() + 1;
        let bucket = options.bucket.as_ps().max(1);
        let points = scenario.duration.as_ps().div_ceil(bucket).max(1) as usize;
        let mut capacity = Vec::new();
        let nics = nics.iter().enumerate().map(|(host, nic)| {
            let slots = [
                (Resource::ContextSlots, nic.context_slots.len()),
                (Resource::TranslationSlots, nic.translation_slots.len()),
                (Resource::ReceiveSlots, nic.receive_slots.len()),
            ];
            for (resource, count) in slots {
                capacity.push((host as u8, resource, count as u64));
            }
            capacity.push((host as u8, Resource::Commands, nic.commands.len() as u64));
            capacity.push((
                host as u8,
                Resource::ReceiveBuffer,
                nic.buffers
                    .iter()
                    .map(|buffer| buffer.pause_at)
                    .sum::<u64>()
                    .max(1),
            ));
            NicTrace {
                logs: vec![Log::default(); Timeline::Wire(nic.wire_free.len()).index()],
                slots: slots.map(|(_, count)| vec![options.victim; count]),
                hold: Hold::Nothing,
                since: 0,
                held: BTreeMap::new(),
                paused: 0,
                limited: BTreeSet::new(),
                buffered: vec![0; tenants],
                leaving: VecDeque::new(),
                pauser: host,
                owners: Default::default(),
                removers: Default::default(),
                deregistered_by: options.victim,
            }
        });
        let nics = nics.collect();
        let story = |pair: &QueuePair| {
            (pair.tenant == options.victim && !pair.reference).then(Box::default)
        };
        Self {
            victim: options.victim,
            tenants,
            start: scenario.warmup.as_ps(),
            bucket,
            points,
            now: 0,
            actor: options.victim,
            pair: NONE,
            tenant_of: pairs.iter().map(|pair| pair.tenant).collect(),
            nics,
            stories: pairs.iter().map(story).collect(),
            handed: None,
            remover: options.victim,
            occupancy: BTreeMap::new(),
            capacity,
            waits: BTreeMap::new(),
            messages: vec![0; points],
            followed: Vec::new(),
            kept: [0; PERIODS],
            lookups: BTreeMap::new(),
            evictions: BTreeMap::new(),
        }
    }

    /// Everything recorded, when the run has ended at `end`. Messages still under way wait for what they waited for.
    pub(crate) fn finish(mut self, scenario: &Scenario, ends: &[(u8, u8)], end: u64) -> Trace {
        self.now = end;
        let mut unfinished = Vec::new();
        for (pair, &(host, peer)) in ends.iter().enumerate() {
            let (host, peer) = (usize::from(host), usize::from(peer));
            self.wait_until_the_end(pair as u32, host, peer);
            let probe = self.stories[pair]
                .as_mut()
                .and_then(|story| story.probe.take());
            let message = probe.map(|mut probe| {
                probe.trim(end);
                probe.finish()
            });
            unfinished.extend(message.filter(|message| message.latency > 0));
        }
        let mut tenants: Vec<String> = scenario.tenants.iter().map(|t| t.name.clone()).collect();
        tenants.push("the policy".to_owned());
        let occupancy = self.occupancy.into_iter();
        let lookups = self.lookups.into_iter();
        let evictions = self.evictions.into_iter();
        Trace {
            tenants,
            victim: self.victim,
            start: self.start,
            bucket: self.bucket,
            points: self.points,
            occupancy: occupancy
                .map(|((host, resource, tenant), busy)| Occupancy {
                    host: host as u8,
                    resource,
                    tenant,
                    busy,
                })
                .collect(),
            capacity: self.capacity,
            waits: self.waits.into_iter().collect(),
            messages: self.messages,
            followed: self.followed,
            unfinished,
            lookups: lookups
                .map(|((host, cache, tenant), [hits, misses])| Lookups {
                    host: host as u8,
                    cache,
                    tenant,
                    hits,
                    misses,
                })
                .collect(),
            evictions: evictions
                .map(|((host, cache, by, of), entries)| Evictions {
                    host: host as u8,
                    cache,
                    by,
                    of,
                    entries,
                })
                .collect(),
        }
    }

    /// The current event happens at `now`.
    pub(crate) fn begins(&mut self, now: u64) {
        self.now = now;
    }

    /// What follows is done for `pair`.
    pub(crate) fn acts(&mut self, pair: u32) {
        self.actor = self.tenant_of[pair as usize];
        self.pair = pair;
    }

    /// What follows is done for `tenant`, and none of its messages waits for it.
    pub(crate) fn acts_for(&mut self, tenant: u16) {
        self.actor = tenant;
        self.pair = NONE;
    }

    /// No message of the current pair waits for what follows.
    pub(crate) fn nobody_waits(&mut self) {
        self.pair = NONE;
    }

    /// Whose queue pair it is.
    pub(crate) fn tenant(&self, pair: u32) -> u16 {
        self.tenant_of[pair as usize]
    }

    fn wait_until_the_end(&mut self, pair: u32, host: usize, peer: usize) {
        let story = self.stories[pair as usize].as_ref();
        let Some(phase) = story
            .and_then(|story| story.probe.as_ref())
            .map(|p| p.phase)
        else {
            return;
        };
        let place = story.map_or(Place::default(), |story| story.place.1);
        let (end, own) = (self.now, self.tenant_of[pair as usize]);
        let receiver = match phase {
            Phase::Sending => return self.takes(host, pair, false, place),
            Phase::Answering => return self.takes(peer, pair, true, place),
            Phase::Travelling | Phase::Delivering => peer,
            Phase::Returning | Phase::Answered | Phase::Completing => host,
        };
        let story = self.stories[pair as usize].as_mut();
        if let Some(probe) = story.and_then(|story| story.probe.as_mut()) {
            let (nic, from) = (&self.nics[receiver], probe.cursor());
            nic.cut(Timeline::Responder, from, end, own, |piece| {
                let part = Part::waited(Stage::Receive, receiver, piece.resource, piece.tenant);
                probe.add(part, piece.ps);
            });
        }
    }

    /// The policy, as a cause of waits.
    pub(crate) fn policy(&self) -> u16 {
        self.tenants as u16 - 1
    }

    /// The point of the series that contains `at`.
    pub(super) fn point(&self, at: u64) -> Option<usize> {
        let point = (at.checked_sub(self.start)? / self.bucket) as usize;
        (point < self.points).then_some(point)
    }

    /// `tenant` occupied `resource` from `from` to `to`, `weight` of it.
    pub(super) fn occupy(
        &mut self,
        host: usize,
        resource: Resource,
        tenant: u16,
        (from, to): (u64, u64),
        weight: u64,
    ) {
        let end = self.start + self.bucket * self.points as u64;
        let (mut at, to) = (from.max(self.start), to.min(end));
        if at >= to {
            return;
        }
        let points = self.points;
        let busy = self.occupancy.entry((host, resource, tenant));
        let busy = busy.or_insert_with(|| vec![0; points]);
        while at < to {
            let point = (at - self.start) / self.bucket;
            let next = to.min(self.start + (point + 1) * self.bucket);
            busy[point as usize] += (next - at) * weight;
            at = next;
        }
    }

    /// A timeline that was free at `before` works from when it is free, or from `came`, until `done`.
    pub(crate) fn used(&mut self, host: usize, lane: Timeline, came: u64, before: u64, done: u64) {
        let started = before.max(came);
        let (resource, tenant) = (lane.resource(), self.actor);
        let log = &mut self.nics[host].logs[lane.index()];
        log.push(started, done, resource, tenant);
        log.latest = Use { started, done };
        self.occupy(host, resource, tenant, (started, done), 1);
    }

    /// A frame leaves between `started` and `free[priority]`; lower priorities' frames come that much later.
    pub(crate) fn frame(&mut self, host: usize, priority: usize, time: u64, free: &[u64]) {
        let tenant = self.actor;
        for (index, &end) in free.iter().enumerate().skip(priority) {
            let log = &mut self.nics[host].logs[Timeline::Wire(index).index()];
            log.push(end - time, end, Resource::Wire, tenant);
        }
        let done = free[priority];
        let started = done - time;
        self.nics[host].logs[Timeline::Wire(priority).index()].latest = Use { started, done };
        self.occupy(host, Resource::Wire, tenant, (started, done), 1);
    }

    /// An acknowledgement takes `time` of the wire from everything that waits for it.
    pub(crate) fn answer(&mut self, host: usize, time: u64, free: &[u64]) {
        let tenant = self.actor;
        for (index, &end) in free.iter().enumerate() {
            let log = &mut self.nics[host].logs[Timeline::Wire(index).index()];
            log.push(end - time, end, Resource::Wire, tenant);
        }
        self.occupy(host, Resource::Wire, tenant, (self.now, self.now + time), 1);
    }

    /// A frame on the loopback path waited for room in the receive buffer until `room`.
    pub(crate) fn waited_for_room(&mut self, host: usize, from: u64, room: u64) {
        if room <= from {
            return;
        }
        let mut pieces = Vec::new();
        self.drains(host, from, room, |_, piece| pieces.push(piece));
        let log = &mut self.nics[host].logs[Timeline::Loopback.index()];
        let mut at = from;
        for piece in pieces {
            log.push(at, at + piece.ps, piece.resource, piece.tenant);
            at += piece.ps;
        }
    }

    /// A timeline is held up from `from` to `to`.
    pub(crate) fn stalled(
        &mut self,
        host: usize,
        lane: Timeline,
        (from, to): (u64, u64),
        resource: Resource,
    ) {
        let tenant = match resource {
            Resource::DeregistrationStall => self.nics[host].deregistered_by,
            _ => self.actor,
        };
        self.nics[host].logs[lane.index()].push(from, to, resource, tenant);
        self.occupy(host, resource, tenant, (from, to), 1);
    }

    /// A command takes a place in the command queue.
    pub(crate) fn command(&mut self, host: usize, from: u64, to: u64) {
        let tenant = self.actor;
        self.occupy(host, Resource::Commands, tenant, (from, to), 1);
    }

    /// A packet of `bytes` enters the receive buffer.
    pub(crate) fn buffered(&mut self, host: usize, pair: u32, bytes: u64) {
        let tenant = self.tenant_of[pair as usize];
        self.nics[host].buffered[usize::from(tenant)] += bytes;
        // Until it is processed its departure is unknown; that time is added then.
    }

    /// A processed packet leaves the receive buffer at `released`.
    pub(crate) fn leaves(&mut self, host: usize, released: u64, bytes: u64) {
        let tenant = self.actor;
        let nic = &mut self.nics[host];
        nic.leaving.push_back((released, bytes, tenant));
        let from = self.now;
        self.occupy(
            host,
            Resource::ReceiveBuffer,
            tenant,
            (from, released),
            bytes,
        );
    }

    pub(super) fn leave_buffer(&mut self, host: usize) {
        let nic = &mut self.nics[host];
        while let Some(&(released, bytes, tenant)) = nic.leaving.front() {
            if released > self.now {
                break;
            }
            nic.leaving.pop_front();
            let buffered = &mut nic.buffered[usize::from(tenant)];
            *buffered = buffered.saturating_sub(bytes);
        }
    }
}
