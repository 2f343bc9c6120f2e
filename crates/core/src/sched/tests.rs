//! All schedulers against slow, obvious models: order within flows, work conservation, shares against the
//! fluid server of generalised processor sharing.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};

/// One call on a scheduler.
#[derive(Clone, Copy, Debug)]
enum Call {
    Enqueue(u32, u64),
    Dequeue,
}

fn calls(flows: u32, largest: u64) -> impl Strategy<Value = Vec<Call>> {
    let call = prop_oneof![
        3 => (0..flows, 1..=largest).prop_map(|(flow, size)| Call::Enqueue(flow, size)),
        2 => Just(Call::Dequeue),
    ];
    prop::collection::vec(call, 1..300)
}

fn weights() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(1u32..8, 1..6)
}

/// Runs the calls, then empties the scheduler, and reports each enqueue and each packet served to `see`.
/// Checks that packets come out whenever there are any, and in order within their flow.
fn drive(
    scheduler: &mut dyn Scheduler,
    calls: &[Call],
    see: &mut dyn FnMut(Call, Option<(FlowId, Bytes)>),
) {
    let mut model: BTreeMap<u32, VecDeque<u64>> = BTreeMap::new();
    let mut queued = 0;
    let waiting = calls
        .iter()
        .filter(|call| matches!(call, Call::Enqueue(..)))
        .count();
    let drain = std::iter::repeat_n(Call::Dequeue, waiting + 1);
    for call in calls.iter().copied().chain(drain) {
        let served = match call {
            Call::Enqueue(flow, size) => {
                scheduler.enqueue(FlowId(flow), Bytes::new(size));
                model.entry(flow).or_default().push_back(size);
                queued += 1;
                None
            }
            Call::Dequeue => scheduler.dequeue(),
        };
        if matches!(call, Call::Dequeue) {
            assert_eq!(served.is_some(), queued > 0, "work conservation");
        }
        if let Some((flow, size)) = served {
            queued -= 1;
            let expected = model.get_mut(&flow.0).and_then(VecDeque::pop_front);
            assert_eq!(Some(size.get()), expected, "order within {flow:?}");
        }
        assert_eq!(scheduler.len(), queued);
        assert_eq!(scheduler.is_empty(), queued == 0);
        see(call, served);
    }
}

/// The fluid server, in floating point, packet by packet.
struct Fluid {
    weights: Vec<f64>,
    /// Bytes left of each packet, by flow.
    queues: Vec<VecDeque<f64>>,
    /// Work served.
    served: f64,
    /// By flow: the work served when each packet was done.
    done: Vec<Vec<f64>>,
}

impl Fluid {
    fn new(weights: &[u32]) -> Self {
        Self {
            weights: weights.iter().copied().map(f64::from).collect(),
            queues: vec![VecDeque::new(); weights.len()],
            served: 0.0,
            done: vec![Vec::new(); weights.len()],
        }
    }

    fn serve(&mut self, bytes: f64) {
        let end = self.served + bytes;
        loop {
            let busy: Vec<usize> = (0..self.queues.len())
                .filter(|&flow| !self.queues[flow].is_empty())
                .collect();
            let weight: f64 = busy.iter().map(|&flow| self.weights[flow]).sum();
            // Work per unit of weight until the first packet is done.
            let step = busy
                .iter()
                .map(|&flow| self.queues[flow][0] / self.weights[flow])
                .fold((end - self.served) / weight, f64::min);
            if busy.is_empty() || step < 0.0 {
                break;
            }
            self.served += step * weight;
            for flow in busy {
                self.queues[flow][0] -= step * self.weights[flow];
                if self.queues[flow][0] < 1e-9 {
                    self.queues[flow].pop_front();
                    self.done[flow].push(self.served);
                }
            }
            if end - self.served < 1e-9 {
                break;
            }
        }
        self.served = end;
    }
}

