//! PDQ (SIGCOMM 2012): flows pre-empt each other, the earliest deadline first, then the shortest.
//!
//! Problem: fair sharing, and D3's first come first served, miss deadlines and mean completion times that a schedule
//! would reach.
//!
//! Method: every packet of a flow carries what ports need to rank it, and what they decide: the rate, or the port that
//! pauses it (`switch`). The answer returns this decision. A paused flow sends headers only, less often the lower its
//! rank is. A flow that cannot meet its deadline any more ends early. When a flow is over, its sender notifies every
//! port until an answer arrives.
//!
//! Units: rates in megabits per second and times in nanoseconds in packets. Limits: see `docs/internals/baselines.md`.

mod header;
mod switch;
#[cfg(test)]
mod tests;

use super::congestion::ParameterError;
use super::flow::paced::{self, PACE, Paced, REQUEST, SILENCE};
use super::flow::{Flow, Flows, base_round_trip, line_rate};
use super::parameters::Given;
use super::{Ended, How, Message, Transport};
use crate::network::Network;
use crate::packet::{Packet, PacketId, PacketKind, Timer, flags};
use header::Header;
use isolane_common_quantities::units::{BitRate, Bytes, Duration};
use isolane_network_scenario::model::FabricPolicy;
use switch::Switches;

/// The numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    round_trip: Duration,
    early_start_rtts: f64,
    probe_rtts_per_place: f64,
    dampening: Duration,
    retry: Duration,
    packet: Bytes,
}

impl Settings {
    /// From the policy's parameters. Fails for a parameter that is unknown or out of range.
    pub fn new(policy: &FabricPolicy, network: &Network) -> Result<Self, ParameterError> {
        let given = Given::new(policy)?;
        let round_trip = base_round_trip(network);
        let dampening_us = given.or("dampening_rtts", 1.0) * round_trip.as_us_f64();
        Ok(Self {
            round_trip,
            early_start_rtts: given.or("early_start_rtts", 2.0),
            probe_rtts_per_place: given.or("probe_rtts_per_place", 0.2),
            dampening: Duration::from_ns_f64(dampening_us * 1e3),
            retry: given.duration_us("retry_us", 100.0),
            packet: network.mtu() + network.header(),
        })
    }
}

/// A sender's state of one flow.
#[derive(Clone, Copy, Debug, Default)]
struct Sender {
    /// The port that pauses it, and the time between probes.
    paused_by: u32,
    between_probes: Duration,
}

/// All hosts.
#[derive(Clone, Debug)]
pub struct Pdq {
    settings: Settings,
    flows: Flows<Paced<Sender>>,
    probes: u64,
    ended_early: u64,
    silences: u64,
}

impl Pdq {
    /// Hosts of `network`, whose ports serve in order of arrival. Their agent is installed.
    pub fn new(settings: Settings, network: &mut Network) -> Self {
        let ports = network.topology().ports.len();
        network.set_agent(Box::new(Switches::new(ports, &settings)));
        Self {
            settings,
            flows: Flows::new(network),
            probes: 0,
            ended_early: 0,
            silences: 0,
        }
    }

    /// Sends a header through all ports: to be ranked, or to be forgotten when the flow is over.
    fn probe(&mut self, network: &mut Network, id: u32) {
        let (now, header_bytes) = (network.now(), self.flows.header);
        let ranked = self.header(network, id);
        let flow = &mut self.flows[id];
        let mut packet = flow.control(id, PacketKind::Request, now, header_bytes);
        packet.flags = flags::VISIT_PORTS;
        ranked.write(&mut packet);
        if flow.own.over {
            packet.flags |= flags::LAST;
        } else {
            let wait = flow
                .own
                .protocol
                .between_probes
                .max(self.settings.round_trip);
            flow.own.request_at(network, now + wait, id);
            self.probes += 1;
        }
        if !flow.own.silence.is_set() {
            flow.own.expect(network, self.settings.retry, id);
        }
        network.transmit(packet);
    }

    /// The present fields of a packet of the flow.
    fn header(&self, network: &Network, id: u32) -> Header {
        let flow = &self.flows[id];
        let rate = line_rate(network, flow.message.from);
        Header {
            deadline: flow.message.deadline,
            time: rate.time_for(Bytes::new(flow.remaining)),
            rate_mbps: (rate.as_bps() / 1_000_000) as u32,
            paused_by: flow.own.protocol.paused_by,
        }
    }

