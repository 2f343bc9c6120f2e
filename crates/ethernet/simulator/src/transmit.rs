//! From TCP to the card's rings: choice of a queue, software queues, bulk dequeueing, byte limits.
//!
//! Method: a segment goes to the software queue of its flow's transmit queue, and the processor that put it there runs
//! that queue at once: segments move to the ring while the byte limit and the ring have room, as many at a time as the
//! limit leaves room for, up to a quota, after which the rest is planned as a job. A bulk counts the headers of a segment
//! once, the limit counts those of each packet: what a bulk took beyond the limit is requeued and goes first. With Titan's batching no processor
//! runs a queue at once; a job after all flows of the batch does (titan 5); flows that send after an acknowledgement or a write are in no batch. A flow keeps its queue while it has
//! anything in the host. Hashing gives every flow one queue, or one of the pool of the processor that sends; dynamic
//! assignment uses [`isolane_ethernet_policy::titan`]. A processor that uses a queue after another one pays for the
//! transfer of its cache lines, and waits while the other processor still uses the queue. Source: titan 2, 5; Linux's
//! `__dev_xmit_skb`, `__qdisc_run`, `try_bulk_dequeue_skb`; `ixgbe_maybe_stop_tx`.

use crate::card::WeightWrite;
use crate::processor::Job;
use crate::queueing::Next;
use crate::segment::{Kind, Segment};
use crate::world::{Event, World};
use isolane_common_quantities::units::Duration;
use isolane_ethernet_policy::titan::assign::Send;
use isolane_ethernet_policy::titan::{QueueSet, WEIGHT_ONE};
use isolane_ethernet_scenario::config::Qdisc;

/// Up to this many payload bytes a packet counts as small: 1,280 with its headers, as on a real host.
const SPARSE: u32 = 1228;

impl World {
    /// A segment leaves TCP (or a ping its process) on `processor`. If more of its batch follows, its queue runs after them.
    pub(crate) fn transmit(&mut self, host: u16, segment: Segment, processor: u16, more: bool) {
        self.spent += self.settings.cost.segment;
        let queue = self.choose(host, &segment, processor);
        let pieces = self.piece_payload(host, &segment);
        if segment.kind == Kind::Data && segment.payload > pieces {
            self.cut(host, segment, pieces, queue, processor);
        } else {
            self.enqueue(host, segment, queue, processor);
        }
        match more {
            true => self.plan_batch(host, queue, processor),
            false => self.run_queue(host, queue, processor),
        }
    }

    /// The queue of this segment's flow.
    fn choose(&mut self, host: u16, segment: &Segment, processor: u16) -> u16 {
        let entry = &mut self.hosts[usize::from(host)];
        let allowed = match entry.pools.is_empty() {
            true => QueueSet::EMPTY,
            false => entry.pools[usize::from(processor)],
        };
        let flow = &mut self.flows[segment.flow as usize];
        let way = flow.way_mut(segment.kind);
        let before = way.queue;
        let counts = self.settings.counts(segment.kind);
        let queue = match &mut entry.assigner {
            Some(assigner) if !counts => {
                self.spent += self.settings.cost.assign;
                assigner.lightest_of(allowed)
            }
            Some(assigner) => {
                let fresh = way.place.outstanding() == 0;
                let send = Send {
                    units: 1,
                    weight: WEIGHT_ONE,
                    sparse: segment.payload <= SPARSE,
                    allowed,
                };
                if fresh {
                    self.spent += self.settings.cost.assign;
                }
                assigner.send(&mut way.place, send)
            }
            None if way.outstanding > 0 => way.queue,
            None if allowed.is_empty() => (way.hash % u32::from(self.settings.queues)) as u16,
            None => {
                let nth = way.hash % allowed.len();
                allowed
                    .iter()
                    .nth(nth as usize)
                    .expect("it is below the length")
            }
        };
        way.queue = queue;
        if !counts {
            return queue;
        }
        way.outstanding += 1;
        let is_new = way.outstanding == 1;
        if is_new {
            entry.loads[usize::from(queue)] += u64::from(WEIGHT_ONE);
        }
        if before != queue && before != u16::MAX {
            self.measure.moves += u64::from(segment.kind == Kind::Data);
        }
        let oversubscribed = entry.sizes.is_some() && entry.is_oversubscribed();
        if let Some(sizes) = &mut entry.sizes {
            sizes.update(self.now, oversubscribed);
        }
        if is_new && entry.loads[usize::from(queue)] > u64::from(WEIGHT_ONE) {
            self.write_weight(host, queue, true);
        }
        queue
    }

