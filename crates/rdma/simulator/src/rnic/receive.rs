//! The receiving side: processing units, receives, DMA writes, errors.
//!
//! A packet waits in the receive buffer (`buffer`) until its payload is written over PCIe.
//!
//! One processing unit timeline serves everything that arrives, acknowledgements too: that is why a single
//! receiver-not-ready exception, which firmware handles while the units wait, stalls traffic in both directions
//! (husky 4.3.3, table 4.2). A UC or UD message without a receive is dropped by another firmware path with its
//! own, shorter cost per message.

use super::access::{Access, End, Object};
use super::device::verb_index;
use super::event::{Arrived, Event, Packet, PacketKind};
use super::micro_receives::Taken;
use super::nic::RUN_AHEAD;
use super::queue_pair::NONE;
use super::sizes::{ATOMIC_HEADER, CQE_BYTES, RECEIVE_WQE_BYTES};
use super::trace::record::Timeline;
use super::trace::story::Phase;
use super::trace::{CacheName, Resource};
use super::world::World;
use isolane_rdma_policy::harmonic::statistics::BusDirection;
use isolane_rdma_scenario::model::{ATOMIC_BYTES, Arrival, MemoryPlace, Topology, Transport, Verb};

/// Key space of the responder's contexts next to the requester's (see `transmit`).
const RESPONDER: u64 = 1;

impl<const RECORDS: bool> World<RECORDS> {
    /// A packet has wholly arrived at its receiver's port.
    #[inline(always)]
    pub(crate) fn arrived(&mut self, now: u64, pair: u32, packet: Packet) {
        let queue_pair = &self.pairs[pair as usize];
        let loopback = queue_pair.host == queue_pair.peer;
        let host = usize::from(if packet.kind == PacketKind::ReadResponse {
            queue_pair.host
        } else {
            queue_pair.peer
        });
        if self.topology == Topology::Switch && !loopback && self.port_holds(now, host, packet) {
            self.hold(now, host, pair, packet);
        } else {
            self.accept(now, host, pair, packet);
        }
    }

    pub(crate) fn receiver(&self, pair: u32, kind: PacketKind) -> usize {
        let queue_pair = &self.pairs[pair as usize];
        usize::from(if kind == PacketKind::ReadResponse {
            queue_pair.host
        } else {
            queue_pair.peer
        })
    }

    /// A packet enters the receive buffer, and is processed at once unless others wait before it.
    pub(crate) fn accept(&mut self, now: u64, host: usize, pair: u32, packet: Packet) {
        let size = u64::from(packet.payload) + self.device.frame;
        let room = size.max(self.device.micro.receive_cell);
        let queue_pair = &self.pairs[pair as usize];
        let extended = match packet.kind {
            PacketKind::Data if packet.first && queue_pair.verb == Verb::Write => {
                self.device.extended_header
            }
            PacketKind::ReadRequest => self.device.extended_header,
            PacketKind::Atomic => ATOMIC_HEADER,
            _ => 0,
        };
        let nic = &mut self.nics[host];
        if queue_pair.host != queue_pair.peer {
            nic.count.rx_bytes += size + extended;
            nic.count.rx_packets += 1;
        }
        nic.buffers[usize::from(packet.buffer)].buffered += room;
        let at_once = nic.takes_now(now);
        if RECORDS {
            self.trace_accepted(host, pair, packet, size, at_once);
        }
        if at_once {
            self.process_packet(now, host, pair, packet);
        } else {
            self.enqueue(now, host, pair, Arrived::Packet(packet));
        }
        self.watch_buffer(now, host, packet.buffer);
    }

    /// Counts a frame that came over the wire; what loops back never did.
    pub(crate) fn count_arrival(&mut self, host: usize, pair: u32, bytes: u64) {
        let queue_pair = &self.pairs[pair as usize];
        if queue_pair.host != queue_pair.peer {
            self.nics[host].count.rx_bytes += bytes;
            self.nics[host].count.rx_packets += 1;
        }
    }