    /// Whether the flow's deadline has passed, cannot be met at full rate, or is less than the way of a probe away.
    fn is_late(&self, network: &Network, id: u32) -> bool {
        let (flow, now) = (&self.flows[id], network.now());
        let Some(deadline) = flow.message.deadline else {
            return false;
        };
        let left = deadline.saturating_since(now);
        let wire = self.header(network, id).time;
        let waits = flow.own.rate == BitRate::ZERO && !is_all_sent(flow, &self.flows);
        left.is_zero()
            || (!is_all_sent(flow, &self.flows) && wire > left)
            || (waits && self.settings.round_trip > left)
    }

    /// Ends a flow that is late; true if it was.
    fn ends_late(&mut self, network: &mut Network, id: u32, ended: &mut Vec<Ended>) -> bool {
        let late = self.is_late(network, id);
        if late {
            self.ended_early += 1;
            self.end(network, id, How::Terminated, ended);
        }
        late
    }

    /// Notifies the caller; the record stays until the ports have removed the flow.
    fn end(&mut self, network: &mut Network, id: u32, how: How, ended: &mut Vec<Ended>) {
        let flow = &mut self.flows[id];
        ended.push(paced::end(flow, how));
        self.probe(network, id);
    }

    fn on_answer(&mut self, network: &mut Network, packet: &Packet, ended: &mut Vec<Ended>) {
        let (mtu, settings) = (self.flows.mtu, self.settings);
        let Some(flow) = self.flows.on_path(packet) else {
            return;
        };
        let id = packet.flow;
        if flow.own.over {
            if packet.flags & flags::LAST != 0 {
                flow.own.stop();
                self.flows.release(id);
            }
            return;
        }
        if packet.kind == PacketKind::Ack {
            flow.acknowledge(packet.sequence, mtu);
            if flow.acked.is_full() {
                return self.end(network, id, How::Acknowledged, ended);
            }
        }
        flow.own.expect(network, settings.retry, id);
        let decided = Header::read(packet);
        flow.own.protocol.paused_by = decided.paused_by;
        flow.own.protocol.between_probes = Header::between_probes(packet, settings.round_trip);
        let rate = match decided.paused_by {
            header::NOT_PAUSED => BitRate::from_bps(u64::from(decided.rate_mbps) * 1_000_000),
            _ => BitRate::ZERO,
        };
        let was = flow.own.rate;
        paced::set_rate(network, flow, id, rate);
        if rate != BitRate::ZERO {
            flow.own.request.clear();
        } else if was != BitRate::ZERO || !flow.own.request.is_set() {
            let wait = flow.own.protocol.between_probes.max(settings.round_trip);
            let due = network.now() + wait;
            flow.own.request_at(network, due, id);
        }
        self.ends_late(network, id, ended);
    }
}

impl Transport for Pdq {
    fn send(&mut self, network: &mut Network, message: Message) {
        let id = self.flows.open(message);
        let own = &mut self.flows[id].own;
        own.renew(network, id);
        own.protocol.paused_by = header::NOT_PAUSED;
    }

    fn on_packet(&mut self, network: &mut Network, id: PacketId, ended: &mut Vec<Ended>) {
        if let Some(packet) = self.flows.receive(network, id) {
            self.on_answer(network, &packet, ended);
        }
    }

    fn on_timer(&mut self, network: &mut Network, timer: Timer, ended: &mut Vec<Ended>) {
        let id = timer.index;
        let (mtu, header_bytes) = (self.flows.mtu, self.flows.header);
        let flow = &mut self.flows[id];
        match timer.what {
            PACE => {
                let Some(mut packet) = paced::next_packet(network, flow, timer, mtu, header_bytes)
                else {
                    return;
                };
                packet.flags |= flags::VISIT_PORTS;
                self.header(network, id).write(&mut packet);
                network.transmit(packet);
            }
            REQUEST => {
                let must_request = flow.own.must_request(network, timer, flow.open);
                if must_request && !self.ends_late(network, id, ended) {
                    self.probe(network, id);
                }
            }
            SILENCE => {
                if !flow.own.silence.rings(network, timer) || !flow.open {
                    return;
                }
                self.silences += 1;
                if flow.own.over {
                    return self.probe(network, id);
                }
                paced::repeat(network, flow, id);
                if !self.ends_late(network, id, ended) {
                    self.probe(network, id);
                }
            }
            _ => {}
        }
    }

    fn figures(&self) -> Vec<(String, f64)> {
        vec![
            ("probes".to_owned(), self.probes as f64),
            ("ended_early".to_owned(), self.ended_early as f64),
            ("silences".to_owned(), self.silences as f64),
            ("open_flows".to_owned(), self.flows.open_now() as f64),
        ]
    }
}

fn is_all_sent(flow: &Flow<Paced<Sender>>, flows: &Flows<Paced<Sender>>) -> bool {
    paced::unsent(flow, flows.mtu, flows.header) == 0
}
