//! Answers on their way back: acknowledgements, receiver-not-ready NAKs, congestion notifications, completions.
//!
//! Acknowledgements leave ahead of waiting data and take capacity from it. One acknowledges every work request
//! before it. Completions are written for the signalled ones.

use super::access::{Access, End, Object};
use super::event::{Arrived, Event};
use super::sizes::CQE_BYTES;
use super::world::World;
use isolane_rdma_policy::harmonic::statistics::BusDirection;
use isolane_rdma_scenario::model::{ATOMIC_BYTES, Transport, Verb};

impl<const RECORDS: bool> World<RECORDS> {
    /// Sends an acknowledgement ahead of waiting data; when it arrives at the requester.
    pub(crate) fn send_ack(&mut self, host: usize, pair: u32, ready: u64, bytes: u64) -> u64 {
        let queue_pair = &self.pairs[pair as usize];
        if queue_pair.host == queue_pair.peer {
            return ready + self.device.propagation;
        }
        let time = self.device.link.of(bytes);
        let delay = self.one_way();
        let now = self.queue.now().as_ps();
        let nic = &mut self.nics[host];
        nic.count.tx_acks += 1;
        nic.count.tx_bytes += bytes;
        nic.count.tx_packets += 1;
        // One that is not ready yet, for want of metadata, lets later ones of other pairs go first.
        nic.ack_free = nic.ack_free.max(now) + time;
        // The capacity an acknowledgement takes is missing for data.
        for free in &mut nic.wire_free {
            *free += time;
        }
        if RECORDS && let Some(tracer) = &mut self.trace {
            tracer.answer(host, time, &nic.wire_free);
        }
        nic.ack_free.max(ready + time) + delay
    }

    /// What [`World::send_ack`] sent from `host` does when it arrives at the pair's other end.
    #[inline]
    pub(crate) fn send_answer(
        &mut self,
        host: usize,
        pair: u32,
        bytes: u64,
        arrives: u64,
        event: Event,
    ) {
        let queue_pair = &self.pairs[pair as usize];
        let ends = [usize::from(queue_pair.host), usize::from(queue_pair.peer)];
        let to = if ends[0] == host { ends[1] } else { ends[0] };
        self.send_frame((host, to), bytes, arrives, event);
    }

    /// An acknowledgement arrives, or the last packet has left on a transport without acknowledgements.
    pub(crate) fn acknowledged(&mut self, now: u64, pair: u32, upto: u32) {
        let queue_pair = &self.pairs[pair as usize];
        let host = usize::from(queue_pair.host);
        if queue_pair.transport == Transport::Rc {
            let atomic = matches!(queue_pair.verb, Verb::FetchAdd | Verb::CompareSwap);
            let bytes = self.device.ack + if atomic { ATOMIC_BYTES } else { 0 };
            self.count_arrival(host, pair, bytes);
            self.enqueue(now, host, pair, Arrived::Ack { upto });
        } else if let Some(upto) = self.fresh(pair, upto) {
            self.finish(now, host, pair, upto, now);
        }
    }

    /// The position of `upto`, if it is new.
    pub(crate) fn fresh(&self, pair: u32, upto: u32) -> Option<u64> {
        let queue_pair = &self.pairs[pair as usize];
        let distance = upto.wrapping_sub(queue_pair.acknowledged as u32) as i32;
        (distance > 0).then(|| queue_pair.acknowledged + distance as u64)
    }

    pub(crate) fn process_ack(&mut self, now: u64, host: usize, pair: u32, upto: u32) {
        let Some(upto) = self.fresh(pair, upto) else {
            return;
        };
        self.traced(move |tracer| tracer.nobody_waits());
        let owner = self.pairs[pair as usize].tenant;
        let own = (pair, End::Requester, Object::PairContext);
        self.look_up_context((now, host, owner), own, u64::from(pair) * 2, false);
        let at = self.responder_works(now, host, self.device.ack_cost);
        if RECORDS {
            self.trace_answered(host, pair, upto);
        }
        let queue_pair = &mut self.pairs[pair as usize];
        let atomic = matches!(queue_pair.verb, Verb::FetchAdd | Verb::CompareSwap);
        if atomic {
            queue_pair.reads_out -= (upto - queue_pair.acknowledged) as u32;
        }
        self.finish(now, host, pair, upto, at);
        if atomic {
            self.activate(now, pair, false);
        }
    }

