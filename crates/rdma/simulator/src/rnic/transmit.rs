//! The sending side: doorbells, work request fetches, the schedule queue, engines, payload reads, the wire.
//!
//! Contexts that can send wait in the schedule queue of their lane. An engine takes the first and serves it for a
//! turn of `quantum_packets`; engines share the link packet by packet. Each lane (`lanes`) has a schedule queue and
//! engines of its own, and an arbiter chooses between lanes at every packet. Where a policy schedules chunks (`chunks`),
//! they take the place of queue and engines. A turn (`turns`) is longer by what
//! was prefetched while the pair waited, up to `window_bytes`: a NIC keeps a window of PCIe reads outstanding
//! for waiting pairs, so with many pairs each turn has more ready to send. That one parameter makes sixteen bulk
//! pairs block a small message far longer than two do (justitia 3.1.1, B.1).
//!
//! Payload reads run ahead of the wire by at most `pipeline_ns`, which hides the latency of PCIe and is also the
//! queue a small message finds in front of it. A pair whose metadata misses the caches is set aside until the
//! miss is served, and others go on; when every miss slot is taken the processing unit waits (husky 4.3.2).
//!
//! Each resource is a point in time at which it is free; using it moves that point. A context is a queue pair
//! number times two, plus one for the responder that answers READs.

use super::access::{Access, End, Object};
use super::device::verb_index;
use super::event::{Event, Packet, PacketKind};
use super::lanes::Served;
use super::queue_pair::QueuePair;
use super::sizes::READ_REQUEST_MAX;
use super::trace::record::Timeline;
use super::world::World;
use isolane_rdma_policy::harmonic::statistics::BusDirection;
use isolane_rdma_scenario::model::{MemoryPlace, Transport, Verb};

/// The requester's limiter of a pair, and the responder's for READ responses.
pub(super) const REQUESTER: usize = 0;
const RESPONDER: usize = 1;

/// What the way of a frame depends on.
#[derive(Clone, Copy)]
struct Path {
    tenant: u16,
    /// Class of the hardware queue.
    class: u8,
    /// Both ends are on one host.
    loopback: bool,
}

impl Path {
    #[inline(always)]
    const fn of(queue_pair: &QueuePair) -> Self {
        Self {
            tenant: queue_pair.tenant,
            class: queue_pair.queue,
            loopback: queue_pair.host == queue_pair.peer,
        }
    }
}

impl<const RECORDS: bool> World<RECORDS> {
    /// The NIC sees a doorbell for `count` work requests.
    pub(crate) fn doorbell(&mut self, now: u64, pair: u32, count: u16) {
        let bytes = self.device.doorbell + self.device.tlp;
        let queue_pair = &mut self.pairs[pair as usize];
        let host = usize::from(queue_pair.host);
        let caught_up = queue_pair.fetched == queue_pair.visible;
        queue_pair.visible += u64::from(count);
        let rides_along =
            count == 1 && caught_up && queue_pair.work_request(queue_pair.visible - 1).inline;
        if rides_along {
            queue_pair.fetched = queue_pair.visible;
        }
        self.nics[host].count.doorbells += 1;
        let access = Access::of(
            pair,
            End::Requester,
            Object::Doorbell,
            0,
            self.device.doorbell,
        );
        self.pcie(BusDirection::ToNic, host, now, bytes, || access);
        self.charge_bus(host, pair, bytes);
        if rides_along {
            self.activate(now, pair, false);
        } else {
            self.fetch(now, pair);
        }
    }

    /// Starts the next work request fetch of a pair when it is due.
    #[inline(always)]
    fn fetch(&mut self, now: u64, pair: u32) {
        let queue_pair = &self.pairs[pair as usize];
        if !queue_pair.fetching && queue_pair.fetched != queue_pair.visible {
            self.fetch_more(now, pair);
        }
    }