    /// Processes an arrival now, or in its turn when the processing units are well behind.
    #[inline]
    pub(crate) fn enqueue(&mut self, now: u64, host: usize, pair: u32, arrived: Arrived) {
        if self.nics[host].takes_now(now) {
            self.process(now, host, pair, arrived);
            return;
        }
        let nic = &mut self.nics[host];
        if nic.apart.is_some() {
            self.enqueue_apart(now, host, pair, arrived);
            return;
        }
        nic.waiting.push_back((pair, arrived));
        if nic.waiting.len() == 1 {
            let at = nic.responder_free.max(now);
            self.schedule(at, Event::Serve { host: host as u8 });
        }
    }

    /// The processing units are free for the arrival that waits longest.
    pub(crate) fn serve(&mut self, now: u64, host: usize) {
        if self.nics[host].apart.is_some() {
            self.look_apart(now, host);
            return;
        }
        while self.nics[host].responder_free <= now + RUN_AHEAD {
            let Some((pair, arrived)) = self.nics[host].waiting.pop_front() else {
                return;
            };
            self.process(now, host, pair, arrived);
        }
        if !self.nics[host].waiting.is_empty() {
            let at = self.nics[host].responder_free;
            self.schedule(at, Event::Serve { host: host as u8 });
        }
    }

    pub(crate) fn process(&mut self, now: u64, host: usize, pair: u32, arrived: Arrived) {
        self.traced(move |tracer| tracer.acts(pair));
        match arrived {
            Arrived::Packet(packet) => self.process_packet(now, host, pair, packet),
            Arrived::Ack { upto } => self.process_ack(now, host, pair, upto),
        }
    }

    #[inline(always)]
    fn process_packet(&mut self, now: u64, host: usize, pair: u32, packet: Packet) {
        let in_sequence = self.pairs[pair as usize].expected_epoch == packet.epoch;
        let released = if in_sequence || packet.kind == PacketKind::ReadResponse {
            match packet.kind {
                PacketKind::Data => self.receive_data(now, host, pair, packet),
                PacketKind::ReadRequest => self.receive_read(now, host, pair),
                PacketKind::Atomic => self.receive_atomic(now, host, pair),
                PacketKind::ReadResponse => self.receive_response(now, host, pair, packet),
            }
        } else {
            self.nics[host].count.out_of_sequence += 1;
            self.responder_works(now, host, self.device.packet_in)
        };
        if packet.marked {
            self.notify(now, pair, packet.kind == PacketKind::ReadResponse);
        }
        // Buffers are freed in order of arrival.
        let size = u64::from(packet.payload) + self.device.frame;
        let room = size.max(self.device.micro.receive_cell);
        let buffer = &mut self.nics[host].buffers[usize::from(packet.buffer)];
        let released = released.max(buffer.packets.back().map_or(0, |entry| entry.0));
        buffer.packets.push_back((released, room as u32));
        self.traced(move |tracer| tracer.leaves(host, released, size));
    }

    /// The processing unit of the receiving side spends `cost`; when it is done.
    #[inline(always)]
    pub(crate) fn responder_works(&mut self, now: u64, host: usize, cost: u64) -> u64 {
        let nic = &mut self.nics[host];
        let before = nic.responder_free;
        let done = before.max(now) + cost;
        nic.responder_free = done;
        nic.count.responder_busy += cost;
        self.traced(move |tracer| tracer.used(host, Timeline::Responder, now, before, done));
        done
    }

