//! pFabric (SIGCOMM 2013): the shortest remaining flow first, at every port, and almost nothing at the hosts.
//!
//! Problem: a short flow must not wait behind long ones, without arbitration and without per-flow state in switches.
//!
//! Method: every data packet carries as key the payload that its flow has still to deliver. Ports send the flow with the
//! smallest key, its earliest packet first, and drop the largest key when their tiny buffer is full
//! ([`crate::discipline`]). Hosts start with a window of one bandwidth-delay product and know loss only by a timeout of
//! a few round trips: then half the window becomes the slow-start threshold, the window one packet, and all that is not
//! acknowledged is sent again. After several timeouts in a row a flow is certainly crowded out; it then sends one header
//! per timeout until one is answered, and goes on in slow start. The host chooses among its flows as ports do.
//!
//! Units: keys are bytes; windows are packets. Limits: see `docs/internals/baselines.md`.

#[cfg(test)]
mod tests;

use super::congestion::ParameterError;
use super::flow::ready::Ready;
use super::flow::window::Window;
use super::flow::{Flow, Flows, answer, base_round_trip, line_rate, tell_when_idle};
use super::parameters::Given;
use super::{Ended, How, Message, Transport};
use crate::network::Network;
use crate::packet::{HostId, PacketId, PacketKind, Timer, flags};
use isolane_common_quantities::units::{Bytes, Duration};
use isolane_network_scenario::model::{FabricPolicy, PortSettings};

/// The values of the numbers on one network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Buffer of a port.
    pub buffer: Bytes,
    /// Largest window, packets.
    pub window: f64,
    /// Silence before a timeout.
    pub timeout: Duration,
    /// Timeouts in a row before probes.
    pub probe_after: u32,
}

impl Settings {
    /// From the policy's parameters. Fails for a parameter that is unknown or out of range.
    pub fn new(policy: &FabricPolicy, network: &Network) -> Result<Self, ParameterError> {
        let given = Given::new(policy)?;
        let round_trip = base_round_trip(network);
        let product = line_rate(network, HostId(0)).bytes_in(round_trip).get();
        let packet = (network.mtu() + network.header()).get();
        let window = product.div_ceil(packet).max(1);
        let timeout_us = 3.0 * round_trip.as_us_f64();
        Ok(Self {
            buffer: Bytes::new(given.or("buffer_bytes", 2.0 * product as f64) as u64),
            window: given.or("window_packets", window as f64),
            timeout: given.duration_us("timeout_us", timeout_us),
            probe_after: given.or("probe_after_timeouts", 5.0) as u32,
        })
    }

    /// Ports with a small buffer each, and nothing but drops.
    #[must_use]
    pub fn ports(&self, given: &PortSettings) -> PortSettings {
        PortSettings {
            buffer: self.buffer,
            shared_buffer: false,
            ecn: None,
            pfc: None,
            ..given.clone()
        }
    }
}

/// A sender's state of one flow.
#[derive(Clone, Copy, Debug, Default)]
struct Sender {
    window: Window,
    timeouts: u32,
    probing: bool,
}

/// All hosts.
#[derive(Clone, Debug)]
pub struct Pfabric {
    settings: Settings,
    flows: Flows<Sender>,
    ready: Ready,
    timeouts: u64,
    probes: u64,
}

impl Pfabric {
    /// Hosts of `network`, whose ports sort packets by key and have [`Settings::buffer`].
    pub fn new(settings: Settings, network: &mut Network) -> Self {
        let hosts = network.topology().hosts;
        tell_when_idle(network);
        Self {
            settings,
            flows: Flows::new(network),
            ready: Ready::new(hosts),
            timeouts: 0,
            probes: 0,
        }
    }

    /// Lets the flow with the least left send, if the host's port is free.
    fn pump(&mut self, network: &mut Network, host: HostId) {
        let Some(id) = self.ready.first_at(network, host) else {
            return;
        };
        let flow = &self.flows[id];
        let sequence = flow.acked.missing_from(flow.own.window.next);
        let mut packet = self.flows.data(id, sequence, network.now());
        let flow = &mut self.flows[id];
        packet.key = flow.remaining;
        // Packets of a flow may take different ways: the receiver takes them in any order.
        packet.path = packet.path.wrapping_add(sequence as u16);
        let (window, timeout) = (&mut flow.own.window, self.settings.timeout);
        if window.send(network, sequence, timeout, timer(id)) {
            packet.flags |= flags::REPEATED;
        }
        self.file(id);
        network.transmit(packet);
    }

