//! One host: its processors, its interrupt vectors, its queues, its card.
//!
//! Vector `v` serves transmit queue `v` and receive queue `v` and interrupts processor `v` modulo their number, as the
//! driver pairs and spreads them (titan 2.1). While the card has weights, it is divided into pools, and there are as many
//! vectors as a pool has receive queues: each serves several transmit queues (Titan's driver).

use crate::buffer::Buffer;
use crate::card::Card;
use crate::frame::Frame;
use crate::moderation::Moderation;
use crate::processor::Processor;
use crate::queueing::SoftQueue;
use crate::queueing::limit::Limit;
use crate::segment::{Kind, List, Segment, Segments};
use crate::settings::Settings;
use crate::sleep::Sleep;
use isolane_common_quantities::units::{Duration, Instant};
use isolane_ethernet_policy::titan::assign::Assigner;
use isolane_ethernet_policy::titan::pools::of_processors;
use isolane_ethernet_policy::titan::segments::{SegmentOptions, SegmentSize};
use isolane_ethernet_policy::titan::weights::{QueueWeights, WeightOptions};
use isolane_ethernet_policy::titan::{QueueSet, WEIGHT_ONE};
use isolane_ethernet_scenario::config::Assignment;
use std::collections::VecDeque;

/// How long our controller waits before segments grow again; Titan's kernel looks at each segment.
const HOLD: Duration = Duration::from_ms(10);
/// Descriptors that must be free for a queue to take another segment: 17 fragments and four more, as the driver asks.
const DESCRIPTORS_SPARE: u32 = 21;

/// A host.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) queues: Vec<TxQueue>,
    pub(crate) vectors: Vec<Vector>,
    pub(crate) processors: Vec<Processor>,
    pub(crate) card: Card,
    /// Dynamic queue assignment.
    pub(crate) assigner: Option<Assigner>,
    /// Weight of the flows with anything in each queue, under any assignment.
    pub(crate) loads: Vec<u64>,
    /// The weights that the NIC gets from our controller; Titan's driver writes each change at once.
    pub(crate) weights: Option<QueueWeights>,
    /// Queues of each processor, if they have their own.
    pub(crate) pools: Vec<QueueSet>,
    /// Dynamic segment sizes.
    pub(crate) sizes: Option<SegmentSize>,
}

/// A software queue, the hardware queue below it.
#[derive(Debug)]
pub(crate) struct TxQueue {
    pub(crate) soft: SoftQueue,
    /// Dequeued when the ring closed: goes first when it opens, before pings too.
    pub(crate) requeued: List,
    pub(crate) limit: Limit,
    /// Posted, not wholly sent.
    pub(crate) ring: List,
    /// Buffered by the card, completion not processed.
    pub(crate) sent: List,
    /// Of these, how many the card has told the host of.
    pub(crate) written_back: u32,
    /// Descriptors that the card has finished since the first segment that it has not told of.
    pub(crate) finished: u32,
    pub(crate) descriptors: u32,
    /// A run of the software queue is planned.
    pub(crate) planned: bool,
    /// A run of the software queue after a batch of flows is planned.
    pub(crate) batched: bool,
    /// A wake-up for a paced flow is planned for then.
    pub(crate) wake_at: Option<Instant>,
    /// Who touched it last, and until when.
    pub(crate) owner: u16,
    pub(crate) owned_until: Instant,
    pub(crate) sent_bytes: u64,
    pub(crate) most: u64,
}

#[derive(Debug)]
pub(crate) struct Vector {
    pub(crate) processor: u16,
    /// A poll is running or planned; interrupts are off.
    pub(crate) polling: bool,
    /// When the interrupt is due; `Instant::MAX` if it is not.
    pub(crate) due: Instant,
    pub(crate) last: Instant,
    /// When the card writes back what it has finished, however little; `Instant::MAX` if nothing waits.
    pub(crate) flush: Instant,
    pub(crate) moderation: Moderation,
    pub(crate) receive: VecDeque<Arrival>,
}

/// A packet in a receive ring, or on its way there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) at: Instant,
    /// First byte; of an acknowledgement or a ping its number.
    pub(crate) seq: u64,
    pub(crate) flow: u32,
    pub(crate) payload: u16,
    pub(crate) kind: Kind,
    pub(crate) marked: bool,
    pub(crate) again: bool,
}

impl Host {
    pub(crate) fn new(settings: &Settings) -> Self {
        let config = &settings.config;
        let latency_queue =
            (config.latency_queue && settings.queues > 1).then_some(settings.queues - 1);
        let dynamic = config.assignment == Assignment::Dynamic;
        let ours = config.latency_queue;
        let all = QueueSet::first(settings.queues);
        let assigner = match ours {
            true => Assigner::new(settings.queues, latency_queue),
            false => Assigner::new(settings.queues, None).lowest_first(),
        };
        let written = config.queue_weights && !settings.weights_at_once;
        Self {
            queues: (0..settings.queues)
                .map(|_| TxQueue::new(settings))
                .collect(),
            vectors: (0..settings.receive_queues)
                .map(|vector| Vector::new(settings, vector % settings.processors))
                .collect(),
            processors: vec![Processor::default(); usize::from(settings.processors)],
            card: Card::new(
                settings.queues,
                config.queue_weights,
                Buffer::new(settings.buffer_threshold),
            ),
            loads: vec![0; usize::from(settings.queues)],
            assigner: dynamic.then_some(assigner),
            weights: written.then(|| QueueWeights::new(settings.queues, WeightOptions::default())),
            pools: match config.pools {
                true => of_processors(settings.processors, all),
                false => Vec::new(),
            },
            sizes: config.shared_segment.map(|reduced| {
                SegmentSize::new(SegmentOptions {
                    normal: config.segment,
                    reduced,
                    hold: if ours { HOLD } else { Duration::ZERO },
                })
            }),
        }
    }

