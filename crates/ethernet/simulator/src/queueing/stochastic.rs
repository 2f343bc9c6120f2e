//! Stochastic fair queueing: flows hash into buckets, buckets take turns by bytes.
//!
//! Method: deficit round robin. A bucket at the front sends while it has allowance; without, it gets one quantum and
//! goes to the end. A segment may be larger than the allowance, which then is negative for some turns, so that large
//! and small segments come out even. When the queue is full, the longest bucket loses its newest segment.
//! Units: bytes; the limit counts segments. Source: Linux `sfq`; Shreedhar and Varghese.
//! Limits: the hash is fixed for a run (no perturbation).

use super::{bucket, flow_key};
use crate::segment::{List, Segments};
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug)]
struct Bucket {
    number: u16,
    allowance: i32,
    list: List,
}

/// The queue; buckets with segments only, in their order of service.
#[derive(Debug)]
pub(crate) struct Stochastic {
    buckets: VecDeque<Bucket>,
    most: u32,
    quantum: i32,
    len: u32,
}

impl Stochastic {
    pub(crate) fn new(most: u32, quantum: u32) -> Self {
        Self {
            buckets: VecDeque::new(),
            most,
            quantum: quantum as i32,
            len: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn enqueue(&mut self, segments: &mut Segments, id: u32) -> Option<u32> {
        let number = bucket(flow_key(segments, id));
        match self
            .buckets
            .iter_mut()
            .find(|bucket| bucket.number == number)
        {
            Some(bucket) => bucket.list.push(segments, id),
            None => {
                let mut list = List::default();
                list.push(segments, id);
                self.buckets.push_back(Bucket {
                    number,
                    allowance: self.quantum,
                    list,
                });
            }
        }
        self.len += 1;
        if self.len <= self.most {
            return None;
        }
        Some(self.drop_newest_of_longest(segments))
    }

    pub(crate) fn dequeue(&mut self, segments: &Segments) -> Option<u32> {
        loop {
            let front = self.buckets.front_mut()?;
            if front.allowance <= 0 {
                front.allowance += self.quantum;
                self.buckets.rotate_left(1);
                continue;
            }
            let id = front.list.pop(segments).expect("buckets hold segments");
            front.allowance -= segments.get(id).bytes as i32;
            self.len -= 1;
            if front.list.is_empty() {
                self.buckets.pop_front();
            }
            return Some(id);
        }
    }

    fn drop_newest_of_longest(&mut self, segments: &mut Segments) -> u32 {
        let longest = (0..self.buckets.len())
            .max_by_key(|index| self.buckets[*index].list.len())
            .expect("the queue is full");
        let old = std::mem::take(&mut self.buckets[longest].list);
        let mut kept = List::default();
        let (mut rest, mut newest) = (old, None);
        while let Some(id) = rest.pop(segments) {
            if let Some(before) = newest.replace(id) {
                kept.push(segments, before);
            }
        }
        self.len -= 1;
        match kept.is_empty() {
            true => {
                self.buckets.remove(longest);
            }
            false => self.buckets[longest].list = kept,
        }
        newest.expect("the longest bucket holds segments")
    }
}
