//! Interrupts, completions, receiving.
//!
//! Method: a vector's interrupt is due when something completes or arrives, but not sooner after the last one than its
//! moderation allows. It plans a poll, and interrupts stay off until a poll finds nothing more: that is why completions
//! come in batches. A poll frees what was sent, which plans a run of the software queue and, one job each, the
//! flows that TCP Small Queues held back (Titan's kernel: every flow of which something was freed), in the order that
//! [`crate::processor`] gives; then it receives up to its budget, merging packets of a flow in sequence (GRO) into one segment for TCP.
//! Acknowledgements come back on the vector of the queue that their flow sends on (the card's flow director), unless
//! queue weights are on: then, and for data, a hash decides, over fewer queues in the first case (titan 5).
//! Limits: a receive ring's overflow is decided when it is polled. Source: titan 2.2; ixgbe 4.4.6.

use crate::host::Arrival;
use crate::processor::Job;
use crate::segment::Kind;
use crate::world::{Event, World};
use isolane_common_quantities::units::Instant;

/// Most bytes that merging puts into one segment.
const MERGED_MOST: u64 = 65_535;

impl World {
    /// The receive queue of a packet.
    pub(crate) fn receive_vector(&self, arrival: &Arrival) -> u16 {
        let flow = &self.flows[arrival.flow as usize];
        let queues = self.settings.receive_queues;
        match arrival.kind {
            Kind::Ack if queues == self.settings.queues && flow.data.queue != u16::MAX => {
                flow.data.queue
            }
            Kind::Ack => (flow.data.receive_hash % u32::from(queues)) as u16,
            _ => (flow.back.receive_hash % u32::from(queues)) as u16,
        }
    }

    /// Something will be there for a vector at `at`.
    #[inline]
    pub(crate) fn arm(&mut self, host: u16, vector: u16, at: Instant) {
        let entry = &mut self.hosts[usize::from(host)].vectors[usize::from(vector)];
        if entry.polling {
            return;
        }
        let due = at.max(entry.last + entry.moderation.pause);
        if due < entry.due {
            entry.due = due;
            self.events.schedule(due, Event::Interrupt { host, vector });
        }
    }

    pub(crate) fn interrupt(&mut self, host: u16, vector: u16) {
        let entry = &mut self.hosts[usize::from(host)].vectors[usize::from(vector)];
        if entry.due != self.now || entry.polling {
            return;
        }
        entry.due = Instant::MAX;
        entry.polling = true;
        entry.last = self.now;
        let processor = entry.processor;
        self.write_back(host, vector);
        self.measure.interrupts += 1;
        self.hosts[usize::from(host)].processors[usize::from(processor)].busy +=
            self.settings.cost.interrupt;
        self.plan(host, processor, Job::Poll { vector });
    }

    pub(crate) fn poll(&mut self, host: u16, vector: u16) {
        self.spent += self.settings.cost.poll;
        let processor = self.hosts[usize::from(host)].vectors[usize::from(vector)].processor;
        for queue in 0..self.settings.queues {
            if self.settings.vector_of(queue) == vector {
                self.complete(host, queue, processor);
            }
        }
        let more = self.receive(host, vector, processor);
        self.tell_weights(host);
        if more {
            return self.plan(host, processor, Job::Poll { vector });
        }
        let end = self.job_end();
        let entry = &mut self.hosts[usize::from(host)];
        let queues = entry.queues.iter().enumerate();
        let sent = queues
            .filter(|(queue, _)| self.settings.vector_of(*queue as u16) == vector)
            .any(|(_, queue)| queue.written_back > 0);
        let vectors = &mut entry.vectors[usize::from(vector)];
        vectors.moderation.polled(&self.settings.moderation);
        vectors.polling = false;
        vectors.due = Instant::MAX;
        let arrival = vectors.receive.front().map(|arrival| arrival.at);
        let next = match (sent, arrival) {
            (true, _) => Some(end),
            (false, arrival) => arrival.map(|at| at.max(end)),
        };
        if let Some(at) = next {
            self.arm(host, vector, at);
        }
    }