    /// The largest payload that may enter a software queue in one segment.
    fn piece_payload(&self, host: u16, segment: &Segment) -> u32 {
        let mss = self.settings.mss;
        if self.settings.config.qdisc == Qdisc::Cake {
            return mss;
        }
        match &self.hosts[usize::from(host)].sizes {
            // Ours lowers what TCP may make; Titan's kernel cuts what it made.
            Some(sizes) if self.settings.config.transmit_batching => {
                packets_of(sizes.current().get(), mss, segment.header()) * mss
            }
            _ => u32::MAX,
        }
    }

    /// Cuts a segment into pieces with `most` payload, all for one queue.
    fn cut(&mut self, host: u16, segment: Segment, most: u32, queue: u16, processor: u16) {
        let mut offset = 0;
        while offset < segment.payload {
            let payload = most.min(segment.payload - offset);
            let mut piece = segment;
            piece.seq += u64::from(offset);
            self.measured(&mut piece, payload);
            if offset > 0 {
                self.spent += self.settings.cost.software_packet;
                self.outstanding_more(host, &piece);
                self.flows[segment.flow as usize].memory += u64::from(self.settings.overhead);
            }
            piece.memory = payload + self.settings.overhead;
            self.enqueue(host, piece, queue, processor);
            offset += payload;
        }
    }

    /// Sets payload and what follows from it.
    pub(crate) fn measured(&self, segment: &mut Segment, payload: u32) {
        let packets = self.settings.packets(payload);
        segment.payload = payload;
        segment.bytes = payload + packets * segment.header();
        segment.descriptors = 2 + payload.div_ceil(self.settings.descriptor) as u16;
    }

    fn outstanding_more(&mut self, host: u16, piece: &Segment) {
        let way = self.flows[piece.flow as usize].way_mut(piece.kind);
        way.outstanding += 1;
        if let Some(assigner) = &mut self.hosts[usize::from(host)].assigner {
            let again = Send {
                units: 1,
                weight: WEIGHT_ONE,
                sparse: false,
                allowed: QueueSet::EMPTY,
            };
            assigner.send(&mut way.place, again);
        }
    }

    fn enqueue(&mut self, host: u16, mut segment: Segment, queue: u16, processor: u16) {
        segment.entered = self.now;
        self.touch(host, queue, processor);
        self.spent += self.settings.cost.queue;
        let id = self.segments.insert(segment);
        let entry = &mut self.hosts[usize::from(host)].queues[usize::from(queue)];
        if let Some(dropped) = entry.soft.enqueue(&mut self.segments, id) {
            self.lose(host, dropped);
        }
    }

    /// A software queue dropped a segment: it is freed, and TCP is notified.
    fn lose(&mut self, host: u16, id: u32) {
        let segment = self.segments.remove(id);
        self.measure.drops += u64::from(self.settings.packets(segment.payload));
        self.free(host, &segment);
        if segment.kind == Kind::Data {
            self.dropped_here(&segment);
        } else if segment.kind == Kind::Ack {
            self.acks.remove(segment.info);
        }
    }

    /// A segment of a flow is gone from the host.
    pub(crate) fn free(&mut self, host: u16, segment: &Segment) {
        let flow = &mut self.flows[segment.flow as usize];
        if segment.kind == Kind::Data {
            flow.memory -= u64::from(segment.memory);
        }
        if !self.settings.counts(segment.kind) {
            return;
        }
        let way = flow.way_mut(segment.kind);
        way.outstanding -= 1;
        let entry = &mut self.hosts[usize::from(host)];
        let (queue, is_last) = (way.queue, way.outstanding == 0);
        if let Some(assigner) = &mut entry.assigner {
            assigner.freed(&mut way.place, 1);
        }
        if is_last {
            entry.loads[usize::from(queue)] -= u64::from(WEIGHT_ONE);
            self.write_weight(host, queue, false);
        }
    }

