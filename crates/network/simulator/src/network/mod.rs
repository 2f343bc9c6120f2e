//! Ports, buffers and the event loop: everything between the hosts, without flows and calls.
//!
//! A transport hands packets to its host's port ([`Network::transmit`]); [`Network::step`] moves time forward until
//! something concerns a host: a packet that has arrived, a timer, a port that has run dry.
//!
//! What a packet meets on its way (switches store it whole before they forward it):
//!
//! 1. its port: straight to the line if that is idle and nothing waits, else into the port's [`Discipline`];
//! 2. at a switch, before that: room in the buffer or a drop with a reason (`buffer`), a mark by the queue that it
//!    finds (`marking`), a pause frame to the sender if too much of its port and class is here (`pause`);
//! 3. on leaving: the telemetry of the hop (`telemetry`), its size over the link's rate, the link's delay.
//!
//! An idle hop costs one event (the arrival at its end), a hop behind others two (and the port's turn). A packet
//! leaves the buffer when its first bit does. Hosts' own ports have room for everything.
//!
//! Every run is checked: what was sent has been delivered, was dropped or is on its way (`count`).

pub mod agent;
mod border;
mod buffer;
mod count;
mod marking;
mod motion;
mod pause;
mod port;
mod tap;
mod telemetry;
#[cfg(test)]
mod tests;

pub use count::DropReason;
pub use pause::HeadroomError;
pub use tap::{Tap, TapMoment};

use crate::discipline::{Discipline, Order, PortOrder};
use crate::packet::{BasePath, HopTelemetry, HostId, Packet, PacketId, PacketKind, Packets};
use crate::packet::{Timer, flags};
use crate::topology::{NodeId, PortId, Topology};
use agent::{PortAgent, Visit};
use buffer::Buffers;
use count::Counts;
use isolane_common_events::EventQueue;
use isolane_common_quantities::units::{BitRate, Bytes, Duration, Instant};
use isolane_network_scenario::model::{CLASSES_MAX, PortSettings};
use marking::Marking;
use pause::Pauses;
use port::Port;
use telemetry::Telemetry;

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
    /// A packet has arrived at a node.
    Arrive(PacketId, NodeId),
    /// The last bit has left a port.
    Free(PortId),
    /// A port receives a pause or a release of a class.
    Pause { port: PortId, class: u8, on: bool },
    /// A pause that `port` requested may need a repeat.
    Repeat { port: PortId, class: u8 },
    /// A pause of a class at `port` may be over.
    Expire { port: PortId, class: u8 },
    /// A timer of a transport.
    Timer(Owner, Timer),
}

/// How ports choose, beyond what [`PortSettings`] says.
#[derive(Clone, Copy, Debug)]
pub struct Ordering<'a> {
    /// Which packet goes next, at hosts and switches.
    pub order: Order,
    /// Weight of each class from the highest; as many as there are classes.
    pub weights: &'a [u32],
    /// The run's seed; marking draws from a stream of its own.
    pub seed: u64,
}

/// A network in motion.
#[derive(Debug)]
pub struct Network {
    /// All packets in flight.
    pub packets: Packets,
    topology: Topology,
    events: EventQueue<Event>,
    ports: Vec<Port>,
    disciplines: Vec<Discipline>,
    idle: Vec<HostId>,
    mtu: Bytes,
    header: Bytes,
    buffers: Buffers,
    marking: Option<Marking>,
    pauses: Option<Pauses>,
    telemetry: Telemetry,
    counts: Counts,
    agent: Option<Box<dyn PortAgent>>,
    tap: Option<Box<dyn Tap>>,
}

impl Network {
    /// A network at rest at time zero, with the scheduler of `settings` and classes of equal weight.
    pub fn new(topology: Topology, settings: &PortSettings) -> Self {
        let ordering = Ordering {
            order: settings.scheduler.into(),
            weights: &[1; CLASSES_MAX],
            seed: 0,
        };
        Self::ordered(topology, settings, ordering)
    }

    /// A network at rest at time zero, with ports that choose by `ordering` instead of the scheduler of `settings`.
    pub fn ordered(topology: Topology, settings: &PortSettings, ordering: Ordering<'_>) -> Self {
        let largest = settings.mtu + settings.header;
        let discipline = |rate| {
            Discipline::new(&PortOrder {
                order: ordering.order,
                weights: ordering.weights,
                rate,
                largest,
            })
        };
        let specs = &topology.ports;
        Self {
            packets: Packets::default(),
            events: EventQueue::new(),
            ports: (0..specs.len())
                .map(|port| Port::new(&topology, PortId(port as u32)))
                .collect(),
            disciplines: specs.iter().map(|spec| discipline(spec.rate)).collect(),
            idle: Vec::new(),
            mtu: settings.mtu,
            header: settings.header,
            buffers: Buffers::new(&topology, settings),
            marking: settings.ecn.map(|ecn| Marking::new(ecn, ordering.seed)),
            pauses: settings.pfc.map(|pfc| Pauses::new(&topology, pfc)),
            telemetry: Telemetry::default(),
            counts: Counts::new(specs.len()),
            agent: None,
            tap: None,
            topology,
        }
    }

