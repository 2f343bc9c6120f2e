//! QJump (NSDI 2015): a level whose hosts send little enough cannot queue.
//!
//! Problem: packet latency in a shared network depends on the traffic of all others.
//!
//! Method: ports are strict, and a host may send at most `f` largest packets per network epoch in a level of throughput
//! factor `f` (`limit`). The epoch is what n hosts need to send one packet each to one of them, twice because hosts'
//! epochs are not aligned, plus the overhead of the way: `2 n P / R + e`. At factor 1 no packet waits longer than that,
//! under any load of other levels. The lowest levels are not limited.
//!
//! Within a level a host serves its messages in order of arrival. Each is repaired as TCP would: window with slow start, one
//! packet more per round trip, half of it at a loss that three later packets show, timeout.
//!
//! Units: windows are packets, levels are the calls' classes. Limits: see `docs/internals/baselines.md`.

mod limit;
#[cfg(test)]
mod tests;

use super::congestion::ParameterError;
use super::flow::alarm::Alarm;
use super::flow::ready::Ready;
use super::flow::window::Window;
use super::flow::{Flow, Flows, answer, line_rate, tell_when_idle};
use super::parameters::Given;
use super::{Ended, How, Message, Transport};
use crate::network::Network;
use crate::packet::{HostId, Packet, PacketId, PacketKind, Timer, flags};
use isolane_common_quantities::units::{Bytes, Duration, Instant};
use isolane_network_scenario::model::{CLASSES_MAX, FabricPolicy};
use limit::Limiter;

/// Later packets that must have come before one counts as lost.
const REORDERING: u32 = 3;
/// Timer of a message.
const MESSAGE: u8 = 0;
/// Timer of a host.
const HOST: u8 = 1;

/// The numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Levels.
    pub levels: u8,
    /// Length of an epoch.
    pub epoch: Duration,
    /// Bytes per epoch and host, by level; none without a limit.
    pub limits: [Option<Bytes>; CLASSES_MAX],
    window: f64,
    timeout: Duration,
}

impl Settings {
    /// From the policy's parameters, for so many classes of calls. Fails for a parameter that is unknown or out of
    /// range.
    pub fn new(
        policy: &FabricPolicy,
        classes: usize,
        network: &Network,
    ) -> Result<Self, ParameterError> {
        let given = Given::new(policy)?;
        let packet = network.mtu() + network.header();
        let hosts = u64::from(network.topology().hosts);
        let all = Bytes::new(2 * hosts * packet.get());
        let epoch =
            line_rate(network, HostId(0)).time_for(all) + given.duration_us("overhead_us", 1.0);
        let limited = classes.saturating_sub(given.or("unlimited_levels", 1.0) as usize);
        let mut limits = [None; CLASSES_MAX];
        for (level, limit) in limits.iter_mut().enumerate().take(limited) {
            let usual = [32.0, 16.0].get(level).copied().unwrap_or(1.0);
            let factor = given.or(&format!("throughput_factor_{level}"), usual);
            *limit = Some(Bytes::new((factor * packet.get() as f64) as u64));
        }
        Ok(Self {
            levels: classes as u8,
            epoch,
            limits,
            window: given.or("initial_window_packets", 10.0),
            timeout: given.duration_us("timeout_us", 450.0),
        })
    }
}

/// A sender's state of one message.
#[derive(Clone, Copy, Debug, Default)]
struct Sender {
    window: Window,
    /// Packets before that are sent again first, from and to.
    again: (u32, u32),
    /// One more than the last packet acknowledged.
    highest: u32,
    /// A loss before that has been answered for.
    recovered: u32,
}

/// All hosts.
#[derive(Clone, Debug)]
pub struct Qjump {
    settings: Settings,
    flows: Flows<Sender>,
    /// By host and level.
    ready: Ready,
    limiters: Vec<Limiter>,
    /// By host: rings when a level may send again.
    refills: Vec<Alarm>,
    timeouts: u64,
    losses: u64,
}

impl Qjump {
    /// Hosts of `network`, whose ports are strict.
    pub fn new(settings: Settings, network: &mut Network) -> Self {
        let hosts = network.topology().hosts;
        tell_when_idle(network);
        let queues = hosts * u32::from(settings.levels);
        Self {
            settings,
            flows: Flows::new(network),
            ready: Ready::new(queues),
            limiters: vec![Limiter::default(); queues as usize],
            refills: vec![Alarm::default(); hosts as usize],
            timeouts: 0,
            losses: 0,
        }
    }

    fn queue(&self, host: HostId, level: u8) -> u32 {
        u32::from(host.0) * u32::from(self.settings.levels) + u32::from(level)
    }

    /// Lets the oldest message of the highest level that may send do so, if the host's port is free.
    fn pump(&mut self, network: &mut Network, host: HostId) {
        if network.is_busy(host) {
            return;
        }
        let now = network.now();
        let mut refill = Instant::MAX;
        for level in 0..self.settings.levels {
            let queue = self.queue(host, level);
            let Some(id) = self.ready.first(queue) else {
                continue;
            };
            let bytes = self.next_bytes(id);
            if let Some(limit) = self.settings.limits[usize::from(level)] {
                let limiter = &mut self.limiters[queue as usize];
                if let Err(at) = limiter.take(now, self.settings.epoch, limit, bytes) {
                    refill = refill.min(at);
                    continue;
                }
            }
            return self.send_one(network, id);
        }
        if refill != Instant::MAX {
            let timer = Timer {
                index: u32::from(host.0),
                what: HOST,
            };
            self.refills[usize::from(host.0)].set(network, refill, timer);
        }
    }

