//! Ports, buffers and the event loop: everything between the hosts. It knows nothing of flows or calls.
//!
//! A transport hands packets to its host's port ([`Network::transmit`]); [`Network::step`] moves time forward until
//! something concerns a host: a packet that has arrived, a timer, a port that has run dry.

pub mod agent;

use crate::discipline::{Discipline, Order, PortOrder};
use crate::packet::{BasePath, HopTelemetry, HostId, Packet, PacketId, Packets, Timer, flags};
use crate::topology::{NodeId, PortId, Topology};
use agent::{PortAgent, Visit};
use isolane_core::units::{BitRate, Bytes, Duration, Instant};
use isolane_scenario::fabric::model::{CLASSES_MAX, PortSettings};
use isolane_scenario::fabric::result::PacketCounts;
use isolane_sim::engine::EventQueue;

/// Who set a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The transport.
    Transport,
    /// The calls.
    Calls,
    /// The recorder of time series.
    Recorder,
}

/// What concerns a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A packet has reached the host it is for.
    Packet(PacketId),
    /// A timer is due.
    Timer(Owner, Timer),
    /// A host's port has run dry, and its transport wants to know.
    Idle(HostId),
    /// Nothing happens any more, or not before the given end.
    Over,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Arrive(PacketId, PortId),
    Free(PortId),
    Timer(Owner, Timer),
}

#[derive(Clone, Debug)]
struct Port {
    discipline: Discipline,
    busy: bool,
    tell_idle: bool,
    rate: BitRate,
    delay: Duration,
    to: NodeId,
}

/// A network in motion.
#[derive(Debug)]
pub struct Network {
    /// All packets in flight.
    pub packets: Packets,
    topology: Topology,
    events: EventQueue<Event>,
    ports: Vec<Port>,
    idle: Vec<HostId>,
    mtu: Bytes,
    header: Bytes,
    counts: PacketCounts,
    agent: Option<Box<dyn PortAgent>>,
}

impl Network {
    /// A network at rest at time zero.
    pub fn new(topology: Topology, settings: &PortSettings) -> Self {
        let ports = topology.ports.iter().map(|spec| Port {
            discipline: Discipline::new(&PortOrder {
                order: Order::Strict,
                weights: &[1; CLASSES_MAX],
                rate: spec.rate,
                largest: settings.mtu + settings.header,
            }),
            busy: false,
            tell_idle: false,
            rate: spec.rate,
            delay: spec.delay,
            to: spec.to,
        });
        Self {
            packets: Packets::default(),
            ports: ports.collect(),
            topology,
            events: EventQueue::new(),
            idle: Vec::new(),
            mtu: settings.mtu,
            header: settings.header,
            counts: PacketCounts::default(),
            agent: None,
        }
    }

    /// Shows packets with [`flags::VISIT_PORTS`] to `agent` from now on.
    pub fn set_agent(&mut self, agent: Box<dyn PortAgent>) {
        self.agent = Some(agent);
    }

    /// Now.
    #[inline]
    pub fn now(&self) -> Instant {
        self.events.now()
    }

    /// Hosts and links.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Payload of a full packet.
    #[inline]
    pub fn mtu(&self) -> Bytes {
        self.mtu
    }

    /// Bytes of headers on each packet.
    #[inline]
    pub fn header(&self) -> Bytes {
        self.header
    }

    /// Rate of a host's port.
    #[inline]
    pub fn host_rate(&self, host: HostId) -> BitRate {
        self.ports[host.0 as usize].rate
    }

    /// Hands a packet to its sender's port (`from`).
    pub fn transmit(&mut self, packet: Packet) -> PacketId {
        let port = PortId(u32::from(packet.from.0));
        let id = self.packets.insert(packet);
        self.counts.sent += 1;
        self.show(id, Some(port), None);
        self.enqueue(port, id);
        id
    }

    /// Hands a packet that has arrived, and that its receiver has turned into an answer (`from` and `to` exchanged),
    /// to the answering host's port. It keeps its slot and its telemetry.
    pub fn answer(&mut self, id: PacketId) {
        let port = PortId(u32::from(self.packets[id].from.0));
        self.packets[id].hops = 0;
        self.counts.sent += 1;
        self.enqueue(port, id);
    }

    /// What the hops told a packet that was sent with `flags::TELEMETRY`, the first hop first. An answer still has it.
    #[inline]
    pub fn telemetry(&self, _id: PacketId) -> &[HopTelemetry] {
        &[]
    }

    /// Forgets a packet that has arrived.
    #[inline]
    pub fn free(&mut self, id: PacketId) {
        self.packets.remove(id);
    }