    #[inline(never)]
    fn fetch_more(&mut self, now: u64, pair: u32) {
        let prefetch = self.fetch_depth(pair);
        let queue_pair = &mut self.pairs[pair as usize];
        let in_hand = queue_pair.fetched - queue_pair.sent;
        if in_hand * 2 > prefetch {
            return;
        }
        let count = (queue_pair.visible - queue_pair.fetched).min(prefetch);
        let elements = u64::from(queue_pair.work_request(queue_pair.fetched).elements);
        let request = self.device.wqe_bytes(queue_pair.transport, elements);
        let position = queue_pair.fetched * request;
        queue_pair.fetching = true;
        let (host, owner) = (usize::from(queue_pair.host), queue_pair.tenant);
        let bytes = self.device.pcie_bytes(request * count);
        self.nics[host].count.wqe_fetches += count;
        let tlp = self.device.tlp;
        let asking = Access::asking(pair, End::Requester, Object::SendQueue);
        self.pcie(BusDirection::ToHost, host, now, tlp, || asking);
        let access = Access {
            offset: position,
            bytes: request * count,
            ..asking
        };
        let mut done =
            self.pcie(BusDirection::ToNic, host, now, bytes, || access) + self.read_latency();
        if self.device.micro.fetch_context {
            let own = (pair, End::Requester, Object::PairContext);
            let there = self.look_up_context((now, host, owner), own, u64::from(pair) * 2, true);
            done = done.max(there);
        }
        self.traced(move |tracer| tracer.fetches(host, pair, done));
        self.charge_bus(host, pair, bytes);
        self.schedule(
            done,
            Event::Fetched {
                pair,
                count: count as u16,
            },
        );
    }

    /// Work requests have arrived in the NIC.
    pub(crate) fn fetched(&mut self, now: u64, pair: u32, count: u16) {
        let queue_pair = &mut self.pairs[pair as usize];
        queue_pair.fetching = false;
        queue_pair.fetched += u64::from(count);
        self.activate(now, pair, false);
        self.fetch(now, pair);
    }

    /// Metadata arrived for a context that was set aside.
    pub(crate) fn resolved(&mut self, now: u64, pair: u32, response: bool) {
        if !response {
            self.pairs[pair as usize].parked = false;
        }
        self.activate(now, pair, response);
    }

    #[inline(always)]
    pub(super) fn request_ready(&self, now: u64, pair: u32) -> bool {
        let queue_pair = &self.pairs[pair as usize];
        queue_pair.sent < queue_pair.fetched
            && !queue_pair.parked
            && !queue_pair.backing_off
            && queue_pair.limiters[REQUESTER].not_before <= now
            && (matches!(queue_pair.verb, Verb::Write | Verb::Send)
                || queue_pair.offset > 0
                || self.may_read(queue_pair))
            && (!self.device.micro.credits || self.has_credit(pair))
    }

    /// Whether a pair may have one more READ or atomic in flight.
    fn may_read(&self, queue_pair: &QueuePair) -> bool {
        let plan = &self.plans[self.processes[queue_pair.process as usize].plan as usize];
        queue_pair.reads_out < plan.max_read_atomic
    }

    /// Puts a context into the schedule queue if it can send and is not there, and wakes the transmitter.
    pub(crate) fn activate(&mut self, now: u64, pair: u32, response: bool) {
        let host;
        let queue_pair;
        if response {
            queue_pair = &mut self.pairs[pair as usize];
            if queue_pair.response_scheduled
                || queue_pair.reads_to_answer.is_empty()
                || queue_pair.limiters[RESPONDER].not_before > now
            {
                return;
            }
            queue_pair.response_scheduled = true;
            queue_pair.response_queued_at = now;
            host = usize::from(queue_pair.peer);
        } else {
            let state = &self.pairs[pair as usize];
            if state.scheduled || !self.request_ready(now, pair) {
                return;
            }
            if state.shares && self.another_part_waits(pair) {
                return;
            }
            queue_pair = &mut self.pairs[pair as usize];
            queue_pair.scheduled = true;
            queue_pair.queued_at = now;
            host = usize::from(queue_pair.host);
        }
        let (class, function) = (queue_pair.queue, queue_pair.function);
        self.trace_queued(host, pair, response);
        let lane = self.nics[host].lanes.lane_of(class, function);
        let context = pair * 2 + u32::from(response);
        if let Some(rank) = self.wait_in_lane(now, host, lane, context) {
            self.step_by(host, now, rank);
        }
    }

    /// The lane in which a pair's contexts wait.
    pub(super) fn lane_of(&self, host: usize, pair: u32) -> usize {
        let queue_pair = &self.pairs[pair as usize];
        self.nics[host]
            .lanes
            .lane_of(queue_pair.queue, queue_pair.function)
    }

    /// A lane's rate limiter lets it go on.
    pub(crate) fn replenished(&mut self, now: u64, host: usize, lane: u16) {
        self.traced(move |tracer| tracer.limits(host, usize::from(lane), false));
        self.nics[host].lanes.replenished(usize::from(lane));
        self.step_at(host, now);
    }

    /// Schedules the transmitter's next step for the best rank that has work.
    #[inline(always)]
    pub(crate) fn step_at(&mut self, host: usize, now: u64) {
        if let Some(rank) = self.nics[host].lanes.best_rank() {
            self.step_by(host, now, rank);
        }
    }

