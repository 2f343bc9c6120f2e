//! The receiver: order, acknowledgements.
//!
//! Method: data in order is acknowledged when two packets are unacknowledged, else after the delay; data out of order,
//! or that fills a hole, at once, with the ranges that are there (the newest first). The application takes everything
//! at once, so the offered window is constant. Bytes with a mark are counted and reported exactly. Source: RFC 5681,
//! 2018; Linux for merged segments, each acknowledged once.

use super::scoreboard::insert;
use crate::processor::Job;
use crate::segment::{AckInfo, BLOCKS, Kind, NIL, Segment};
use crate::world::{Event, World};

impl World {
    /// Bytes `start..end` of a flow arrived at its destination.
    pub(crate) fn arrived(&mut self, flow: u32, start: u64, end: u64, marked: u32, processor: u16) {
        let mss = u64::from(self.settings.mss);
        let entry = &mut self.flows[flow as usize];
        entry.marked += marked;
        let mut at_once = !entry.islands.is_empty();
        if start > entry.received {
            insert(&mut entry.islands, start, end);
            return self.acknowledge(flow, Some(start), processor);
        }
        let before = entry.received;
        entry.received = entry.received.max(end);
        while let Some(&(from, to)) = entry.islands.first() {
            if from > entry.received {
                break;
            }
            entry.received = entry.received.max(to);
            entry.islands.remove(0);
        }
        at_once |= before == entry.received;
        entry.unacknowledged += entry.received - before;
        let done = entry.received >= entry.size;
        if at_once || done || entry.unacknowledged >= 2 * mss {
            return self.acknowledge(flow, None, processor);
        }
        if entry.ack_at.is_none() {
            let at = self.now + self.settings.delayed_ack;
            entry.ack_at = Some(at);
            if !entry.ack_planned {
                entry.ack_planned = true;
                self.events.schedule(at, Event::AckTimer { flow });
            }
        }
    }

    /// A delayed acknowledgement may be due.
    pub(crate) fn ack_timer(&mut self, flow: u32) {
        let entry = &mut self.flows[flow as usize];
        entry.ack_planned = false;
        let Some(at) = entry.ack_at else {
            return;
        };
        if at > self.now {
            entry.ack_planned = true;
            self.events.schedule(at, Event::AckTimer { flow });
            return;
        }
        let (host, way) = (entry.destination, entry.back);
        let vector = way.receive_hash % u32::from(self.settings.receive_queues);
        let processor = self.hosts[usize::from(host)].vectors[vector as usize].processor;
        self.plan(host, processor, Job::DelayedAck { flow });
    }

    pub(crate) fn delayed_ack(&mut self, flow: u32, processor: u16) {
        if self.flows[flow as usize].ack_at.is_some() {
            self.acknowledge(flow, None, processor);
        }
    }

    /// Sends an acknowledgement; `newest` begins the range that caused it.
    fn acknowledge(&mut self, flow: u32, newest: Option<u64>, processor: u16) {
        self.spent += self.settings.cost.send_ack;
        let entry = &mut self.flows[flow as usize];
        let mut blocks = [(0, 0); BLOCKS];
        let mut count = 0;
        if !entry.islands.is_empty() {
            let first = newest.and_then(|start| {
                let holds = |island: &&(u64, u64)| island.0 <= start && start < island.1;
                entry.islands.iter().find(holds).copied()
            });
            let others = entry
                .islands
                .iter()
                .rev()
                .copied()
                .filter(|island| Some(*island) != first);
            for (block, (start, end)) in blocks.iter_mut().zip(first.into_iter().chain(others)) {
                *block = ((start - entry.received) as u32, (end - start) as u32);
                count += 1;
            }
        }
        let info = AckInfo {
            ack: entry.received,
            blocks,
            marked: std::mem::take(&mut entry.marked),
        };
        entry.unacknowledged = 0;
        entry.ack_at = None;
        let host = entry.destination;
        let header = self.settings.header + if count > 0 { 4 + 8 * count } else { 0 };
        let segment = Segment {
            seq: 0,
            entered: self.now,
            rate: u64::MAX,
            flow,
            next: NIL,
            payload: 0,
            taken: 0,
            memory: 0,
            info: self.acks.insert(info),
            bytes: header,
            descriptors: 1,
            header: header as u16,
            kind: Kind::Ack,
            again: false,
        };
        self.transmit(host, segment, processor, false);
    }
}
