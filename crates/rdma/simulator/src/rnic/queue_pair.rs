//! One direction of one connection: the requester's send queue and what the responder keeps of it.
//!
//! A queue pair here posts requests from `host` to `peer` (equal for loopback). Traffic in both directions is two of
//! them. All positions are counts since the start, so that an outstanding amount is a difference; the rings hold the
//! requests between `acknowledged` and `posted`.

use super::access::End;
use super::device::Device;
use super::event::{Packet, PacketKind};
use super::sizes::{ATOMIC_HEADER, PAGE, PAGES_PER_REGION_MAX, REMOTE_END};
use isolane_rdma_scenario::model::{MemoryPlace, Transport, Verb};
use std::collections::VecDeque;

/// No queue pair.
pub(crate) const NONE: u32 = u32::MAX;

/// One work request in the send queue. A message that a policy splits is several.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WorkRequest {
    /// Payload, bytes.
    pub(crate) bytes: u64,
    /// Message of the application it belongs to.
    pub(crate) message: u64,
    /// Scatter-gather elements.
    pub(crate) elements: u16,
    /// The last (or only) chunk of its message.
    pub(crate) last: bool,
    pub(crate) signalled: bool,
    /// Requests an acknowledgement of the responder.
    pub(crate) wants_ack: bool,
    /// Payload rides in the work request.
    pub(crate) inline: bool,
    /// A chunk that takes a place of its pair's window.
    pub(crate) windowed: bool,
}

/// What one message of a pair counts for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) operations: u64,
    /// Factor on its bytes.
    pub(crate) bytes: u64,
}

impl Default for Cost {
    fn default() -> Self {
        Self {
            operations: 1,
            bytes: 1,
        }
    }
}

/// A queue pair's place in its flow's working set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Membership {
    /// Waits for a place, or has never needed one.
    #[default]
    Out,
    /// May send.
    In,
    /// Finishes what it has begun.
    Leaving,
}

