//! One direction through the card: frames in from one TUN device, packets over the wire, merged writes to the other.
//!
//! Method: a queue has one frame in hand and the next is read the moment its last packet leaves, in the wire's time, so
//! that a queue with frames in the kernel's ring never looks idle. What left the wire is delivered when an interrupt is
//! due: at once after a pause, else an interval after the last one, as network cards moderate theirs.
//! A flow that took another queue does not overtake itself: its frame there waits until the one in hand has left. (The
//! kernel takes a frame for done when it is in hand, and may move the flow then.)
//! Buffers are handed round: free, in hand, finished (its last packets are not delivered yet).
//! Units: the types say them. Limits: `BUFFERS_PER_QUEUE` bound what waits for an interrupt; if they run out, an interrupt
//! comes early.

use crate::card::{Card, Departure, Discipline, Load};
use crate::deliver::{Frames, Group, Held, Merger};
use crate::error::SoftNicError;
use crate::frame::{FlowKey, Frame, NOTE_BYTES, Note};
use crate::record::FLOWS_MAX;
use crate::wire::FRAMING;
use isolane_common_quantities::units::{BitRate, Duration, Instant};
use std::collections::HashMap;
use std::io::IoSlice;
use std::os::fd::BorrowedFd;

/// Frames of a queue that may be held at a time.
const BUFFERS_PER_QUEUE: usize = 16;
/// Room for the largest frame and its note.
const BUFFER_BYTES: usize = NOTE_BYTES + 65_536 + 256;
/// Parts of a write: the kernel takes 1,024.
const PARTS_MAX: usize = 256;

/// What a lane counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneCount {
    /// Frames whose bytes make no sense: dropped.
    pub malformed: u64,
    /// Frames that waited for another of their flow, in another queue.
    pub held: u64,
    /// Writes that the receiving kernel refused.
    pub refused: u64,
    /// Interrupts.
    pub interrupts: u64,
    /// Writes.
    pub writes: u64,
    /// Processor time in those writes: what the receiving kernel did in them.
    pub write_time: Duration,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneOptions {
    pub rate: BitRate,
    /// How queues are served.
    pub discipline: Discipline,
    /// Least time between two interrupts.
    pub interrupt: Duration,
    /// Deliver packet by packet with complete checksums, so that the receiver checks each.
    pub complete_checksums: bool,
}

/// A packet that left, for the recorder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passed {
    /// Of this flow, if it has a number.
    pub flow: Option<usize>,
    pub key: FlowKey,
    /// When and from where.
    pub departure: Departure,
    /// First sequence number and payload, of TCP with data.
    pub data: Option<(u32, u32)>,
}

