//! Switches: shared buffers, ports that send in order of arrival, drops, marks, a trunk between two.
//!
//! Method: a port is the time at which it will have sent all that it holds; depth follows from it, so a packet costs no
//! event at a switch. Packets of one card reach the switch in order and all cards are equally far, so arrivals come in
//! order of time; what crosses the trunk has an event of its own when it leaves the trunk's port. A packet is dropped when its port holds more
//! than alpha times the free buffer, and marked, if its flow understands marks, from a fixed depth on.
//! Limits: store and forward, no pauses, no priorities. Source: titan 6 (topology).

use crate::frame::Frame;
use crate::segment::Kind;
use crate::settings::Settings;
use isolane_common_quantities::units::{Duration, Instant};
use isolane_ethernet_scenario::model::TcpCongestion;
use std::collections::VecDeque;

/// A port may hold this much at any fill of the buffer, so one port cannot exclude the others.
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

    /// A packet has left the card of host `from` for host `to` at `now`.
    pub(crate) fn forward(
        &mut self,
        settings: &Settings,
        now: Instant,
        [from, to]: [u16; 2],
        frame: Frame,
    ) -> Hop {
        let [here, there] = [from, to].map(|host| self.switches[usize::from(host)]);
        if here == there {
            return self.towards(settings, now, to, frame);
        }
        let port = self.switches.len() + usize::from(here);
        let at = now + settings.link_delay + settings.switch_delay;
        let Some((left, marked)) = self.admit(settings, port, u32::from(frame.bytes), at) else {
            return Hop::Lost { frame };
        };
        let frame = mark(settings, frame, marked);
        self.trunks[usize::from(here)].push_back((to, frame));
        Hop::Crosses {
            from: u16::from(here),
            left,
        }
    }

    /// A packet has left the trunk's port, and is as far from the other switch as one that has left a card.
    pub(crate) fn cross(&mut self, settings: &Settings, now: Instant, from: u16) -> Hop {
        let crossing = self.trunks[usize::from(from)].pop_front();
        let (to, frame) = crossing.expect("each crossing has its event");
        self.towards(settings, now, to, frame)
    }

    /// A packet is a link away from the last switch before its host.
    fn towards(&mut self, settings: &Settings, now: Instant, to: u16, frame: Frame) -> Hop {
        let at = now + settings.link_delay + settings.switch_delay;
        let admitted = self.admit(settings, usize::from(to), u32::from(frame.bytes), at);
        match admitted {
            None => Hop::Lost { frame },
            Some((left, marked)) => Hop::Arrives {
                to,
                at: left + settings.link_delay,
                frame: mark(settings, frame, marked),
            },
        }
    }
}

/// What becomes of a packet at a switch.
#[derive(Debug)]
pub(crate) enum Hop {
    /// The port had no room.
    Lost { frame: Frame },
    /// It leaves the trunk's port of switch `from` at `left`.
    Crosses { from: u16, left: Instant },
    /// It reaches its host at `at`.
    Arrives { to: u16, at: Instant, frame: Frame },
}

fn mark(settings: &Settings, mut frame: Frame, marked: bool) -> Frame {
    let can = settings.congestion == TcpCongestion::Dctcp && frame.kind == Kind::Data;
    frame.marked |= marked && can;
    frame
}
