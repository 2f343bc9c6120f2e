//! Dynamic queue assignment: a newly backlogged flow takes the lightest queue, and stays while it has anything there.
//!
//! Problem: hashing puts several flows into one queue while others are idle, and moving a flow whose packets still wait
//! reorders them. Method (titan 4.1): a queue's weight is the sum of the weights of the flows with packets in it, in
//! software or in the device. A flow with nothing outstanding takes the queue of least weight; ties go to the first
//! after the queue that was given last, so that equal queues take turns. It keeps the queue until the last of its
//! packets is freed; then it takes back what it added, even if its weight has changed since. Ours: a *sparse* flow - a
//! small or marked packet, nothing outstanding - takes the latency queue if there is one, and ordinary flows leave that
//! queue alone. So a ping never waits behind a segment of the queue it shares, which Titan's own pings do as soon as
//! all queues are taken (titan 7.1). A flow whose small packet is still outstanding when its bulk begins stays in the
//! latency queue until it has drained, because order comes first. Units: packets as the device frees them ("units");
//! weights in parts of [`WEIGHT_ONE`](super::WEIGHT_ONE). Cost: one pass over the queues when a flow becomes
//! backlogged, none otherwise. Limits: [`QUEUES_MAX`] queues.

use super::{QUEUES_MAX, QueueSet};

/// The queues of one device, and what is in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assigner {
    weights: Vec<u64>,
    flows: Vec<u32>,
    latency_queue: Option<u16>,
    /// The queue that was given last.
    last: u16,
    /// Of equal queues the lowest is taken.
    lowest: bool,
}

/// Where one flow's packets are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    queue: u16,
    /// What it added to the queue.
    weight: u32,
    outstanding: u32,
}

/// A packet of a flow, as the host's stack hands it over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Send {
    /// Packets that the device will free for it.
    pub units: u32,
    /// The flow's weight now, at least 1.
    pub weight: u32,
    /// Small, or marked as urgent.
    pub sparse: bool,
    /// Queues that it may take; empty means all.
    pub allowed: QueueSet,
}

impl Assigner {
    /// A device with `queues` transmit queues, at most [`QUEUES_MAX`]; `latency_queue` is kept light. Panics if there
    /// is no queue, or the latency queue is the only one or none of them.
    pub fn new(queues: u16, latency_queue: Option<u16>) -> Self {
        assert!((1..=QUEUES_MAX).contains(&queues), "from 1 to 64 queues");
        assert!(
            latency_queue.is_none_or(|queue| queue < queues && queues > 1),
            "the latency queue is one of several"
        );
        Self {
            weights: vec![0; usize::from(queues)],
            flows: vec![0; usize::from(queues)],
            latency_queue,
            last: queues - 1,
            lowest: false,
        }
    }

    /// Takes the lowest of equal queues, as Titan's published kernel does, instead of letting them take turns.
    #[must_use]
    pub fn lowest_first(mut self) -> Self {
        self.lowest = true;
        self
    }

    /// The queue of a packet that belongs to no flow: it is not counted.
    pub fn lightest_of(&self, allowed: QueueSet) -> u16 {
        self.lightest(false, allowed)
    }

    /// A packet leaves the stack: the queue it must take.
    pub fn send(&mut self, place: &mut Place, send: Send) -> u16 {
        if place.outstanding == 0 {
            *place = Place {
                queue: self.choose(send),
                weight: send.weight.max(1),
                outstanding: 0,
            };
            self.weights[usize::from(place.queue)] += u64::from(place.weight);
            self.flows[usize::from(place.queue)] += 1;
        }
        place.outstanding += send.units;
        place.queue
    }

    /// The device, or the layer that dropped them, freed `units` of a flow's packets. More than were outstanding count
    /// as all.
    pub fn freed(&mut self, place: &mut Place, units: u32) {
        if place.outstanding == 0 {
            return;
        }
        place.outstanding = place.outstanding.saturating_sub(units);
        if place.outstanding == 0 {
            self.weights[usize::from(place.queue)] -= u64::from(place.weight);
            self.flows[usize::from(place.queue)] -= 1;
        }
    }

    /// Weight of each queue.
    pub fn weights(&self) -> &[u64] {
        &self.weights
    }

    /// Backlogged flows of each queue.
    pub fn flows(&self) -> &[u32] {
        &self.flows
    }

    /// Whether any queue holds more than one flow (titan 4.3: then segments shrink). The latency queue does not count.
    pub fn is_oversubscribed(&self) -> bool {
        (0..self.flows.len())
            .any(|queue| self.latency_queue != Some(queue as u16) && self.flows[queue] > 1)
    }

    fn choose(&mut self, send: Send) -> u16 {
        let queue = self.lightest(send.sparse, send.allowed);
        if Some(queue) != self.latency_queue && !self.lowest {
            self.last = queue;
        }
        queue
    }

    fn lightest(&self, sparse: bool, allowed: QueueSet) -> u16 {
        if let (true, Some(queue)) = (sparse, self.latency_queue) {
            return queue;
        }
        let mut among = QueueSet::first(self.weights.len() as u16);
        if let Some(queue) = self.latency_queue {
            among = among.without(queue);
        }
        if !among.and(allowed).is_empty() {
            among = among.and(allowed);
        }
        lightest(&self.weights, among, self.last)
    }
}

impl Place {
    /// The queue of what is outstanding.
    pub fn queue(&self) -> Option<u16> {
        (self.outstanding > 0).then_some(self.queue)
    }

    /// Units not yet freed.
    pub fn outstanding(&self) -> u32 {
        self.outstanding
    }
}