    /// A WRITE or SEND packet; when its buffer space is free again.
    #[inline(always)]
    fn receive_data(&mut self, now: u64, host: usize, pair: u32, packet: Packet) -> u64 {
        let queue_pair = &mut self.pairs[pair as usize];
        let mut cost = self.device.packet_in;
        if packet.first {
            cost = self.device.respond[verb_index(queue_pair.verb)];
            if let Some(done) = self.begin_message(now, host, pair, packet) {
                return done;
            }
        } else if queue_pair.dropping {
            if packet.last {
                queue_pair.dropping = false;
                queue_pair.received += 1;
            }
            return self.responder_works(now, host, cost);
        }
        if self.device.micro.swap > 0 {
            cost += self.bring_in(host, pair, (!packet.first, false));
        }
        let at = self.responder_works(now, host, cost);
        let written = self.write_payload(now, host, pair, at, packet);
        if packet.last {
            self.message_received(now, host, pair, at, written);
        }
        written
    }

    /// The first packet of a WRITE or SEND: looks up what the message needs. When the packet's buffer space is free again, if it
    /// ends here for want of a receive.
    fn begin_message(&mut self, now: u64, host: usize, pair: u32, packet: Packet) -> Option<u64> {
        let queue_pair = &mut self.pairs[pair as usize];
        queue_pair.receive_ready = 0;
        // The chunks of a split message share the receive of its first one.
        let takes_receive = queue_pair.verb == Verb::Send && !queue_pair.mid_message;
        let mut ready = self.look_up_responder(now, host, pair);
        if takes_receive {
            if self.pairs[pair as usize].receives == 0 {
                return Some(self.no_receive(now, host, pair, packet));
            }
            if self.device.micro.receive_cache == 0 {
                ready = ready.max(self.take_receive(now, host, pair));
            } else {
                match self.take_kept_receive(now, host, pair, packet) {
                    Taken::At(there) => ready = ready.max(there),
                    Taken::Dropped => return Some(self.drop_datagram(now, host, pair, packet)),
                }
            }
        }
        if packet.payload > 0 {
            ready = ready.max(self.look_up_memory(now, host, pair, true, false));
        }
        self.pairs[pair as usize].receive_ready = ready;
        None
    }

    /// The last packet of a WRITE or SEND is in: acknowledge it, complete the receive, notify the application.
    fn message_received(&mut self, now: u64, host: usize, pair: u32, at: u64, written: u64) {
        let queue_pair = &self.pairs[pair as usize];
        let (position, answers) = (queue_pair.received, queue_pair.twin == NONE);
        let next = if answers {
            Phase::Answered
        } else {
            Phase::Delivering
        };
        if RECORDS {
            self.trace_received(host, pair, position, next, !answers);
        }
        let mut queue_pair = &mut self.pairs[pair as usize];
        let request = *queue_pair.work_request(queue_pair.received);
        queue_pair.received += 1;
        queue_pair.mid_message = !request.last;
        if self.device.micro.credits {
            self.grant(now, pair);
            queue_pair = &mut self.pairs[pair as usize];
        }
        let ready = queue_pair.receive_ready;
        let (transport, verb, tells) = (queue_pair.transport, queue_pair.verb, queue_pair.tells());
        let place = queue_pair.remote_memory;
        let requester = usize::from(queue_pair.host);
        let upto = queue_pair.received as u32;
        if request.last {
            self.meter.message_delivered(queue_pair);
        }
        if transport == Transport::Rc && request.wants_ack {
            let arrives = self.send_ack(host, pair, at.max(ready), self.device.ack);
            if RECORDS {
                self.trace_answers(host, pair, position, arrives);
            }
            let event = Event::Acknowledged { pair, upto };
            self.send_frame((host, requester), self.device.ack, arrives, event);
        }
        let visible = written + self.device.pcie_write + self.distance(place);
        if verb == Verb::Send && request.last {
            self.complete_receive(now, host, pair, request.message, visible);
        }
        if tells && request.last {
            self.schedule(
                visible,
                Event::Delivered {
                    pair,
                    message: request.message as u32,
                },
            );
        }
    }

