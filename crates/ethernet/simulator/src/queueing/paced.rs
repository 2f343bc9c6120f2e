//! `fq`: one queue for each flow, deficit round robin, new flows first, pacing.
//!
//! Method: a flow that appears is served before the others until its first allowance of ten packets is used; then flows
//! take turns of two packets. After a segment a flow waits as long as its pacing rate says that the segment takes.
//! Units: bytes, bytes a second. Source: Linux `fq` (defaults: quantum 2 packets, initial 10, 100 segments a flow).
//! Limits: no priority bands, no horizon; flows do not share a bucket. The wake-up is exact, without timer slack.

use super::{Next, flow_key};
use crate::segment::{List, Segments};
use isolane_common_quantities::units::{Duration, Instant};
use std::collections::{BTreeMap, VecDeque};

/// Segments of one flow.
const FLOW_MOST: u32 = 100;

#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    list: List,
    credit: i64,
    /// In one of the lists of flows, or waiting for its time.
    queued: bool,
    next_at: Instant,
}

#[derive(Debug)]
pub(crate) struct Paced {
    flows: BTreeMap<u32, Flow>,
    new: VecDeque<u32>,
    old: VecDeque<u32>,
    /// Flows that wait for their time.
    waiting: Vec<u32>,
    quantum: i64,
    len: u32,
}

impl Paced {
    pub(crate) fn new(packet: u32) -> Self {
        Self {
            flows: BTreeMap::new(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            waiting: Vec::new(),
            quantum: 2 * i64::from(packet),
            len: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn enqueue(&mut self, segments: &mut Segments, id: u32) -> Option<u32> {
        let key = flow_key(segments, id);
        let flow = self.flows.entry(key).or_default();
        if flow.list.len() >= FLOW_MOST {
            return Some(id);
        }
        if !flow.queued {
            flow.queued = true;
            flow.credit = flow.credit.max(5 * self.quantum);
            self.new.push_back(key);
        }
        flow.list.push(segments, id);
        self.len += 1;
        None
    }

    pub(crate) fn dequeue(&mut self, segments: &Segments, now: Instant) -> Next {
        self.release(now);
        loop {
            let is_new = !self.new.is_empty();
            let turn = if is_new { &mut self.new } else { &mut self.old };
            let Some(&key) = turn.front() else {
                return self.waiting_until();
            };
            let flow = self.flows.get_mut(&key).expect("queued flows are known");
            if flow.credit <= 0 {
                flow.credit += self.quantum;
                turn.pop_front();
                self.old.push_back(key);
                continue;
            }
            if flow.list.is_empty() {
                turn.pop_front();
                // A new flow that is done goes through the old ones once, so that it cannot be new all the time.
                match is_new && !self.old.is_empty() {
                    true => self.old.push_back(key),
                    false => flow.queued = false,
                }
                continue;
            }
            if flow.next_at > now {
                turn.pop_front();
                self.waiting.push(key);
                continue;
            }
            let id = flow.list.pop(segments).expect("it is not empty");
            let segment = segments.get(id);
            flow.credit -= i64::from(segment.bytes);
            if segment.rate < u64::MAX {
                let ps =
                    u128::from(segment.bytes) * 1_000_000_000_000 / u128::from(segment.rate.max(1));
                flow.next_at = now + Duration::from_ps(ps as u64);
            }
            self.len -= 1;
            return Next::Segment(id);
        }
    }

    fn release(&mut self, now: Instant) {
        let mut index = 0;
        while index < self.waiting.len() {
            let key = self.waiting[index];
            if self.flows[&key].next_at <= now {
                self.waiting.remove(index);
                self.old.push_back(key);
            } else {
                index += 1;
            }
        }
    }

    fn waiting_until(&self) -> Next {
        let times = self.waiting.iter().map(|key| self.flows[key].next_at);
        times.min().map_or(Next::Nothing, Next::At)
    }
}