/// Deficit round robin as the paper has it, round by round.
struct PlainDeficit {
    quanta: Vec<u64>,
    credit: Vec<u64>,
    queues: Vec<VecDeque<u64>>,
    active: VecDeque<usize>,
    visiting: bool,
}

impl PlainDeficit {
    fn new(quanta: Vec<u64>) -> Self {
        Self {
            credit: vec![0; quanta.len()],
            queues: vec![VecDeque::new(); quanta.len()],
            quanta,
            active: VecDeque::new(),
            visiting: false,
        }
    }

    fn enqueue(&mut self, flow: usize, size: u64) {
        self.queues[flow].push_back(size);
        if self.queues[flow].len() == 1 {
            self.active.push_back(flow);
        }
    }

    fn dequeue(&mut self) -> Option<(usize, u64)> {
        loop {
            let flow = *self.active.front()?;
            if !self.visiting {
                self.credit[flow] += self.quanta[flow];
                self.visiting = true;
            }
            let head = self.queues[flow][0];
            if head > self.credit[flow] {
                self.active.rotate_left(1);
                self.visiting = false;
                continue;
            }
            self.credit[flow] -= head;
            self.queues[flow].pop_front();
            if self.queues[flow].is_empty() {
                self.credit[flow] = 0;
                self.active.pop_front();
                self.visiting = false;
            }
            return Some((flow, head));
        }
    }
}

/// Serves `count` packets of flows that never run out, with sizes drawn from `1..=largest`, and shows the
/// bytes and packets sent by each flow after each packet.
fn serve_backlogged(
    scheduler: &mut dyn Scheduler,
    flows: usize,
    largest: u64,
    seed: u64,
    see: &mut dyn FnMut(&[u64], &[u64]),
) {
    let mut stream = crate::rng::Stream::named(seed, "sizes");
    let mut size = || Bytes::new(1 + stream.below(largest));
    for flow in 0..flows {
        for _ in 0..2 {
            scheduler.enqueue(FlowId(flow as u32), size());
        }
    }
    let (mut bytes, mut packets) = (vec![0; flows], vec![0; flows]);
    for _ in 0..400 {
        let (flow, served) = scheduler.dequeue().expect("all flows are backlogged");
        scheduler.enqueue(flow, size());
        bytes[flow.0 as usize] += served.get();
        packets[flow.0 as usize] += 1;
        see(&bytes, &packets);
    }
}

/// The largest difference between a flow's normalised share and that of the fluid server, which gives every
/// unit of weight the same.
fn distance_from_fluid(sent: &[u64], weights: &[u32]) -> f64 {
    let total: f64 = sent.iter().map(|&bytes| bytes as f64).sum();
    let weight: f64 = weights.iter().copied().map(f64::from).sum();
    sent.iter()
        .zip(weights)
        .map(|(&bytes, &own)| (bytes as f64 / f64::from(own) - total / weight).abs())
        .fold(0.0, f64::max)
}

fn weighted<S>(mut scheduler: S, weights: &[u32], set: fn(&mut S, FlowId, u32)) -> S {
    for (flow, &weight) in weights.iter().enumerate() {
        set(&mut scheduler, FlowId(flow as u32), weight);
    }
    scheduler
}