    fn next_bytes(&self, id: u32) -> Bytes {
        let flow = &self.flows[id];
        let payload = flow.payload(next_of(flow), self.flows.mtu);
        Bytes::new(u64::from(payload + self.flows.header))
    }

    fn send_one(&mut self, network: &mut Network, id: u32) {
        let sequence = next_of(&self.flows[id]);
        let mut packet = self.flows.data(id, sequence, network.now());
        let flow = &mut self.flows[id];
        let own = &mut flow.own;
        if own.again.0 < own.again.1 {
            own.again.0 = sequence + 1;
        }
        let (window, timeout) = (&mut own.window, self.settings.timeout);
        let repeated = window.send(network, sequence, timeout, timer(id));
        packet.class = flow.message.class;
        if repeated {
            packet.flags |= flags::REPEATED;
        }
        self.file(id);
        network.transmit(packet);
    }

    /// Puts the message among those that may send, or takes it out.
    fn file(&mut self, id: u32) {
        let flow = &self.flows[id];
        let queue = self.queue(flow.message.from, flow.message.class);
        let key = may_send(flow).then_some(0);
        self.ready.set(queue, id, flow.serial, key);
    }

    /// Files the message, and lets its host send.
    fn resume(&mut self, network: &mut Network, id: u32) {
        self.file(id);
        self.pump(network, self.flows[id].message.from);
    }

    fn on_acknowledged(&mut self, network: &mut Network, packet: &Packet, ended: &mut Vec<Ended>) {
        let (mtu, timeout) = (self.flows.mtu, self.settings.timeout);
        let Some(flow) = self.flows.named(packet) else {
            return;
        };
        let (host, class, id) = (flow.message.from, flow.message.class, packet.flow);
        if !flow.acknowledge(packet.sequence, mtu) {
            return;
        }
        let own = &mut flow.own;
        own.highest = own.highest.max(packet.sequence + 1);
        own.window.acknowledge(f64::MAX);
        if flow.acked.is_full() {
            own.window.alarm.clear();
            let queue = self.queue(host, class);
            self.ready.remove(queue, id);
            ended.push(self.flows.close(id, How::Acknowledged));
            return self.pump(network, host);
        }
        self.losses += u64::from(repair(flow));
        let may_send = may_send(flow);
        let window = &mut flow.own.window;
        window.wait(network, may_send, timeout, timer(id));
        self.resume(network, id);
    }
}

impl Transport for Qjump {
    fn send(&mut self, network: &mut Network, message: Message) {
        let id = self.flows.open(message);
        let own = &mut self.flows[id].own;
        *own = Sender {
            window: own.window.renewed(self.settings.window, f64::MAX),
            ..Sender::default()
        };
        self.resume(network, id);
    }

    fn on_packet(&mut self, network: &mut Network, id: PacketId, ended: &mut Vec<Ended>) {
        let packet = network.packets[id];
        if packet.kind == PacketKind::Ack {
            network.free(id);
            return self.on_acknowledged(network, &packet, ended);
        }
        let header = self.flows.header;
        let Some(flow) = self.flows.named(&packet) else {
            return network.free(id);
        };
        flow.came.insert(packet.sequence);
        answer(network, id, PacketKind::Ack, header);
    }

    fn on_timer(&mut self, network: &mut Network, timer: Timer, _ended: &mut Vec<Ended>) {
        if timer.what == HOST {
            let host = HostId(timer.index as u16);
            if self.refills[usize::from(host.0)].rings(network, timer) {
                self.pump(network, host);
            }
            return;
        }
        let flow = &mut self.flows[timer.index];
        if !flow.own.window.alarm.rings(network, timer) || !flow.open {
            return;
        }
        self.timeouts += 1;
        let own = &mut flow.own;
        own.window.restart(2.0, flow.acked.first_missing());
        own.again = (0, 0);
        own.recovered = own.window.fresh;
        self.resume(network, timer.index);
    }

    fn on_idle(&mut self, network: &mut Network, host: HostId) {
        self.pump(network, host);
    }

    fn figures(&self) -> Vec<(String, f64)> {
        vec![
            ("epoch_us".to_owned(), self.settings.epoch.as_us_f64()),
            ("timeouts".to_owned(), self.timeouts as f64),
            ("losses".to_owned(), self.losses as f64),
            ("open_flows".to_owned(), self.flows.open_now() as f64),
        ]
    }
}

fn may_send(flow: &Flow<Sender>) -> bool {
    flow.own.window.has_room() && next_of(flow) < flow.packets
}

/// The packet that goes next: one that was lost, else a new one; the number of packets when all are under way.
fn next_of(flow: &Flow<Sender>) -> u32 {
    if flow.own.again.0 < flow.own.again.1 {
        let lost = flow.acked.missing_from(flow.own.again.0);
        if lost < flow.own.again.1 {
            return lost;
        }
    }
    flow.acked.missing_from(flow.own.window.next)
}

/// Answers a loss that later packets show, once per round trip: half the window, and what is missing before the last packet
/// that came is sent again. True if there was one.
fn repair(flow: &mut Flow<Sender>) -> bool {
    let first = flow.acked.first_missing();
    let own = &mut flow.own;
    if first < own.recovered || first + REORDERING >= own.highest {
        return false;
    }
    let window = &mut own.window;
    window.size = (window.size / 2.0).max(2.0);
    window.threshold = window.size;
    own.recovered = window.fresh;
    own.again = (first, own.highest);
    let mut missing = first;
    while missing < own.highest {
        own.window.flight = own.window.flight.saturating_sub(1);
        missing = flow.acked.missing_from(missing + 1);
    }
    true
}

fn timer(index: u32) -> Timer {
    Timer {
        index,
        what: MESSAGE,
    }
}