    /// Frees the slots below `upto` and writes the requested completions.
    pub(crate) fn finish(&mut self, now: u64, host: usize, pair: u32, upto: u64, at: u64) {
        let queue_pair = &mut self.pairs[pair as usize];
        let mut seen = None;
        let (mut entries, mut chunks) = (0, 0);
        for position in queue_pair.acknowledged..upto {
            let request = queue_pair.work_request(position);
            if request.signalled && request.last {
                seen = Some(request.message + 1);
            }
            entries += u64::from(request.windowed || request.signalled && request.last);
            chunks += u32::from(request.windowed);
        }
        queue_pair.acknowledged = upto;
        queue_pair.chunks_out -= chunks;
        self.forget_requests(host, pair, upto);
        if entries > 0 {
            let bytes = self.device.pcie_bytes(CQE_BYTES) * entries;
            let access = Access::of(
                pair,
                End::Requester,
                Object::CompletionQueue,
                upto * CQE_BYTES,
                CQE_BYTES * entries,
            );
            let written = self
                .pcie(BusDirection::ToHost, host, now, bytes, || access)
                .max(at);
            if RECORDS {
                self.trace_completes(host, pair, upto);
            }
            self.nics[host].count.cqes += entries;
            let visible = written + self.device.pcie_write;
            if let Some(messages) = seen {
                self.schedule(
                    visible,
                    Event::Completed {
                        pair,
                        upto: messages as u32,
                    },
                );
            }
        }
        self.room_again(now, pair);
    }

    /// A receiver-not-ready NAK: go back to that message after the RNR timer.
    pub(crate) fn not_ready(&mut self, now: u64, pair: u32, position: u32) {
        self.count_arrival(
            usize::from(self.pairs[pair as usize].host),
            pair,
            self.device.ack,
        );
        let process = &self.processes[self.pairs[pair as usize].process as usize];
        let wait = self.plans[process.plan as usize].retry_after;
        let queue_pair = &mut self.pairs[pair as usize];
        let back = (queue_pair.sent as u32).wrapping_sub(position);
        queue_pair.sent -= u64::from(back);
        let sent_from = queue_pair.sent;
        queue_pair.offset = 0;
        queue_pair.resolved = false;
        queue_pair.epoch = queue_pair.epoch.wrapping_add(1);
        queue_pair.backing_off = true;
        let tenant = usize::from(queue_pair.tenant);
        let host = usize::from(queue_pair.host);
        self.unkeep_requests(host, pair, u64::from(back));
        if RECORDS {
            self.trace_not_ready(now, pair, sent_from);
        }
        self.meter.error(tenant);
        self.schedule(now + wait, Event::Retry { pair });
    }

    /// The RNR timer ran out.
    pub(crate) fn retry(&mut self, now: u64, pair: u32) {
        self.pairs[pair as usize].backing_off = false;
        self.activate(now, pair, false);
    }

    /// The receiver of a marked packet notifies its sender, at most once per interval.
    pub(crate) fn notify(&mut self, now: u64, pair: u32, response: bool) {
        let queue_pair = &mut self.pairs[pair as usize];
        let host = usize::from(if response {
            queue_pair.host
        } else {
            queue_pair.peer
        });
        let limiter = &mut queue_pair.limiters[usize::from(response)];
        if !self.device.congestion || now < limiter.notified_at + self.device.notification {
            return;
        }
        limiter.notified_at = now;
        self.nics[host].count.notifications_sent += 1;
        let arrives = self.send_ack(host, pair, now, self.device.ack);
        let event = Event::Notified { pair, response };
        self.send_answer(host, pair, self.device.ack, arrives, event);
    }

    /// A congestion notification reaches the sender it names.
    pub(crate) fn notified(&mut self, now: u64, pair: u32, response: bool) {
        let queue_pair = &self.pairs[pair as usize];
        let host = usize::from(if response {
            queue_pair.peer
        } else {
            queue_pair.host
        });
        self.count_arrival(host, pair, self.device.ack);
        self.injected(now, pair, response);
    }

    /// A notification is at the sender it names, however it came.
    pub(crate) fn injected(&mut self, now: u64, pair: u32, response: bool) {
        let queue_pair = &self.pairs[pair as usize];
        let host = usize::from(if response {
            queue_pair.peer
        } else {
            queue_pair.host
        });
        self.nics[host].count.notifications_handled += 1;
        self.slow_down(now, pair, response);
    }
}
