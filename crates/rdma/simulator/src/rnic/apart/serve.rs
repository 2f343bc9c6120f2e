//! A NIC that keeps its tenants apart serves what arrives, and charges what is sent.

use super::RUN_AHEAD;
use crate::rnic::arbiter::Choice;
use crate::rnic::device::verb_index;
use crate::rnic::event::{Arrived, Event};
use crate::rnic::world::World;
use isolane_rdma_scenario::model::Verb;

impl<const RECORDS: bool> World<RECORDS> {
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
    #[inline]
    pub(crate) fn charge_bus(&mut self, host: usize, pair: u32, bytes: u64) {
        if self.nics[host].apart.is_some() {
            self.charge_bus_apart(host, pair, bytes);
        }
    }

    fn charge_bus_apart(&mut self, host: usize, pair: u32, bytes: u64) {
        let class = self.pairs[pair as usize].queue;
        let now = self.queue.now().as_ps();
        let nic = &mut self.nics[host];
        if let Some(apart) = &mut nic.apart {
            apart.note_bus(now, usize::from(class), bytes);
        }
        let time = self.device.pcie.of(bytes);
        let wire = self.device.link.of(WIRE_UNIT).max(1);
        nic.lanes.charge(class, time * WIRE_UNIT / wire);
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
        let copies = if reads_payload { bytes } else { 0 };
        let units = units + device.micro.copy.of(copies);
        let bus = device.pcie.of(payload);
        let wire = device.link.of(bytes);
        let dearest = units.max(bus).max(wire);
        (dearest * bytes).div_ceil(wire.max(1))
    }
}

/// Bytes for which wire times are compared, to keep the rounding small.
const WIRE_UNIT: u64 = 1024;