/// The source of frames and the destination of packets: a TUN device, or a test.
pub trait Port {
    /// Number of queues in each direction.
    fn queues(&self) -> usize;
    /// Files to wait for: one is readable when there may be a frame.
    fn files(&self) -> Vec<BorrowedFd<'_>>;
    /// Takes the next frame of a queue, its note before it; its length, or `None` if there is none. Fails if the device
    /// is gone.
    fn read(&self, queue: usize, into: &mut [u8]) -> Result<Option<usize>, SoftNicError>;
    /// The frame of `bytes` that was read from this queue last has left, or was dropped.
    fn left(&self, queue: usize, bytes: usize) {
        let _ = (queue, bytes);
    }
    /// Whether frames of several packets may be written; otherwise each packet is whole.
    fn takes_segments(&self) -> bool {
        true
    }
    /// Hands over a frame in parts; says whether it was taken.
    fn write(&self, queue: usize, parts: &[IoSlice<'_>]) -> bool;
}

/// A direction.
#[derive(Debug)]
pub(crate) struct Lane {
    card: Card,
    merger: Merger,
    slots: Slots,
    in_hand: Vec<Option<InHand>>,
    free: Vec<usize>,
    finished: Vec<usize>,
    flows: HashMap<FlowKey, usize>,
    queue_of: Vec<usize>,
    last_interrupt: Instant,
    options: LaneOptions,
    count: LaneCount,
    frames: u64,
    head: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct InHand {
    buffer: usize,
    flow: Option<usize>,
    /// Behind a frame of its flow in another queue.
    waits: bool,
    /// Frames are numbered as they are read.
    number: u64,
}

#[derive(Debug)]
struct Slots(Vec<Held>);

impl Frames for Slots {
    fn frame(&self, buffer: usize) -> &Held {
        &self.0[buffer]
    }
}

impl Lane {
    /// A direction out of `queues` queues.
    pub(crate) fn new(queues: usize, options: LaneOptions) -> Self {
        let buffers = queues * BUFFERS_PER_QUEUE;
        let held = || Held {
            frame: Frame::default(),
            bytes: vec![0; BUFFER_BYTES].into_boxed_slice(),
        };
        Self {
            card: Card::new(queues, options.rate, options.discipline),
            merger: Merger::default(),
            slots: Slots((0..buffers).map(|_| held()).collect()),
            in_hand: vec![None; queues],
            free: (0..buffers).collect(),
            finished: Vec::new(),
            flows: HashMap::new(),
            queue_of: Vec::new(),
            last_interrupt: Instant::ZERO,
            options,
            count: LaneCount::default(),
            frames: 0,
            head: Vec::new(),
        }
    }

    /// The scheduler.
    pub(crate) fn card(&mut self) -> &mut Card {
        &mut self.card
    }

    pub(crate) fn count(&self) -> LaneCount {
        self.count
    }

    /// The queue whose frames of this flow were seen last.
    pub(crate) fn queue_of(&self, key: &FlowKey) -> Option<usize> {
        self.flows.get(key).map(|flow| self.queue_of[*flow])
    }

    /// Takes new frames and sends what the wire has room for until `now`; `see` is called for each packet. Fails if the
    /// device is gone.
    pub(crate) fn step(
        &mut self,
        from: &impl Port,
        now: Instant,
        see: &mut impl FnMut(Passed),
    ) -> Result<(), SoftNicError> {
        for queue in 0..self.in_hand.len() {
            if self.in_hand[queue].is_none() {
                self.refill(from, queue, now)?;
            }
        }
        while let Some(departure) = self.card.next(now) {
            self.pass(departure, see);
            if departure.is_last {
                self.let_go(from, departure);
                self.refill(from, departure.queue, departure.at)?;
            }
        }
        Ok(())
    }

    /// Whether packets wait for the wire or for an interrupt.
    pub(crate) fn is_busy(&self) -> bool {
        self.card.is_busy() || !self.merger.groups().is_empty()
    }

    /// Whether an interrupt is due.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let pause = now.saturating_since(self.last_interrupt);
        let is_short = self.free.len() < self.in_hand.len();
        !self.merger.groups().is_empty() && (pause >= self.options.interrupt || is_short)
    }

    fn refill(&mut self, from: &impl Port, queue: usize, at: Instant) -> Result<(), SoftNicError> {
        loop {
            let Some(&buffer) = self.free.last() else {
                self.card.settle(queue);
                return Ok(());
            };
            let held = &mut self.slots.0[buffer];
            let Some(length) = from.read(queue, &mut held.bytes)? else {
                self.card.settle(queue);
                return Ok(());
            };
            let Some(frame) = parse(&held.bytes[..length]) else {
                self.count.malformed += 1;
                from.left(queue, length.saturating_sub(NOTE_BYTES));
                continue;
            };
            held.frame = frame;
            self.free.pop();
            let flow = self.number(frame.key, queue);
            let waits = flow.is_some()
                && self
                    .in_hand
                    .iter()
                    .flatten()
                    .any(|other| other.flow == flow);
            self.frames += 1;
            let number = self.frames;
            self.in_hand[queue] = Some(InHand {
                buffer,
                flow,
                waits,
                number,
            });
            match waits {
                true => {
                    self.count.held += 1;
                    self.card.settle(queue);
                }
                false => self.card.load(queue, load_of(&frame), at),
            }
            return Ok(());
        }
    }

    /// The flow's number; none once there are too many.
    fn number(&mut self, key: FlowKey, queue: usize) -> Option<usize> {
        let next = self.flows.len();
        let flow = match self.flows.get(&key) {
            Some(flow) => *flow,
            None if next < FLOWS_MAX => {
                self.flows.insert(key, next);
                self.queue_of.push(queue);
                next
            }
            None => return None,
        };
        self.queue_of[flow] = queue;
        Some(flow)
    }

    fn pass(&mut self, departure: Departure, see: &mut impl FnMut(Passed)) {
        let in_hand = self.in_hand[departure.queue].expect("what departs is in hand");
        let frame = &self.slots.0[in_hand.buffer].frame;
        let packet = departure.packet as usize;
        let data = frame.packet_data(packet);
        see(Passed {
            flow: in_hand.flow,
            key: frame.key,
            departure,
            data,
        });
        self.merger
            .add(in_hand.flow, in_hand.buffer, packet, &self.slots);
    }

    /// The frame in hand has left: the next of its flow may go, if it waits in another queue.
    fn let_go(&mut self, from: &impl Port, departure: Departure) {
        let done = self.in_hand[departure.queue]
            .take()
            .expect("what departs is in hand");
        self.finished.push(done.buffer);
        from.left(departure.queue, self.slots.0[done.buffer].frame.length);
        let waiting = |other: &Option<InHand>| {
            other.is_some_and(|other| other.waits && other.flow == done.flow)
        };
        // Several may wait, in as many queues: the one that was read first was sent first.
        let first = (0..self.in_hand.len())
            .filter(|queue| waiting(&self.in_hand[*queue]))
            .min_by_key(|queue| self.in_hand[*queue].map(|other| other.number));
        if let Some(queue) = first
            && let Some(next) = &mut self.in_hand[queue]
        {
            next.waits = false;
            let load = load_of(&self.slots.0[next.buffer].frame);
            self.card.load(queue, load, departure.at);
        }
    }

    /// The interrupt: writes everything that has left the wire; `queue_for` says where the receiving device takes it.
    pub(crate) fn interrupt(
        &mut self,
        to: &impl Port,
        now: Instant,
        queue_for: impl Fn(&FlowKey) -> usize,
    ) {
        let begin = processor_time();
        for group in self.merger.groups() {
            let key = self.slots.frame(group.parts[0].buffer).frame.key;
            let queue = queue_for(&key) % to.queues();
            let refused = match self.options.complete_checksums || !to.takes_segments() {
                true => write_packets(group, &self.slots, to, queue, &mut self.count.writes),
                false => {
                    self.count.writes += 1;
                    write_group(group, &self.slots, to, queue, &mut self.head)
                }
            };
            self.count.refused += refused;
        }
        self.merger.clear();
        self.free.append(&mut self.finished);
        self.last_interrupt = now;
        self.count.interrupts += 1;
        self.count.write_time += processor_time().saturating_sub(begin);
    }
}

/// Processor time of this thread until now: what others took of it while it wrote is not its work.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::from_ns(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

fn parse(bytes: &[u8]) -> Option<Frame> {
    let (note, packet) = bytes.split_first_chunk::<NOTE_BYTES>()?;
    Frame::parse(Note::parse(*note), packet).ok()
}

fn load_of(frame: &Frame) -> Load {
    let packets = frame.packets();
    Load {
        packets: packets as u32,
        full: frame.packet_bytes(0) as u32 + FRAMING,
        last: frame.packet_bytes(packets - 1) as u32 + FRAMING,
    }
}

/// Writes a group as one frame; returns how many the kernel refused.
fn write_group(
    group: &Group,
    slots: &Slots,
    to: &impl Port,
    queue: usize,
    head: &mut Vec<u8>,
) -> u64 {
    group.head(slots, head);
    if group.parts.len() < PARTS_MAX {
        let mut parts = [IoSlice::new(&[]); PARTS_MAX];
        parts[0] = IoSlice::new(head);
        let mut used = 1;
        for part in group.payload(slots) {
            parts[used] = IoSlice::new(part);
            used += 1;
        }
        return u64::from(!to.write(queue, &parts[..used]));
    }
    group
        .payload(slots)
        .for_each(|part| head.extend_from_slice(part));
    u64::from(!to.write(queue, &[IoSlice::new(head)]))
}

/// Writes a group packet by packet, whole; returns how many the kernel refused.
fn write_packets(
    group: &Group,
    slots: &Slots,
    to: &impl Port,
    queue: usize,
    writes: &mut u64,
) -> u64 {
    let note = Note::default().bytes();
    let mut refused = 0;
    for part in &group.parts {
        let held = slots.frame(part.buffer);
        for index in part.packets.clone() {
            let packet = held.frame.packet(held.packet(), index);
            let parts = [IoSlice::new(&note), IoSlice::new(&packet)];
            refused += u64::from(!to.write(queue, &parts));
            *writes += 1;
        }
    }
    refused
}

#[cfg(test)]
mod tests;