    /// Lets at most so many bytes of each class, from the highest, wait at one port of a switch.
    pub fn limit_classes(&mut self, limits: impl IntoIterator<Item = Option<Bytes>>) {
        self.buffers.limit_classes(limits);
    }

    /// Shows packets with [`flags::VISIT_PORTS`] to `agent` from now on.
    pub fn set_agent(&mut self, agent: Box<dyn PortAgent>) {
        self.agent = Some(agent);
    }

    /// Shows every packet to `tap` from now on.
    pub fn set_tap(&mut self, tap: Box<dyn Tap>) {
        self.tap = Some(tap);
    }

    /// Gives the tap back, for what it has gathered.
    pub fn take_tap(&mut self) -> Option<Box<dyn Tap>> {
        self.tap.take()
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
        self.topology.ports[host.0 as usize].rate
    }

    /// Hands a packet to its sender's port (`from`).
    #[inline]
    pub fn transmit(&mut self, mut packet: Packet) -> PacketId {
        self.counts.sent += 1;
        if packet.kind == PacketKind::Data {
            self.counts.data += 1;
            self.counts.repeated += u64::from(packet.flags & flags::REPEATED != 0);
        }
        packet.hops = 0;
        let port = PortId(u32::from(packet.from.0));
        let tells = packet.flags & flags::TELEMETRY != 0;
        let id = self.packets.insert(packet);
        if tells {
            self.telemetry.open(id);
        }
        self.show(id, Some(port), None);
        self.leave_host(port, id);
        id
    }

    /// Hands a packet that has arrived, and that its receiver has turned into an answer (`from` and `to` exchanged),
    /// to the answering host's port. It keeps its slot and its telemetry.
    #[inline]
    pub fn answer(&mut self, id: PacketId) {
        let packet = &mut self.packets[id];
        packet.hops = 0;
        let port = PortId(u32::from(packet.from.0));
        self.counts.sent += 1;
        self.show(id, Some(port), None);
        self.leave_host(port, id);
    }

    /// The telemetry of the hops for a packet that was sent with `flags::TELEMETRY`, the first hop first. An answer
    /// still has it.
    #[inline]
    pub fn telemetry(&self, id: PacketId) -> &[HopTelemetry] {
        if self.packets[id].flags & flags::TELEMETRY == 0 {
            return &[];
        }
        self.telemetry.hops(id)
    }

    /// Forgets a packet that has arrived.
    #[inline]
    pub fn free(&mut self, id: PacketId) {
        self.packets.remove(id);
    }

    /// Sets a timer of `owner`. It cannot be taken back.
    #[inline]
    pub fn set_timer(&mut self, at: Instant, owner: Owner, timer: Timer) {
        self.events.schedule(at, Event::Timer(owner, timer));
    }

    /// Whether the transport is called when `host`'s port becomes empty.
    pub fn tell_when_idle(&mut self, host: HostId, tell: bool) {
        let state = &mut self.ports[host.0 as usize];
        state.tell_idle = tell;
        if tell && self.is_busy(host) {
            self.expect_free(PortId(u32::from(host.0)));
        }
    }

    /// Whether `host`'s port sends something now.
    #[inline]
    pub fn is_busy(&self, host: HostId) -> bool {
        !self.ports[host.0 as usize].is_idle(self.events.now())
    }

    /// Bytes that wait at `host`'s own port in `class`.
    #[inline]
    pub fn queued(&self, host: HostId, class: u8) -> Bytes {
        self.queued_at(PortId(u32::from(host.0)), class)
    }

    /// Bytes that wait at `port` in `class`.
    #[inline]
    pub fn queued_at(&self, port: PortId, class: u8) -> Bytes {
        Bytes::new(self.disciplines[port.0 as usize].class_bytes(class))
    }

    /// Bytes that wait at `port`, all classes.
    #[inline]
    pub fn port_queue(&self, port: PortId) -> Bytes {
        Bytes::new(self.ports[port.0 as usize].queued)
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
            let state = &self.ports[port.0 as usize];
            let delay = Duration::from_ps(state.delay);
            path.one_way += state.time_for(bytes.get()) + delay;
            path.round_trip += state.time_for(answer.get()) + delay;
            path.hops += 1;
            if state.to == NodeId(u32::from(to.0)) {
                break;
            }
            port = self.topology.way(state.to, to, 0);
        }
        path.round_trip += path.one_way;
        path
    }

    /// Shows a packet with the flag to the agent.
    #[inline]
    fn show(&mut self, id: PacketId, leaves: Option<PortId>, through: Option<PortId>) {
        if self.packets[id].flags & flags::VISIT_PORTS != 0 {
            self.show_agent(id, leaves, through);
        }
    }

    /// `back` leads to the packet's source.
    #[cold]
    fn show_agent(&mut self, id: PacketId, leaves: Option<PortId>, back: Option<PortId>) {
        let Some(agent) = &mut self.agent else { return };
        let leaving = leaves.map(|port| port.0 as usize);
        let visit = Visit {
            now: self.events.now(),
            leaves,
            back,
            rate: leaving.map_or(BitRate::ZERO, |port| self.topology.ports[port].rate),
            queued: leaving.map_or(Bytes::ZERO, |port| Bytes::new(self.ports[port].queued)),
        };
        agent.visit(visit, &mut self.packets[id]);
    }
}
