//! A NIC that keeps its tenants apart: the device behind the policy `isolane`. It does not exist.
//!
//! Problem: the audit's table shows which of a NIC's resources tenants can take from each other however they are
//! scheduled and paced outside it. Method: every one of them is shared out where it is used.
//!
//! - **What is sent.** Each tenant has a class of its own. The arbiter's unit is not the byte but the time of the
//!   dearest resource a packet needs: the wire, the requester's units, the bus, or, for a request's first packet,
//!   the units that will answer it; doorbells and work requests count when they pass the bus. So an atomic of 8 B
//!   counts as much as the 2.5 KB that could have been sent meanwhile (dominant resources; harmonic 5.5.1 does it
//!   every 100 us in software). Tenants that declare latency go first as long as they stay within their share.
//! - **What arrives** waits per tenant, and the receiving units take turns among tenants by the time they spend, the
//!   bus to the host included, not in order of arrival. What arrives also reads from the host: receives and the
//!   doorbells that post them. While that bus is short, a tenant that has used more than its part of it waits. Each
//!   tenant has its part of the receive buffer, and only its own class is paused when that is full.
//! - **Errors.** A tenant whose messages find no receive waits for firmware alone, on reliable and unreliable
//!   transports alike.
//! - **Caches** have quotas of ways, and slots for misses are reserved (see `cache`). A miss sets its own message
//!   aside and never stops a unit.
//! - **Deregistration** forgets, and stops, the translations of the tenant that deregisters.
//!
//! Units: picoseconds; the arbiter's credit is in bytes of wire time. Limits: as many tenants as there are classes.
//! The firmware's command queue is shared: control verbs of one tenant slow those of another, not its data.

use super::arbiter::{Arbiter, Choice, Sharing};
use super::device::verb_index;
use super::world::{Arrived, Event, World};
use isolane_rdma_scenario::model::Verb;
use std::collections::VecDeque;

/// How far the receiving units, and the bus behind them, may be booked ahead of the clock before arrivals wait in
/// their tenants' queues, ps: what a tenant's packet waits for whatever its turn.
pub(crate) const RUN_AHEAD: u64 = 100_000;
/// Time over which use of the bus towards the NIC is compared, ps.
pub(crate) const WINDOW: u64 = 5_000_000;
/// Time that the tenant of the smallest weight may use in its turn, ps: a few small packets, so that turns are short.
pub(crate) const TURN: u64 = 200_000;

/// Bytes for which wire times are compared, to keep the rounding small.
const WIRE_UNIT: u64 = 1024;

/// What one NIC keeps for each tenant.
#[derive(Clone, Debug)]
pub(crate) struct Apart {
    /// Arrivals by class.
    queues: Vec<VecDeque<(u32, Arrived)>>,
    /// Classes with arrivals.
    busy: u16,
    arbiter: Arbiter,
    /// Until when each class's messages wait for firmware, ps.
    handling: Vec<u64>,
    /// Bytes of the bus towards the NIC that each class has used in the window at hand, and its part of a window.
    bus_used: Vec<u64>,
    bus_part: Vec<u64>,
    window_ends: u64,
    /// Until when each tenant's translations are blocked, ps.
    pub(crate) translation_blocked: Vec<u64>,
    /// When the units look at the queues next, ps.
    due: u64,
}

impl Apart {
    /// Empty queues; `turns` is what each class may use in its turn, ps, and `first` those that go first.
    pub(crate) fn new(first: u16, turns: Vec<u64>, tenants: usize, window_bytes: u64) -> Self {
        let all: u64 = turns.iter().sum();
        Self {
            bus_used: vec![0; turns.len()],
            bus_part: turns
                .iter()
                .map(|turn| window_bytes * turn / all.max(1))
                .collect(),
            window_ends: 0,
            queues: vec![VecDeque::new(); turns.len()],
            busy: 0,
            handling: vec![0; turns.len()],
            arbiter: Arbiter::new(&Sharing::Weighted {
                first,
                quanta: turns,
            }),
            translation_blocked: vec![0; tenants + 1],
            due: u64::MAX,
        }
    }

    /// When the units look at what waits, ps, if anything does.
    pub(crate) fn looks_at(&self) -> Option<u64> {
        (self.busy != 0 && self.due != u64::MAX).then_some(self.due)
    }

    /// Notes that a class has used the bus towards the NIC.
    fn note_bus(&mut self, now: u64, class: usize, bytes: u64) {
        if now >= self.window_ends {
            self.bus_used.fill(0);
            self.window_ends = now + WINDOW;
        }
        self.bus_used[class] += bytes;
    }

    /// Classes that have arrivals, do not wait for firmware and, while the bus towards the NIC is `short`, have not
    /// used up their part of it.
    fn ready(&self, now: u64, short: bool) -> u16 {
        let short = short && now < self.window_ends;
        let free = |class: &usize| {
            self.handling[*class] <= now
                && !(short && self.bus_used[*class] > self.bus_part[*class])
        };
        (0..self.queues.len())
            .filter(free)
            .fold(0, |mask, class| mask | 1 << class)
            & self.busy
    }
}

