//! The event loop: packets from port to port.

use super::port::HOST;
use super::{DropReason, Event, Network, Step, TapMoment};
use crate::discipline::Discipline;
use crate::packet::{HostId, PacketId, PacketKind, flags};
use crate::topology::{NodeId, PortId};
use isolane_common_events::prefetch::fetch;
use isolane_common_quantities::units::Instant;

/// Events between this one and the one whose memory is prefetched: enough for the time of a read that misses the caches.
const FETCHED_AHEAD: usize = 2;

impl Network {
    /// Moves on until something concerns a host, or to `end`. Events after `end` stay for later.
    #[inline]
    pub fn step(&mut self, end: Instant) -> Step {
        loop {
            if let Some(host) = self.idle.pop() {
                return Step::Idle(host);
            }
            let Some(now) = self.events.take_until(end) else {
                self.assert_conservation();
                return Step::Over;
            };
            self.counts.events += 1;
            self.fetch_ahead();
            match self.events.taken() {
                Event::Arrive(id, node) => {
                    self.counts.on_wire -= 1;
                    if node.0 < self.topology.hosts {
                        self.counts.delivered += 1;
                        self.show_arrival(id, node);
                        return Step::Packet(id);
                    }
                    self.enter_switch(now, node, id);
                }
                Event::Free(port) => self.free_port(now, port),
                Event::Timer(owner, timer) => return Step::Timer(owner, timer),
                Event::Pause { port, class, on } => self.obey(now, port, class, on),
                Event::Repeat { port, class } => self.repeat_pause(now, port, class),
                Event::Expire { port, class } => self.expire_pause(now, port, class),
            }
        }
    }

    /// Prefetches the memory of an event that is taken soon while this one is handled. Networks of a thousand hosts do not fit
    /// a cache.
    #[inline]
    fn fetch_ahead(&self) {
        match self.events.upcoming(FETCHED_AHEAD) {
            Some(&Event::Arrive(id, _)) => fetch(&self.packets[id]),
            Some(&Event::Free(port)) => {
                fetch(&self.ports[port.0 as usize]);
                fetch(&self.disciplines[port.0 as usize]);
            }
            _ => {}
        }
    }

    #[inline]
    fn show_arrival(&mut self, id: PacketId, node: NodeId) {
        self.show(id, None, Some(PortId(node.0)));
        if self.tap.is_some() {
            self.tell_tap(PortId(node.0), TapMoment::Arrived, id);
        }
    }

    /// A host's own packet arrives at its port, which has room for everything.
    #[inline]
    pub(super) fn leave_host(&mut self, port: PortId, id: PacketId) {
        let now = self.events.now();
        if self.ports[port.0 as usize].passes(now, self.packets[id].class) {
            self.pass(now, port, id);
        } else {
            self.wait(now, port, id);
        }
    }

    #[inline]
    fn enter_switch(&mut self, now: Instant, node: NodeId, id: PacketId) {
        let packet = &self.packets[id];
        let port = self.topology.way(node, packet.to, packet.path);
        if packet.flags & flags::VISIT_PORTS != 0 {
            let first = self.topology.first_port(node.0 - self.topology.hosts);
            let back = PortId(first + u32::from(packet.ingress));
            self.show(id, Some(port), Some(back));
        }
        let state = &self.ports[port.0 as usize];
        let packet = &self.packets[id];
        if state.passes(now, packet.class) {
            return self.pass(now, port, id);
        }
        if self.buffers.limits_classes() && !self.class_fits(port, id) {
            return self.drop_packet(port, id, DropReason::ClassFull);
        }
        if self.buffers.admit(state, u64::from(packet.bytes)) {
            self.accept(now, node, port, id);
        } else {
            self.overflow(now, node, port, id);
        }
    }

    #[cold]
    fn class_fits(&self, port: PortId, id: PacketId) -> bool {
        let packet = &self.packets[id];
        let queued = self.disciplines[port.0 as usize].class_bytes(packet.class);
        queued + u64::from(packet.bytes) <= self.buffers.class_limit(packet.class)
    }

    /// A packet that waits, and has room in the switch.
    #[inline]
    fn accept(&mut self, now: Instant, node: NodeId, port: PortId, id: PacketId) {
        if let Some(marking) = &mut self.marking {
            let packet = &mut self.packets[id];
            let queue = self.disciplines[port.0 as usize].class_bytes(packet.class);
            if packet.flags & flags::ECN_CAPABLE != 0 && marking.marks(queue) {
                packet.flags |= flags::MARKED;
                self.counts.marked += 1;
            }
        }
        if self.pauses.is_some() {
            self.enter_ingress(now, node, id);
        }
        self.wait(now, port, id);
    }

    /// The buffer is full: the new packet is dropped, or under an order by key the least important one.
    #[cold]
    fn overflow(&mut self, now: Instant, node: NodeId, port: PortId, id: PacketId) {
        let discipline = &mut self.disciplines[port.0 as usize];
        if !matches!(discipline, Discipline::SmallestKey(_)) {
            return self.drop_packet(port, id, DropReason::BufferFull);
        }
        self.accept(now, node, port, id);
        loop {
            let state = &mut self.ports[port.0 as usize];
            if self.buffers.fits(state) {
                return;
            }
            let victim = self.disciplines[port.0 as usize].evict_largest();
            let victim = victim.expect("a port above its limit holds a packet");
            let bytes = u64::from(self.packets[victim].bytes);
            state.queued -= bytes;
            state.waiting -= 1;
            self.buffers.leaves(state, bytes);
            if self.pauses.is_some() {
                self.leave_ingress(now, port, victim);
            }
            self.drop_packet(port, victim, DropReason::LowerPriority);
        }
    }

