//! D3 (SIGCOMM 2011): rates for deadlines, granted in order of arrival.
//!
//! Problem: fair shares make all flows miss their deadlines where some of them could be met.
//!
//! Method: once per interval, a sender requests from all ports on its way the rate that ends its flow in time. The
//! answer is the least rate that any port granted (`router`), and the flow sends at this rate until the next answer. A
//! flow without a deadline requests nothing and gets a part of the remainder. A flow that cannot meet its deadline any
//! more ends early, so its rate serves others. With the last packet, the flow returns what it has.
//!
//! Units: rates are bits per second on the wire. Limits: see `docs/internals/baselines.md`.

mod router;
#[cfg(test)]
mod tests;

use super::congestion::ParameterError;
use super::flow::paced::{self, PACE, Paced, REQUEST, SILENCE};
use super::flow::{Flows, base_round_trip, line_rate};
use super::parameters::Given;
use super::{Ended, How, Message, Transport};
use crate::network::Network;
use crate::packet::{Packet, PacketId, PacketKind, Timer, flags};
use isolane_common_quantities::units::{BitRate, Bytes, Duration};
use isolane_network_scenario::model::FabricPolicy;
use router::Router;

/// What a request wants, in `sequence`: a rate.
const WANT: u32 = 0;
/// The same: to return all, since all is sent.
const RETURN: u32 = 1;
/// The same: to return all, since the flow is over.
const FINAL: u32 = 2;

/// The numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    interval: Duration,
    round_trip: Duration,
    queue_gain: f64,
    retry: Duration,
    packet: Bytes,
}

impl Settings {
    /// From the policy's parameters. Fails for a parameter that is unknown or out of range.
    pub fn new(policy: &FabricPolicy, network: &Network) -> Result<Self, ParameterError> {
        let given = Given::new(policy)?;
        let round_trip = base_round_trip(network);
        let interval_us = 4.0 * round_trip.as_us_f64();
        Ok(Self {
            interval: given.duration_us("request_interval_us", interval_us),
            round_trip,
            queue_gain: given.or("queue_gain", 1.0),
            retry: given.duration_us("retry_us", 100.0),
            packet: network.mtu() + network.header(),
        })
    }
}

/// A sender's state of one flow.
#[derive(Clone, Copy, Debug, Default)]
struct Sender {
    /// All rates were returned, or are being.
    returned: bool,
}

/// All hosts.
#[derive(Clone, Debug)]
pub struct D3 {
    settings: Settings,
    flows: Flows<Paced<Sender>>,
    requests: u64,
    quenched: u64,
    silences: u64,
}

impl D3 {
    /// Hosts of `network`, whose ports serve in order of arrival. Their router is installed.
    pub fn new(settings: Settings, network: &mut Network) -> Self {
        let ports = network.topology().ports.len();
        network.set_agent(Box::new(Router::new(ports, &settings)));
        Self {
            settings,
            flows: Flows::new(network),
            requests: 0,
            quenched: 0,
            silences: 0,
        }
    }

    /// Requests the rate that ends the flow in time, or ends the flow early; requests again after the interval.
    fn ask(&mut self, network: &mut Network, id: u32, ended: &mut Vec<Ended>) {
        let now = network.now();
        let (settings, mtu, header) = (self.settings, self.flows.mtu, self.flows.header);
        let flow = &mut self.flows[id];
        let rate = line_rate(network, flow.message.from);
        let unsent = Bytes::new(paced::unsent(flow, mtu, header));
        let mut desired = BitRate::ZERO;
        if let Some(deadline) = flow.message.deadline {
            // The last packet and its answer are under way for a round trip.
            let left = deadline
                .saturating_since(now)
                .saturating_sub(settings.round_trip);
            let needed = match left.is_zero() {
                true => BitRate::from_bps(u64::MAX),
                false => BitRate::of(unsent, left),
            };
            if now >= deadline || (unsent.get() > 0 && needed > rate) {
                self.quenched += 1;
                return self.end(network, id, How::Terminated, ended);
            }
            if unsent.get() > 0 {
                desired = needed;
            }
        }
        if unsent.get() > 0 {
            flow.own.protocol.returned = false;
            let request = flow.control(id, PacketKind::Request, now, header);
            network.transmit(Packet {
                key: rate.as_bps(),
                extra: desired.as_bps(),
                sequence: WANT,
                flags: flags::VISIT_PORTS,
                ..request
            });
            self.requests += 1;
        }
        let flow = &mut self.flows[id];
        // With all sent, only a deadline is left to be watched.
        let due = now + settings.interval;
        flow.own.request_at(network, due, id);
        if !flow.own.silence.is_set() {
            flow.own.expect(network, settings.retry, id);
        }
    }

