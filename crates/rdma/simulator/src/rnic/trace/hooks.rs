//! The calls of the model to the recorder. Nothing here changes the model.

use super::record::{Hold, Place, Timeline, Tracer};
use super::story::{FETCH, Phase, REQUEST, RESPOND};
use super::{CacheName, Part, Resource, Stage};
use crate::rnic::cache::Cache;
use crate::rnic::event::{Event, Packet, PacketKind};
use crate::rnic::queue_pair::NONE;
use crate::rnic::world::World;
use isolane_rdma_scenario::model::Transport;

impl<const RECORDS: bool> World<RECORDS> {
    /// Lets the recorder, if there is one, take note.
    #[inline(always)]
    pub(crate) fn traced(&mut self, note: impl FnOnce(&mut Tracer)) {
        if RECORDS && let Some(tracer) = self.trace.as_deref_mut() {
            note(tracer);
        }
    }

    /// An event begins: whom it is for, and what it ends for a followed message.
    pub(crate) fn trace_event(&mut self, now: u64, event: Event) {
        let Some(mut tracer) = self.trace.take() else {
            return;
        };
        tracer.begins(now);
        match event {
            Event::Doorbell { pair, .. }
            | Event::Fetched { pair, .. }
            | Event::Resolved { pair, .. }
            | Event::Packet { pair, .. }
            | Event::Acknowledged { pair, .. }
            | Event::NotReady { pair, .. }
            | Event::Retry { pair }
            | Event::Completed { pair, .. }
            | Event::Delivered { pair, .. }
            | Event::Receives { pair, .. }
            | Event::Post { pair }
            | Event::Arrive { pair }
            | Event::Notified { pair, .. }
            | Event::Unpaced { pair, .. } => {
                tracer.acts(pair);
                self.trace_pair(now, &mut tracer, pair, &event);
            }
            Event::Control { index } => tracer.acts_for(self.loops[index as usize].tenant),
            Event::Tenant { tenant, .. } => tracer.acts_for(tenant),
            _ => {}
        }
        self.trace = Some(tracer);
    }

    /// Ends the gap in front of an event that lets a pair go on.
    fn trace_pair(&self, now: u64, tracer: &mut Tracer, pair: u32, event: &Event) {
        let queue_pair = &self.pairs[pair as usize];
        let (host, tenant) = (usize::from(queue_pair.host), queue_pair.tenant);
        let peer = usize::from(queue_pair.peer);
        let idle = !queue_pair.scheduled && !queue_pair.parked && !queue_pair.backing_off;
        let Some(story) = tracer.story(pair) else {
            return;
        };
        let Some(phase) = story.probe.as_ref().map(|probe| probe.phase) else {
            return;
        };
        let ends = |stage, host, resource| Part::waited(stage, host, resource, tenant);
        let (wanted, part) = match *event {
            Event::Doorbell { .. } if idle && queue_pair.fetched == queue_pair.visible => (
                Phase::Sending,
                Part::served(Stage::Post, host, Resource::Way, tenant),
            ),
            Event::Fetched { .. } => {
                story.pass(FETCH, now, phase == Phase::Sending && idle);
                if !idle {
                    return;
                }
                (Phase::Sending, ends(Stage::Fetch, host, Resource::Way))
            }
            Event::Resolved {
                response: false, ..
            } => {
                story.pass(REQUEST, now, phase == Phase::Sending);
                (
                    Phase::Sending,
                    ends(Stage::Metadata, host, Resource::ContextRead),
                )
            }
            Event::Resolved { response: true, .. } => {
                story.pass(RESPOND, now, phase == Phase::Answering);
                (
                    Phase::Answering,
                    ends(Stage::Metadata, peer, Resource::ContextRead),
                )
            }
            Event::Retry { .. } => (
                Phase::Sending,
                ends(Stage::Answer, host, Resource::RetryTimer),
            ),
            Event::Unpaced { response: true, .. } => (
                Phase::Answering,
                ends(Stage::Schedule, peer, Resource::Pacing),
            ),
            Event::Unpaced { .. } if idle => (
                Phase::Sending,
                ends(Stage::Schedule, host, Resource::Pacing),
            ),
            Event::Completed { .. } => (
                Phase::Completing,
                Part::served(Stage::Completion, host, Resource::Way, tenant),
            ),
            Event::Delivered { .. } => (
                Phase::Delivering,
                Part::served(Stage::PayloadWrite, peer, Resource::Way, tenant),
            ),
            _ => return,
        };
        if let Some(probe) = tracer.probe(pair, wanted) {
            probe.until(now, part);
        }
        if let Event::Resolved { response: true, .. } = event {
            tracer.queued(peer, pair, true, self.place(peer, pair));
        }
    }

