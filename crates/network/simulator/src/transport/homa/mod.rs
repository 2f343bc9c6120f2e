//! Homa (SIGCOMM 2018): receivers choose who sends, and the network's priorities carry out the choice.
//!
//! Problem: short messages need latency near that of an idle network at high load, where most are over before any
//! feedback could arrive.
//!
//! Method: the first `rtt_packets` of a message leave at once, at a level that its receiver has set for its size. All
//! others wait for grants. A receiver grants to the messages with the least left, as many as there are levels for
//! granted packets, and keeps each of them one round trip ahead (`receiver`). Senders send the message with the least
//! left. The receiver of a whole message acknowledges it. A receiver that misses packets requests the first gap. A
//! sender that has not sent these packets yet answers that it is busy. A sender that receives nothing for long requests
//! the receiver's state.
//!
//! Units: packets of a message, levels (0 the highest; packets carry them as class). Limits: see
//! `docs/internals/baselines.md`.

mod receiver;
#[cfg(test)]
mod tests;

use super::congestion::ParameterError;
use super::flow::alarm::Alarm;
use super::flow::ready::Ready;
use super::flow::{Flow, Flows, answer, tell_when_idle};
use super::parameters::Given;
use super::{Ended, How, Message, Transport};
use crate::network::Network;
use crate::packet::{HostId, Packet, PacketId, PacketKind, Timer, flags};
use isolane_common_quantities::units::Duration;
use isolane_network_scenario::model::FabricPolicy;
use receiver::Receiver;

/// Timer of the sender: silence.
const SENDER: u8 = 0;
/// Timer of the receiver: granted packets are missing.
const RECEIVER: u8 = 1;
/// What a [`PacketKind::Request`] says in `sequence`: do you have all of it?
const ASKS: u32 = 0;
/// The same: what you miss has not been sent yet.
const BUSY: u32 = 1;

/// The numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    rtt_packets: u32,
    levels: u8,
    samples: usize,
    resend: Duration,
}

impl Settings {
    /// From the policy's parameters. Fails for a parameter that is unknown or out of range.
    pub fn new(policy: &FabricPolicy) -> Result<Self, ParameterError> {
        let given = Given::new(policy)?;
        Ok(Self {
            rtt_packets: given.or("rtt_packets", 10.0) as u32,
            levels: given.or("priorities", 8.0) as u8,
            samples: given.or("sample_messages", 500.0) as usize,
            resend: given.duration_us("resend_us", 1_000.0),
        })
    }
}

/// A message at both ends.
#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    /// Sender: fires after silence.
    patience: Alarm,
    /// Sender: next packet never sent.
    next: u32,
    /// Sender: packets that may be sent.
    granted: u32,
    /// Sender: packets requested again, from and to.
    again: (u32, u32),
    /// Sender: packets that need no grant, and their level.
    unscheduled: u32,
    unscheduled_level: u8,
    /// Sender: level of the others.
    level: u8,
    /// Receiver: rings when granted packets are missing.
    missing: Alarm,
    /// Receiver: something of it has come.
    known: bool,
    /// Receiver: packets granted.
    promised: u32,
    /// Receiver: packets left when it was put among those that wait for grants, if it is there.
    listed: Option<u32>,
}

/// All hosts.
#[derive(Clone, Debug)]
pub struct Homa {
    settings: Settings,
    flows: Flows<Ends>,
    ready: Ready,
    receivers: Vec<Receiver>,
    unscheduled_bytes: u64,
    grants: u64,
    resends: u64,
    asked: u64,
}

impl Homa {
    /// Hosts of `network`, whose ports are strict.
    pub fn new(settings: Settings, network: &mut Network) -> Self {
        let hosts = network.topology().hosts;
        tell_when_idle(network);
        let unscheduled_bytes = u64::from(settings.rtt_packets) * network.mtu().get();
        let receiver = Receiver::new(settings.levels, unscheduled_bytes);
        Self {
            settings,
            flows: Flows::new(network),
            ready: Ready::new(hosts),
            receivers: vec![receiver; hosts as usize],
            unscheduled_bytes,
            grants: 0,
            resends: 0,
            asked: 0,
        }
    }

    /// Lets the message with the least left send, if the host's port is free.
    fn pump(&mut self, network: &mut Network, host: HostId) {
        let Some(id) = self.ready.first_at(network, host) else {
            return;
        };
        let flow = &mut self.flows[id];
        let repeat = flow.own.again.0 < flow.own.again.1;
        let turn = match repeat {
            true => &mut flow.own.again.0,
            false => &mut flow.own.next,
        };
        let sequence = *turn;
        *turn += 1;
        let mut packet = self.flows.data(id, sequence, network.now());
        let flow = &mut self.flows[id];
        packet.path = packet.path.wrapping_add(sequence as u16);
        packet.class = match sequence < flow.own.unscheduled {
            true => flow.own.unscheduled_level,
            false => flow.own.level,
        };
        if repeat {
            packet.flags |= flags::REPEATED;
        }
        let due = network.now() + self.settings.resend;
        flow.own.patience.set(network, due, timer(id, SENDER));
        self.file(id);
        network.transmit(packet);
    }

