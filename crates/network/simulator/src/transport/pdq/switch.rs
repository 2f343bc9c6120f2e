//! What PDQ's ports do (paper section 3.3): a ranked list of flows, and who of them may send.
//!
//! A port ranks its flows by deadline, then by the time that their rest takes, then by number. On the way out, a packet
//! is granted what the flows before it leave (`available`), or is paused with the port's name on it. On the way back,
//! the answer has the decisions of the other ports: only then does the list change. A flow that another port pauses is
//! taken off the list, since it takes nothing here.
//!
//! Early start: flows before it that are nearly done do not count, as long as the sum of their rests is below K round
//! trips. Dampening: a port that has just accepted a paused flow accepts no other one until its packets are seen, or would
//! have passed if they are fewer than that.
//! Capacity is the link's rate, less what drains the queue in two round trips, computed that often; one full packet is no queue,
//! since paced packets of several hosts meet.

use super::Settings;
use super::header::{Header, NOT_PAUSED};
use crate::network::agent::{PortAgent, Visit};
use crate::packet::{Packet, PacketKind, flags};
use crate::topology::PortId;
use isolane_common_quantities::units::{BitRate, Bytes, Duration, Instant};

/// Most ports on a way.
const HOPS_MAX: usize = 8;
/// No port.
const NONE: u32 = u32::MAX;

/// Deadline, rest, flow: the smallest goes first.
type Rank = (u64, u64, u32);

/// The ports that a flow leaves through.
#[derive(Clone, Copy, Debug)]
struct Way {
    /// [`Packet::path`] of the flow, which distinguishes it from the record's earlier owners.
    path: u16,
    /// The ports that answers pass, a bit each.
    passed: u8,
    ports: [u32; HOPS_MAX],
}