    /// A lookup of `key` in a cache of `host` (`counts`), or an insertion of it.
    #[inline]
    pub(crate) fn trace_lookup(
        &mut self,
        host: usize,
        cache: CacheName,
        key: u64,
        outcome: (bool, bool),
    ) {
        if RECORDS {
            self.record_lookup(host, cache, key, outcome);
        }
    }

    #[cold]
    #[inline(never)]
    fn record_lookup(
        &mut self,
        host: usize,
        cache: CacheName,
        key: u64,
        (hit, counts): (bool, bool),
    ) {
        if let Some(tracer) = self.trace.as_deref_mut() {
            let nic = &self.nics[host];
            let of: &Cache = match cache {
                CacheName::Contexts => &nic.contexts,
                CacheName::Translations => &nic.translations,
                CacheName::Protections => &nic.protections,
                CacheName::Receives => &nic.receive_wqes,
            };
            tracer.looked_up(host, cache, key, (hit, counts), of.evicted());
        }
    }

    /// Where contexts of `pair` wait for the transmitter of `host`.
    fn place(&self, host: usize, pair: u32) -> Place {
        Place {
            lane: self.lane_of(host, pair),
            class: self.pairs[pair as usize].queue,
        }
    }

    /// A context of `pair` begins to wait in a schedule queue of `host`.
    #[inline]
    pub(crate) fn trace_queued(&mut self, host: usize, pair: u32, response: bool) {
        if RECORDS {
            let place = self.place(host, pair);
            self.traced(move |tracer| tracer.queued(host, pair, response, place));
        }
    }

    /// The transmitter of `host` takes a packet of `pair`.
    #[inline]
    pub(crate) fn trace_takes(&mut self, host: usize, pair: u32, response: bool) {
        if RECORDS {
            let place = self.place(host, pair);
            self.traced(move |tracer| tracer.takes(host, pair, response, place));
        }
    }

    /// What the transmitter of `host` waits for before its next step for `rank`, at `at`.
    pub(crate) fn trace_hold(&mut self, host: usize, asked: u64, at: u64, rank: usize) {
        let Some(tracer) = self.trace.as_deref_mut() else {
            return;
        };
        let (nic, ahead) = (&self.nics[host], self.device.pipeline);
        let now = self.queue.now().as_ps();
        let hold = if at == now {
            Hold::Nothing
        } else if at == nic.requester_free {
            Hold::Timeline(Timeline::Requester, 0)
        } else if at == nic.wire_free[rank].saturating_sub(ahead) {
            Hold::Timeline(Timeline::Wire(rank), ahead)
        } else if at == nic.pcie_in_free.saturating_sub(ahead) {
            Hold::Timeline(Timeline::ToNic, ahead)
        } else if asked > now {
            Hold::Timeline(Timeline::Loopback, ahead)
        } else {
            Hold::Nothing
        };
        tracer.holds(host, hold);
    }