    /// Sees to it that the transmitter's next step comes no later than work of `rank` can go out. What a worse
    /// rank has read ahead of the wire does not hold it up.
    #[inline(always)]
    fn step_by(&mut self, host: usize, now: u64, rank: usize) {
        if let Some(at) = self.nics[host].step_by(now, rank, self.device.pipeline) {
            self.step_comes(host, now, at, rank);
        }
    }

    /// The transmitter's next step is due at `at`, for work of `rank` that can go out from `now` on.
    #[inline(always)]
    fn step_comes(&mut self, host: usize, now: u64, at: u64, rank: usize) {
        if RECORDS {
            self.trace_hold(host, now, at, rank);
        }
        self.schedule(at, Event::Transmit { host: host as u8 });
    }

    /// One step of the transmit pipeline: one packet of one context.
    pub(crate) fn transmit(&mut self, now: u64, host: usize) {
        let nic = &mut self.nics[host];
        if now != nic.step_due {
            // An earlier step has taken this one's place.
            return;
        }
        nic.step_due = u64::MAX;
        let Some((lane, rank)) = nic.lanes.choose() else {
            return;
        };
        let by_class = nic.lanes.ranks_by_class();
        let state = &mut nic.lanes.lanes[lane];
        let (engine, context, chunk) = if state.chunks.is_none() {
            let (engine, context) = state.choose_engine(now, &self.device, &self.pairs);
            (engine, context, None)
        } else {
            let turn = self.take_chunk_turn(now, host, lane);
            (0, turn.0, Some(turn))
        };
        let (pair, response) = (context / 2, context % 2 == 1);
        self.trace_takes(host, pair, response);
        let queue_pair = &self.pairs[pair as usize];
        let loopback = queue_pair.host == queue_pair.peer;
        let first = queue_pair.offset == 0;
        // A pair that was moved to another priority while it was being served takes the new one's place on the wire at once.
        let rank = match by_class {
            true => usize::from(queue_pair.queue),
            false => rank,
        };
        let (served, bytes) = if response {
            self.send_response(now, host, pair, rank)
        } else {
            self.send_request(now, host, pair, rank)
        };
        let (served, context) = match self.pairs[pair as usize].shares && chunk.is_none() {
            true => self.next_part(now, (host, lane, engine), pair, served),
            false => (served, context),
        };
        let ahead = self.device.pipeline;
        let mut nic = &mut self.nics[host];
        let mut charged = bytes;
        if nic.apart.is_some() {
            charged = self.dominant_bytes(pair, bytes, first, response);
            nic = &mut self.nics[host];
        }
        let gone = if let Some(chunk) = chunk {
            let gone = self.after_chunk(now, (host, lane), chunk, served);
            nic = &mut self.nics[host];
            gone
        } else {
            let queue_pair = &mut self.pairs[context as usize / 2];
            let turn = (engine, context);
            let spent = self.device.spent(bytes);
            nic.lanes
                .after_packet(now, lane, turn, (served, spent), queue_pair)
        };
        if let Some(due) = nic.lanes.served(now, lane, charged, gone) {
            self.limited_until(host, lane, due);
            nic = &mut self.nics[host];
        }
        let now = match loopback {
            true => now.max(nic.loop_free.saturating_sub(ahead)),
            false => now,
        };
        if let Some(rank) = nic.lanes.best_rank()
            && let Some(at) = nic.step_by(now, rank, ahead)
        {
            self.step_comes(host, now, at, rank);
        }
    }

    /// The limiter of a lane lets it go on at `due`.
    #[inline(never)]
    fn limited_until(&mut self, host: usize, lane: usize, due: u64) {
        self.traced(move |tracer| tracer.limits(host, lane, true));
        let (host, lane) = (host as u8, lane as u16);
        self.schedule(due, Event::Replenished { host, lane });
    }