    /// A message that used a receive is visible at `visible`: writes its completion, and lets the application post receives back.
    fn complete_receive(&mut self, now: u64, host: usize, pair: u32, message: u64, visible: u64) {
        let process = self.pairs[pair as usize].process;
        let batch = self.plans[self.processes[process as usize].plan as usize].receive_batch;
        self.nics[host].count.cqes += 1;
        let bytes = self.device.pcie_bytes(CQE_BYTES);
        let place = message * CQE_BYTES;
        let entry = Access::of(
            pair,
            End::Responder,
            Object::CompletionQueue,
            place,
            CQE_BYTES,
        );
        self.pcie(BusDirection::ToHost, host, now, bytes, || entry);
        let queue_pair = &mut self.pairs[pair as usize];
        queue_pair.receives_owed += 1;
        if batch > 0 && queue_pair.receives_owed >= batch {
            queue_pair.receives_owed = 0;
            let cpu = (self.device.poll + self.device.post) * u64::from(batch) + self.device.ring;
            let bytes =
                self.device.pcie_bytes(RECEIVE_WQE_BYTES * u64::from(batch)) + self.device.doorbell;
            let access = Access::of(
                pair,
                End::Responder,
                Object::Doorbell,
                0,
                self.device.doorbell + RECEIVE_WQE_BYTES * u64::from(batch),
            );
            self.pcie(BusDirection::ToNic, host, now, bytes, || access);
            let at = visible + cpu + self.device.mmio;
            self.schedule(
                at,
                Event::Receives {
                    pair,
                    count: batch as u16,
                },
            );
        }
    }

    /// The application has posted `count` receives.
    pub(crate) fn receives_posted(&mut self, now: u64, pair: u32, count: u16) {
        self.pairs[pair as usize].receives += u64::from(count);
        if self.device.micro.receive_cache > 0 {
            self.keep_receives(now, pair, count);
        }
        self.tell_receives(now, pair, count);
    }

    /// Takes the next posted receive; when its work request is in the NIC, ps, or zero if it is there.
    fn take_receive(&mut self, now: u64, host: usize, pair: u32) -> u64 {
        let prefetch = u64::from(self.device.receive_wqe_prefetch);
        let queue_pair = &mut self.pairs[pair as usize];
        let number = queue_pair.receives_used;
        queue_pair.receives_used += 1;
        queue_pair.receives -= 1;
        let owner = queue_pair.tenant;
        let line = number / prefetch;
        let key = |line: u64| u64::from(pair) << 32 | line & 0xffff_ffff;
        let nic = &mut self.nics[host];
        let hit = nic.receive_wqes.touch(key(line), owner);
        self.trace_lookup(host, CacheName::Receives, key(line), (hit, true));
        let nic = &mut self.nics[host];
        // The next line is read ahead of use while this one is consumed.
        if number.is_multiple_of(prefetch) {
            let known = nic.receive_wqes.insert(key(line + 1), owner);
            self.trace_lookup(host, CacheName::Receives, key(line + 1), (known, false));
            let bytes = self.device.pcie_bytes(RECEIVE_WQE_BYTES * prefetch);
            let access = Access::of(
                pair,
                End::Responder,
                Object::ReceiveQueue,
                number * RECEIVE_WQE_BYTES,
                RECEIVE_WQE_BYTES * prefetch,
            );
            self.pcie(BusDirection::ToNic, host, now, bytes, || access);
        }
        if hit || number < prefetch {
            return 0;
        }
        let nic = &mut self.nics[host];
        let before = nic.responder_free;
        let at = now.max(before);
        let miss = nic.receive_slots.take(at, owner);
        if nic.apart.is_none() {
            nic.responder_free = before.max(miss.started);
        }
        self.traced(move |tracer| {
            tracer.missed(
                host,
                CacheName::Receives,
                Timeline::Responder,
                (before, at),
                &miss,
            );
        });
        miss.done
    }