    /// The last packet of a work request of `pair` goes out from `host`: processed at `worked`, with its payload at
    /// `ready`, off the transmitter at `left`, at the other end at `arrives`.
    pub(crate) fn trace_left(
        &mut self,
        host: usize,
        pair: u32,
        (worked, ready, (left, arrives), rank): (u64, u64, (u64, u64), usize),
        response: bool,
    ) {
        let Some(tracer) = self.trace.as_deref_mut() else {
            return;
        };
        let queue_pair = &self.pairs[pair as usize];
        let loopback = queue_pair.host == queue_pair.peer;
        let tenant = queue_pair.tenant;
        let position = if response {
            queue_pair.responded
        } else {
            queue_pair.sent
        } - 1;
        let request = *queue_pair.work_request(position);
        let waits_here = queue_pair.transport != Transport::Rc && queue_pair.twin == NONE;
        let Some(story) = tracer.story(pair) else {
            return;
        };
        let tickets = if response {
            &mut story.responses
        } else {
            &mut story.requests
        };
        tickets[0] += 1;
        let ticket = tickets[0];
        let phase = if response {
            Phase::Answering
        } else {
            Phase::Sending
        };
        let Some(probe) = story.probe.as_mut().filter(|probe| probe.phase == phase) else {
            return;
        };
        if response && probe.position != position
            || !response && (request.message != probe.message || !request.last)
        {
            return;
        }
        (probe.position, probe.ticket) = (position, ticket);
        tracer.through(pair, Stage::Request, host, Timeline::Requester);
        let way = Part::served(Stage::PayloadRead, host, Resource::Way, tenant);
        if ready > worked {
            tracer.through(pair, Stage::PayloadRead, host, Timeline::ToNic);
            if let Some(probe) = tracer.probe(pair, phase) {
                probe.until(ready, way);
            }
        }
        let lane = if loopback {
            Timeline::Loopback
        } else {
            Timeline::Wire(rank)
        };
        tracer.through(pair, Stage::Wire, host, lane);
        if let Some(probe) = tracer.probe(pair, phase) {
            let way = Part::served(Stage::Wire, host, Resource::Way, tenant);
            probe.until(if waits_here { left } else { arrives }, way);
            probe.phase = match (response, waits_here) {
                (true, _) => Phase::Returning,
                (false, true) => Phase::Answered,
                (false, false) => Phase::Travelling,
            };
        }
    }

    /// A packet enters the receive buffer of `host`, and is processed at once or later.
    pub(crate) fn trace_accepted(
        &mut self,
        host: usize,
        pair: u32,
        packet: Packet,
        bytes: u64,
        at_once: bool,
    ) {
        self.note_accepted(host, pair, packet, bytes);
        if at_once {
            self.traced(move |tracer| tracer.acts(pair));
        }
    }

    fn note_accepted(&mut self, host: usize, pair: u32, packet: Packet, bytes: u64) {
        let Some(tracer) = self.trace.as_deref_mut() else {
            return;
        };
        tracer.buffered(host, pair, bytes);
        if !packet.last {
            return;
        }
        let Some(story) = tracer.story(pair) else {
            return;
        };
        let (tickets, phase) = match packet.kind {
            PacketKind::ReadResponse => (&mut story.responses, Phase::Returning),
            _ => (&mut story.requests, Phase::Travelling),
        };
        tickets[1] += 1;
        let ticket = tickets[1];
        if tracer
            .probe(pair, phase)
            .is_some_and(|probe| probe.ticket == ticket)
        {
            tracer.held_by_switch(host, pair);
        }
    }

    /// The last packet of the work request at `position` of `pair` was taken in; `written` to memory if it was.
    pub(crate) fn trace_received(
        &mut self,
        host: usize,
        pair: u32,
        position: u64,
        next: Phase,
        written: bool,
    ) {
        let Some(tracer) = self.trace.as_deref_mut() else {
            return;
        };
        let returning = tracer
            .story(pair)
            .and_then(|story| story.probe.as_ref())
            .is_some_and(|probe| probe.phase == Phase::Returning);
        let phase = if returning {
            Phase::Returning
        } else {
            Phase::Travelling
        };
        let own = tracer
            .probe(pair, phase)
            .is_some_and(|probe| probe.position == position);
        if own {
            tracer.through(pair, Stage::Receive, host, Timeline::Responder);
            if written {
                tracer.through(pair, Stage::PayloadWrite, host, Timeline::ToHost);
            }
            if let Some(probe) = tracer.probe(pair, phase) {
                probe.phase = next;
            }
        }
        if next != Phase::Answering
            && let Some(story) = tracer.story(pair)
        {
            story.pass(RESPOND, u64::MAX, own);
        }
    }

    /// The acknowledgement of the work request at `position` is on its way from `host` until `arrives`.
    pub(crate) fn trace_answers(&mut self, host: usize, pair: u32, position: u64, arrives: u64) {
        self.traced(move |tracer| {
            let tenant = tracer.tenant(pair);
            if let Some(probe) = tracer.probe(pair, Phase::Answered)
                && probe.position == position
            {
                let way = Part::served(Stage::Answer, host, Resource::Way, tenant);
                probe.until(arrives, way);
            }
        });
    }

    /// The answer for work requests below `upto` was processed by the units of `host`.
    pub(crate) fn trace_answered(&mut self, host: usize, pair: u32, upto: u64) {
        self.traced(move |tracer| {
            if tracer
                .probe(pair, Phase::Answered)
                .is_some_and(|probe| probe.position < upto)
            {
                tracer.through(pair, Stage::Answer, host, Timeline::Responder);
            }
        });
    }

