//! The applications: processes that post, poll, wait and answer.
//!
//! A process is one thread. Building a work request, ringing a doorbell and taking a completion cost it CPU time
//! (`[host]` of the profile), so a process that rings one doorbell per 8-byte message cannot saturate a NIC, as
//! in reality. Latency is from the moment the application calls post to the moment it has polled the completion;
//! in a ping-pong it is half the round trip, as perftest reports it.

use super::event::Event;
use super::process::{Plan, is_multiple};
use super::queue_pair::{NONE, QueuePair, WorkRequest};
use super::world::World;
use isolane_common_quantities::units::{Bytes, Duration};
use isolane_rdma_scenario::model::{Arrival, Verb};

impl<const RECORDS: bool> World<RECORDS> {
    /// A tenant starts or stops.
    pub(crate) fn tenant_changes(&mut self, now: u64, tenant: u16, starts: bool) {
        self.running[usize::from(tenant)] = starts;
        self.tenant_joins_or_leaves(now, tenant, starts);
        if !starts {
            return;
        }
        self.announce(now, tenant);
        for pair in 0..self.pairs.len() as u32 {
            let queue_pair = &self.pairs[pair as usize];
            if queue_pair.tenant != tenant
                || queue_pair.reference
                || queue_pair.link != NONE
                || self.refused(pair)
            {
                continue;
            }
            // The answering half of a ping-pong waits for its first message.
            if queue_pair.twin != NONE && queue_pair.twin < pair {
                continue;
            }
            let at = now + self.arrivals.below(STAGGER);
            let plan = &self.plans[self.processes[queue_pair.process as usize].plan as usize];
            let event = if matches!(plan.arrival, Arrival::Open { .. }) {
                Event::Arrive { pair }
            } else {
                Event::Post { pair }
            };
            self.schedule(at, event);
        }
        self.start_loops(now, tenant);
        self.start_programs(now, tenant);
    }

    /// Posts as much as depth, pace and iterations allow.
    pub(crate) fn refill(&mut self, now: u64, pair: u32) {
        if self.is_ping_pong(pair) {
            if self.pairs[pair as usize].app_posted == self.pairs[pair as usize].retired {
                self.post(now, pair, 1, now);
            }
            return;
        }
        loop {
            let queue_pair = &self.pairs[pair as usize];
            if !self.running[usize::from(queue_pair.tenant)] {
                return;
            }
            let process = &self.processes[queue_pair.process as usize];
            let plan = &self.plans[process.plan as usize];
            let outstanding = queue_pair.app_posted - queue_pair.retired;
            let left = plan.iterations - queue_pair.app_posted.min(plan.iterations);
            let list = u64::from(plan.post_list).min(left);
            if list == 0 || outstanding + list > u64::from(plan.depth) {
                return;
            }
            match plan.arrival {
                Arrival::Open { .. } => {
                    if queue_pair.app_waiting < list {
                        return;
                    }
                    self.pairs[pair as usize].app_waiting -= list;
                    // Waiting in the application counts: the message was due when it arrived.
                    let due =
                        self.pairs[pair as usize].post_time(self.pairs[pair as usize].app_posted);
                    self.post(now, pair, list, due);
                }
                Arrival::Paced { rate } => {
                    let ready = queue_pair.pace_free;
                    if ready > now {
                        // One timer per pair: each completion comes by here too.
                        if queue_pair.post_timer <= now {
                            self.pairs[pair as usize].post_timer = ready;
                            self.schedule(ready, Event::Post { pair });
                        }
                        return;
                    }
                    let first = plan.entry(queue_pair.app_posted).bytes;
                    // Each queue pair has its even part of the process's rate.
                    let gap = rate.time_for(Bytes::new(first * list)).as_ps() * plan.queue_pairs;
                    self.pairs[pair as usize].pace_free = ready.max(now.saturating_sub(gap)) + gap;
                    self.post(now, pair, list, now);
                }
                Arrival::Closed { .. } | Arrival::PingPong => self.post(now, pair, list, now),
            }
        }
    }