    /// Puts the message among those that may send, or takes it out.
    fn file(&mut self, id: u32) {
        let flow = &self.flows[id];
        let left = may_send(flow).then(|| {
            let again = flow.own.again.1.saturating_sub(flow.own.again.0);
            u64::from(flow.packets - flow.own.next + again)
        });
        let host = u32::from(flow.message.from.0);
        self.ready.set(host, id, flow.serial, left);
    }

    fn on_data(&mut self, network: &mut Network, id: PacketId) {
        let packet = network.packets[id];
        let (header, settings) = (self.flows.header, self.settings);
        let Some(flow) = self.flows.named(&packet) else {
            return network.free(id);
        };
        let host = flow.message.to;
        let receiver = &mut self.receivers[usize::from(host.0)];
        if !flow.own.known {
            flow.own.known = true;
            flow.own.promised = settings.rtt_packets.min(flow.packets);
            let size = flow.message.size.get();
            receiver.saw(
                size,
                settings.samples,
                settings.levels,
                self.unscheduled_bytes,
            );
        }
        flow.came.insert(packet.sequence);
        if flow.came.is_full() {
            flow.own.missing.clear();
            if let Some(left) = flow.own.listed.take() {
                receiver.withdraw(left, flow.serial, packet.flow);
            }
            network.packets[id].class = 0;
            answer(network, id, PacketKind::Ack, header);
        } else {
            network.free(id);
            let due = network.now() + settings.resend;
            flow.own
                .missing
                .set(network, due, timer(packet.flow, RECEIVER));
            if flow.own.promised < flow.packets {
                let left = flow.packets - flow.came.count();
                receiver.place(flow.own.listed, left, flow.serial, packet.flow);
                flow.own.listed = Some(left);
            }
        }
        self.grant(network, host);
    }

    /// Keeps the messages with the least left one round trip ahead.
    fn grant(&mut self, network: &mut Network, host: HostId) {
        let receiver = &mut self.receivers[usize::from(host.0)];
        let (settings, header) = (self.settings, self.flows.header);
        let (mut rank, most) = (0, receiver.scheduled_levels(settings.levels));
        while rank < most.min(receiver.waiting.len()) {
            let active = most.min(receiver.waiting.len());
            let (left, serial, id) = receiver.waiting[rank];
            let flow = &mut self.flows[id];
            let ahead = (flow.came.count() + settings.rtt_packets).min(flow.packets);
            if ahead > flow.own.promised {
                flow.own.promised = ahead;
                let due = network.now() + settings.resend;
                flow.own.missing.set(network, due, timer(id, RECEIVER));
                let level = Receiver::scheduled_level(settings.levels, rank, active);
                network.transmit(Packet {
                    expected: ahead,
                    sequence: u32::from(level),
                    ..backwards(flow, id, PacketKind::Grant, network, header)
                });
                self.grants += 1;
            }
            if flow.own.promised == flow.packets {
                // Granted to its end: the next message moves up.
                flow.own.listed = None;
                receiver.withdraw(left, serial, id);
            } else {
                rank += 1;
            }
        }
    }

    /// Sender: the receiver grants, misses something, or has all.
    fn on_answer(&mut self, network: &mut Network, packet: &Packet, ended: &mut Vec<Ended>) {
        let header = self.flows.header;
        let due = network.now() + self.settings.resend;
        let Some(flow) = self.flows.named(packet) else {
            return;
        };
        let host = flow.message.from;
        flow.own
            .patience
            .set(network, due, timer(packet.flow, SENDER));
        match packet.kind {
            PacketKind::Ack => {
                flow.own.patience.clear();
                flow.own.missing.clear();
                self.ready.remove(u32::from(host.0), packet.flow);
                ended.push(self.flows.close(packet.flow, How::Acknowledged));
                return self.pump(network, host);
            }
            PacketKind::Grant => {
                if packet.expected > flow.own.granted {
                    flow.own.granted = packet.expected;
                    flow.own.level = packet.sequence as u8;
                }
            }
            _ if packet.sequence >= flow.own.next => {
                // What a grant that was lost would have said, the question says too.
                flow.own.granted = flow.own.granted.max(packet.expected);
                let now = network.now();
                network.transmit(Packet {
                    sequence: BUSY,
                    ..flow.control(packet.flow, PacketKind::Request, now, header)
                });
            }
            _ => {
                flow.own.granted = flow.own.granted.max(packet.expected);
                flow.own.again = (packet.sequence, packet.expected.min(flow.own.next));
            }
        }
        self.file(packet.flow);
        self.pump(network, host);
    }