    /// Charges `processor` for a queue that another one had.
    fn touch(&mut self, host: u16, queue: u16, processor: u16) {
        let end = self.job_end();
        let cost = &self.settings.cost;
        let entry = &mut self.hosts[usize::from(host)].queues[usize::from(queue)];
        if entry.owner != processor {
            if entry.owner != u16::MAX {
                self.spent += cost.lock;
                if entry.owned_until > end {
                    self.spent += cost.contention;
                }
            }
            entry.owner = processor;
        }
        entry.owned_until = self.now + self.spent;
    }

    /// Plans a run of a queue after the batch of flows that `processor` wakes, unless one is planned.
    fn plan_batch(&mut self, host: u16, queue: u16, processor: u16) {
        let entry = &mut self.hosts[usize::from(host)].queues[usize::from(queue)];
        if !std::mem::replace(&mut entry.batched, true) {
            self.plan(host, processor, Job::RunBatch { queue });
        }
    }

    pub(crate) fn batched_run(&mut self, host: u16, queue: u16, processor: u16) {
        self.hosts[usize::from(host)].queues[usize::from(queue)].batched = false;
        self.run_queue(host, queue, processor);
    }

    /// Plans a run of a queue unless one is planned.
    pub(crate) fn plan_run(&mut self, host: u16, queue: u16, processor: u16) {
        let entry = &mut self.hosts[usize::from(host)].queues[usize::from(queue)];
        if !entry.planned {
            entry.planned = true;
            self.plan(host, processor, Job::RunQueue { queue });
        }
    }

    pub(crate) fn planned_run(&mut self, host: u16, queue: u16, processor: u16) {
        self.hosts[usize::from(host)].queues[usize::from(queue)].planned = false;
        self.run_queue(host, queue, processor);
        self.tell_weights(host);
    }

    /// Moves segments from a software queue to its ring while there is room.
    fn run_queue(&mut self, host: u16, queue: u16, processor: u16) {
        let mut quota = self.settings.dequeue_quota;
        while let Some(taken) = self.bulk(host, queue) {
            quota = quota.saturating_sub(taken);
            if quota == 0 {
                self.plan_run(host, queue, processor);
                break;
            }
        }
        let end = self.job_end();
        self.hosts[usize::from(host)].queues[usize::from(queue)].owned_until = end;
    }

    /// Moves what was requeued, or else one bulk: the number of segments. `None` if the ring is closed or nothing waits.
    fn bulk(&mut self, host: u16, queue: u16) -> Option<u32> {
        let at = (usize::from(host), usize::from(queue));
        let ring = self.settings.ring;
        let entry = &self.hosts[at.0].queues[at.1];
        let mut left = entry.limit.room().filter(|_| entry.has_descriptors(ring))? as i64;
        let mut taken = 0;
        if !entry.requeued.is_empty() {
            while self.hosts[at.0].queues[at.1].is_open(ring) {
                let requeued = &mut self.hosts[at.0].queues[at.1].requeued;
                let Some(id) = requeued.pop(&self.segments) else {
                    break;
                };
                taken += 1;
                self.post(host, queue, id);
            }
            return Some(taken);
        }
        while left > 0 || taken == 0 {
            let soft = &mut self.hosts[at.0].queues[at.1].soft;
            let next = soft.dequeue(&mut self.segments, self.now, &mut self.drops);
            while let Some(dropped) = self.drops.pop() {
                self.lose(host, dropped);
            }
            let id = match next {
                Next::Nothing => break,
                Next::At(at) => {
                    self.wake_queue(host, queue, at);
                    break;
                }
                Next::Segment(id) => id,
            };
            taken += 1;
            let segment = self.segments.get(id);
            left -= i64::from(segment.payload + segment.header());
            match self.hosts[at.0].queues[at.1].is_open(ring) {
                true => self.post(host, queue, id),
                false => {
                    let requeued = &mut self.hosts[at.0].queues[at.1].requeued;
                    requeued.push(&mut self.segments, id);
                }
            }
        }
        (taken > 0).then_some(taken)
    }

    fn wake_queue(&mut self, host: u16, queue: u16, at: isolane_common_quantities::units::Instant) {
        let entry = &mut self.hosts[usize::from(host)].queues[usize::from(queue)];
        if entry.wake_at.is_none_or(|planned| at < planned) {
            entry.wake_at = Some(at);
            self.events.schedule(at, Event::Paced { host, queue });
        }
    }