    /// Puts the flow among those that may send, or takes it out.
    fn file(&mut self, id: u32) {
        let flow = &self.flows[id];
        let key = may_send(flow).then_some(flow.remaining);
        let host = u32::from(flow.message.from.0);
        self.ready.set(host, id, flow.serial, key);
    }

    /// Files the flow, and lets its host send.
    fn resume(&mut self, network: &mut Network, id: u32) {
        self.file(id);
        self.pump(network, self.flows[id].message.from);
    }

    fn on_acknowledged(&mut self, network: &mut Network, id: PacketId, ended: &mut Vec<Ended>) {
        let packet = network.packets[id];
        network.free(id);
        let (mtu, settings) = (self.flows.mtu, self.settings);
        let Some(flow) = self.flows.named(&packet) else {
            return;
        };
        let host = flow.message.from;
        flow.own.timeouts = 0;
        flow.own.probing = false;
        if packet.kind == PacketKind::Ack && flow.acknowledge(packet.sequence, mtu) {
            flow.own.window.acknowledge(settings.window);
        }
        if flow.acked.is_full() {
            flow.own.window.alarm.clear();
            self.ready.remove(u32::from(host.0), packet.flow);
            ended.push(self.flows.close(packet.flow, How::Acknowledged));
        } else {
            let (may_send, timer) = (may_send(flow), timer(packet.flow));
            let window = &mut flow.own.window;
            window.wait(network, may_send, settings.timeout, timer);
            self.file(packet.flow);
        }
        self.pump(network, host);
    }
}

impl Transport for Pfabric {
    fn send(&mut self, network: &mut Network, message: Message) {
        let id = self.flows.open(message);
        let (flow, most) = (&mut self.flows[id], self.settings.window);
        flow.own = Sender {
            window: flow.own.window.renewed(most, most),
            ..Sender::default()
        };
        self.resume(network, id);
    }

    fn on_packet(&mut self, network: &mut Network, id: PacketId, ended: &mut Vec<Ended>) {
        let packet = network.packets[id];
        match packet.kind {
            PacketKind::Ack | PacketKind::Grant => self.on_acknowledged(network, id, ended),
            kind => {
                let header = self.flows.header;
                // What a sender no longer waits for needs no answer.
                let Some(flow) = self.flows.named(&packet) else {
                    return network.free(id);
                };
                let reply = match kind {
                    PacketKind::Data => {
                        flow.came.insert(packet.sequence);
                        PacketKind::Ack
                    }
                    _ => PacketKind::Grant,
                };
                network.packets[id].key = 0;
                answer(network, id, reply, header);
            }
        }
    }

    fn on_timer(&mut self, network: &mut Network, timer: Timer, _ended: &mut Vec<Ended>) {
        let header = self.flows.header;
        let flow = &mut self.flows[timer.index];
        if !flow.own.window.alarm.rings(network, timer) || !flow.open {
            return;
        }
        self.timeouts += 1;
        flow.own.timeouts += 1;
        flow.own.window.restart(1.0, flow.acked.first_missing());
        flow.own.probing = flow.own.timeouts >= self.settings.probe_after;
        if flow.own.probing {
            self.probes += 1;
            let now = network.now();
            let due = now + self.settings.timeout;
            flow.own.window.alarm.set(network, due, timer);
            let probe = flow.control(timer.index, PacketKind::Request, now, header);
            network.transmit(probe);
        }
        self.resume(network, timer.index);
    }

    fn on_idle(&mut self, network: &mut Network, host: HostId) {
        self.pump(network, host);
    }

    fn figures(&self) -> Vec<(String, f64)> {
        vec![
            ("timeouts".to_owned(), self.timeouts as f64),
            ("probes".to_owned(), self.probes as f64),
            ("open_flows".to_owned(), self.flows.open_now() as f64),
        ]
    }
}

fn may_send(flow: &Flow<Sender>) -> bool {
    let own = &flow.own;
    !own.probing && own.window.has_room() && flow.acked.missing_from(own.window.next) < flow.packets
}

fn timer(index: u32) -> Timer {
    Timer { index, what: 0 }
}
