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

mod serve;

use super::arbiter::{Arbiter, Sharing};
use super::event::Arrived;
use std::collections::VecDeque;

/// How far the receiving units, and the bus behind them, may be booked ahead of the clock before arrivals wait in their
/// tenants' queues, ps: the wait of a tenant's packet in any turn.
pub(crate) const RUN_AHEAD: u64 = 100_000;
/// Time over which use of the bus towards the NIC is compared, ps.
pub(crate) const WINDOW: u64 = 5_000_000;
/// Time that the tenant of the smallest weight may use in its turn, ps: a few small packets, so that turns are short.
pub(crate) const TURN: u64 = 200_000;

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
    /// Bytes of the bus towards the NIC that each class has used in the current window, and its part of a window.
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