    /// Sets a timer of `owner`. It cannot be taken back.
    pub fn set_timer(&mut self, at: Instant, owner: Owner, timer: Timer) {
        self.events.schedule(at, Event::Timer(owner, timer));
    }

    /// Whether the transport hears of it when `host`'s port runs dry.
    pub fn tell_when_idle(&mut self, host: HostId, tell: bool) {
        self.ports[host.0 as usize].tell_idle = tell;
    }

    /// Whether `host`'s port sends something now.
    pub fn is_busy(&self, host: HostId) -> bool {
        self.ports[host.0 as usize].busy
    }

    /// Bytes that wait at `host`'s own port in `class`.
    pub fn queued(&self, host: HostId, class: u8) -> Bytes {
        Bytes::new(self.ports[host.0 as usize].discipline.class_bytes(class))
    }

    /// Times of a packet of `bytes` on the wire between two hosts through empty queues, answered by `answer` bytes.
    pub fn base_path(&self, from: HostId, to: HostId, bytes: Bytes, answer: Bytes) -> BasePath {
        let mut path = BasePath {
            one_way: Duration::ZERO,
            round_trip: Duration::ZERO,
            hops: 0,
        };
        let mut port = PortId(u32::from(from.0));
        loop {
            let spec = self.topology.ports[port.0 as usize];
            path.one_way += spec.rate.time_for(bytes) + spec.delay;
            path.round_trip += spec.rate.time_for(answer) + spec.delay;
            path.hops += 1;
            if spec.to == NodeId(u32::from(to.0)) {
                break;
            }
            port = self.topology.way(spec.to, to, 0);
        }
        path.round_trip += path.one_way;
        path
    }

    /// Packets so far.
    pub fn counts(&self) -> &PacketCounts {
        &self.counts
    }

    /// Moves on until something concerns a host, or to `end`.
    pub fn step(&mut self, end: Instant) -> Step {
        loop {
            if let Some(host) = self.idle.pop() {
                return Step::Idle(host);
            }
            let Some((now, event)) = self.events.pop() else {
                return Step::Over;
            };
            if now > end {
                return Step::Over;
            }
            self.counts.events += 1;
            match event {
                Event::Timer(owner, timer) => return Step::Timer(owner, timer),
                Event::Free(port) => self.free_port(port),
                Event::Arrive(id, through) => {
                    let node = self.ports[through.0 as usize].to;
                    if node.0 < self.topology.hosts {
                        self.counts.delivered += 1;
                        self.show(id, None, Some(through));
                        return Step::Packet(id);
                    }
                    let (to, path) = (self.packets[id].to, self.packets[id].path);
                    let port = self.topology.way(node, to, path);
                    self.show(id, Some(port), Some(through));
                    self.enqueue(port, id);
                }
            }
        }
    }

    /// Shows a packet that asks for it to the agent.
    #[inline]
    fn show(&mut self, id: PacketId, leaves: Option<PortId>, through: Option<PortId>) {
        if self.packets[id].flags & flags::VISIT_PORTS == 0 {
            return;
        }
        let Some(agent) = &mut self.agent else { return };
        let port = leaves.map(|port| &self.ports[port.0 as usize]);
        let visit = Visit {
            now: self.events.now(),
            leaves,
            back: through.map(|through| self.topology.ports[through.0 as usize].back),
            rate: port.map_or(BitRate::ZERO, |port| port.rate),
            queued: port.map_or(Bytes::ZERO, |port| Bytes::new(port.discipline.bytes())),
        };
        agent.visit(visit, &mut self.packets[id]);
    }

    fn enqueue(&mut self, port: PortId, id: PacketId) {
        let now = self.now();
        let state = &mut self.ports[port.0 as usize];
        state.discipline.push(&mut self.packets, now, id);
        if !state.busy {
            self.send_next(port);
        }
    }

    fn free_port(&mut self, port: PortId) {
        self.ports[port.0 as usize].busy = false;
        self.send_next(port);
    }

    fn send_next(&mut self, port: PortId) {
        let now = self.now();
        let state = &mut self.ports[port.0 as usize];
        let Some(id) = state.discipline.pop(&mut self.packets, now, 0) else {
            if state.tell_idle {
                self.idle.push(HostId(port.0 as u16));
            }
            return;
        };
        state.busy = true;
        let packet = &mut self.packets[id];
        packet.hops += 1;
        let done = now + state.rate.time_for(Bytes::new(u64::from(packet.bytes)));
        let arrives = done + state.delay;
        self.events.schedule(done, Event::Free(port));
        self.events.schedule(arrives, Event::Arrive(id, port));
    }
}