/// State of one queue pair; see the module comment for its positions.
///
/// Of thousands of pairs none stays in a cache, so the fields that one event reads are together: each of the first four
/// groups is a line of 64 B.
#[derive(Clone, Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct QueuePair {
    // What sending looks at.
    pub(crate) process: u32,
    pub(crate) mtu: u32,
    pub(crate) tenant: u16,
    pub(crate) host: u8,
    pub(crate) peer: u8,
    pub(crate) verb: Verb,
    pub(crate) transport: Transport,
    /// Class of its hardware queue: a priority, a traffic class, a virtual lane.
    pub(crate) queue: u8,
    /// Virtual function it belongs to; 0 without SR-IOV.
    pub(crate) function: u8,
    pub(crate) fetching: bool,
    /// Waits in, or is served from, the schedule queue.
    pub(crate) scheduled: bool,
    /// Waits for a cache miss.
    pub(crate) parked: bool,
    /// The caches have been read for the current request.
    pub(crate) resolved: bool,
    /// Waits for the RNR timer.
    pub(crate) backing_off: bool,
    /// Bumped when the sender goes back; older packets are void.
    pub(crate) epoch: u8,
    /// Waits in its flow's backlog.
    pub(crate) in_backlog: bool,
    /// Belongs to the policy's reference flow.
    pub(crate) reference: bool,
    /// Slots of the send queue, a power of two.
    pub(crate) slots: u32,
    /// The place of its messages at its host, and at its peer.
    pub(crate) memory: MemoryPlace,
    pub(crate) remote_memory: MemoryPlace,
    /// It is one peer's part of a datagram queue pair that sends to several (`share_datagrams`).
    pub(crate) shares: bool,
    /// Its work requests, by position. It grows up to `slots`, so that pairs that never use most of them leave no memory behind.
    pub(crate) ring: Box<[WorkRequest]>,
    /// Work requests wholly sent.
    pub(crate) sent: u64,
    /// Work requests fetched by the NIC.
    pub(crate) fetched: u64,

    // The rest of the send queue, and the page being translated.
    /// Work requests whose doorbell the NIC has seen.
    pub(crate) visible: u64,
    /// Work requests written.
    pub(crate) posted: u64,
    /// Work requests acknowledged (RC) or sent (UC, UD), whose slots are free again.
    pub(crate) acknowledged: u64,
    /// Bytes of the next one already sent.
    pub(crate) offset: u64,
    /// Since when it waits in the schedule queue, ps.
    pub(crate) queued_at: u64,
    /// Page being translated at the sender (keys are page numbers).
    pub(crate) local_page: u64,
    /// First region of the process at each end.
    pub(crate) region_base: u64,
    /// READs and atomics in flight.
    pub(crate) reads_out: u32,
    /// Number of the queue pair within its process.
    pub(crate) ordinal: u32,

    // The application.
    /// Messages the application has handed over.
    pub(crate) app_posted: u64,
    /// Messages whose completion the application has seen.
    pub(crate) retired: u64,
    /// When each outstanding message was handed over, ps; indexed by message.
    pub(crate) post_times: Vec<u64>,
    /// Messages wholly let through to the NIC.
    pub(crate) released: u64,
    /// Bytes of the next message already let through as chunks.
    pub(crate) release_offset: u64,
    /// The queue pair that answers in a ping-pong.
    pub(crate) twin: u32,
    /// The link of an application's program that it carries.
    pub(crate) link: u32,

    // The responder, and what a policy decided.
    /// Work requests wholly received.
    pub(crate) received: u64,
    /// Receives posted and unused.
    pub(crate) receives: u64,
    /// Receives used in total.
    pub(crate) receives_used: u64,
    /// When the metadata of the current message is there, ps.
    pub(crate) receive_ready: u64,
    /// Payload of the current message already written to memory, bytes.
    pub(crate) landed: u64,
    /// Page being translated at the receiver.
    pub(crate) remote_page: u64,
    /// Receives used since the last batch was posted back.
    pub(crate) receives_owed: u32,
    /// Chunks of split messages it may have in the NIC; 0 is no bound.
    pub(crate) window: u32,
    pub(crate) expected_epoch: u8,
    /// Chunks of a split message are in, its last one is not.
    pub(crate) mid_message: bool,
    /// A message is being discarded for want of a receive.
    pub(crate) dropping: bool,
    /// Its place in its flow's working set.
    pub(crate) membership: Membership,
    /// A look at its flow is due when it may send the next one.
    pub(crate) trickle_watched: bool,

    // Congestion control.
    /// The requester's, then the responder's for READ responses.
    pub(crate) limiters: [super::congestion::Limiter; 2],

    // What only some devices keep.
    pub(crate) micro: super::micro::MicroPair,

    // A paced or an open-loop application.
    /// When a paced pair may post again, ps.
    pub(crate) pace_free: u64,
    /// Messages that arrived while the queue was full (open loop).
    pub(crate) app_waiting: u64,
    /// When a paced pair tries to post again, ps; in the past when no such timer runs.
    pub(crate) post_timer: u64,

    /// The datagram queue pair that it is a part of, if it shares one.
    pub(crate) datagrams: u32,

    // A policy.
    /// Chunks of split messages it has in the NIC.
    pub(crate) chunks_out: u32,
    /// What its messages count for where work is held back.
    pub(crate) cost: Cost,
    /// Since when it has its place in the working set, ps.
    pub(crate) member_since: u64,
    /// Receives posted for it and not yet claimed by a message, as far as the sender knows.
    pub(crate) receives_known: u64,
    /// When the last message left that had no receive, ps.
    pub(crate) trickled_at: u64,

    // A responder that answers READs.
    /// READ responses wholly sent by the responder.
    pub(crate) responded: u64,
    pub(crate) response_offset: u64,
    pub(crate) response_queued_at: u64,
    /// Work request positions of READs, in order, to answer.
    pub(crate) reads_to_answer: VecDeque<u64>,
    pub(crate) response_scheduled: bool,

    // Measurement.
    pub(crate) bytes_delivered: u64,
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(std::mem::offset_of!(QueuePair, visible) == 64);
    assert!(std::mem::offset_of!(QueuePair, app_posted) == 128);
    assert!(std::mem::offset_of!(QueuePair, received) == 192);
    assert!(std::mem::offset_of!(QueuePair, limiters) == 256);
};

impl QueuePair {
    /// The place of byte `offset` of the current message within the memory of its process at one end.
    pub(crate) const fn memory_offset(&self, end: End, offset: u64) -> u64 {
        let page = match end {
            End::Requester => self.local_page,
            End::Responder => self.remote_page & !REMOTE_END,
        };
        let first = self.region_base * PAGES_PER_REGION_MAX;
        page.wrapping_sub(first).wrapping_mul(PAGE) + offset
    }

    /// Whether a program waits for each of its messages to arrive.
    #[inline]
    pub(crate) fn tells(&self) -> bool {
        self.twin != NONE || self.link != NONE
    }

    /// Asks memory for all that events look at often.
    #[inline]
    pub(crate) fn fetch(&self) {
        isolane_common_events::prefetch::fetch(self);
        isolane_common_events::prefetch::fetch(&self.visible);
        isolane_common_events::prefetch::fetch(&self.app_posted);
        isolane_common_events::prefetch::fetch(&self.received);
        isolane_common_events::prefetch::fetch(&self.limiters);
    }

    /// The slot of work request `position`.
    #[inline]
    pub(crate) fn work_request(&self, position: u64) -> &WorkRequest {
        &self.ring[position as usize & (self.ring.len() - 1)]
    }