    /// Takes the card's next packet from its ring, and reports the segment that it ends. There is a packet.
    pub(crate) fn next_packet(&mut self, segments: &mut Segments, settings: &Settings) -> Frame {
        let queues = &self.queues;
        let size = |queue: u16| {
            let head = queues[usize::from(queue)].ring.head();
            let segment = segments.get(head.expect("active queues hold segments"));
            packet(segment, settings.mss).1
        };
        let queue = self.card.choose(settings.credit, size);
        let tx = &mut self.queues[usize::from(queue)];
        let id = tx.ring.head().expect("active queues hold segments");
        let segment = segments.get_mut(id);
        let (payload, bytes) = packet(segment, settings.mss);
        let seq = segment.seq + u64::from(segment.taken);
        let finished = segment.finished(settings.descriptor);
        segment.taken += payload;
        let finished = segment.finished(settings.descriptor) - finished;
        let ends = segment.taken >= segment.payload;
        // Counting begins with the descriptor that asks for a report, the last one of a segment.
        tx.finished += match tx.sent.len() > tx.written_back {
            true => finished,
            false => u32::from(ends),
        };
        let frame = Frame {
            seq,
            flow: segment.flow,
            info: segment.info,
            payload: payload as u16,
            bytes: bytes as u16,
            queue,
            kind: segment.kind,
            again: segment.again,
            marked: false,
        };
        tx.sent_bytes += u64::from(bytes);
        if ends {
            tx.ring.pop(segments);
            tx.sent.push(segments, id);
            if tx.ring.is_empty() {
                self.card.deactivate(queue);
            }
        }
        frame
    }

    /// Whether flows share a queue, but for the latency queue.
    pub(crate) fn is_oversubscribed(&self) -> bool {
        match &self.assigner {
            Some(assigner) => assigner.is_oversubscribed(),
            None => self.loads.iter().any(|load| *load > u64::from(WEIGHT_ONE)),
        }
    }

    /// The other thread of the core.
    #[inline]
    pub(crate) fn sibling(&self, processor: u16) -> Option<&Processor> {
        let threads = self.processors.len();
        let place = (usize::from(processor) + threads / 2) % threads;
        (threads.is_multiple_of(2)).then(|| &self.processors[place])
    }

    /// Something wakes a sleeping processor at `now`: when it is awake.
    #[inline]
    pub(crate) fn wake(&mut self, processor: u16, now: Instant, sleep: &Sleep) -> Instant {
        let other = match self.sibling(processor) {
            Some(thread) if thread.is_active() => 0,
            Some(thread) => thread.governor.state(),
            None => usize::MAX,
        };
        let entry = &mut self.processors[usize::from(processor)];
        let state = entry.governor.state().min(other);
        entry.governor.wake(now, sleep);
        entry.awake = now + sleep.states[state].exit;
        entry.awake
    }

    /// Processor time so far, of all processors.
    pub(crate) fn busy(&self) -> Duration {
        self.processors.iter().map(|processor| processor.busy).sum()
    }
}

/// Payload and frame bytes of a segment's next packet.
#[inline]
fn packet(segment: &Segment, mss: u32) -> (u32, u32) {
    if segment.kind != Kind::Data {
        return (segment.payload, segment.bytes);
    }
    let payload = (segment.payload - segment.taken).min(mss);
    (payload, payload + segment.header())
}

impl TxQueue {
    fn new(settings: &Settings) -> Self {
        Self {
            soft: SoftQueue::new(settings),
            requeued: List::default(),
            limit: Limit::new(settings.config.byte_limit),
            ring: List::default(),
            sent: List::default(),
            written_back: 0,
            finished: 0,
            descriptors: 0,
            planned: false,
            batched: false,
            wake_at: None,
            owner: u16::MAX,
            owned_until: Instant::ZERO,
            sent_bytes: 0,
            most: 0,
        }
    }

    /// Whether the ring has the descriptors of another segment.
    pub(crate) fn has_descriptors(&self, ring: u32) -> bool {
        self.descriptors + DESCRIPTORS_SPARE <= ring
    }

    /// Whether the ring takes another segment.
    pub(crate) fn is_open(&self, ring: u32) -> bool {
        self.limit.room().is_some() && self.has_descriptors(ring)
    }
}

impl Vector {
    fn new(settings: &Settings, processor: u16) -> Self {
        Self {
            processor,
            polling: false,
            due: Instant::MAX,
            last: Instant::ZERO,
            flush: Instant::MAX,
            moderation: Moderation::new(&settings.moderation),
            receive: VecDeque::new(),
        }
    }
}