    /// Receiver: the sender asks, or is busy.
    fn on_request(&mut self, network: &mut Network, packet: &Packet) {
        let header = self.flows.header;
        let due = network.now() + self.settings.resend;
        let rtt_packets = self.settings.rtt_packets;
        let Some(flow) = self.flows.named(packet) else {
            return;
        };
        if packet.sequence == BUSY {
            return flow
                .own
                .missing
                .set(network, due, timer(packet.flow, RECEIVER));
        }
        if flow.came.is_full() {
            let done = backwards(flow, packet.flow, PacketKind::Ack, network, header);
            network.transmit(done);
            return;
        }
        if !flow.own.known {
            flow.own.promised = rtt_packets.min(flow.packets);
        }
        self.ask(network, packet.flow);
    }

    /// Receiver: requests the first gap among the granted packets, and checks again later.
    fn ask(&mut self, network: &mut Network, id: u32) {
        let header = self.flows.header;
        let due = network.now() + self.settings.resend;
        let flow = &mut self.flows[id];
        let from = flow.came.first_missing();
        if from >= flow.own.promised {
            // Everything granted has come; its turn for more has not.
            return;
        }
        let to = flow.came.present_from(from).min(flow.own.promised);
        flow.own.missing.set(network, due, timer(id, RECEIVER));
        network.transmit(Packet {
            sequence: from,
            expected: to,
            ..backwards(flow, id, PacketKind::Nack, network, header)
        });
        self.resends += 1;
    }
}

impl Transport for Homa {
    fn send(&mut self, network: &mut Network, message: Message) {
        let id = self.flows.open(message);
        let size = message.size.get();
        let receiver = &self.receivers[usize::from(message.to.0)];
        let flow = &mut self.flows[id];
        let unscheduled = self.settings.rtt_packets.min(flow.packets);
        flow.own = Ends {
            patience: flow.own.patience,
            missing: flow.own.missing,
            granted: unscheduled,
            unscheduled,
            unscheduled_level: receiver.unscheduled_level(size),
            level: self.settings.levels - 1,
            ..Ends::default()
        };
        self.file(id);
        self.pump(network, message.from);
    }

    fn on_packet(&mut self, network: &mut Network, id: PacketId, ended: &mut Vec<Ended>) {
        let packet = network.packets[id];
        if packet.kind == PacketKind::Data {
            return self.on_data(network, id);
        }
        network.free(id);
        match packet.kind {
            PacketKind::Request => self.on_request(network, &packet),
            _ => self.on_answer(network, &packet, ended),
        }
    }

    fn on_timer(&mut self, network: &mut Network, timer: Timer, _ended: &mut Vec<Ended>) {
        let (settings, header) = (self.settings, self.flows.header);
        let flow = &mut self.flows[timer.index];
        if timer.what == RECEIVER {
            if flow.own.missing.rings(network, timer) && flow.open {
                self.ask(network, timer.index);
            }
            return;
        }
        if !flow.own.patience.rings(network, timer) || !flow.open {
            return;
        }
        let now = network.now();
        flow.own.patience.set(network, now + settings.resend, timer);
        if !may_send(flow) {
            // Unlike a message that waits for its turn at its own host, this one depends on the receiver.
            self.asked += 1;
            network.transmit(Packet {
                sequence: ASKS,
                ..flow.control(timer.index, PacketKind::Request, now, header)
            });
        }
    }

    fn on_idle(&mut self, network: &mut Network, host: HostId) {
        self.pump(network, host);
    }

    fn figures(&self) -> Vec<(String, f64)> {
        vec![
            ("grants".to_owned(), self.grants as f64),
            ("resend_requests".to_owned(), self.resends as f64),
            ("sender_timeouts".to_owned(), self.asked as f64),
            ("open_flows".to_owned(), self.flows.open_now() as f64),
        ]
    }
}

fn may_send(flow: &Flow<Ends>) -> bool {
    flow.own.again.0 < flow.own.again.1 || flow.own.next < flow.own.granted
}

/// A packet without payload from the receiver of `flow` to its sender.
fn backwards(
    flow: &Flow<Ends>,
    id: u32,
    kind: PacketKind,
    network: &Network,
    header: u16,
) -> Packet {
    let packet = flow.control(id, kind, network.now(), header);
    Packet {
        from: packet.to,
        to: packet.from,
        ..packet
    }
}

fn timer(index: u32, what: u8) -> Timer {
    Timer { index, what }
}