    /// Sends one packet of a requester, or sets it aside.
    #[inline(always)]
    fn send_request(&mut self, now: u64, host: usize, pair: u32, rank: usize) -> (Served, u64) {
        let mut queue_pair = &mut self.pairs[pair as usize];
        if queue_pair.backing_off {
            return (Served::Aside, 0);
        }
        let request = *queue_pair.work_request(queue_pair.sent);
        let (verb, first) = (queue_pair.verb, queue_pair.offset == 0);
        let mut cost = self.device.packet;
        if first {
            cost = self.device.request[verb_index(verb)];
            let sends_payload = matches!(verb, Verb::Write | Verb::Send);
            if !queue_pair.resolved
                && self.look_up_request(now, host, pair, sends_payload && !request.inline)
            {
                return (Served::Aside, 0);
            }
            queue_pair = &mut self.pairs[pair as usize];
        }
        let offset = queue_pair.offset;
        let (peer, place) = (usize::from(queue_pair.peer), queue_pair.memory);
        let (packet, header) =
            queue_pair.next_packet(&self.device, &self.buffer_of_class, request.bytes);
        let (payload, last) = (u64::from(packet.payload), packet.last);
        let path = Path::of(queue_pair);
        if last && self.device.micro.request_cache > 0 {
            self.keep_request(host, pair);
        }
        if self.device.micro.swap > 0 {
            cost += self.bring_in(host, pair, (!first, true));
        }
        let at = self.requester_works(now, host, cost + self.device.micro.copy.of(payload));
        if first && self.device.micro.ordering > 0 {
            self.order_reads(host, at, pair, request.message);
        }
        let extra_elements = if first {
            u64::from(request.elements) - 1
        } else {
            0
        };
        let ready = if payload > 0 && !request.inline {
            if offset > 0 {
                self.prefetch_translation(host, pair, false, offset, payload);
            }
            let access = || Access::of(pair, End::Requester, Object::Memory, offset, payload);
            self.read_payload(host, at, (payload, extra_elements), access, place)
        } else {
            at
        };
        let bytes = payload + self.device.frame + header;
        let departed = self.depart(host, path, (ready, rank), bytes);
        if last && RECORDS {
            self.trace_left(host, pair, (at, ready, departed, rank), false);
        }
        let event = Event::Packet { pair, packet };
        self.send_frame((host, peer), bytes, departed.1, event);
        let finished = last.then_some(departed.0);
        let served = self.after_request(now, pair, finished, request.wants_ack, payload);
        (served, bytes)
    }

    /// Bookkeeping behind a request packet: completions of unreliable transports, fetches, pacing.
    #[inline(always)]
    fn after_request(
        &mut self,
        now: u64,
        pair: u32,
        finished: Option<u64>,
        wants_ack: bool,
        payload: u64,
    ) -> Served {
        if let Some(left_at) = finished {
            let queue_pair = &self.pairs[pair as usize];
            if queue_pair.transport != Transport::Rc && wants_ack {
                let upto = queue_pair.sent as u32;
                self.schedule(left_at, Event::Acknowledged { pair, upto });
            }
            self.fetch(now, pair);
        }
        if self.paces(pair, false) && self.pace(now, pair, false, payload) {
            return Served::Last;
        }
        if self.request_ready(now, pair) {
            Served::More
        } else {
            Served::Last
        }
    }

    /// The processing unit of the requester side spends `cost`; when it is done.
    #[inline(always)]
    fn requester_works(&mut self, now: u64, host: usize, cost: u64) -> u64 {
        let (before, done) = self.nics[host].requester_works(now, cost);
        self.traced(move |tracer| tracer.used(host, Timeline::Requester, now, before, done));
        done
    }

    /// Reads `payload` bytes from `place` over PCIe; when the last one is there.
    #[inline(always)]
    fn read_payload(
        &mut self,
        host: usize,
        at: u64,
        (payload, extra_elements): (u64, u64),
        access: impl FnOnce() -> Access,
        place: MemoryPlace,
    ) -> u64 {
        let device = &self.device;
        let bytes = device.pcie_bytes(payload) + extra_elements * device.tlp;
        let requests = device.tlp * payload.div_ceil(READ_REQUEST_MAX);
        let nic = &mut self.nics[host];
        if nic.watched || device.micro.staging > 0 || place != MemoryPlace::Local {
            return self.read_with_care(host, at, access(), (requests, bytes), place);
        }
        nic.occupy_bus(BusDirection::ToHost, device, at, requests);
        let (_, there) = nic.occupy_bus(BusDirection::ToNic, device, at, bytes);
        there + self.read_latency()
    }

    /// As [`World::read_payload`] with `requests` and `bytes` on the bus, where more than the bus is involved.
    #[cold]
    #[inline(never)]
    fn read_with_care(
        &mut self,
        host: usize,
        at: u64,
        access: Access,
        (requests, bytes): (u64, u64),
        place: MemoryPlace,
    ) -> u64 {
        self.pcie(BusDirection::ToHost, host, at, requests, || Access {
            bytes: 0,
            ..access
        });
        self.read_again(host, at, bytes, access);
        let there = self.over_path(host, at, access.bytes, place, true);
        self.pcie(BusDirection::ToNic, host, at, bytes, || access)
            .max(there)
            + self.read_latency()
            + self.distance(place)
    }

