//! Flows that have something to send, by queue (a host, or a level of a host), the one with the smallest key first.
//!
//! Method: one binary heap per queue with the place of each flow kept beside it, so a key changes in logarithmic time.
//! Equal keys go by age. Nothing is allocated once the heaps have grown to the largest number of flows.

use crate::network::Network;
use crate::packet::HostId;

/// Not in a heap.
const NOWHERE: u32 = u32::MAX;

/// What a heap holds: key, age, flow.
type Entry = (u64, u32, u32);

/// Heaps of flows.
#[derive(Clone, Debug)]
pub struct Ready {
    heaps: Vec<Vec<Entry>>,
    places: Vec<u32>,
}

impl Ready {
    /// Empty heaps.
    pub fn new(queues: u32) -> Self {
        Self {
            heaps: vec![Vec::new(); queues as usize],
            places: Vec::new(),
        }
    }

    /// Puts `flow` in, or gives it another key. `serial` orders flows by age.
    fn put(&mut self, queue: u32, flow: u32, serial: u32, key: u64) {
        if self.places.len() <= flow as usize {
            self.places.resize(flow as usize + 1, NOWHERE);
        }
        let heap = &mut self.heaps[queue as usize];
        let entry = (key, serial, flow);
        let place = match self.places[flow as usize] {
            NOWHERE => {
                heap.push(entry);
                heap.len() - 1
            }
            place => {
                heap[place as usize] = entry;
                place as usize
            }
        };
        self.places[flow as usize] = place as u32;
        self.settle(queue, place);
    }

    /// As `put` with a key, as `remove` without one.
    #[inline]
    pub fn set(&mut self, queue: u32, flow: u32, serial: u32, key: Option<u64>) {
        match key {
            Some(key) => self.put(queue, flow, serial, key),
            None => self.remove(queue, flow),
        }
    }

    /// Takes `flow` out, if it is in.
    pub fn remove(&mut self, queue: u32, flow: u32) {
        let Some(&place) = self.places.get(flow as usize) else {
            return;
        };
        if place == NOWHERE {
            return;
        }
        self.places[flow as usize] = NOWHERE;
        let heap = &mut self.heaps[queue as usize];
        let last = heap.pop().expect("a flow with a place is in the heap");
        if last.2 == flow {
            return;
        }
        heap[place as usize] = last;
        self.places[last.2 as usize] = place;
        self.settle(queue, place as usize);
    }

    /// The flow with the smallest key.
    #[inline]
    pub fn first(&self, queue: u32) -> Option<u32> {
        self.heaps[queue as usize].first().map(|&(_, _, flow)| flow)
    }

    /// The flow with the smallest key at `host`, if the host's port is free.
    #[inline]
    pub fn first_at(&self, network: &Network, host: HostId) -> Option<u32> {
        match network.is_busy(host) {
            true => None,
            false => self.first(u32::from(host.0)),
        }
    }

    /// Moves the entry at `place` up or down to where it belongs.
    fn settle(&mut self, queue: u32, mut place: usize) {
        let heap = &mut self.heaps[queue as usize];
        let entry = heap[place];
        while place > 0 && entry < heap[(place - 1) / 2] {
            heap[place] = heap[(place - 1) / 2];
            self.places[heap[place].2 as usize] = place as u32;
            place = (place - 1) / 2;
        }
        loop {
            let left = 2 * place + 1;
            let right = left + 1;
            let least = match right < heap.len() && heap[right] < heap[left.min(heap.len() - 1)] {
                true => right,
                false => left,
            };
            if least >= heap.len() || entry <= heap[least] {
                break;
            }
            heap[place] = heap[least];
            self.places[heap[place].2 as usize] = place as u32;
            place = least;
        }
        heap[place] = entry;
        self.places[entry.2 as usize] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Against a plain map searched from end to end.
        #[test]
        fn first_is_the_smallest_key(steps in proptest::collection::vec((0u32..12, 0u64..6, any::<bool>()), 1..200)) {
            let (mut ready, mut model) = (Ready::new(1), BTreeMap::new());
            for (flow, key, put) in steps {
                ready.set(0, flow, 100 - flow, put.then_some(key));
                if put {
                    model.insert(flow, (key, 100 - flow));
                } else {
                    model.remove(&flow);
                }
                let least = model.iter().min_by_key(|&(_, order)| order).map(|(&flow, _)| flow);
                prop_assert_eq!(ready.first(0), least);
            }
        }
    }
}
