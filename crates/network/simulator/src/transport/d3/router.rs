//! What a D3 port does with requests (paper section 4.2): first come, first served, with three numbers per port.
//!
//! A request returns what the flow was granted before, adds its demand to the sum of demands, and is granted its demand
//! plus an equal part of the rate without demand, as far as rate is left. Without a remainder nothing is granted, and
//! the flow repeats its request. Capacity is the link's rate, less what drains the queue within one interval; one full
//! packet is no queue, since paced packets of several hosts meet.
//!
//! A port's entry of a flow replaces the fields that the original carries in the packet, and is read for this flow
//! only.

use super::Settings;
use crate::network::agent::{PortAgent, Visit};
use crate::packet::{Packet, PacketKind};
use isolane_common_quantities::units::{BitRate, Bytes, Duration};

/// Most ports on a way: a fat tree has six.
const HOPS_MAX: usize = 8;

/// Sums of one port, bits per second.
#[derive(Clone, Copy, Debug, Default)]
struct Port {
    allocated: u64,
    asked: u64,
    flows: u64,
}

/// What a flow has at one port, bits per second.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    port: u32,
    allocated: u64,
    asked: u64,
}

/// All ports.
#[derive(Clone, Debug)]
pub(super) struct Router {
    ports: Vec<Port>,
    /// By flow: its shares, and how many.
    shares: Vec<([Share; HOPS_MAX], u8)>,
    interval: Duration,
    queue_gain: f64,
    packet: Bytes,
}

impl Router {
    pub(super) fn new(ports: usize, settings: &Settings) -> Self {
        Self {
            ports: vec![Port::default(); ports],
            shares: Vec::new(),
            interval: settings.interval,
            queue_gain: settings.queue_gain,
            packet: settings.packet,
        }
    }

    /// The flow's share at `port`; a new one counts the flow there.
    fn share(&mut self, flow: u32, port: u32) -> usize {
        let flow = flow as usize;
        if self.shares.len() <= flow {
            self.shares
                .resize(flow + 1, ([Share::default(); HOPS_MAX], 0));
        }
        let (shares, count) = &mut self.shares[flow];
        let known = &shares[..usize::from(*count)];
        if let Some(place) = known.iter().position(|share| share.port == port) {
            return place;
        }
        let place = usize::from(*count);
        shares[place] = Share {
            port,
            ..Share::default()
        };
        *count += 1;
        self.ports[port as usize].flows += 1;
        place
    }

    fn forget(&mut self, flow: u32, place: usize) {
        let (shares, count) = &mut self.shares[flow as usize];
        self.ports[shares[place].port as usize].flows -= 1;
        *count -= 1;
        shares[place] = shares[usize::from(*count)];
    }
}

impl PortAgent for Router {
    fn visit(&mut self, visit: Visit, packet: &mut Packet) {
        let (Some(port), PacketKind::Request) = (visit.leaves, packet.kind) else {
            return;
        };
        let place = self.share(packet.flow, port.0);
        let share = &mut self.shares[packet.flow as usize].0[place];
        let state = &mut self.ports[port.0 as usize];
        state.allocated -= share.allocated;
        state.asked -= share.asked;
        if packet.sequence != super::WANT {
            return self.forget(packet.flow, place);
        }
        let queue = visit.queued.saturating_sub(self.packet);
        let drain = BitRate::of(queue, self.interval).as_bps() as f64;
        let capacity = visit
            .rate
            .as_bps()
            .saturating_sub((drain * self.queue_gain) as u64);
        let desired = packet.extra;
        state.asked += desired;
        let left = capacity.saturating_sub(state.allocated);
        let fair = capacity.saturating_sub(state.asked) / state.flows;
        let granted = left.min(desired.saturating_add(fair));
        (share.allocated, share.asked) = (granted, desired);
        state.allocated += granted;
        packet.key = packet.key.min(granted);
    }
}
