//! Sending at a rate that the network has allocated (D3, PDQ).
//!
//! A packet leaves no earlier than the one before it would have at the rate of now; a rate of zero stops the flow. All
//! packets of a flow take one way and stay in order. What is not acknowledged after a silence is sent again, from the
//! first gap.

use super::Flow;
use super::alarm::Alarm;
use crate::network::Network;
use crate::packet::{Packet, Timer, flags};
use crate::transport::{Ended, How};
use isolane_common_quantities::units::{BitRate, Bytes, Duration, Instant};

/// Timer of the next packet.
pub const PACE: u8 = 0;
/// Timer of silence.
pub const SILENCE: u8 = 1;
/// Timer of the next request to the ports.
pub const REQUEST: u8 = 2;

/// The sending end of a paced flow, with a protocol's own state `P`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Paced<P> {
    /// The protocol's.
    pub protocol: P,
    /// Rate on the wire.
    pub rate: BitRate,
    /// Fires after a long silence.
    pub silence: Alarm,
    /// Fires when the ports need the next request.
    pub request: Alarm,
    /// The caller knows that the flow is over.
    pub over: bool,
    pace: Alarm,
    next: u32,
    fresh: u32,
    last_at: Instant,
    last_bytes: u16,
}

impl<P: Default> Paced<P> {
    /// Begins a new flow in the record of an old one, whose timers may still be under way. The first request is due at
    /// once: only a timer may report the end of a flow that cannot meet its deadline.
    pub fn renew(&mut self, network: &mut Network, id: u32) {
        *self = Self {
            silence: self.silence,
            request: self.request,
            pace: self.pace,
            ..Self::default()
        };
        self.request_at(network, network.now(), id);
    }

    /// Sets the time of the next request.
    pub fn request_at(&mut self, network: &mut Network, due: Instant, id: u32) {
        let timer = Timer {
            index: id,
            what: REQUEST,
        };
        self.request.set(network, due, timer);
    }

    /// The timer [`REQUEST`] of an `open` flow fired: whether the ports need a request.
    pub fn must_request(&mut self, network: &mut Network, timer: Timer, open: bool) -> bool {
        self.request.rings(network, timer) && open && !self.over
    }

    /// Neither sends nor waits any more.
    pub fn stop(&mut self) {
        self.rate = BitRate::ZERO;
        self.pace.clear();
        self.silence.clear();
    }

    /// A packet arrived, or one that needs an answer was sent: silence counts from now.
    pub fn expect(&mut self, network: &mut Network, patience: Duration, id: u32) {
        let due = network.now() + patience;
        let timer = Timer {
            index: id,
            what: SILENCE,
        };
        self.silence.set(network, due, timer);
    }
}

/// Wire bytes of `flow` that wait to be sent.
pub fn unsent<P>(flow: &Flow<Paced<P>>, mtu: u16, header: u16) -> u64 {
    let from = flow.acked.missing_from(flow.own.next);
    if from >= flow.packets {
        return 0;
    }
    let full = u64::from(flow.packets - 1 - from);
    full * u64::from(mtu + header) + u64::from(flow.last_payload + header)
}

/// Sets the rate and the time of the next packet.
pub fn set_rate<P>(network: &mut Network, flow: &mut Flow<Paced<P>>, id: u32, rate: BitRate) {
    flow.own.rate = rate;
    arm(network, flow, id);
}

/// Ends the flow for the caller. The record stays in use until the ports answer.
pub fn end<P: Default>(flow: &mut Flow<Paced<P>>, how: How) -> Ended {
    flow.own.over = true;
    flow.own.stop();
    flow.own.request.clear();
    Ended {
        token: flow.message.token,
        how,
    }
}

/// Starts over from the first gap.
pub fn repeat<P>(network: &mut Network, flow: &mut Flow<Paced<P>>, id: u32) {
    flow.own.next = flow.acked.first_missing();
    arm(network, flow, id);
}

/// The timer [`PACE`] fired: the packet that leaves now, if one does. The next one is timed.
pub fn next_packet<P>(
    network: &mut Network,
    flow: &mut Flow<Paced<P>>,
    timer: Timer,
    mtu: u16,
    header: u16,
) -> Option<Packet> {
    let paced = &mut flow.own;
    if !paced.pace.rings(network, timer) || !flow.open {
        return None;
    }
    let sequence = flow.acked.missing_from(paced.next);
    if sequence >= flow.packets {
        return None;
    }
    let now = network.now();
    let mut packet = flow.data(timer.index, sequence, now, mtu, header);
    let paced = &mut flow.own;
    if sequence < paced.fresh {
        packet.flags |= flags::REPEATED;
    }
    paced.next = sequence + 1;
    paced.fresh = paced.fresh.max(sequence + 1);
    paced.last_at = now;
    paced.last_bytes = packet.bytes;
    arm(network, flow, timer.index);
    Some(packet)
}

fn arm<P>(network: &mut Network, flow: &mut Flow<Paced<P>>, id: u32) {
    let (packets, now) = (flow.packets, network.now());
    let paced = &mut flow.own;
    if paced.rate == BitRate::ZERO || flow.acked.missing_from(paced.next) >= packets {
        return paced.pace.clear();
    }
    let gap = paced.rate.time_for(Bytes::new(u64::from(paced.last_bytes)));
    let due = now.max(paced.last_at.saturating_add(gap));
    let timer = Timer {
        index: id,
        what: PACE,
    };
    paced.pace.set(network, due, timer);
}