    /// An open-loop list arrives.
    pub(crate) fn arrive(&mut self, now: u64, pair: u32) {
        let tenant = self.pairs[pair as usize].tenant;
        if !self.running[usize::from(tenant)] {
            return;
        }
        let plan =
            &self.plans[self.processes[self.pairs[pair as usize].process as usize].plan as usize];
        let Arrival::Open { interval, poisson } = plan.arrival else {
            return;
        };
        let queue_pair = &self.pairs[pair as usize];
        let list = u64::from(plan.post_list)
            .min(plan.iterations - queue_pair.app_posted - queue_pair.app_waiting);
        if list == 0 {
            return;
        }
        let gap = if poisson {
            self.arrivals.exponential(interval)
        } else {
            interval
        };
        let queue_pair = &mut self.pairs[pair as usize];
        let mut bytes = 0;
        for number in 0..list {
            let message = queue_pair.app_posted + queue_pair.app_waiting + number;
            bytes += plan.entry(message).bytes;
            let mask = queue_pair.post_times.len() - 1;
            queue_pair.post_times[message as usize & mask] = now;
        }
        // An overloaded application queues only so much before arrivals are lost, or memory would grow for ever.
        if queue_pair.app_waiting <= ARRIVALS_WAITING_MAX {
            queue_pair.app_waiting += list;
        } else {
            self.meter.error(usize::from(tenant));
        }
        self.meter.offered(usize::from(tenant), bytes);
        self.refill(now, pair);
        self.schedule(now + gap.as_ps().max(1), Event::Arrive { pair });
    }

    /// The application posts `count` messages with one doorbell; their latency runs from `since`.
    pub(crate) fn post(&mut self, now: u64, pair: u32, count: u64, since: u64) {
        let (post, ring) = (self.device.post, self.device.ring);
        let queue_pair = &mut self.pairs[pair as usize];
        let process = &mut self.processes[queue_pair.process as usize];
        let open = matches!(
            self.plans[process.plan as usize].arrival,
            Arrival::Open { .. }
        );
        let start = process.cpu_free.max(now);
        process.cpu_free = start + post * count + ring;
        let at = process.cpu_free;
        let mask = queue_pair.post_times.len() - 1;
        if !open {
            for message in queue_pair.app_posted..queue_pair.app_posted + count {
                queue_pair.post_times[message as usize & mask] = since.max(start);
            }
        }
        queue_pair.app_posted += count;
        let every = u64::from(self.plans[process.plan as usize].completion_every);
        if RECORDS {
            self.trace_posted(now, pair, count, every);
        }
        if self.hold_or_pass(at, pair, count) {
            self.release(at, pair, count);
        }
    }

    /// Posts one message of a daemon's reference flow, unless too many are on their way.
    pub(crate) fn send_reference(&mut self, now: u64, pair: u32) {
        let queue_pair = &self.pairs[pair as usize];
        if queue_pair.app_posted - queue_pair.retired >= REFERENCES_MAX || queue_pair.room() == 0 {
            return;
        }
        let queue_pair = &mut self.pairs[pair as usize];
        let process = &mut self.processes[queue_pair.process as usize];
        let start = process.cpu_free.max(now);
        process.cpu_free = start + self.device.post + self.device.ring;
        let at = process.cpu_free;
        let mask = queue_pair.post_times.len() - 1;
        queue_pair.post_times[queue_pair.app_posted as usize & mask] = start;
        queue_pair.app_posted += 1;
        self.release(at, pair, 1);
    }

    /// Lets `count` whole messages through to the NIC with one doorbell at `at`.
    pub(crate) fn release(&mut self, at: u64, pair: u32, count: u64) {
        let queue_pair = &mut self.pairs[pair as usize];
        let plan = &self.plans[self.processes[queue_pair.process as usize].plan as usize];
        for _ in 0..count {
            let whole = queue_pair.next_release(plan).0;
            queue_pair.write_chunk(plan, whole);
        }
        self.schedule(
            at + self.device.mmio,
            Event::Doorbell {
                pair,
                count: count as u16,
            },
        );
    }