    /// Returns the flow's rates.
    fn give_back(&mut self, network: &mut Network, id: u32) {
        let (now, header) = (network.now(), self.flows.header);
        let flow = &mut self.flows[id];
        flow.own.protocol.returned = true;
        flow.own.stop();
        let request = flow.control(id, PacketKind::Request, now, header);
        network.transmit(Packet {
            sequence: if flow.own.over { FINAL } else { RETURN },
            flags: flags::VISIT_PORTS,
            ..request
        });
        flow.own.expect(network, self.settings.retry, id);
    }

    /// Notifies the caller; the record stays until the ports have their rates back.
    fn end(&mut self, network: &mut Network, id: u32, how: How, ended: &mut Vec<Ended>) {
        let flow = &mut self.flows[id];
        ended.push(paced::end(flow, how));
        self.give_back(network, id);
    }

    fn on_answer(&mut self, network: &mut Network, packet: &Packet, ended: &mut Vec<Ended>) {
        let (mtu, patience) = (self.flows.mtu, self.settings.retry);
        let Some(flow) = self.flows.on_path(packet) else {
            return;
        };
        if flow.own.over {
            if packet.kind == PacketKind::Grant && packet.sequence == FINAL {
                flow.own.stop();
                self.flows.release(packet.flow);
            }
            return;
        }
        flow.own.expect(network, patience, packet.flow);
        if packet.kind == PacketKind::Ack {
            flow.acknowledge(packet.sequence, mtu);
            if flow.acked.is_full() {
                self.end(network, packet.flow, How::Acknowledged, ended);
            }
        } else if packet.sequence == WANT && !flow.own.protocol.returned {
            paced::set_rate(network, flow, packet.flow, BitRate::from_bps(packet.key));
        }
    }
}

impl Transport for D3 {
    fn send(&mut self, network: &mut Network, message: Message) {
        let id = self.flows.open(message);
        let own = &mut self.flows[id].own;
        own.renew(network, id);
    }

    fn on_packet(&mut self, network: &mut Network, id: PacketId, ended: &mut Vec<Ended>) {
        let packet = &mut network.packets[id];
        if packet.kind == PacketKind::Request {
            packet.flags = 0;
        }
        if let Some(packet) = self.flows.receive(network, id) {
            self.on_answer(network, &packet, ended);
        }
    }

    fn on_timer(&mut self, network: &mut Network, timer: Timer, ended: &mut Vec<Ended>) {
        let (mtu, header) = (self.flows.mtu, self.flows.header);
        let flow = &mut self.flows[timer.index];
        match timer.what {
            PACE => {
                let Some(packet) = paced::next_packet(network, flow, timer, mtu, header) else {
                    return;
                };
                let all = paced::unsent(flow, mtu, header) == 0;
                network.transmit(packet);
                if all {
                    self.give_back(network, timer.index);
                }
            }
            REQUEST => {
                let must_request = flow.own.must_request(network, timer, flow.open);
                if must_request {
                    self.ask(network, timer.index, ended);
                }
            }
            SILENCE => {
                if !flow.own.silence.rings(network, timer) || !flow.open {
                    return;
                }
                self.silences += 1;
                if flow.own.over {
                    return self.give_back(network, timer.index);
                }
                paced::repeat(network, flow, timer.index);
                self.ask(network, timer.index, ended);
            }
            _ => {}
        }
    }

    fn figures(&self) -> Vec<(String, f64)> {
        vec![
            ("requests".to_owned(), self.requests as f64),
            ("quenched".to_owned(), self.quenched as f64),
            ("silences".to_owned(), self.silences as f64),
            ("open_flows".to_owned(), self.flows.open_now() as f64),
        ]
    }
}
