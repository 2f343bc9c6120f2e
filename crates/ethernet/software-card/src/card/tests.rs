//! The scheduler against exact weighted shares, and the rate.

use super::*;
use isolane_common_quantities::units::Duration;
use proptest::prelude::*;

const FOREVER: Instant = Instant::from_ps(u64::MAX / 2);

fn full(packets: u32) -> Load {
    Load {
        packets,
        full: 1_538,
        last: 1_538,
    }
}

/// A card whose queues never run dry: frames from an endless list of sizes.
struct Backlogged {
    card: Card,
    loads: Vec<Vec<Load>>,
    next: Vec<usize>,
    now: Instant,
}

impl Backlogged {
    fn new(weights: &[u32], discipline: Discipline, loads: Vec<Vec<Load>>) -> Self {
        let mut card = Card::new(weights.len(), BitRate::from_gbps(10), discipline);
        card.set_weights(weights);
        let mut this = Self {
            card,
            next: vec![0; loads.len()],
            loads,
            now: Instant::ZERO,
        };
        for queue in 0..weights.len() {
            this.refill(queue);
        }
        this
    }

    fn refill(&mut self, queue: usize) {
        let loads = &self.loads[queue];
        let load = loads[self.next[queue] % loads.len()];
        self.next[queue] += 1;
        self.card.load(queue, load, self.now);
    }

    fn step(&mut self) -> Departure {
        self.now = self.card.wire.free_at();
        let departure = self.card.next(self.now).expect("the wire is free");
        if departure.is_last {
            self.refill(departure.queue);
        }
        departure
    }
}

fn loads() -> impl Strategy<Value = Vec<Load>> {
    let load = (1_u32..45, 64_u32..=1_538, 64_u32..=1_538).prop_map(|(packets, full, last)| Load {
        packets,
        full,
        last: last.min(full),
    });
    prop::collection::vec(load, 1..6)
}

proptest! {
    /// Deficit round robin's bounds against the fluid share, at every packet: behind by at most a packet and the queue's
    /// quantum; ahead by at most its quantum and the packet that each other queue is behind, in proportion.
    #[test]
    fn no_queue_is_off_its_weighted_share_by_more_than_a_packet_and_a_quantum(
        queues in prop::collection::vec((1_u32..=127, loads()), 2..9),
        steps in 100_usize..1_500,
    ) {
        let weights: Vec<u32> = queues.iter().map(|(weight, _)| *weight).collect();
        let loads = queues.into_iter().map(|(_, loads)| loads).collect();
        let mut card = Backlogged::new(&weights, Discipline::Weighted, loads);
        let sum: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
        let most = f64::from(*weights.iter().max().unwrap());
        let mut sent = vec![0_u64; weights.len()];
        let mut total = 0_u64;
        for _ in 0..steps {
            let departure = card.step();
            sent[departure.queue] += u64::from(departure.bytes);
            total += u64::from(departure.bytes);
            for (queue, weight) in weights.iter().enumerate() {
                let weight = f64::from(*weight);
                let share = total as f64 * weight / sum;
                let quantum = PACKET_MAX as f64 * weight / most;
                let others = (weights.len() - 1) as f64 * PACKET_MAX as f64 * weight / sum;
                let off = sent[queue] as f64 - share;
                prop_assert!(off >= -(PACKET_MAX as f64 + quantum), "queue {} behind by {}", queue, -off);
                prop_assert!(off <= quantum + others, "queue {} ahead by {}", queue, off);
            }
        }
    }

    /// Equal weights, full packets: one packet each in turn, as the exact fluid share demands.
    #[test]
    fn equal_queues_with_full_packets_are_never_off_by_more_than_one(
        queues in 2_usize..16,
        frames in prop::collection::vec(1_u32..45, 16),
        weighted: bool,
    ) {
        let discipline = if weighted { Discipline::Weighted } else { Discipline::RoundRobin };
        let loads = frames[..queues].iter().map(|packets| vec![full(*packets)]).collect();
        let mut card = Backlogged::new(&vec![1; queues], discipline, loads);
        let mut sent = vec![0_u64; queues];
        for _ in 0..500 {
            sent[card.step().queue] += 1;
            prop_assert!(sent.iter().max().unwrap() - sent.iter().min().unwrap() <= 1);
        }
    }

    /// Packets of a frame leave in order, each once, with their lengths; the wire never exceeds its rate.
    #[test]
    fn frames_leave_whole_and_in_order(queues in prop::collection::vec(loads(), 1..5), steps in 1_usize..600) {
        let given = queues.clone();
        let mut card = Backlogged::new(&vec![3; queues.len()], Discipline::Weighted, queues);
        let mut at = vec![(0_usize, 0_u32); given.len()];
        let (mut bits, mut last) = (0_u64, Instant::ZERO);
        for _ in 0..steps {
            let departure = card.step();
            let (frame, packet) = &mut at[departure.queue];
            let load = given[departure.queue][*frame % given[departure.queue].len()];
            prop_assert_eq!(departure.packet, *packet);
            let is_last = *packet + 1 == load.packets;
            prop_assert_eq!(departure.bytes, if is_last { load.last } else { load.full });
            prop_assert_eq!(departure.is_last, is_last);
            (*frame, *packet) = if is_last { (*frame + 1, 0) } else { (*frame, *packet + 1) };
            bits += u64::from(departure.bytes) * 8;
            prop_assert!(departure.at > last);
            last = departure.at;
            prop_assert_eq!(last.as_ps(), bits * 100, "10 Gb/s is 100 ps a bit");
        }
    }
}

#[test]
fn weights_of_one_to_three_give_one_to_three() {
    let mut card = Backlogged::new(
        &[1, 3],
        Discipline::Weighted,
        vec![vec![full(44)], vec![full(1)]],
    );
    let order: Vec<usize> = (0..8).map(|_| card.step().queue).collect();
    assert_eq!(
        order.iter().filter(|queue| **queue == 1).count(),
        6,
        "{order:?}"
    );
}

#[test]
fn in_turn_weights_do_not_matter() {
    let mut card = Backlogged::new(
        &[1, 99],
        Discipline::RoundRobin,
        vec![vec![full(9)], vec![full(9)]],
    );
    let order: Vec<usize> = (0..6).map(|_| card.step().queue).collect();
    assert_eq!(order, [0, 1, 0, 1, 0, 1]);
}

#[test]
fn an_idle_queue_saves_nothing_up_and_frees_its_place() {
    let mut card = Card::new(3, BitRate::from_gbps(10), Discipline::Weighted);
    card.set_weights(&[1, 60_000, 1]);
    card.load(0, full(2), Instant::ZERO);
    assert_eq!(card.next(FOREVER).unwrap().queue, 0);
    let departure = card.next(FOREVER).unwrap();
    assert!(departure.is_last);
    card.settle(0);
    assert_eq!(card.next(FOREVER), None);
    assert_eq!(
        card.counts().map(|count| count.packets).collect::<Vec<_>>(),
        [2, 0, 0]
    );
}

#[test]
fn nothing_leaves_before_the_wire_is_free() {
    let mut card = Card::new(1, BitRate::from_gbps(1), Discipline::RoundRobin);
    let begin = Instant::ZERO + Duration::from_ms(5);
    card.load(0, full(2), begin);
    assert_eq!(
        card.next(begin).unwrap().at,
        begin + Duration::from_ns(12_304)
    );
    assert_eq!(card.next(begin + Duration::from_ns(12_303)), None);
    assert!(card.next(begin + Duration::from_ns(12_304)).is_some());
}