impl World {
    /// An arrival waits for its tenant's turn.
    pub(crate) fn enqueue_apart(&mut self, now: u64, host: usize, pair: u32, arrived: Arrived) {
        let class = usize::from(self.pairs[pair as usize].queue);
        let Some(apart) = &mut self.nics[host].apart else {
            return;
        };
        apart.queues[class].push_back((pair, arrived));
        apart.busy |= 1 << class;
        self.serve_apart(now, host);
    }

    /// The receiving units take arrivals as long as they and the bus behind them are not booked far ahead.
    pub(crate) fn serve_apart(&mut self, now: u64, host: usize) {
        loop {
            let nic = &mut self.nics[host];
            let booked = nic.responder_free.max(nic.pcie_out_free);
            let Some(apart) = &mut nic.apart else {
                return;
            };
            if booked > now + RUN_AHEAD {
                if apart.busy != 0 {
                    self.look_at_arrivals(host, booked - RUN_AHEAD);
                }
                return;
            }
            let short = nic.pcie_in_free > now + self.device.pipeline / 2;
            let ready = apart.ready(now, short);
            let Some(Choice { class, .. }) = apart.arbiter.choose(ready) else {
                let waiting = (0..apart.queues.len()).filter(|class| apart.busy >> class & 1 == 1);
                let free_at = |class: usize| apart.handling[class].max(now + 1);
                if let Some(at) = waiting.map(free_at).min() {
                    // A class that waits for the bus goes on when that is free, or in the next window.
                    let at = if short {
                        at.max(now + (self.device.pipeline / 4).max(RUN_AHEAD))
                    } else {
                        at
                    };
                    self.look_at_arrivals(host, at);
                }
                return;
            };
            let queue = &mut apart.queues[usize::from(class)];
            let (pair, arrived) = queue.pop_front().expect("a busy class has arrivals");
            if queue.is_empty() {
                apart.busy &= !(1 << class);
            }
            let before = (nic.responder_free.max(now), nic.pcie_out_free.max(now));
            let bus_before = nic.count.pcie_in_bytes;
            self.process(now, host, pair, arrived);
            let nic = &mut self.nics[host];
            let bus_in = nic.count.pcie_in_bytes - bus_before;
            let units = nic.responder_free.saturating_sub(before.0);
            let bus = nic.pcie_out_free.saturating_sub(before.1);
            if let Some(apart) = &mut nic.apart {
                apart.arbiter.charge(class, units.max(bus).max(1));
                apart.note_bus(now, usize::from(class), bus_in);
            }
        }
    }

    /// The time of a look has come; one that an earlier look has replaced does nothing.
    pub(crate) fn look_apart(&mut self, now: u64, host: usize) {
        let Some(apart) = &mut self.nics[host].apart else {
            return;
        };
        if apart.due == now {
            apart.due = u64::MAX;
            self.serve_apart(now, host);
        }
    }

    fn look_at_arrivals(&mut self, host: usize, at: u64) {
        let now = self.queue.now().as_ps();
        let Some(apart) = &mut self.nics[host].apart else {
            return;
        };
        let due = at.max(now + 1);
        if due < apart.due {
            apart.due = due;
            self.schedule(due, Event::Serve { host: host as u8 });
        }
    }

    /// Firmware handles a message of `pair` without a receive until `until`: its tenant's later ones wait. Whether
    /// tenants are kept apart.
    pub(crate) fn handled_apart(&mut self, host: usize, pair: u32, until: u64) -> bool {
        let class = usize::from(self.pairs[pair as usize].queue);
        let Some(apart) = &mut self.nics[host].apart else {
            return false;
        };
        apart.handling[class] = apart.handling[class].max(until);
        true
    }

    /// The tenant of `pair` has taken `bytes` of the bus to the NIC for its doorbells or its work requests: what it
    /// sends waits for the others as if it had sent for so long.
    pub(crate) fn charge_bus(&mut self, host: usize, pair: u32, bytes: u64) {
        if self.nics[host].apart.is_some() {
            let class = self.pairs[pair as usize].queue;
            let now = self.queue.now().as_ps();
            if let Some(apart) = &mut self.nics[host].apart {
                apart.note_bus(now, usize::from(class), bytes);
            }
            let time = self.device.pcie.of(bytes);
            let wire = self.device.link.of(WIRE_UNIT).max(1);
            self.nics[host].lanes.charge(class, time * WIRE_UNIT / wire);
        }
    }

    /// What the arbiter charges for a packet of `bytes` on the wire that is, or is not, the `first` of a request:
    /// the time of its dearest resource, as bytes of wire time.
    pub(crate) fn dominant_bytes(&self, pair: u32, bytes: u64, first: bool, response: bool) -> u64 {
        if bytes == 0 {
            return 0;
        }
        let queue_pair = &self.pairs[pair as usize];
        let verb = verb_index(queue_pair.verb);
        let device = &self.device;
        let units = match (first && !response, response) {
            (true, _) => device.request[verb].max(device.respond[verb]),
            (false, _) => device.packet,
        };
        let reads_payload = response || matches!(queue_pair.verb, Verb::Write | Verb::Send);
        let payload = if reads_payload {
            device.pcie_bytes(bytes)
        } else {
            0
        };
        let bus = device.pcie.of(payload);
        let wire = device.link.of(bytes);
        let dearest = units.max(bus).max(wire);
        (dearest * bytes).div_ceil(wire.max(1))
    }
}