    /// As [`Self::work_request`], to be changed.
    pub(crate) fn request_at(&mut self, position: u64) -> &mut WorkRequest {
        let mask = self.ring.len() - 1;
        &mut self.ring[position as usize & mask]
    }

    /// The next packet of a request of `bytes`, and the bytes of its extended header.
    #[inline(always)]
    pub(crate) fn next_packet(
        &mut self,
        device: &Device,
        buffer_of_class: &[u8],
        bytes: u64,
    ) -> (Packet, u64) {
        let first = self.offset == 0;
        let (kind, sends_payload, header) = match self.verb {
            Verb::Write if first => (PacketKind::Data, true, device.extended_header),
            Verb::Write | Verb::Send => (PacketKind::Data, true, 0),
            Verb::Read => (PacketKind::ReadRequest, false, device.extended_header),
            Verb::FetchAdd | Verb::CompareSwap => (PacketKind::Atomic, false, ATOMIC_HEADER),
        };
        let left = if sends_payload {
            bytes - self.offset
        } else {
            0
        };
        let payload = left.min(u64::from(self.mtu));
        let last = payload == left;
        let packet = Packet {
            payload: payload as u16,
            kind,
            epoch: self.epoch,
            first,
            last,
            marked: false,
            buffer: buffer_of_class[usize::from(self.queue)],
        };
        if last {
            self.sent += 1;
            self.offset = 0;
            self.resolved = false;
            self.reads_out += u32::from(!sends_payload);
        } else {
            self.offset += payload;
        }
        (packet, header)
    }

    /// Free send queue slots.
    #[inline]
    pub(crate) fn room(&self) -> u64 {
        u64::from(self.slots) - (self.posted - self.acknowledged)
    }

    /// Writes one work request.
    #[inline]
    pub(crate) fn push(&mut self, request: WorkRequest) {
        // Unreliable requests free their slots before they are received.
        let kept = self.posted - self.acknowledged.min(self.received);
        if kept >= self.ring.len() as u64 && self.ring.len() < self.slots as usize {
            self.grow();
        }
        let mask = self.ring.len() - 1;
        self.ring[self.posted as usize & mask] = request;
        self.posted += 1;
    }

    /// Twice the ring, with all that it holds.
    #[cold]
    fn grow(&mut self) {
        let length = self.ring.len();
        let mut ring = vec![WorkRequest::default(); 2 * length];
        for position in self.posted - length as u64..self.posted {
            ring[position as usize & (2 * length - 1)] = *self.work_request(position);
        }
        self.ring = ring.into_boxed_slice();
    }

    /// When message `number` was handed over, ps.
    #[inline]
    pub(crate) fn post_time(&self, number: u64) -> u64 {
        self.post_times[number as usize & (self.post_times.len() - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rnic::world::World;
    use isolane_rdma_scenario::library::Library;
    use proptest::prelude::*;

    /// A pair with `depth` requests of an unreliable transport, as it is at the start.
    fn unreliable(depth: u64) -> QueuePair {
        let library = Library::embedded();
        let text = format!(
            "profile = \"cx5-100g-roce\"\n[[tenant]]\nname = \"one\"\nclass = \"bandwidth\"\n[[tenant.traffic]]\n\
             verb = \"write\"\ntransport = \"uc\"\nsize = 64\ndepth = {depth}\n"
        );
        let scenario =
            isolane_rdma_scenario::parse(&text, "ring.toml", &library).expect("well-formed");
        let profile = library.profile("cx5-100g-roce").expect("shipped");
        let mut world = <World>::build(&scenario, profile).expect("it can be built");
        world.pairs.remove(0)
    }

    proptest! {
        /// Requests that were not yet received, or whose slot is not free, are read as written after any growth of the
        /// ring.
        #[test]
        fn the_ring_keeps_what_is_under_way(
            depth in 1u64..40,
            steps in prop::collection::vec((0u64..60, 0u64..60, 0u64..60), 1..60),
        ) {
            let mut pair = unreliable(depth);
            let slots = 4 * depth.next_power_of_two();
            prop_assert_eq!((pair.room(), pair.ring.len() as u64), (slots, depth.next_power_of_two()));
            for (posts, leave, arrive) in steps {
                let kept = pair.posted - pair.received;
                for _ in 0..posts.min(slots - kept) {
                    let message = 1_000 + pair.posted;
                    pair.push(WorkRequest { message, ..WorkRequest::default() });
                }
                pair.acknowledged = (pair.acknowledged + leave).min(pair.posted);
                pair.received = (pair.received + arrive).min(pair.acknowledged);
                for position in pair.received..pair.posted {
                    prop_assert_eq!(pair.work_request(position).message, 1_000 + position);
                }
                prop_assert!(pair.ring.len() as u64 <= slots);
            }
        }
    }
}