    /// Frees what the card has sent.
    fn complete(&mut self, host: u16, queue: u16, processor: u16) {
        let mut bytes = 0;
        loop {
            let tx = &mut self.hosts[usize::from(host)].queues[usize::from(queue)];
            if tx.written_back == 0 {
                break;
            }
            tx.written_back -= 1;
            let id = tx.sent.pop(&self.segments);
            let id = id.expect("what is written back was sent");
            let segment = self.segments.remove(id);
            tx.descriptors -= u32::from(segment.descriptors);
            bytes += u64::from(segment.bytes);
            self.spent += self.settings.cost.completion;
            self.free(host, &segment);
            let flow = &mut self.flows[segment.flow as usize];
            let goes_on = match self.settings.config.transmit_batching {
                true => flow.memory <= self.settings.small_queue,
                false => flow.throttled,
            };
            if segment.kind == Kind::Data && goes_on && !flow.waking {
                flow.throttled = false;
                flow.waking = true;
                self.plan(host, processor, Job::Wake { flow: segment.flow });
            }
        }
        if bytes == 0 {
            return;
        }
        let entry = &mut self.hosts[usize::from(host)];
        let vector = self.settings.vector_of(queue);
        entry.vectors[usize::from(vector)].moderation.sent(bytes);
        let tx = &mut entry.queues[usize::from(queue)];
        tx.limit.complete(bytes, self.now);
        let waits = !tx.soft.is_empty() || !tx.requeued.is_empty();
        if tx.limit.room().is_some() && waits {
            self.plan_run(host, queue, processor);
        }
    }

    /// Receives up to the budget; whether more has arrived.
    fn receive(&mut self, host: u16, vector: u16, processor: u16) -> bool {
        self.overflow(host, vector);
        let mut left = self.settings.poll_budget;
        while left > 0 {
            let receive = &mut self.hosts[usize::from(host)].vectors[usize::from(vector)].receive;
            let Some(arrival) = receive.pop_front_if(|arrival| arrival.at <= self.now) else {
                break;
            };
            left -= 1;
            let bytes = u64::from(arrival.payload) + u64::from(self.settings.header);
            let entry = &mut self.hosts[usize::from(host)].vectors[usize::from(vector)];
            entry.moderation.received(bytes);
            self.spent += self.settings.cost.receive_packet;
            match arrival.kind {
                Kind::Data => self.merge(&arrival, processor),
                Kind::Ack => {
                    let info = self.acks.remove(arrival.seq as u32);
                    self.acknowledged(arrival.flow, &info, processor);
                }
                Kind::Ping => self.answer_ping(host, &arrival, processor),
                Kind::Pong => self.ping_returned(&arrival),
            }
        }
        while !self.measure.merging.is_empty() {
            self.merged(0, processor);
        }
        left == 0
    }

    /// What arrived while the ring was full is lost.
    fn overflow(&mut self, host: u16, vector: u16) {
        let ring = self.settings.receive_ring;
        let receive = &mut self.hosts[usize::from(host)].vectors[usize::from(vector)].receive;
        if receive.len() <= ring {
            return;
        }
        let arrived = receive.partition_point(|arrival| arrival.at <= self.now);
        if arrived <= ring {
            return;
        }
        for arrival in receive.drain(ring..arrived) {
            self.measure.drops += 1;
            match arrival.kind {
                Kind::Data => {
                    self.flows[arrival.flow as usize].tally.dropped += u64::from(arrival.payload);
                }
                Kind::Ack => {
                    self.acks.remove(arrival.seq as u32);
                }
                Kind::Ping | Kind::Pong => {}
            }
        }
    }

    /// Adds a packet to what its flow has in this poll.
    fn merge(&mut self, arrival: &Arrival, processor: u16) {
        let payload = u64::from(arrival.payload);
        let index = arrival.flow as usize;
        self.measure.received(arrival, &mut self.flows[index]);
        let merge = &mut self.flows[index].merge;
        let marked = if arrival.marked { payload as u32 } else { 0 };
        let fits = merge.end == arrival.seq
            && merge.end + payload - merge.start <= MERGED_MOST
            && (merge.marked > 0) == arrival.marked;
        if merge.active && fits {
            merge.end += payload;
            merge.marked += marked;
            return;
        }
        if merge.active {
            let place = self
                .measure
                .merging
                .iter()
                .position(|flow| *flow == arrival.flow);
            self.merged(place.expect("active merges are listed"), processor);
        } else if self.measure.merging.len() >= self.settings.gro_flows {
            self.merged(0, processor);
        }
        let merge = &mut self.flows[index].merge;
        merge.active = true;
        merge.start = arrival.seq;
        merge.end = arrival.seq + payload;
        merge.marked = marked;
        self.measure.merging.push(arrival.flow);
    }

    /// The merged segment of the flow at `place` of the list goes to TCP.
    fn merged(&mut self, place: usize, processor: u16) {
        let index = self.measure.merging.remove(place);
        let merge = &mut self.flows[index as usize].merge;
        merge.active = false;
        let (start, end, marked) = (merge.start, merge.end, merge.marked);
        self.spent += self.settings.cost.receive_segment;
        self.arrived(index, start, end, marked, processor);
    }
}
