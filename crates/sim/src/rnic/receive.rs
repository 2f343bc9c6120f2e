//! The receiving side: buffer and pauses, processing units, receives, DMA writes, acknowledgements, errors.
//!
//! A packet enters the receive buffer when it has wholly arrived and leaves it when its payload is written over
//! PCIe. When occupancy passes `pause_bytes` the NIC pauses its link partner; behind a switch the switch holds
//! what arrives, up to `switch_buffer_bytes`, marks it for ECN and then pauses the sender in turn (stage 8).
//! Loopback packets share the buffer and wait inside the NIC instead.
//!
//! One processing unit timeline serves everything that arrives, acknowledgements too: that is why a single
//! receiver-not-ready exception, which firmware handles while the units wait, stalls traffic in both directions
//! (husky 4.3.3, table 4.2). A UC or UD message without a receive is dropped by another firmware path with its
//! own, shorter cost per message.

use super::device::verb_index;
use super::queue_pair::NONE;
use super::transmit::ATOMIC_HEADER;
use super::world::{Arrived, Event, Packet, PacketKind, World};
use isolane_scenario::model::{Arrival, Topology, Transport, Verb};

/// Bytes of one completion queue entry (mlx5-class devices).
const CQE_BYTES: u64 = 64;
/// Bytes of one receive work request in its ring.
const RECEIVE_WQE_BYTES: u64 = 16;
/// How far the processing units' timeline may run ahead of the clock before arrivals wait in a queue, ps. Later
/// resources are reserved in order of processing, so a long backlog must not be processed ahead of its time.
const RUN_AHEAD: u64 = 500_000;
/// Key space of the responder's contexts next to the requester's (see `transmit`).
const RESPONDER: u64 = 1;

impl World {
    /// A packet has wholly arrived at its receiver's port.
    pub(crate) fn arrived(&mut self, now: u64, pair: u32, packet: Packet) {
        let queue_pair = &self.pairs[pair as usize];
        let loopback = queue_pair.host == queue_pair.peer;
        let host = self.receiver(pair, packet.kind);
        let nic = &self.nics[host];
        if self.topology == Topology::Switch && !loopback && (nic.pausing || nic.draining) {
            self.hold(now, host, pair, packet);
        } else {
            self.accept(now, host, pair, packet);
        }
    }

    fn receiver(&self, pair: u32, kind: PacketKind) -> usize {
        let queue_pair = &self.pairs[pair as usize];
        usize::from(if kind == PacketKind::ReadResponse {
            queue_pair.host
        } else {
            queue_pair.peer
        })
    }

    /// The switch keeps a packet for a host that pauses it.
    fn hold(&mut self, now: u64, host: usize, pair: u32, mut packet: Packet) {
        let size = u64::from(packet.payload) + self.device.frame;
        let delay = self.device.propagation;
        let (ecn, limit) = (self.device.switch_ecn, self.device.switch_buffer);
        let nic = &mut self.nics[host];
        packet.marked = ecn > 0 && nic.held_bytes > ecn;
        nic.count.marks += u64::from(packet.marked);
        nic.held.push_back((pair, packet));
        nic.held_bytes += size;
        if nic.held_bytes > limit && !nic.switch_pauses {
            nic.switch_pauses = true;
            self.schedule(
                now + delay,
                Event::Pause {
                    host: (1 - host) as u8,
                    stop: true,
                },
            );
        }
    }

    /// The switch sends one held packet on.
    pub(crate) fn switch_drain(&mut self, now: u64, host: usize) {
        let nic = &mut self.nics[host];
        if nic.pausing {
            nic.draining = false;
            return;
        }
        let Some((pair, packet)) = nic.held.pop_front() else {
            nic.draining = false;
            return;
        };
        let size = u64::from(packet.payload) + self.device.frame;
        nic.held_bytes -= size;
        let resume = nic.switch_pauses && nic.held_bytes * 2 <= self.device.switch_buffer;
        if resume {
            nic.switch_pauses = false;
            let at = now + self.device.propagation;
            self.schedule(
                at,
                Event::Pause {
                    host: (1 - host) as u8,
                    stop: false,
                },
            );
        }
        self.accept(now, host, pair, packet);
        let next = now + self.device.link.of(size);
        self.nics[host].draining = true;
        self.schedule(next, Event::SwitchDrain { host: host as u8 });
    }