    /// The completion of work requests below `upto` is written.
    pub(crate) fn trace_completes(&mut self, host: usize, pair: u32, upto: u64) {
        self.traced(move |tracer| {
            if tracer
                .probe(pair, Phase::Answered)
                .is_some_and(|probe| probe.position < upto)
            {
                tracer.through(pair, Stage::Completion, host, Timeline::ToHost);
                if let Some(probe) = tracer.probe(pair, Phase::Answered) {
                    probe.phase = Phase::Completing;
                }
            }
        });
    }

    /// The application has seen, at `at`, the completions of messages below `upto`.
    pub(crate) fn trace_completed(&mut self, pair: u32, upto: u64, at: u64) {
        let queue_pair = &self.pairs[pair as usize];
        let (host, tenant) = (usize::from(queue_pair.host), queue_pair.tenant);
        self.traced(move |tracer| {
            if let Some(probe) = tracer.probe(pair, Phase::Completing)
                && probe.message < upto
            {
                let part = Part::served(Stage::Completion, host, Resource::Application, tenant);
                probe.until(at, part);
                tracer.done(pair);
            }
        });
    }

    /// A ping-pong message of `pair` was seen at `at`, by the end that answers it or by the end that began.
    pub(crate) fn trace_delivered(&mut self, pair: u32, at: u64) {
        let queue_pair = &self.pairs[pair as usize];
        let (peer, twin) = (usize::from(queue_pair.peer), queue_pair.twin);
        self.traced(move |tracer| tracer.handed_over(pair, at, peer, twin < pair));
    }

    /// The application has posted `count` messages.
    pub(crate) fn trace_posted(&mut self, now: u64, pair: u32, count: u64, every: u64) {
        let Some(tracer) = self.trace.as_deref_mut() else {
            return;
        };
        let queue_pair = &self.pairs[pair as usize];
        let posted = queue_pair.app_posted;
        let ping_pong = queue_pair.twin != NONE;
        // The last signalled message of the list; every message of a ping-pong has a latency.
        let message = if ping_pong {
            posted - 1
        } else {
            match (posted / every * every).checked_sub(1) {
                Some(message) if message >= posted - count => message,
                _ => return,
            }
        };
        let (host, tenant) = (usize::from(queue_pair.host), queue_pair.tenant);
        let at = queue_pair.post_time(message);
        let place = Place {
            lane: self.nics[host]
                .lanes
                .lane_of(queue_pair.queue, queue_pair.function),
            class: queue_pair.queue,
        };
        tracer.posted(host, pair, (message, at), (ping_pong, place));
        if let Some(probe) = tracer.probe(pair, Phase::Sending)
            && probe.message == message
        {
            let part = Part::waited(Stage::Application, host, Resource::Application, tenant);
            probe.until(now, part);
        }
    }

    /// `pair` goes back to the work request at `position`, for want of a receive.
    pub(crate) fn trace_not_ready(&mut self, now: u64, pair: u32, position: u64) {
        let queue_pair = &self.pairs[pair as usize];
        let (peer, tenant) = (usize::from(queue_pair.peer), queue_pair.tenant);
        self.traced(move |tracer| {
            if let Some(probe) = tracer.probe(pair, Phase::Travelling)
                && probe.position >= position
            {
                let part = Part::waited(Stage::Receive, peer, Resource::NotReadyStall, tenant);
                probe.until(now, part);
                probe.phase = Phase::Sending;
            }
        });
    }

    /// The policy lets work of `pair` go at `at`.
    pub(crate) fn trace_released(&mut self, pair: u32, at: u64) {
        let queue_pair = &self.pairs[pair as usize];
        let host = usize::from(queue_pair.host);
        let idle = queue_pair.fetched == queue_pair.sent
            && !queue_pair.scheduled
            && !queue_pair.fetching
            && !queue_pair.parked
            && queue_pair.visible == queue_pair.fetched;
        self.traced(move |tracer| {
            let policy = tracer.policy();
            if let Some(probe) = tracer.probe(pair, Phase::Sending).filter(|_| idle) {
                let part = Part::waited(Stage::Policy, host, Resource::Policy, policy);
                probe.until(at, part);
            }
        });
    }
}