    /// A paced flow's time has come.
    pub(crate) fn paced(&mut self, host: u16, queue: u16) {
        let entry = &mut self.hosts[usize::from(host)].queues[usize::from(queue)];
        if entry.wake_at == Some(self.now) {
            entry.wake_at = None;
            let owner = entry.owner;
            self.plan_run(host, queue, owner);
        }
    }

    /// A segment goes to the ring.
    fn post(&mut self, host: u16, queue: u16, id: u32) {
        let segment = *self.segments.get(id);
        let descriptors = u64::from(segment.descriptors);
        self.spent += self.settings.cost.descriptor * descriptors;
        if segment.kind == Kind::Data && !self.settings.config.segmentation_offload {
            let packets = self.settings.packets(segment.payload);
            self.spent += self.settings.cost.software_packet * u64::from(packets - 1);
        }
        let entry = &mut self.hosts[usize::from(host)];
        let tx = &mut entry.queues[usize::from(queue)];
        tx.limit.post(segment.bytes);
        tx.most = tx.most.max(tx.limit.outstanding());
        tx.descriptors += u32::from(segment.descriptors);
        tx.ring.push(&mut self.segments, id);
        entry
            .card
            .activate(queue, self.settings.mss + self.settings.header);
        self.measure.segments += u64::from(segment.kind == Kind::Data);
        self.fetch(host);
    }

    /// The number of flows in a queue has changed: Titan's driver writes it to the card at once, in two stores ([`crate::card`]). An
    /// empty queue keeps its weight. The kernel holds a lock of the device while it adds a flow, and none while it removes one.
    fn write_weight(&mut self, host: u16, queue: u16, locked: bool) {
        let flows = self.hosts[usize::from(host)].loads[usize::from(queue)] / u64::from(WEIGHT_ONE);
        if !self.settings.weights_at_once || flows == 0 {
            return;
        }
        self.measure.weight_writes += 1;
        let at = self.job_end() + self.settings.weight_write;
        self.spent += self.settings.cost.weight;
        let write = WeightWrite { queue, locked };
        self.events.schedule(at, Event::Select { host, write });
    }

    /// The first store of a weight's write reaches the card, or waits for the lock. The weight is the number of flows at this time: on a
    /// real host a count and its write are next to each other, but here a job changes all counts when it begins.
    pub(crate) fn select(&mut self, host: u16, write: WeightWrite) {
        let store = self.settings.cost.weight / 2;
        let entry = &mut self.hosts[usize::from(host)];
        match entry.card.select(write, self.now, self.now + store) {
            Ok(()) => {
                let flows = entry.loads[usize::from(write.queue)] / u64::from(WEIGHT_ONE);
                let weight = flows.max(1) as u16;
                let at = self.now + store;
                self.events.schedule(at, Event::Weight { host, weight });
            }
            Err(free) => self.events.schedule(free, Event::Select { host, write }),
        }
    }

    /// Sets new weights of the NIC if our policy decides to.
    pub(crate) fn tell_weights(&mut self, host: u16) {
        let entry = &mut self.hosts[usize::from(host)];
        let Some(weights) = &mut entry.weights else {
            return;
        };
        if let Some(written) = weights.poll(self.now, &entry.loads) {
            self.measure.weight_writes += 1;
            self.spent += self.settings.cost.weight * written.len() as u64;
            let at = self.now + self.settings.weight_write;
            self.events.schedule(at, Event::Weights { host });
        }
    }

    pub(crate) fn weights_in_force(&mut self, host: u16) {
        let entry = &mut self.hosts[usize::from(host)];
        if let Some(weights) = &entry.weights {
            entry.card.set_weights(weights.sent());
        }
    }

    /// Processor time that one write of `bytes` takes.
    pub(crate) fn copy_time(&self, bytes: u64) -> Duration {
        Duration::from_ps(bytes * self.settings.cost.copy_ps_per_byte)
    }
}

/// Packets of a segment of at most `bytes` with its headers, at least one.
pub(crate) fn packets_of(bytes: u64, mss: u32, header: u32) -> u32 {
    ((bytes.saturating_sub(u64::from(header)) / u64::from(mss)) as u32).max(1)
}