    /// A packet enters the receive buffer, and is processed at once unless others wait before it.
    fn accept(&mut self, now: u64, host: usize, pair: u32, packet: Packet) {
        let size = u64::from(packet.payload) + self.device.frame;
        let extended = match packet.kind {
            PacketKind::Data if self.pairs[pair as usize].verb == Verb::Write && packet.first => {
                self.device.extended_header
            }
            PacketKind::ReadRequest => self.device.extended_header,
            PacketKind::Atomic => ATOMIC_HEADER,
            _ => 0,
        };
        self.count_arrival(host, pair, size + extended);
        let nic = &mut self.nics[host];
        nic.buffered += size;
        self.enqueue(now, host, pair, Arrived::Packet(packet));
        self.watch_buffer(now, host);
    }

    /// Counts a frame that came over the wire; what loops back never did.
    fn count_arrival(&mut self, host: usize, pair: u32, bytes: u64) {
        let queue_pair = &self.pairs[pair as usize];
        if queue_pair.host != queue_pair.peer {
            self.nics[host].count.rx_bytes += bytes;
            self.nics[host].count.rx_packets += 1;
        }
    }

    /// Processes an arrival now, or in its turn when the processing units are well behind.
    fn enqueue(&mut self, now: u64, host: usize, pair: u32, arrived: Arrived) {
        let nic = &mut self.nics[host];
        if nic.waiting.is_empty() && nic.responder_free <= now + RUN_AHEAD {
            self.process(now, host, pair, arrived);
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

    fn process(&mut self, now: u64, host: usize, pair: u32, arrived: Arrived) {
        let packet = match arrived {
            Arrived::Packet(packet) => packet,
            Arrived::Ack { upto } => return self.process_ack(now, host, pair, upto),
        };
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
            self.responder_works(now, host, self.device.packet)
        };
        if packet.marked {
            self.notify(now, pair);
        }
        // Buffers are freed in order of arrival.
        let size = u64::from(packet.payload) + self.device.frame;
        let nic = &mut self.nics[host];
        let released = released.max(nic.buffer.back().map_or(0, |entry| entry.0));
        nic.buffer.push_back((released, size as u32));
    }

    /// Frees what has left the buffer by now.
    fn free_buffers(&mut self, now: u64, host: usize) {
        let nic = &mut self.nics[host];
        while nic.buffer.front().is_some_and(|entry| entry.0 <= now) {
            let (_, bytes) = nic.buffer.pop_front().expect("the front was just seen");
            nic.buffered -= u64::from(bytes);
        }
    }

    /// Pauses the link partner when the buffer is too full.
    fn watch_buffer(&mut self, now: u64, host: usize) {
        self.free_buffers(now, host);
        let delay = self.device.propagation;
        let nic = &mut self.nics[host];
        if nic.buffered <= self.device.pause_at || nic.pausing {
            return;
        }
        nic.pausing = true;
        nic.pausing_since = now;
        nic.count.pauses_sent += 1;
        // Behind a switch, the switch holds what comes next.
        if self.topology == Topology::BackToBack {
            self.schedule(
                now + delay,
                Event::Pause {
                    host: (1 - host) as u8,
                    stop: true,
                },
            );
        }
        self.watch_drain(now, host);
    }

    /// Comes back when the buffer, without further arrivals, may have drained to the resume threshold.
    fn watch_drain(&mut self, now: u64, host: usize) {
        let nic = &self.nics[host];
        let mut left = nic.buffered;
        let mut at = now + 1;
        for &(released, bytes) in &nic.buffer {
            if left <= self.device.resume_at {
                break;
            }
            left -= u64::from(bytes);
            at = at.max(released);
        }
        if left > self.device.resume_at {
            at = at.max(nic.responder_free);
        }
        self.schedule(at, Event::Drained { host: host as u8 });
    }

    /// The receive buffer may have drained enough to let the link partner go on.
    pub(crate) fn drained(&mut self, now: u64, host: usize) {
        self.free_buffers(now, host);
        if self.nics[host].buffered > self.device.resume_at {
            self.watch_drain(now, host);
            return;
        }
        let delay = self.device.propagation;
        let nic = &mut self.nics[host];
        nic.pausing = false;
        nic.count.pausing_ps += now - nic.pausing_since;
        if self.topology == Topology::Switch {
            if !nic.held.is_empty() && !nic.draining {
                nic.draining = true;
                self.schedule(now + delay, Event::SwitchDrain { host: host as u8 });
            }
        } else {
            self.schedule(
                now + delay,
                Event::Pause {
                    host: (1 - host) as u8,
                    stop: false,
                },
            );
        }
    }

    /// The processing unit of the receiving side spends `cost`; when it is done.
    fn responder_works(&mut self, now: u64, host: usize, cost: u64) -> u64 {
        let nic = &mut self.nics[host];
        nic.responder_free = nic.responder_free.max(now) + cost;
        nic.count.responder_busy += cost;
        nic.responder_free
    }

    /// A WRITE or SEND packet; when its buffer space is free again.
    fn receive_data(&mut self, now: u64, host: usize, pair: u32, packet: Packet) -> u64 {
        let verb = self.pairs[pair as usize].verb;
        if packet.first {
            self.pairs[pair as usize].receive_ready = 0;
            let mut ready = self.look_up_context(now, host, u64::from(pair) * 2 + RESPONDER, false);
            // The chunks of a split message share the receive of its first one.
            if verb == Verb::Send && !self.pairs[pair as usize].mid_message {
                if self.pairs[pair as usize].receives == 0 {
                    return self.no_receive(now, host, pair, packet);
                }
                ready = ready.max(self.take_receive(now, host, pair));
            }
            if packet.payload > 0 {
                ready = ready.max(self.look_up_memory(now, host, pair, true, false));
            }
            self.pairs[pair as usize].receive_ready = ready;
        } else if self.pairs[pair as usize].dropping {
            if packet.last {
                self.pairs[pair as usize].dropping = false;
                self.pairs[pair as usize].received += 1;
            }
            return self.responder_works(now, host, self.device.packet);
        }
        let cost = if packet.first {
            self.device.respond[verb_index(verb)]
        } else {
            self.device.packet
        };
        let at = self.responder_works(now, host, cost);
        let bytes = self.device.pcie_bytes(u64::from(packet.payload));
        let written = self
            .pcie_out(host, at, bytes)
            .max(self.pairs[pair as usize].receive_ready);
        self.meter.delivered(
            now,
            &mut self.pairs[pair as usize],
            u64::from(packet.payload),
        );
        if packet.last {
            self.message_received(now, host, pair, at, written);
        }
        written
    }

    /// The last packet of a WRITE or SEND is in: acknowledge it, complete the receive, tell the application.
    fn message_received(&mut self, now: u64, host: usize, pair: u32, at: u64, written: u64) {
        let queue_pair = &mut self.pairs[pair as usize];
        let request = *queue_pair.work_request(queue_pair.received);
        queue_pair.received += 1;
        queue_pair.mid_message = !request.last;
        let ready = queue_pair.receive_ready;
        let (transport, verb, twin) = (queue_pair.transport, queue_pair.verb, queue_pair.twin);
        let upto = queue_pair.received as u32;
        if request.last {
            self.meter.message_delivered(&self.pairs[pair as usize]);
        }
        if transport == Transport::Rc && request.wants_ack {
            let arrives = self.send_ack(host, pair, at.max(ready), self.device.ack);
            self.schedule(arrives, Event::Acknowledged { pair, upto });
        }
        let plan =
            &self.plans[self.processes[self.pairs[pair as usize].process as usize].plan as usize];
        let visible = written + self.device.pcie_write + self.distance(plan.remote_memory);
        let batch = plan.receive_batch;
        if verb == Verb::Send && request.last {
            self.nics[host].count.cqes += 1;
            let bytes = self.device.pcie_bytes(CQE_BYTES);
            self.pcie_out(host, now, bytes);
            let queue_pair = &mut self.pairs[pair as usize];
            queue_pair.receives_owed += 1;
            if batch > 0 && queue_pair.receives_owed >= batch {
                queue_pair.receives_owed = 0;
                let cpu =
                    (self.device.poll + self.device.post) * u64::from(batch) + self.device.ring;
                let bytes = self.device.pcie_bytes(RECEIVE_WQE_BYTES * u64::from(batch))
                    + self.device.doorbell;
                self.pcie_in(host, now, bytes);
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
        if twin != NONE && request.last {
            self.schedule(
                visible,
                Event::Delivered {
                    pair,
                    message: request.message as u32,
                },
            );
        }
    }

    /// Takes the next posted receive; when its work request is in the NIC, ps, or zero if it is there.
    fn take_receive(&mut self, now: u64, host: usize, pair: u32) -> u64 {
        let prefetch = u64::from(self.device.receive_wqe_prefetch);
        let queue_pair = &mut self.pairs[pair as usize];
        let number = queue_pair.receives_used;
        queue_pair.receives_used += 1;
        queue_pair.receives -= 1;
        let line = number / prefetch;
        let key = |line: u64| u64::from(pair) << 32 | line & 0xffff_ffff;
        let nic = &mut self.nics[host];
        let hit = nic.receive_wqes.touch(key(line));
        // The next line is read ahead of use while this one is consumed.
        if number.is_multiple_of(prefetch) {
            nic.receive_wqes.insert(key(line + 1));
            let bytes = self.device.pcie_bytes(RECEIVE_WQE_BYTES * prefetch);
            self.pcie_in(host, now, bytes);
        }
        if hit || number < prefetch {
            return 0;
        }
        let nic = &mut self.nics[host];
        let miss = nic.receive_slots.take(now.max(nic.responder_free));
        nic.responder_free = nic.responder_free.max(miss.started);
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
        let nic = &mut self.nics[host];
        nic.responder_free = at + stall;
        if reliable {
            nic.count.rnr_naks += 1;
            nic.count.rnr_stall += stall;
            let queue_pair = &mut self.pairs[pair as usize];
            queue_pair.expected_epoch = queue_pair.expected_epoch.wrapping_add(1);
            let position = queue_pair.received as u32;
            let arrives = self.send_ack(host, pair, at + stall, self.device.ack);
            self.schedule(arrives, Event::NotReady { pair, position });
        } else {
            nic.count.drops += 1;
            nic.count.drop_stall += stall;
            let queue_pair = &mut self.pairs[pair as usize];
            queue_pair.dropping = !packet.last;
            queue_pair.received += u64::from(packet.last);
        }
        at + stall
    }

    /// A READ request: its response waits for the transmitter.
    fn receive_read(&mut self, now: u64, host: usize, pair: u32) -> u64 {
        let context = self.look_up_context(now, host, u64::from(pair) * 2 + RESPONDER, false);
        let memory = self.look_up_memory(now, host, pair, true, false);
        let at = self.responder_works(now, host, self.device.respond[verb_index(Verb::Read)]);
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
        let context = self.look_up_context(now, host, u64::from(pair) * 2 + RESPONDER, false);
        let memory = self.look_up_memory(now, host, pair, true, false);
        let at = self.responder_works(now, host, self.device.respond[verb_index(verb)]);
        let bytes = self.device.pcie_bytes(ATOMIC_BYTES);
        let read = self.pcie_in(host, at, bytes).max(context).max(memory) + self.device.pcie_read;
        self.pcie_out(host, at, bytes);
        self.meter
            .delivered(now, &mut self.pairs[pair as usize], ATOMIC_BYTES);
        self.meter.message_delivered(&self.pairs[pair as usize]);
        let queue_pair = &mut self.pairs[pair as usize];
        queue_pair.received += 1;
        let upto = queue_pair.received as u32;
        let arrives = self.send_ack(host, pair, read, self.device.ack + ATOMIC_BYTES);
        self.schedule(arrives, Event::Acknowledged { pair, upto });
        at
    }

    /// READ payload back at the requester.
    fn receive_response(&mut self, now: u64, host: usize, pair: u32, packet: Packet) -> u64 {
        if packet.first {
            let ready = self.look_up_memory(now, host, pair, false, false);
            self.pairs[pair as usize].receive_ready = ready;
        }
        let at = self.responder_works(now, host, self.device.packet.max(self.device.ack_cost));
        let bytes = self.device.pcie_bytes(u64::from(packet.payload));
        let written = self
            .pcie_out(host, at, bytes)
            .max(self.pairs[pair as usize].receive_ready);
        self.meter.delivered(
            now,
            &mut self.pairs[pair as usize],
            u64::from(packet.payload),
        );
        if packet.last {
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

    /// Sends an acknowledgement ahead of waiting data; when it arrives at the requester.
    fn send_ack(&mut self, host: usize, pair: u32, ready: u64, bytes: u64) -> u64 {
        let queue_pair = &self.pairs[pair as usize];
        if queue_pair.host == queue_pair.peer {
            return ready + self.device.propagation;
        }
        let time = self.device.link.of(bytes);
        let delay = self.one_way();
        let now = self.queue.now().as_ps();
        let nic = &mut self.nics[host];
        nic.count.tx_acks += 1;
        nic.count.tx_bytes += bytes;
        nic.count.tx_packets += 1;
        // One that is not ready yet, for want of metadata, lets later ones of other pairs go first.
        nic.ack_free = nic.ack_free.max(now) + time;
        // The capacity an acknowledgement takes is missing for data.
        for free in &mut nic.wire_free {
            *free += time;
        }
        nic.ack_free.max(ready + time) + delay
    }

    /// An acknowledgement arrives, or the last packet has left where nobody acknowledges.
    pub(crate) fn acknowledged(&mut self, now: u64, pair: u32, upto: u32) {
        let queue_pair = &self.pairs[pair as usize];
        let host = usize::from(queue_pair.host);
        if queue_pair.transport == Transport::Rc {
            let atomic = matches!(queue_pair.verb, Verb::FetchAdd | Verb::CompareSwap);
            let bytes = self.device.ack + if atomic { ATOMIC_BYTES } else { 0 };
            self.count_arrival(host, pair, bytes);
            self.enqueue(now, host, pair, Arrived::Ack { upto });
        } else if let Some(upto) = self.fresh(pair, upto) {
            self.finish(now, host, pair, upto, now);
        }
    }

    /// The position `upto` stands for, if it is news.
    fn fresh(&self, pair: u32, upto: u32) -> Option<u64> {
        let queue_pair = &self.pairs[pair as usize];
        let distance = upto.wrapping_sub(queue_pair.acknowledged as u32) as i32;
        (distance > 0).then(|| queue_pair.acknowledged + distance as u64)
    }

    fn process_ack(&mut self, now: u64, host: usize, pair: u32, upto: u32) {
        let Some(upto) = self.fresh(pair, upto) else {
            return;
        };
        self.look_up_context(now, host, u64::from(pair) * 2, false);
        let at = self.responder_works(now, host, self.device.ack_cost);
        let queue_pair = &mut self.pairs[pair as usize];
        let atomic = matches!(queue_pair.verb, Verb::FetchAdd | Verb::CompareSwap);
        if atomic {
            queue_pair.reads_out -= (upto - queue_pair.acknowledged) as u32;
        }
        self.finish(now, host, pair, upto, at);
        if atomic {
            self.activate(now, pair, false);
        }
    }

    /// Frees the slots below `upto` and writes the completions that were asked for.
    fn finish(&mut self, now: u64, host: usize, pair: u32, upto: u64, at: u64) {
        let queue_pair = &mut self.pairs[pair as usize];
        let mut seen = None;
        let mut entries = 0;
        for position in queue_pair.acknowledged..upto {
            let request = queue_pair.work_request(position);
            if request.signalled && request.last {
                seen = Some(request.message + 1);
                entries += 1;
            }
        }
        queue_pair.acknowledged = upto;
        if let Some(messages) = seen {
            let bytes = self.device.pcie_bytes(CQE_BYTES) * entries;
            let written = self.pcie_out(host, now, bytes).max(at);
            self.nics[host].count.cqes += entries;
            let visible = written + self.device.pcie_write;
            self.schedule(
                visible,
                Event::Completed {
                    pair,
                    upto: messages as u32,
                },
            );
        }
        self.room_again(now, pair);
    }

    /// A receiver-not-ready NAK: go back to that message after the RNR timer.
    pub(crate) fn not_ready(&mut self, now: u64, pair: u32, position: u32) {
        self.count_arrival(
            usize::from(self.pairs[pair as usize].host),
            pair,
            self.device.ack,
        );
        let process = &self.processes[self.pairs[pair as usize].process as usize];
        let wait = self.plans[process.plan as usize].retry_after;
        let queue_pair = &mut self.pairs[pair as usize];
        let back = (queue_pair.sent as u32).wrapping_sub(position);
        queue_pair.sent -= u64::from(back);
        queue_pair.offset = 0;
        queue_pair.resolved = false;
        queue_pair.epoch = queue_pair.epoch.wrapping_add(1);
        queue_pair.backing_off = true;
        let tenant = usize::from(queue_pair.tenant);
        self.meter.error(tenant);
        self.schedule(now + wait, Event::Retry { pair });
    }

    /// The RNR timer ran out.
    pub(crate) fn retry(&mut self, now: u64, pair: u32) {
        self.pairs[pair as usize].backing_off = false;
        self.activate(now, pair, false);
    }

    /// The receiver of a marked packet notifies its sender, at most once per interval.
    fn notify(&mut self, now: u64, pair: u32) {
        let host = usize::from(self.pairs[pair as usize].peer);
        if !self.device.congestion
            || now < self.pairs[pair as usize].notified_at + self.device.notification
        {
            return;
        }
        self.pairs[pair as usize].notified_at = now;
        self.nics[host].count.notifications_sent += 1;
        let arrives = self.send_ack(host, pair, now, self.device.ack);
        self.schedule(arrives, Event::Notified { pair });
    }

    /// A congestion notification reaches the pair it names.
    pub(crate) fn notified(&mut self, now: u64, pair: u32) {
        let host = usize::from(self.pairs[pair as usize].host);
        self.count_arrival(host, pair, self.device.ack);
        self.nics[host].count.notifications_handled += 1;
        if self.pairs[pair as usize].pacing.notified(&self.device) {
            let at = now + self.device.increase;
            self.schedule(at, Event::Recover { pair });
        }
    }

    /// DCQCN's timer of one pair.
    pub(crate) fn recover(&mut self, now: u64, pair: u32) {
        if self.pairs[pair as usize].pacing.recover(&self.device) {
            let at = now + self.device.increase;
            self.schedule(at, Event::Recover { pair });
        }
    }

    /// Whether the pair's process waits for each answer before it posts again.
    pub(crate) fn is_ping_pong(&self, pair: u32) -> bool {
        let process = &self.processes[self.pairs[pair as usize].process as usize];
        matches!(self.plans[process.plan as usize].arrival, Arrival::PingPong)
    }
}

/// Bytes an atomic moves.
const ATOMIC_BYTES: u64 = 8;