    /// The application sees completions of all messages below `upto`.
    pub(crate) fn completed(&mut self, now: u64, pair: u32, upto: u32) {
        if self.live.is_some() {
            return self.report_completed(now, pair, upto);
        }
        let queue_pair = &mut self.pairs[pair as usize];
        let fresh = upto.wrapping_sub(queue_pair.retired as u32) as i32;
        if fresh <= 0 {
            return;
        }
        let (from, upto) = (queue_pair.retired, queue_pair.retired + fresh as u64);
        let process = &mut self.processes[queue_pair.process as usize];
        let plan = &self.plans[process.plan as usize];
        let every = u64::from(plan.completion_every);
        let entries = match every {
            1 => upto - from,
            _ => upto / every - from / every,
        };
        let jitter = if self.device.host_jitter == 0 {
            0
        } else {
            self.host_jitter.below(self.device.host_jitter + 1)
        };
        let at = process.cpu_free.max(now + jitter) + self.device.poll * entries.max(1);
        process.cpu_free = at;
        queue_pair.retired = upto;
        let enforced =
            !queue_pair.reference && self.enforcer.daemons[usize::from(queue_pair.host)].is_some();
        if enforced {
            self.completions_seen(pair, from..upto, at);
        }
        let queue_pair = &self.pairs[pair as usize];
        let plan = &self.plans[self.processes[queue_pair.process as usize].plan as usize];
        if queue_pair.reference {
            let latency = at - queue_pair.post_time(upto - 1);
            let host = usize::from(queue_pair.host);
            self.reference_completed(at, host, Duration::from_ps(latency));
            return;
        }
        if queue_pair.tells() {
            return;
        }
        let think = match plan.arrival {
            Arrival::Closed { think } => think,
            _ => Duration::ZERO,
        };
        let mut message = match every {
            1 => from,
            _ => from + every - 1 - from % every,
        };
        while message < upto {
            self.meter.latency(
                now,
                usize::from(queue_pair.tenant),
                at - queue_pair.post_time(message),
            );
            message += every;
        }
        if RECORDS {
            self.trace_completed(pair, upto, at);
        }
        let wait = if think.is_zero() {
            0
        } else {
            self.arrivals.exponential(think).as_ps()
        };
        self.schedule(at + wait, Event::Post { pair });
    }

    /// A ping-pong message is visible to the process at the receiving end.
    pub(crate) fn delivered(&mut self, now: u64, pair: u32, message: u32) {
        if self.live.is_some() {
            return self.report_delivered(now, pair, message);
        }
        if self.pairs[pair as usize].link != NONE {
            let link = self.pairs[pair as usize].link;
            return self.program_received(now, link, message);
        }
        let twin = self.pairs[pair as usize].twin;
        let jitter = if self.device.host_jitter == 0 {
            0
        } else {
            self.host_jitter.below(self.device.host_jitter + 1)
        };
        let answerer = &mut self.processes[self.pairs[twin as usize].process as usize];
        let at = answerer.cpu_free.max(now + jitter) + self.device.poll;
        answerer.cpu_free = at;
        if RECORDS {
            self.trace_delivered(pair, at);
        }
        if twin > pair {
            self.post(at, twin, 1, at);
            return;
        }
        // The answer came back to the side that started: half the round trip is the latency.
        let starter = &self.pairs[twin as usize];
        let latency = (at - starter.post_time(u64::from(message))) / 2;
        let tenant = usize::from(starter.tenant);
        self.meter.latency(now, tenant, latency);
        let plan = &self.plans[self.processes[starter.process as usize].plan as usize];
        if self.running[tenant] && starter.app_posted < plan.iterations {
            self.post(at, twin, 1, at);
        }
    }
}

impl QueuePair {
    /// Bytes that the next message, one of `plan`, still has to release, and its size.
    #[inline]
    pub(crate) fn next_release(&self, plan: &Plan) -> (u64, u64) {
        let size = plan.entry(self.released).bytes;
        (size - self.release_offset, size)
    }

    /// Writes one work request for the next `bytes` of the current message, one of `plan`.
    #[inline]
    pub(crate) fn write_chunk(&mut self, plan: &Plan, bytes: u64) {
        let message = self.released;
        let entry = plan.entry(message);
        let last = bytes >= entry.bytes - self.release_offset;
        let signalled = last && is_multiple(message + 1, plan.completion_every);
        let whole = bytes == entry.bytes;
        // A responder acknowledges requests with the flag: signaled requests, the last of a list, chunks of a split.
        let ends_list = is_multiple(message + 1, plan.post_list);
        let one_sided = matches!(self.verb, Verb::Write | Verb::Send);
        // The window moves when a chunk's completion is seen, so each chunk is signaled.
        let windowed = self.window > 0 && !whole;
        self.chunks_out += u32::from(windowed);
        self.push(WorkRequest {
            bytes,
            message,
            elements: if whole { entry.elements } else { 1 },
            last,
            signalled,
            wants_ack: signalled || ends_list || !last || windowed,
            inline: one_sided && bytes <= plan.inline_bytes,
            windowed,
        });
        if last {
            self.released += 1;
            self.release_offset = 0;
        } else {
            self.release_offset += bytes;
        }
    }
}

/// Processes of one tenant start within this time of each other, ps, as real ones do.
const STAGGER: u64 = 2_000_000;
/// Messages that wait in an open-loop application, per pair, beyond which it drops arrivals.
const ARRIVALS_WAITING_MAX: u64 = 4096;
/// Reference messages in flight at once.
const REFERENCES_MAX: u64 = 32;