    /// A SEND found no receive; when its buffer space is free again.
    fn no_receive(&mut self, now: u64, host: usize, pair: u32, packet: Packet) -> u64 {
        let cost = self.device.respond[verb_index(Verb::Send)];
        let reliable = self.pairs[pair as usize].transport == Transport::Rc;
        let stall = if reliable {
            self.device.rnr_stall
        } else {
            self.device.drop_stall
        };
        let at = self.responder_works(now, host, cost);
        if reliable && let Some(done) = self.function_handles(at, host, pair) {
            self.nics[host].count.rnr_naks += 1;
            self.refuse(host, pair, done);
            return at;
        }
        // Work of firmware beside the units stalls no other tenant.
        let stalled = if self.handled_apart(host, pair, at + stall) {
            0
        } else {
            self.nics[host].responder_free = at + stall;
            stall
        };
        let cause = if reliable {
            Resource::NotReadyStall
        } else {
            Resource::DropStall
        };
        if stalled > 0
            && RECORDS
            && let Some(tracer) = &mut self.trace
        {
            tracer.stalled(host, Timeline::Responder, (at, at + stall), cause);
        }
        let nic = &mut self.nics[host];
        if reliable {
            nic.count.rnr_naks += 1;
            nic.count.rnr_stall += stalled;
            self.refuse(host, pair, at + stall);
        } else {
            nic.count.drops += 1;
            nic.count.drop_stall += stalled;
            let queue_pair = &mut self.pairs[pair as usize];
            queue_pair.dropping = !packet.last;
            queue_pair.received += u64::from(packet.last);
        }
        at + stall
    }

    /// Sends a receiver-not-ready NAK at `at`; what the sender sends until it is there is void.
    fn refuse(&mut self, host: usize, pair: u32, at: u64) {
        let queue_pair = &mut self.pairs[pair as usize];
        queue_pair.expected_epoch = queue_pair.expected_epoch.wrapping_add(1);
        let position = queue_pair.received as u32;
        let arrives = self.send_ack(host, pair, at, self.device.ack);
        let event = Event::NotReady { pair, position };
        self.send_answer(host, pair, self.device.ack, arrives, event);
    }

    /// A READ request: its response waits for the transmitter.
    fn receive_read(&mut self, now: u64, host: usize, pair: u32) -> u64 {
        let context = self.look_up_responder(now, host, pair);
        let memory = self.look_up_memory(now, host, pair, true, false);
        let at = self.responder_works(now, host, self.device.respond[verb_index(Verb::Read)]);
        let position = self.pairs[pair as usize].received;
        if RECORDS {
            self.trace_received(host, pair, position, Phase::Answering, false);
        }
        let queue_pair = &mut self.pairs[pair as usize];
        queue_pair.reads_to_answer.push_back(queue_pair.received);
        queue_pair.received += 1;
        self.schedule(
            at.max(context).max(memory),
            Event::Resolved {
                pair,
                response: true,
            },
        );
        at
    }

    /// An atomic: read and write of host memory, then the answer.
    fn receive_atomic(&mut self, now: u64, host: usize, pair: u32) -> u64 {
        let verb = self.pairs[pair as usize].verb;
        let context = self.look_up_responder(now, host, pair);
        let memory = self.look_up_memory(now, host, pair, true, false);
        let at = self.responder_works(now, host, self.device.respond[verb_index(verb)]);
        let bytes = self.device.pcie_bytes(ATOMIC_BYTES);
        let operand = Access::of(pair, End::Responder, Object::Memory, 0, ATOMIC_BYTES);
        let there = self.pcie(BusDirection::ToNic, host, at, bytes, || operand);
        let read = there.max(context).max(memory) + self.device.pcie_read;
        self.pcie(BusDirection::ToHost, host, at, bytes, || operand);
        self.meter
            .delivered(now, &mut self.pairs[pair as usize], ATOMIC_BYTES);
        self.meter.message_delivered(&self.pairs[pair as usize]);
        let position = self.pairs[pair as usize].received;
        if RECORDS {
            self.trace_received(host, pair, position, Phase::Answered, false);
        }
        let queue_pair = &mut self.pairs[pair as usize];
        queue_pair.received += 1;
        let upto = queue_pair.received as u32;
        let arrives = self.send_ack(host, pair, read, self.device.ack + ATOMIC_BYTES);
        if RECORDS {
            self.trace_answers(host, pair, position, arrives);
        }
        let event = Event::Acknowledged { pair, upto };
        self.send_answer(host, pair, self.device.ack + ATOMIC_BYTES, arrives, event);
        at
    }

