//! What has left the wire goes to the receiver in as few writes as an interrupt would find packets of one flow.
//!
//! Problem: a write for each packet costs the receiver's whole stack each time; cards and kernels merge (GRO). Method:
//! packets of a flow that left since the last interrupt and continue each other are a group, written as one TSO frame:
//! headers made once, payload taken from the sender's frames in place. A group ends where GRO would end it: at FIN or
//! PSH, at a short packet, where acknowledgement, window or options change, and at 64 KiB. Order: packets of one flow
//! stay in order. Groups are written in the order of their first packets. Units: bytes of payload. Limits: only TCP
//! with data whose checksum its sender left to do is merged; flows without a number are not. Source: the kernel's
//! documentation of GRO; the rest is ours.

use crate::frame::{Frame, NOTE_BYTES, Run};
use std::ops::Range;

/// The most that an IP packet holds.
const IP_BYTES_MAX: usize = 65_535;

/// Packets of one frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// The buffer that holds the frame.
    pub buffer: usize,
    pub packets: Range<usize>,
}

/// What is written at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Group {
    /// In order.
    pub parts: Vec<Part>,
    /// Whose it is, if the flow has a number.
    pub flow: Option<usize>,
    payload: usize,
}

/// A frame with its bytes.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    /// What the bytes are.
    pub frame: Frame,
    /// Note and packet, as read.
    pub bytes: Box<[u8]>,
}

impl Held {
    /// The packet without its note.
    pub(crate) fn packet(&self) -> &[u8] {
        &self.bytes[NOTE_BYTES..]
    }
}

/// The place of frames, by number.
pub(crate) trait Frames {
    /// The frame in `buffer`.
    fn frame(&self, buffer: usize) -> &Held;
}

impl Frames for [Held] {
    fn frame(&self, buffer: usize) -> &Held {
        &self[buffer]
    }
}

/// Groups since the last interrupt.
#[derive(Clone, Debug, Default)]
pub(crate) struct Merger {
    groups: Vec<Group>,
    used: usize,
    /// The last group of each flow, by the flow's number; groups from an earlier interrupt do not count.
    open: Vec<(u64, usize)>,
    interrupt: u64,
}

impl Merger {
    /// A packet of `flow` left the wire.
    pub(crate) fn add(
        &mut self,
        flow: Option<usize>,
        buffer: usize,
        packet: usize,
        frames: &(impl Frames + ?Sized),
    ) {
        let held = frames.frame(buffer);
        let bytes = held.frame.payload_of(packet..packet + 1).len();
        if let Some(group) = self.open_group(flow) {
            let group = &mut self.groups[group];
            if group.takes(buffer, packet, bytes, frames) {
                group.take(buffer, packet, bytes);
                return;
            }
        }
        self.begin(flow);
        self.groups[self.used - 1].take(buffer, packet, bytes);
    }

    /// What is to be written, in order.
    pub(crate) fn groups(&self) -> &[Group] {
        &self.groups[..self.used]
    }

    /// Everything is written.
    pub(crate) fn clear(&mut self) {
        self.used = 0;
        self.interrupt += 1;
    }

    fn open_group(&self, flow: Option<usize>) -> Option<usize> {
        let (interrupt, group) = *self.open.get(flow?)?;
        (interrupt == self.interrupt && group < self.used).then_some(group)
    }

    fn begin(&mut self, flow: Option<usize>) {
        if self.used == self.groups.len() {
            self.groups.push(Group::default());
        }
        let group = &mut self.groups[self.used];
        group.parts.clear();
        group.payload = 0;
        group.flow = flow;
        if let Some(flow) = flow {
            if self.open.len() <= flow {
                self.open.resize(flow + 1, (u64::MAX, 0));
            }
            self.open[flow] = (self.interrupt, self.used);
        }
        self.used += 1;
    }
}

impl Group {
    fn takes(
        &self,
        buffer: usize,
        packet: usize,
        bytes: usize,
        frames: &(impl Frames + ?Sized),
    ) -> bool {
        let (first, last) = (&self.parts[0], &self.parts[self.parts.len() - 1]);
        let head = frames.frame(first.buffer);
        if bytes == 0 || head.frame.header + self.payload + bytes > IP_BYTES_MAX {
            return false;
        }
        let segment = head.frame.segment();
        if bytes > segment || !self.payload.is_multiple_of(segment) {
            return false;
        }
        if last.buffer == buffer {
            return last.packets.end == packet;
        }
        let (before, next) = (frames.frame(last.buffer), frames.frame(buffer));
        let sequence = head.frame.sequence_at(first.packets.start);
        let continues =
            sequence.wrapping_add(self.payload as u32) == next.frame.sequence_at(packet);
        continues
            && head.frame.may_merge()
            && next.frame.may_merge()
            && !before.frame.stops_merge(before.packet(), last.packets.end)
            && head
                .frame
                .is_like(head.packet(), &next.frame, next.packet())
    }

    fn take(&mut self, buffer: usize, packet: usize, bytes: usize) {
        self.payload += bytes;
        match self.parts.last_mut() {
            Some(last) if last.buffer == buffer && last.packets.end == packet => {
                last.packets.end += 1;
            }
            _ => self.parts.push(Part {
                buffer,
                packets: packet..packet + 1,
            }),
        }
    }

    /// The note and the headers of the group; `out` is replaced. Its [payload](Self::payload) goes behind.
    pub(crate) fn head(&self, frames: &(impl Frames + ?Sized), out: &mut Vec<u8>) {
        let first = &self.parts[0];
        let head = frames.frame(first.buffer);
        let own = head.frame.payload_of(first.packets.clone()).len();
        let last = &self.parts[self.parts.len() - 1];
        let tail = frames.frame(last.buffer);
        let run = Run {
            packets: first.packets.clone(),
            more: self.payload - own,
            last_flags: tail.frame.flags_at_end(tail.packet(), last.packets.end),
        };
        head.frame.head_of_run(head.packet(), &run, out);
    }

    /// The payload behind the headers, in order.
    pub(crate) fn payload<'a, F: Frames + ?Sized>(
        &'a self,
        frames: &'a F,
    ) -> impl Iterator<Item = &'a [u8]> {
        self.parts.iter().filter_map(|part| {
            let held = frames.frame(part.buffer);
            let range = held.frame.payload_of(part.packets.clone());
            (!range.is_empty()).then(|| &held.packet()[range])
        })
    }
}

#[cfg(test)]
mod tests;