impl Default for Way {
    fn default() -> Self {
        Self {
            path: 0,
            passed: 0,
            ports: [NONE; HOPS_MAX],
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    rank: Rank,
    rate_mbps: u32,
    paused_by: u32,
}

#[derive(Clone, Debug)]
struct Port {
    /// The most urgent first.
    flows: Vec<Entry>,
    /// No other flow is accepted before that.
    damped_until: Instant,
    /// The flow that was accepted last.
    accepted: u32,
    /// What may be given away, megabits per second, until when.
    capacity_mbps: u32,
    capacity_until: Instant,
}

/// All ports.
#[derive(Clone, Debug)]
pub(super) struct Switches {
    ports: Vec<Port>,
    /// By flow.
    ways: Vec<Way>,
    round_trip: Duration,
    early_start: Duration,
    probe_rtts_per_place: f64,
    dampening: Duration,
    packet: Bytes,
}

impl Switches {
    pub(super) fn new(ports: usize, settings: &Settings) -> Self {
        let early = settings.early_start_rtts * settings.round_trip.as_ps() as f64;
        Self {
            ports: vec![Port::new(); ports],
            ways: Vec::new(),
            round_trip: settings.round_trip,
            early_start: Duration::from_ps(early as u64),
            probe_rtts_per_place: settings.probe_rtts_per_place,
            dampening: settings.dampening,
            packet: settings.packet,
        }
    }

    /// Notes that the packet's flow leaves through `port`.
    fn note(&mut self, packet: &Packet, port: PortId) {
        if self.ways.len() <= packet.flow as usize {
            self.ways.resize(packet.flow as usize + 1, Way::default());
        }
        let way = &mut self.ways[packet.flow as usize];
        if way.path != packet.path {
            *way = Way {
                path: packet.path,
                ..Way::default()
            };
        }
        let mut places = way.ports.iter();
        let free = places.position(|&known| known == NONE || known == port.0);
        way.ports[free.expect("a way has at most eight ports")] = port.0;
    }

    /// An answer leaves a switch: the port beside the one of its arrival gets the answer, if the flow left there.
    fn pass(&mut self, back: PortId, packet: &mut Packet) {
        let way = &mut self.ways[packet.flow as usize];
        if let Some(place) = way.ports.iter().position(|&port| port == back.0) {
            way.passed |= 1 << place;
            self.confirm(back.0, packet);
        }
    }

    /// An answer has arrived: the ports that answers do not pass get it now.
    fn arrive(&mut self, packet: &mut Packet) {
        let way = self.ways[packet.flow as usize];
        for (place, port) in way.ports.into_iter().enumerate() {
            if port != NONE && way.passed & (1 << place) == 0 {
                self.confirm(port, packet);
            }
        }
    }

    /// A packet on its way out.
    fn rank(&mut self, visit: &Visit, port: PortId, packet: &mut Packet) {
        let mut header = Header::read(packet);
        let state = &mut self.ports[port.0 as usize];
        if packet.flags & flags::LAST != 0 {
            return state.remove(packet.flow);
        }
        if header.paused_by != NOT_PAUSED && header.paused_by != port.0 {
            return state.remove(packet.flow);
        }
        let rank = (packet.key, header.time.as_ps(), packet.flow);
        let place = state.place(rank, port.0);
        let capacity_mbps = state.capacity(visit, self.round_trip + self.round_trip, self.packet);
        let available = state.available(place, capacity_mbps, self.early_start);
        let granted = available.min(header.rate_mbps);
        let entry = &mut state.flows[place];
        let damped = visit.now < state.damped_until && state.accepted != packet.flow;
        if granted == 0 || (entry.paused_by != NOT_PAUSED && damped) {
            entry.paused_by = port.0;
            header.paused_by = port.0;
        } else {
            if entry.paused_by != NOT_PAUSED && state.accepted != packet.flow {
                state.damped_until = visit.now + self.dampening.min(header.time);
                state.accepted = packet.flow;
            }
            header.paused_by = NOT_PAUSED;
            header.rate_mbps = granted;
        }
        header.decide(packet);
    }

    /// An answer passes a port that the flow left through.
    fn confirm(&mut self, port: u32, packet: &mut Packet) {
        let mut header = Header::read(packet);
        let state = &mut self.ports[port as usize];
        if header.paused_by != NOT_PAUSED {
            header.rate_mbps = 0;
            if header.paused_by != port {
                state.remove(packet.flow);
            }
        }
        if let Some(place) = state.find(packet.flow) {
            let entry = &mut state.flows[place];
            entry.paused_by = header.paused_by;
            entry.rate_mbps = header.rate_mbps;
            let wait = (self.probe_rtts_per_place * place as f64 * 100.0).min(f64::from(u16::MAX));
            packet.payload = packet.payload.max(wait as u16);
        }
        header.decide(packet);
    }
}

impl PortAgent for Switches {
    fn visit(&mut self, visit: Visit, packet: &mut Packet) {
        let outward = matches!(packet.kind, PacketKind::Data | PacketKind::Request);
        match (outward, visit.leaves, visit.back) {
            (true, Some(port), _) => {
                self.note(packet, port);
                self.rank(&visit, port, packet);
            }
            // A flow that is over has left the lists.
            (false, ..) if packet.flags & flags::LAST != 0 => {}
            (false, Some(_), Some(back)) => self.pass(back, packet),
            (false, None, _) => self.arrive(packet),
            _ => {}
        }
    }
}

impl Port {
    fn new() -> Self {
        Self {
            flows: Vec::new(),
            damped_until: Instant::ZERO,
            accepted: NONE,
            capacity_mbps: 0,
            capacity_until: Instant::ZERO,
        }
    }

    /// Computed once per `interval`: what it changes is not seen earlier.
    fn capacity(&mut self, visit: &Visit, interval: Duration, packet: Bytes) -> u32 {
        if visit.now >= self.capacity_until {
            self.capacity_until = visit.now + interval;
            let queue = visit.queued.saturating_sub(packet);
            let drain = BitRate::of(queue, interval).as_bps();
            self.capacity_mbps = (visit.rate.as_bps().saturating_sub(drain) / 1_000_000) as u32;
        }
        self.capacity_mbps
    }

    fn find(&self, flow: u32) -> Option<usize> {
        self.flows.iter().position(|entry| entry.rank.2 == flow)
    }

    fn remove(&mut self, flow: u32) {
        if let Some(place) = self.find(flow) {
            self.flows.remove(place);
        }
    }

    /// The flow's place in the list, where it is put if it is not there; new flows are paused by `port`.
    fn place(&mut self, rank: Rank, port: u32) -> usize {
        let mut entry = Entry {
            rank,
            rate_mbps: 0,
            paused_by: port,
        };
        if let Some(place) = self.find(rank.2) {
            if self.flows[place].rank == rank {
                return place;
            }
            entry = Entry {
                rank,
                ..self.flows.remove(place)
            };
        }
        let place = self.flows.partition_point(|other| other.rank < rank);
        self.flows.insert(place, entry);
        place
    }

    /// What the flows before `place` leave, megabits per second.
    fn available(&self, place: usize, capacity_mbps: u32, early_start: Duration) -> u32 {
        let (mut nearly_done, mut taken) = (Duration::ZERO, 0u32);
        for entry in &self.flows[..place] {
            let rest = Duration::from_ps(entry.rank.1);
            if rest < early_start && nearly_done < early_start {
                nearly_done += rest;
            } else {
                taken = taken.saturating_add(entry.rate_mbps);
            }
            if taken >= capacity_mbps {
                return 0;
            }
        }
        capacity_mbps - taken
    }
}