    /// Puts a frame on the wire or the loopback path: when it has left, and when it has arrived.
    #[inline(always)]
    fn depart(
        &mut self,
        host: usize,
        path: Path,
        (ready, rank): (u64, usize),
        bytes: u64,
    ) -> (u64, u64) {
        self.meter.sent(usize::from(path.tenant), bytes);
        if path.loopback {
            // Inside the NIC nothing pauses the sender: it waits for room in the receive buffer itself.
            let nic = &mut self.nics[host];
            let number = self.buffer_of_class[usize::from(path.class)];
            let buffer = &nic.buffers[usize::from(number)];
            let room = if buffer.buffered > buffer.pause_at {
                let served = if nic.waiting.is_empty() {
                    0
                } else {
                    nic.responder_free
                };
                let last = buffer.packets.back();
                last.map_or(0, |entry| entry.0).max(served)
            } else {
                0
            };
            nic.count.loop_bytes += bytes;
            let before = nic.loop_free.max(ready).max(nic.turn_ready);
            let start = before.max(room);
            let done = start + self.device.pcie.of(bytes);
            nic.loop_free = done;
            self.traced(move |tracer| {
                tracer.waited_for_room(host, before, room);
                tracer.used(host, Timeline::Loopback, ready, start, done);
            });
            (done, done + self.device.propagation)
        } else {
            let delay = self.one_way();
            let nic = &mut self.nics[host];
            nic.count.tx_bytes += bytes;
            nic.count.tx_packets += 1;
            let time = self.device.link.of(bytes);
            let (free, worse) = nic.wire_free[rank..]
                .split_first_mut()
                .expect("the wire has a time for each rank");
            let start = (*free).max(ready).max(nic.turn_ready);
            let mut left = start + time;
            if !worse.is_empty() {
                let lower = worse.iter().copied().max().unwrap_or(0);
                // A worse rank's frame that is already leaving finishes first; those behind it wait.
                if lower > start {
                    let frame = self.mtu_default + self.device.frame;
                    left += (lower - start) % self.device.link.of(frame);
                }
                for free in worse {
                    *free = (*free).max(start) + time;
                }
            }
            *free = left;
            if RECORDS && let Some(tracer) = &mut self.trace {
                tracer.frame(host, rank, time, &nic.wire_free);
            }
            (left, left + delay)
        }
    }

    /// Sends one packet of the current READ response.
    fn send_response(&mut self, now: u64, host: usize, pair: u32, rank: usize) -> (Served, u64) {
        let queue_pair = &mut self.pairs[pair as usize];
        let position = *queue_pair
            .reads_to_answer
            .front()
            .expect("a scheduled responder has a READ to answer");
        let bytes = queue_pair.work_request(position).bytes;
        let first = queue_pair.response_offset == 0;
        let payload = (bytes - queue_pair.response_offset).min(u64::from(queue_pair.mtu));
        let offset = queue_pair.response_offset;
        queue_pair.response_offset += payload;
        let last = queue_pair.response_offset >= bytes;
        if last {
            queue_pair.reads_to_answer.pop_front();
            queue_pair.response_offset = 0;
            queue_pair.responded += 1;
        }
        let more = !queue_pair.reads_to_answer.is_empty();
        let path = Path::of(queue_pair);
        let packet = Packet {
            payload: payload as u16,
            kind: PacketKind::ReadResponse,
            epoch: queue_pair.epoch,
            first,
            last,
            marked: false,
            buffer: self.buffer_of_class[usize::from(queue_pair.queue)],
        };
        let mut cost = [self.device.packet, self.device.answer][usize::from(first)];
        if self.device.micro.swap > 0 {
            cost += self.bring_in(host, pair, (!first, true));
        }
        let at = self.requester_works(now, host, cost + self.device.micro.copy.of(payload));
        if !first {
            self.prefetch_translation(host, pair, true, offset, payload);
        }
        let ready = if payload > 0 {
            let place = self.pairs[pair as usize].remote_memory;
            let access = || Access::of(pair, End::Responder, Object::Memory, offset, payload);
            self.read_payload(host, at, (payload, 0), access, place)
        } else {
            at
        };
        let bytes = payload + self.device.frame;
        let departed = self.depart(host, path, (ready, rank), bytes);
        if last && RECORDS {
            self.trace_left(host, pair, (at, ready, departed, rank), true);
        }
        let requester = usize::from(self.pairs[pair as usize].host);
        let event = Event::Packet { pair, packet };
        self.send_frame((host, requester), bytes, departed.1, event);
        let paced = self.paces(pair, true) && self.pace(now, pair, true, payload);
        let served = if more && !paced {
            Served::More
        } else {
            Served::Last
        };
        (served, bytes)
    }
}