    /// The responder's context; when it is there, ps, or zero for a hit.
    #[inline(always)]
    fn look_up_responder(&mut self, now: u64, host: usize, pair: u32) -> u64 {
        let own = (pair, End::Responder, Object::PairContext);
        let owner = self.pairs[pair as usize].tenant;
        let key = u64::from(pair) * 2 + RESPONDER;
        self.look_up_context((now, host, owner), own, key, false)
    }

    /// Writes a packet's payload to host memory from `at` on; when it is there.
    #[inline(always)]
    fn write_payload(&mut self, now: u64, host: usize, pair: u32, at: u64, packet: Packet) -> u64 {
        let payload = u64::from(packet.payload);
        let bytes = self.device.pcie_bytes(payload);
        let queue_pair = &mut self.pairs[pair as usize];
        if packet.first {
            queue_pair.landed = 0;
        }
        let (end, place) = if packet.kind == PacketKind::ReadResponse {
            (End::Requester, queue_pair.memory)
        } else {
            (End::Responder, queue_pair.remote_memory)
        };
        let offset = queue_pair.landed;
        queue_pair.landed += payload;
        self.meter.delivered(now, queue_pair, payload);
        let ready = queue_pair.receive_ready;
        let access = || Access::of(pair, end, Object::Memory, offset, payload);
        let mut free = self.pcie(BusDirection::ToHost, host, at, bytes, access);
        if place != MemoryPlace::Local {
            free = self.over_path(host, free, payload, place, false);
        }
        free.max(ready)
    }

    /// READ payload back at the requester.
    fn receive_response(&mut self, now: u64, host: usize, pair: u32, packet: Packet) -> u64 {
        if packet.first {
            let ready = self.look_up_memory(now, host, pair, false, false);
            self.pairs[pair as usize].receive_ready = ready;
        }
        let kept = self.look_up_kept(now, host, pair);
        if kept > 0 {
            let queue_pair = &mut self.pairs[pair as usize];
            queue_pair.receive_ready = queue_pair.receive_ready.max(kept);
        }
        let mut cost = self.device.packet_in.max(self.device.ack_cost);
        if !packet.first {
            cost = cost.max(self.device.micro.response_packet);
        }
        if self.device.micro.swap > 0 {
            cost += self.bring_in(host, pair, (!packet.first, false));
        }
        let at = self.responder_works(now, host, cost);
        let written = self.write_payload(now, host, pair, at, packet);
        if packet.last {
            let position = self.pairs[pair as usize].acknowledged;
            if RECORDS {
                self.trace_received(host, pair, position, Phase::Answered, true);
            }
            let queue_pair = &mut self.pairs[pair as usize];
            queue_pair.reads_out -= 1;
            let upto = queue_pair.acknowledged + 1;
            if queue_pair.work_request(queue_pair.acknowledged).last {
                self.meter.message_delivered(&self.pairs[pair as usize]);
            }
            self.finish(now, host, pair, upto, written);
            self.activate(now, pair, false);
        }
        written
    }

    /// Whether the pair's process waits for each answer before it posts again.
    pub(crate) fn is_ping_pong(&self, pair: u32) -> bool {
        let process = &self.processes[self.pairs[pair as usize].process as usize];
        matches!(self.plans[process.plan as usize].arrival, Arrival::PingPong)
    }
}