proptest! {
    #[test]
    fn every_scheduler_conserves_work_and_order(calls in calls(6, 3_000), weights in weights()) {
        let ignore = &mut |_: Call, _: Option<(FlowId, Bytes)>| {};
        drive(&mut RoundRobin::new(), &calls, ignore);
        let set = WeightedRoundRobin::set_weight;
        drive(&mut weighted(WeightedRoundRobin::new(), &weights, set), &calls, ignore);
        let quantum = DeficitRoundRobin::new(Bytes::new(700));
        drive(&mut weighted(quantum, &weights, DeficitRoundRobin::set_weight), &calls, ignore);
        drive(&mut weighted(FairQueueing::new(), &weights, FairQueueing::set_weight), &calls, ignore);
        let set = |scheduler: &mut StrictPriority, flow, level| scheduler.set_level(flow, level as u8);
        drive(&mut weighted(StrictPriority::new(), &weights, set), &calls, ignore);
    }

    #[test]
    fn strict_priority_serves_the_highest_level(calls in calls(6, 100), levels in prop::collection::vec(0u8..4, 6)) {
        let mut scheduler = StrictPriority::new();
        for (flow, &level) in levels.iter().enumerate() {
            scheduler.set_level(FlowId(flow as u32), level);
        }
        let mut waiting = [0u32; 6];
        drive(&mut scheduler, &calls, &mut |call, served| {
            if let Call::Enqueue(flow, _) = call {
                waiting[flow as usize] += 1;
            }
            if let Some((flow, _)) = served {
                let highest = (0..6).filter(|&flow| waiting[flow] > 0).map(|flow| levels[flow]).min();
                assert_eq!(Some(levels[flow.0 as usize]), highest);
                waiting[flow.0 as usize] -= 1;
            }
        });
    }

    #[test]
    fn skipping_rounds_changes_no_decision(
        calls in calls(5, 5_000),
        weights in prop::collection::vec(1u32..8, 5),
        quantum in 1u64..2_000,
    ) {
        let scheduler = DeficitRoundRobin::new(Bytes::new(quantum));
        let mut scheduler = weighted(scheduler, &weights, DeficitRoundRobin::set_weight);
        let mut plain = PlainDeficit::new(weights.iter().map(|&w| quantum * u64::from(w)).collect());
        drive(&mut scheduler, &calls, &mut |call, served| match call {
            Call::Enqueue(flow, size) => plain.enqueue(flow as usize, size),
            Call::Dequeue => {
                let served = served.map(|(flow, size)| (flow.0 as usize, size.get()));
                assert_eq!(served, plain.dequeue());
            }
        });
    }

    #[test]
    fn round_robin_shares_packets_within_one(flows in 1usize..8, seed: u64) {
        serve_backlogged(&mut RoundRobin::new(), flows, 1_500, seed, &mut |_, packets| {
            let (most, least) = (packets.iter().max(), packets.iter().min());
            assert!(most.unwrap() - least.unwrap() <= 1);
        });
    }

    #[test]
    fn weighted_round_robin_shares_packets_within_one_turn(weights in weights(), seed: u64) {
        let scheduler = WeightedRoundRobin::new();
        let mut scheduler = weighted(scheduler, &weights, WeightedRoundRobin::set_weight);
        serve_backlogged(&mut scheduler, weights.len(), 1_500, seed, &mut |_, packets| {
            // One turn is `weight` packets: one, once normalised.
            assert!(distance_from_fluid(packets, &weights) <= 1.0 + 1e-9);
        });
    }

    #[test]
    fn deficit_round_robin_shares_bytes_within_a_quantum_and_a_packet(
        weights in weights(), seed: u64, quantum in 100u64..3_000,
    ) {
        let scheduler = DeficitRoundRobin::new(Bytes::new(quantum));
        let mut scheduler = weighted(scheduler, &weights, DeficitRoundRobin::set_weight);
        let least = f64::from(weights.iter().copied().min().expect("one flow or more"));
        let bound = quantum as f64 + 1_500.0 / least;
        serve_backlogged(&mut scheduler, weights.len(), 1_500, seed, &mut |bytes, _| {
            assert!(distance_from_fluid(bytes, &weights) <= bound + 1e-9);
        });
    }

    #[test]
    fn fair_queueing_is_at_most_one_packet_behind_the_fluid_server(
        weights in prop::collection::vec(1u32..8, 5),
        calls in calls(5, 2_000),
    ) {
        let mut scheduler = weighted(FairQueueing::new(), &weights, FairQueueing::set_weight);
        let mut fluid = Fluid::new(&weights);
        let mut done = vec![Vec::new(); weights.len()];
        let mut total = 0;
        drive(&mut scheduler, &calls, &mut |call, served| {
            if let Call::Enqueue(flow, size) = call {
                fluid.queues[flow as usize].push_back(size as f64);
            }
            if let Some((flow, size)) = served {
                total += size.get();
                done[flow.0 as usize].push(total);
                fluid.serve(size.get() as f64);
            }
        });
        for (ours, fluid) in done.iter().zip(&fluid.done) {
            prop_assert_eq!(ours.len(), fluid.len());
            for (&ours, &fluid) in ours.iter().zip(fluid) {
                prop_assert!(ours as f64 <= fluid + 2_000.0 + 0.01, "{} after {}", ours, fluid);
            }
        }
    }

    #[test]
    fn fair_queueing_shares_bytes_within_a_packet_each(weights in weights(), seed: u64) {
        let mut scheduler = weighted(FairQueueing::new(), &weights, FairQueueing::set_weight);
        let largest = 1_500.0;
        let least = f64::from(weights.iter().copied().min().expect("one flow or more"));
        // Ahead of the fluid server by a packet of its own, behind by one of another.
        serve_backlogged(&mut scheduler, weights.len(), 1_500, seed, &mut |bytes, _| {
            assert!(distance_from_fluid(bytes, &weights) <= largest / least * 2.0);
        });
    }
}

