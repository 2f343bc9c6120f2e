//! `fq_codel`, and `cake` in essentials: flows take turns by bytes, new ones first, and a standing queue is dropped from.
//!
//! Method: deficit round robin with one quantum of a packet; a flow that was empty is served before the others for its
//! first quantum. Of each flow the head is dropped when segments have waited longer than the target for an interval,
//! then after ever shorter times, interval / sqrt(drops).
//! Units: bytes. Source: RFC 8290, RFC 8289 (5 ms, 100 ms).
//! Limits: `cake` differs here in that segments are cut into packets before they enter (the caller does that); its set-
//! associative hash, host isolation and overload drops do not matter for a few flows of one host and are left out.
//! Marks in place of drops are left out: what a host's own queue would mark, TCP Small Queues hold back before.

use super::{bucket, flow_key};
use crate::segment::{List, Segments};
use isolane_common_quantities::units::{Duration, Instant};
use std::collections::{BTreeMap, VecDeque};

const TARGET: Duration = Duration::from_ms(5);
const INTERVAL: Duration = Duration::from_ms(100);
/// Segments of all flows.
const MOST: u32 = 10_240;

#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    list: List,
    bytes: u64,
    deficit: i64,
    queued: bool,
    codel: Codel,
}

#[derive(Clone, Copy, Debug, Default)]
struct Codel {
    above_since: Option<Instant>,
    dropping: bool,
    next_drop: Instant,
    count: u32,
}

#[derive(Debug)]
pub(crate) struct FairCodel {
    flows: BTreeMap<u16, Flow>,
    new: VecDeque<u16>,
    old: VecDeque<u16>,
    quantum: i64,
    len: u32,
}

impl FairCodel {
    pub(crate) fn new(packet: u32) -> Self {
        Self {
            flows: BTreeMap::new(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            quantum: i64::from(packet),
            len: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn enqueue(&mut self, segments: &mut Segments, id: u32) -> Option<u32> {
        if self.len >= MOST {
            return Some(id);
        }
        let number = bucket(flow_key(segments, id));
        let flow = self.flows.entry(number).or_default();
        if !flow.queued {
            flow.queued = true;
            flow.deficit = self.quantum;
            self.new.push_back(number);
        }
        flow.bytes += u64::from(segments.get(id).bytes);
        flow.list.push(segments, id);
        self.len += 1;
        None
    }

    pub(crate) fn dequeue(
        &mut self,
        segments: &Segments,
        now: Instant,
        drops: &mut Vec<u32>,
    ) -> Option<u32> {
        loop {
            let is_new = !self.new.is_empty();
            let turn = if is_new { &mut self.new } else { &mut self.old };
            let number = *turn.front()?;
            let flow = self.flows.get_mut(&number).expect("queued flows are known");
            if flow.deficit <= 0 {
                flow.deficit += self.quantum;
                turn.pop_front();
                self.old.push_back(number);
                continue;
            }
            let before = flow.list.len();
            let next = flow.take(segments, now, self.quantum as u64, drops);
            self.len -= before - flow.list.len();
            let Some(id) = next else {
                turn.pop_front();
                match is_new && !self.old.is_empty() {
                    true => self.old.push_back(number),
                    false => flow.queued = false,
                }
                continue;
            };
            flow.deficit -= i64::from(segments.get(id).bytes);
            return Some(id);
        }
    }
}

impl Flow {
    /// The flow's next segment after what CoDel drops.
    fn take(
        &mut self,
        segments: &Segments,
        now: Instant,
        packet: u64,
        drops: &mut Vec<u32>,
    ) -> Option<u32> {
        loop {
            let Some(id) = self.list.pop(segments) else {
                self.codel.dropping = false;
                self.codel.above_since = None;
                return None;
            };
            self.bytes -= u64::from(segments.get(id).bytes);
            let waited = now.saturating_since(segments.get(id).entered);
            if !self.codel.is_due(waited, self.bytes <= packet, now) {
                return Some(id);
            }
            drops.push(id);
        }
    }
}

impl Codel {
    /// Whether the segment that waited so long is to be dropped.
    fn is_due(&mut self, waited: Duration, nearly_empty: bool, now: Instant) -> bool {
        if waited < TARGET || nearly_empty {
            self.above_since = None;
            self.dropping = false;
            return false;
        }
        let since = *self.above_since.get_or_insert(now);
        if self.dropping {
            if now < self.next_drop {
                return false;
            }
            self.count += 1;
            self.next_drop += self.pause();
            return true;
        }
        if now.saturating_since(since) < INTERVAL {
            return false;
        }
        self.dropping = true;
        let recent = now.saturating_since(self.next_drop) < INTERVAL * 16;
        self.count = match recent && self.count > 2 {
            true => self.count - 2,
            false => 1,
        };
        self.next_drop = now + self.pause();
        true
    }

    fn pause(&self) -> Duration {
        Duration::from_ps((INTERVAL.as_ps() as f64 / f64::from(self.count).sqrt()) as u64)
    }
}