    #[cold]
    fn drop_packet(&mut self, port: PortId, id: PacketId, reason: DropReason) {
        if self.tap.is_some() {
            self.tell_tap(port, TapMoment::Dropped(reason), id);
        }
        self.counts.drop(port, reason);
        self.free(id);
    }

    /// Onto the line at once.
    #[inline]
    fn pass(&mut self, now: Instant, port: PortId, id: PacketId) {
        self.disciplines[port.0 as usize].pass(now, &self.packets[id]);
        self.depart(now, port, id);
    }

    /// Behind the others, or behind a pause.
    #[inline]
    fn wait(&mut self, now: Instant, port: PortId, id: PacketId) {
        let state = &mut self.ports[port.0 as usize];
        let bytes = u64::from(self.packets[id].bytes);
        state.waiting += 1;
        state.queued += bytes;
        state.queue_max = state.queue_max.max(state.queued);
        self.buffers.enters(state, bytes);
        self.disciplines[port.0 as usize].push(&mut self.packets, now, id);
        if state.is_idle(now) {
            self.send_next(now, port);
        } else if !state.free_filed {
            self.expect_free(port);
        }
    }

    /// Files the end of what is on the line, unless that is done.
    #[inline]
    pub(super) fn expect_free(&mut self, port: PortId) {
        let state = &mut self.ports[port.0 as usize];
        if !state.free_filed {
            state.free_filed = true;
            let at = Instant::from_ps(state.free_at);
            self.events.schedule(at, Event::Free(port));
        }
    }

    #[inline]
    fn free_port(&mut self, now: Instant, port: PortId) {
        let state = &mut self.ports[port.0 as usize];
        state.free_filed = false;
        if state.free_at > now.as_ps() {
            // A pause frame has taken the line meanwhile.
            return self.expect_free(port);
        }
        if state.waiting == 0 {
            if state.tell_idle {
                self.idle.push(HostId(port.0 as u16));
            }
            return;
        }
        self.send_next(now, port);
    }

    /// An idle port sends what is next, if it is not paused.
    #[inline]
    pub(super) fn send_next(&mut self, now: Instant, port: PortId) {
        let state = &mut self.ports[port.0 as usize];
        let discipline = &mut self.disciplines[port.0 as usize];
        let Some(id) = discipline.pop(&mut self.packets, now, state.paused) else {
            assert!(state.paused != 0, "a port that may send and does not");
            return;
        };
        let bytes = u64::from(self.packets[id].bytes);
        state.waiting -= 1;
        state.queued -= bytes;
        self.buffers.leaves(state, bytes);
        if self.pauses.is_some() {
            self.leave_ingress(now, port, id);
        }
        self.depart(now, port, id);
    }

    /// The first bit leaves.
    #[inline]
    fn depart(&mut self, now: Instant, port: PortId, id: PacketId) {
        let state = &mut self.ports[port.0 as usize];
        let packet = &mut self.packets[id];
        let bytes = u64::from(packet.bytes);
        let free_at = now + state.time_for(bytes);
        state.free_at = free_at.as_ps();
        // Before its own bytes count: two packets report the bytes that began between their departures.
        if packet.flags & flags::TELEMETRY != 0 && packet.kind == PacketKind::Data {
            self.telemetry.note(id, state, now);
        }
        state.sent += bytes;
        packet.hops += 1;
        packet.ingress = state.enters;
        if state.waiting > 0 || state.tell_idle {
            state.free_filed = true;
            self.events.schedule(free_at, Event::Free(port));
        }
        let arrival = Instant::from_ps(free_at.as_ps() + state.delay);
        let to = state.to;
        self.events.schedule(arrival, Event::Arrive(id, to));
        self.counts.on_wire += 1;
        if self.tap.is_some() {
            self.tell_tap(port, TapMoment::Left, id);
        }
    }

    #[cold]
    fn tell_tap(&mut self, port: PortId, moment: TapMoment, id: PacketId) {
        let now = self.events.now();
        if let Some(tap) = &mut self.tap {
            tap.saw(now, port, moment, &self.packets[id]);
        }
    }

    /// A packet that waits at a switch counts for the port that it came through until it leaves.
    #[inline]
    fn leave_ingress(&mut self, now: Instant, port: PortId, id: PacketId) {
        let state = &self.ports[port.0 as usize];
        if state.switch != HOST {
            let packet = &self.packets[id];
            let first = self.topology.first_port(u32::from(state.switch));
            let entered = PortId(first + u32::from(packet.ingress));
            let (class, bytes) = (packet.class, u64::from(packet.bytes));
            self.release_ingress(now, entered, class, bytes);
        }
    }

    #[inline]
    fn enter_ingress(&mut self, now: Instant, node: NodeId, id: PacketId) {
        let packet = &self.packets[id];
        let first = self.topology.first_port(node.0 - self.topology.hosts);
        let entered = PortId(first + u32::from(packet.ingress));
        let (class, bytes) = (packet.class, u64::from(packet.bytes));
        self.occupy_ingress(now, entered, class, bytes);
    }
}