#[test]
fn an_idle_flow_saves_no_credit_for_later() {
    let mut scheduler = FairQueueing::new();
    for _ in 0..100 {
        scheduler.enqueue(FlowId(0), Bytes::new(100));
    }
    for _ in 0..50 {
        scheduler.dequeue();
    }
    for _ in 0..4 {
        scheduler.enqueue(FlowId(1), Bytes::new(100));
    }
    let order: Vec<u32> = (0..8)
        .filter_map(|_| scheduler.dequeue())
        .map(|served| served.0.0)
        .collect();
    // They alternate from the start: the newcomer neither catches up nor waits.
    assert_eq!(order, [0, 1, 0, 1, 0, 1, 0, 1]);
}

#[test]
fn fair_queueing_does_not_drift_in_half_a_million_packets() {
    // Weights and sizes that leave a remainder in nearly every division.
    let weights = [3, 7, 11, 13];
    let mut scheduler = weighted(FairQueueing::new(), &weights, FairQueueing::set_weight);
    let mut sent = vec![0; weights.len()];
    for flow in 0..4 {
        for _ in 0..2 {
            scheduler.enqueue(FlowId(flow), Bytes::new(997 + u64::from(flow)));
        }
    }
    for _ in 0..500_000 {
        let (flow, size) = scheduler.dequeue().expect("all flows are backlogged");
        scheduler.enqueue(flow, size);
        sent[flow.0 as usize] += size.get();
    }
    assert!(distance_from_fluid(&sent, &weights) <= 1_000.0 / 3.0 * 2.0);
}

#[test]
fn a_new_level_takes_waiting_packets_along() {
    let mut scheduler = StrictPriority::new();
    scheduler.set_level(FlowId(1), 3);
    scheduler.enqueue(FlowId(1), Bytes::new(1));
    scheduler.enqueue(FlowId(0), Bytes::new(2));
    scheduler.set_level(FlowId(0), 5);
    assert_eq!(scheduler.dequeue(), Some((FlowId(1), Bytes::new(1))));
    assert_eq!(scheduler.dequeue(), Some((FlowId(0), Bytes::new(2))));
    assert_eq!(scheduler.dequeue(), None);
}

#[test]
fn a_huge_packet_needs_no_million_rounds() {
    let mut scheduler = DeficitRoundRobin::new(Bytes::new(1));
    scheduler.enqueue(FlowId(0), Bytes::new(u64::MAX / 2));
    scheduler.enqueue(FlowId(1), Bytes::new(u64::MAX / 4));
    assert_eq!(scheduler.dequeue().map(|served| served.0), Some(FlowId(1)));
    assert_eq!(scheduler.dequeue().map(|served| served.0), Some(FlowId(0)));
}