/// The queue of least weight among `among`; of equals the first after `last`, going round.
///
/// ```
/// use isolane_ethernet_policy::titan::{QueueSet, assign::lightest};
/// assert_eq!(lightest(&[2, 1, 1, 3], QueueSet::first(4), 1), 2);
/// assert_eq!(lightest(&[2, 1, 1, 3], QueueSet::first(4), 2), 1);
/// ```
///
/// Panics if the set holds none of the queues.
pub fn lightest(weights: &[u64], among: QueueSet, last: u16) -> u16 {
    let count = weights.len() as u16;
    (1..=count)
        .map(|step| (last + step) % count)
        .filter(|queue| among.holds(*queue))
        .min_by_key(|queue| weights[usize::from(*queue)])
        .expect("callers pass a set that holds a queue")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::titan::WEIGHT_ONE;
    use proptest::prelude::*;

    fn bulk() -> Send {
        Send {
            units: 1,
            weight: WEIGHT_ONE,
            sparse: false,
            allowed: QueueSet::EMPTY,
        }
    }

    #[test]
    fn flows_do_not_meet_while_a_queue_is_idle() {
        let mut assigner = Assigner::new(8, None);
        let mut places = [Place::default(); 8];
        let mut queues: Vec<u16> = places
            .iter_mut()
            .map(|place| assigner.send(place, bulk()))
            .collect();
        queues.sort_unstable();
        assert_eq!(queues, [0, 1, 2, 3, 4, 5, 6, 7]);
        assert!(!assigner.is_oversubscribed());
        assigner.send(&mut Place::default(), bulk());
        assert!(assigner.is_oversubscribed());
    }

    #[test]
    fn a_packet_without_a_flow_counts_nowhere() {
        let mut assigner = Assigner::new(4, None).lowest_first();
        let mut place = Place::default();
        assert_eq!(assigner.send(&mut place, bulk()), 0);
        assert_eq!(assigner.lightest_of(QueueSet::EMPTY), 1);
        assert_eq!(assigner.lightest_of(QueueSet::one(0)), 0);
        assert_eq!(assigner.flows(), [1, 0, 0, 0]);
        assigner.freed(&mut place, 1);
        assert_eq!(assigner.send(&mut place, bulk()), 0, "the lowest again");
    }

    #[test]
    fn a_flow_keeps_its_queue_until_it_has_drained() {
        let mut assigner = Assigner::new(4, None);
        let mut place = Place::default();
        let first = assigner.send(&mut place, bulk());
        assert_eq!(assigner.send(&mut place, bulk()), first);
        assigner.freed(&mut place, 1);
        assert_eq!(place.queue(), Some(first));
        assigner.freed(&mut place, 1);
        assert_eq!(place.queue(), None);
        assert_ne!(
            assigner.send(&mut place, bulk()),
            first,
            "equal queues take turns"
        );
    }

    #[test]
    fn what_was_added_is_given_back_though_the_weight_changed() {
        let mut assigner = Assigner::new(2, None);
        let mut place = Place::default();
        assigner.send(
            &mut place,
            Send {
                weight: 512,
                ..bulk()
            },
        );
        assigner.send(
            &mut place,
            Send {
                weight: 4096,
                ..bulk()
            },
        );
        assert_eq!(assigner.weights().iter().sum::<u64>(), 512);
        assigner.freed(&mut place, 5);
        assert_eq!(assigner.weights(), [0, 0]);
    }

    #[test]
    fn the_latency_queue_is_left_to_sparse_flows() {
        let mut assigner = Assigner::new(3, Some(0));
        let queues: Vec<u16> = (0..6)
            .map(|_| assigner.send(&mut Place::default(), bulk()))
            .collect();
        assert!(queues.iter().all(|queue| *queue != 0));
        let ping = Send {
            sparse: true,
            ..bulk()
        };
        assert_eq!(assigner.send(&mut Place::default(), ping), 0);
    }

    #[test]
    fn a_pool_outside_the_device_means_all_queues() {
        let mut assigner = Assigner::new(2, None);
        let far = Send {
            allowed: QueueSet::one(9),
            ..bulk()
        };
        assert!(assigner.send(&mut Place::default(), far) < 2);
    }

    proptest! {
        /// Random sends and frees of 20 flows on 5 queues: each queue's weight and count are what a recount of the
        /// flows says, and no flow changes queue while it has something outstanding.
        #[test]
        fn weights_equal_a_recount(steps in prop::collection::vec((0_usize..20, 0_u8..3, 1_u32..5000), 1..400)) {
            let mut assigner = Assigner::new(5, Some(4));
            let mut places = [Place::default(); 20];
            for (flow, kind, weight) in steps {
                let before = places[flow].queue();
                match kind {
                    0 | 1 => {
                        let send = Send { weight, sparse: kind == 1, ..bulk() };
                        let least = assigner.weights()[..4].iter().min().copied();
                        let light: Vec<u64> = assigner.weights().to_vec();
                        let queue = assigner.send(&mut places[flow], send);
                        match before {
                            Some(before) => prop_assert_eq!(queue, before),
                            None if kind == 1 => prop_assert_eq!(queue, 4),
                            None => prop_assert_eq!(Some(light[usize::from(queue)]), least),
                        }
                    }
                    _ => assigner.freed(&mut places[flow], weight % 3 + 1),
                }
                for queue in 0..5_u16 {
                    let here = || places.iter().filter(|place| place.queue() == Some(queue));
                    prop_assert_eq!(assigner.weights()[usize::from(queue)], here().map(|place| u64::from(place.weight)).sum::<u64>());
                    prop_assert_eq!(assigner.flows()[usize::from(queue)] as usize, here().count());
                }
            }
        }
    }
}
