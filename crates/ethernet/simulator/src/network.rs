//! Switches: shared buffers, ports that send in order of arrival, drops, marks, a trunk between two.
//!
//! Method: a port is the time at which it will have sent all that it holds; depth follows from it, so a packet costs no
//! event at a switch. Packets of one card reach the switch in order and all cards are equally far, so arrivals come in
//! order of time; what crosses the trunk has an event of its own when it leaves the trunk's port. A packet is dropped when its port holds more
//! than alpha times the free buffer, and marked, if its flow understands marks, from a fixed depth on.
//! Limits: store and forward, no pauses, no priorities. Source: titan 6 (topology).

use crate::card::Frame;
use crate::host::Arrival;
use crate::segment::Kind;
use crate::settings::Settings;
use crate::world::{Event, World};
use isolane_common_quantities::units::{Duration, Instant};
use isolane_ethernet_scenario::model::TcpCongestion;
use std::collections::VecDeque;

/// A port may hold this much whatever the buffer's state, so that one port cannot shut out the others.
const RESERVED: u64 = 20_000;

/// Switches and links.
#[derive(Debug)]
pub(crate) struct Network {
    /// The switch of each host.
    switches: Vec<u8>,
    /// Until when each host's port, and then each trunk port, is busy.
    ports: Vec<Instant>,
    trunks: [VecDeque<(u16, Frame)>; 2],
}

impl Network {
    /// The last `second` of `hosts` hang on the second switch.
    pub(crate) fn new(hosts: usize, second: usize) -> Self {
        Self {
            switches: (0..hosts)
                .map(|host| u8::from(host >= hosts - second))
                .collect(),
            ports: vec![Instant::ZERO; hosts + 2],
            trunks: [VecDeque::new(), VecDeque::new()],
        }
    }

    /// Adds the data bytes that are crossing the trunk, by flow.
    pub(crate) fn add_crossing(&self, bytes: &mut [u64]) {
        for (_, frame) in self.trunks.iter().flatten() {
            if frame.kind == Kind::Data {
                bytes[frame.flow as usize] += u64::from(frame.payload);
            }
        }
    }

    /// Puts a packet of `bytes` on the port at `at`; when it will have left, and whether it is marked.
    fn admit(
        &mut self,
        settings: &Settings,
        port: usize,
        bytes: u32,
        at: Instant,
    ) -> Option<(Instant, bool)> {
        let hosts = self.switches.len();
        let rate = |port| match port >= hosts {
            true => settings.trunk_ps_per_byte,
            false => settings.ps_per_byte,
        };
        let depth = |port: usize| self.ports[port].saturating_since(at).as_ps() / rate(port);
        let own = depth(port);
        if own > RESERVED {
            let switch = match port >= hosts {
                true => (port - hosts) as u8,
                false => self.switches[port],
            };
            let mut held = depth(hosts + usize::from(switch));
            for other in 0..hosts {
                if self.switches[other] == switch {
                    held += depth(other);
                }
            }
            let free = settings.switch_buffer.saturating_sub(held);
            if own as f64 > settings.switch_alpha * free as f64 {
                return None;
            }
        }
        let time = Duration::from_ps(u64::from(bytes + settings.framing) * rate(port));
        self.ports[port] = self.ports[port].max(at) + time;
        Some((self.ports[port], own >= settings.switch_ecn))
    }
}

impl World {
    /// A packet has left `host`'s card.
    pub(crate) fn forward(&mut self, host: u16, frame: Frame) {
        let flow = &self.flows[frame.flow as usize];
        let to = match frame.kind {
            Kind::Data | Kind::Ping => flow.destination,
            Kind::Ack | Kind::Pong => flow.source,
        };
        let at = self.now + self.settings.link_delay + self.settings.switch_delay;
        let (here, there) = (
            self.network.switches[usize::from(host)],
            self.network.switches[usize::from(to)],
        );
        if here == there {
            return self.towards(to, frame, at);
        }
        let port = self.network.switches.len() + usize::from(here);
        let bytes = u32::from(frame.bytes);
        let Some((left, marked)) = self.network.admit(&self.settings, port, bytes, at) else {
            return self.dropped(&frame);
        };
        let frame = self.mark(frame, marked);
        self.network.trunks[usize::from(here)].push_back((to, frame));
        self.events.schedule(
            left,
            Event::Trunk {
                from: u16::from(here),
            },
        );
    }

    /// A packet has left the trunk's port, and is as far from the other switch as one that has left a card.
    pub(crate) fn trunk(&mut self, from: u16) {
        let crossing = self.network.trunks[usize::from(from)].pop_front();
        let (to, frame) = crossing.expect("each crossing has its event");
        let at = self.now + self.settings.link_delay + self.settings.switch_delay;
        self.towards(to, frame, at);
    }

    /// A packet reaches the last switch before its host at `at`.
    fn towards(&mut self, to: u16, frame: Frame, at: Instant) {
        let bytes = u32::from(frame.bytes);
        let admitted = self
            .network
            .admit(&self.settings, usize::from(to), bytes, at);
        let Some((left, marked)) = admitted else {
            return self.dropped(&frame);
        };
        let frame = self.mark(frame, marked);
        let arrival = Arrival {
            at: left + self.settings.link_delay,
            seq: match frame.kind {
                Kind::Data => frame.seq,
                _ => u64::from(frame.info),
            },
            flow: frame.flow,
            payload: frame.payload,
            kind: frame.kind,
            marked: frame.marked,
            again: frame.again,
        };
        let vector = self.receive_vector(&arrival);
        let entry = &mut self.hosts[usize::from(to)].vectors[usize::from(vector)];
        entry.bytes += u64::from(frame.bytes);
        entry.receive.push_back(arrival);
        self.arm(to, vector, arrival.at);
    }

    fn mark(&self, mut frame: Frame, marked: bool) -> Frame {
        let can = self.settings.congestion == TcpCongestion::Dctcp && frame.kind == Kind::Data;
        frame.marked |= marked && can;
        frame
    }

    /// The network loses a packet.
    fn dropped(&mut self, frame: &Frame) {
        self.measure.drops += 1;
        match frame.kind {
            Kind::Data => {
                self.flows[frame.flow as usize].tally.dropped += u64::from(frame.payload);
            }
            Kind::Ack => {
                self.acks.remove(frame.info);
            }
            Kind::Ping | Kind::Pong => {}
        }
    }
}
