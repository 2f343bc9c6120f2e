//! The disciplines against slow and obvious ones.
//!
//! Oracle of weighted fair queueing: a fluid server in floating point that knows all arrivals from the start and says
//! when it is done with each packet. Packet-by-packet it sends, whenever the line is free, the waiting packet with the
//! earliest such time; no virtual clock is involved.

mod pauses;

use super::*;
use crate::packet::HostId;
use isolane_common_quantities::units::Duration;
use proptest::prelude::*;

const RATE: BitRate = BitRate::from_gbps(100);
const LARGEST: u16 = 5120;

/// A packet to come: when (picoseconds), class, bytes.
type Arrival = (u64, u8, u16);

fn packet(class: u8, bytes: u16) -> Packet {
    Packet {
        from: HostId(1),
        bytes,
        payload: bytes,
        class,
        ..Packet::default()
    }
}

fn port(order: Order, weights: &[u32]) -> Discipline {
    Discipline::new(&PortOrder {
        order,
        weights,
        rate: RATE,
        largest: Bytes::new(u64::from(LARGEST)),
    })
}

fn time_of(bytes: u16) -> u64 {
    RATE.time_for(Bytes::new(u64::from(bytes))).as_ps()
}

/// A line that serves `arrivals` (in order of time): the index and departure (picoseconds) of each, as they leave.
/// With `passing`, packets that find the port idle are only shown to it.
fn serve(port: &mut Discipline, arrivals: &[Arrival], passing: bool) -> Vec<(usize, u64)> {
    let mut packets = Packets::default();
    let mut left = Vec::new();
    let (mut next, mut free_at) = (0, 0);
    while left.len() < arrivals.len() {
        let taken = port.pop(&mut packets, Instant::from_ps(free_at), 0);
        let began = match taken {
            Some(id) => {
                let began = packets[id].sequence as usize;
                packets.remove(id);
                began
            }
            None => {
                let (at, class, bytes) = arrivals[next];
                free_at = free_at.max(at);
                next += 1;
                let mut first = packet(class, bytes);
                first.sequence = next as u32 - 1;
                if passing {
                    port.pass(Instant::from_ps(at), &first);
                    next - 1
                } else {
                    let id = packets.insert(first);
                    port.push(&mut packets, Instant::from_ps(at), id);
                    continue;
                }
            }
        };
        free_at += time_of(arrivals[began].2);
        left.push((began, free_at));
        // What comes at the very end of a transmission is there when the next packet is chosen.
        while next < arrivals.len() && arrivals[next].0 <= free_at {
            let (at, class, bytes) = arrivals[next];
            let mut coming = packet(class, bytes);
            coming.sequence = next as u32;
            let id = packets.insert(coming);
            port.push(&mut packets, Instant::from_ps(at), id);
            next += 1;
        }
    }
    assert_eq!(packets.live(), 0);
    left
}

/// Twenty packets of class 1 at once, and five of class 0 when ten of them have left; how many of class 1 leave between the
/// first and the last of those five.
fn between_a_late_burst(order: Order) -> usize {
    let burst_at = 10 * time_of(LARGEST);
    let mut arrivals: Vec<Arrival> = vec![(0, 1, LARGEST); 20];
    arrivals.extend([(burst_at, 0, LARGEST); 5]);
    let left = serve(&mut port(order, &[1, 1]), &arrivals, false);
    let place = |index: usize| left.iter().position(|(at, _)| *at == index).unwrap();
    place(24) - place(20) - 4
}

#[test]
fn a_class_below_its_rate_goes_first_under_virtual_clock_and_takes_turns_under_wfq() {
    assert_eq!(between_a_late_burst(Order::VirtualClock), 0);
    assert_eq!(between_a_late_burst(Order::Wfq), 4);
}

#[test]
fn virtual_clock_divides_a_busy_line_by_weight() {
    let arrivals: Vec<Arrival> = (0..90).map(|index| (0, index % 2, LARGEST)).collect();
    let left = serve(&mut port(Order::VirtualClock, &[2, 1]), &arrivals, false);
    let first_30 = left.iter().take(30);
    let of_class_0 = first_30
        .filter(|(index, _)| arrivals[*index].1 == 0)
        .count();
    assert!(
        (19..=21).contains(&of_class_0),
        "{of_class_0} of 30, two thirds expected"
    );
}

#[test]
fn virtual_clock_gives_no_credit_for_idle_time() {
    // Class 0 sends nothing for 100 packet times; then both have 20 packets and take turns.
    let begin = 100 * time_of(LARGEST);
    let arrivals: Vec<Arrival> = (0..40).map(|index| (begin, index % 2, LARGEST)).collect();
    let left = serve(&mut port(Order::VirtualClock, &[1, 1]), &arrivals, false);
    let classes: Vec<u8> = left.iter().map(|(index, _)| arrivals[*index].1).collect();
    assert!(
        classes.chunks(2).all(|pair| pair[0] != pair[1]),
        "{classes:?}"
    );
}

/// When the fluid server is done with each of `arrivals`, picoseconds.
fn fluid(weights: &[u32], arrivals: &[Arrival]) -> Vec<f64> {
    let ps_per_byte = 8e12 / RATE.as_bps() as f64;
    let mut queues: Vec<Vec<(usize, f64)>> = vec![Vec::new(); weights.len()];
    let mut done = vec![f64::NAN; arrivals.len()];
    let (mut now, mut next) = (0.0f64, 0);
    loop {
        let weight: u32 = (0..weights.len())
            .filter(|class| !queues[*class].is_empty())
            .map(|class| weights[class])
            .sum();
        let until_arrival = match arrivals.get(next) {
            Some(arrival) => arrival.0 as f64 - now,
            None => f64::INFINITY,
        };
        let until_done = |class: usize| match queues[class].first() {
            Some((_, left)) => left * f64::from(weight) / f64::from(weights[class]),
            None => f64::INFINITY,
        };
        let first_done = (0..weights.len())
            .map(until_done)
            .fold(f64::INFINITY, f64::min);
        let step = until_arrival.min(first_done);
        if step.is_infinite() {
            return done;
        }
        for class in 0..weights.len() {
            if let Some((_, left)) = queues[class].first_mut() {
                *left -= step * f64::from(weights[class]) / f64::from(weight);
            }
        }
        now += step;
        for queue in &mut queues {
            // Rounding leaves less than a millionth of a picosecond of a packet that is done.
            if let Some((index, left)) = queue.first().copied()
                && left < 1e-6
            {
                done[index] = now;
                queue.remove(0);
            }
        }
        if step == until_arrival {
            let (_, class, bytes) = arrivals[next];
            queues[class as usize].push((next, f64::from(bytes) * ps_per_byte));
            next += 1;
        }
    }
}

/// What is called equal in time: rounding of the oracle and of ticks, picoseconds.
const EQUAL: f64 = 0.01;

/// Whether a packet had come when the one that left at `departure` was chosen. Who begins as it comes found an idle
/// line, and what comes later in the same instant was not there yet.
fn present_with(arrivals: &[Arrival], chosen: usize, departure: u64) -> impl Fn(&&usize) -> bool {
    let began = departure - time_of(arrivals[chosen].2);
    let found_idle = arrivals[chosen].0 == began;
    move |other| arrivals[**other].0 <= began && (!found_idle || **other <= chosen)
}

fn check_against_fluid(weights: &[u32], arrivals: &[Arrival], left: &[(usize, u64)]) {
    let done = fluid(weights, arrivals);
    let mut waiting: Vec<usize> = (0..arrivals.len()).collect();
    for &(index, departure) in left {
        let present = present_with(arrivals, index, departure);
        let first = waiting.iter().filter(present).map(|other| done[*other]);
        let first = first.fold(f64::INFINITY, f64::min);
        assert!(
            done[index] <= first + EQUAL,
            "packet {index} goes before one that the fluid server ends {} ps earlier",
            done[index] - first
        );
        waiting.retain(|other| *other != index);
        let latest = done[index] + time_of(LARGEST) as f64 + EQUAL;
        assert!(
            departure as f64 <= latest,
            "packet {index} leaves {} ps after its bound",
            departure as f64 - latest
        );
    }
}

/// Bursts and pauses: gaps are often zero, sometimes a few packets, sometimes long enough to run dry.
fn arrivals(classes: usize) -> impl Strategy<Value = Vec<Arrival>> {
    let gap = prop_oneof![
        4 => Just(0u64),
        4 => 0u64..500_000,
        1 => 0u64..10_000_000,
    ];
    let bytes = prop_oneof![3 => Just(LARGEST), 2 => 40u16..=LARGEST, 1 => Just(40u16)];
    prop::collection::vec((gap, 0..classes as u8, bytes), 1..300).prop_map(|steps| {
        let mut now = 0;
        steps
            .into_iter()
            .map(|(gap, class, bytes)| {
                now += gap;
                (now, class, bytes)
            })
            .collect()
    })
}

fn weights_and_arrivals() -> impl Strategy<Value = (Vec<u32>, Vec<Arrival>)> {
    let weight = prop_oneof![3 => 1u32..10, 1 => 1u32..200, 1 => 1u32..100_000];
    prop::collection::vec(weight, 2..=CLASSES_MAX)
        .prop_flat_map(|weights| (Just(weights.clone()), arrivals(weights.len())))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn fair_queueing_sends_in_the_order_of_the_fluid_server(
        (weights, arrivals) in weights_and_arrivals(), passing: bool,
    ) {
        let left = serve(&mut port(Order::Wfq, &weights), &arrivals, passing);
        // Large weights without a small common multiple are rounded to 2^-12 of themselves; only small ones are exact.
        if weights.iter().all(|weight| *weight < 10) {
            check_against_fluid(&weights, &arrivals, &left);
        }
    }

    #[test]
    fn a_line_with_work_never_rests(
        (weights, arrivals) in weights_and_arrivals(),
    ) {
        for order in [Order::Arrival, Order::Strict, Order::Wfq, Order::Dwrr, Order::SmallestKey] {
            let left = serve(&mut port(order, &weights), &arrivals, false);
            let mut ends: Vec<u64> = Vec::new();
            let mut free_at = 0;
            for (at, _, bytes) in &arrivals {
                free_at = free_at.max(*at) + time_of(*bytes);
                ends.push(free_at);
            }
            // Sizes differ, so only the end of each busy period is the same in every order.
            let idle = |index: &usize| {
                arrivals.get(index + 1).is_none_or(|next| next.0 > ends[*index])
            };
            for index in (0..arrivals.len()).filter(idle) {
                prop_assert_eq!(left[index].1, ends[index], "{:?}", order);
            }
        }
    }

    #[test]
    fn a_class_stays_in_order((weights, arrivals) in weights_and_arrivals()) {
        for order in [Order::Arrival, Order::Strict, Order::Wfq, Order::Dwrr] {
            let left = serve(&mut port(order, &weights), &arrivals, false);
            for class in 0..weights.len() as u8 {
                let of_class: Vec<usize> = left
                    .iter()
                    .map(|(index, _)| *index)
                    .filter(|index| arrivals[*index].1 == class)
                    .collect();
                prop_assert!(of_class.is_sorted(), "{order:?}");
            }
        }
    }

    #[test]
    fn backlogged_classes_share_by_weight(
        weights in prop::collection::vec(1u32..20, 2..=CLASSES_MAX),
        sizes in prop::collection::vec(40u16..=LARGEST, 400),
        sent in 50usize..300,
    ) {
        for order in [Order::Wfq, Order::Dwrr] {
            let arrivals: Vec<Arrival> = sizes
                .iter()
                .flat_map(|bytes| (0..weights.len() as u8).map(move |class| (0, class, *bytes)))
                .collect();
            let left = serve(&mut port(order, &weights), &arrivals, false);
            let mut bytes = vec![0.0; weights.len()];
            for (index, _) in &left[..sent] {
                bytes[arrivals[*index].1 as usize] += f64::from(arrivals[*index].2);
            }
            let lightest = f64::from(*weights.iter().min().expect("two or more"));
            let of_weight = |class: usize| bytes[class] / f64::from(weights[class]);
            let levels: Vec<f64> = (0..weights.len()).map(of_weight).collect();
            let highest = levels.iter().fold(0.0f64, |a, b| a.max(*b));
            let lowest = levels.iter().fold(f64::INFINITY, |a, b| a.min(*b));
            // Fair queueing: a packet of each of the two. Round robin: a quantum as well, and the lightest class's is
            // a packet, rounded up by its weight.
            let terms = if order == Order::Wfq { 2.0 } else { 3.0 };
            let bound = terms * (f64::from(LARGEST) + lightest) / lightest;
            prop_assert!(highest - lowest <= bound, "{order:?}: {levels:?}");
        }
    }

    #[test]
    fn strict_sends_the_highest_class_that_waits((weights, arrivals) in weights_and_arrivals()) {
        let left = serve(&mut port(Order::Strict, &weights), &arrivals, false);
        check_choice(&arrivals, &left, |index| (u64::from(arrivals[index].1), index));
    }

    #[test]
    fn arrival_sends_the_oldest((weights, arrivals) in weights_and_arrivals()) {
        let left = serve(&mut port(Order::Arrival, &weights), &arrivals, false);
        check_choice(&arrivals, &left, |index| (0, index));
    }

    #[test]
    fn paused_classes_wait_and_the_others_do_not(
        (weights, arrivals) in weights_and_arrivals(), paused: u8,
    ) {
        for order in [Order::Arrival, Order::Strict, Order::Wfq, Order::Dwrr, Order::SmallestKey] {
            let mut port = port(order, &weights);
            let mut packets = Packets::default();
            let mut waiting = [0usize; CLASSES_MAX];
            let mut bytes = [0u64; CLASSES_MAX];
            for (index, (at, class, size)) in arrivals.iter().enumerate() {
                let id = packets.insert(packet(*class, *size));
                port.push(&mut packets, Instant::from_ps(*at), id);
                waiting[*class as usize] += 1;
                bytes[*class as usize] += u64::from(*size);
                if index % 3 == 2 {
                    let taken = port.pop(&mut packets, Instant::from_ps(*at), paused);
                    let may_go = (0..CLASSES_MAX).any(|c| waiting[c] > 0 && paused & (1 << c) == 0);
                    prop_assert_eq!(taken.is_some(), may_go);
                    if let Some(id) = taken {
                        let class = packets[id].class as usize;
                        prop_assert_eq!(paused & (1 << class), 0);
                        waiting[class] -= 1;
                        bytes[class] -= u64::from(packets[id].bytes);
                        packets.remove(id);
                    }
                }
            }
            for class in 0..CLASSES_MAX {
                prop_assert_eq!(port.class_bytes(class as u8), bytes[class]);
                prop_assert_eq!(port.waiting() & (1 << class) != 0, waiting[class] > 0);
            }
            prop_assert_eq!(port.bytes(), bytes.iter().sum::<u64>());
        }
    }

    #[test]
    fn the_sorted_port_is_the_obvious_one(
        steps in prop::collection::vec((0u8..4, 0u64..6, 0u32..4), 1..200),
    ) {
        let mut sorted = port(Order::SmallestKey, &[1]);
        let mut packets = Packets::default();
        // (key, flow, number), by arrival.
        let mut model: Vec<(u64, u32, u32)> = Vec::new();
        for (number, (action, key, flow)) in steps.into_iter().enumerate() {
            let number = number as u32;
            let (taken, expected) = match action {
                0 => {
                    let flow = model.iter().min_by_key(|entry| (entry.0, entry.2)).map(|e| e.1);
                    let place = model.iter().position(|entry| Some(entry.1) == flow);
                    (sorted.pop(&mut packets, Instant::ZERO, 0), place.map(|at| model.remove(at)))
                }
                1 => {
                    let largest = model.iter().max_by_key(|entry| (entry.0, entry.2)).copied();
                    model.retain(|entry| Some(*entry) != largest);
                    (sorted.evict_largest(), largest)
                }
                _ => {
                    let mut coming = packet(0, 100);
                    (coming.key, coming.flow, coming.sequence) = (key, flow, number);
                    let id = packets.insert(coming);
                    sorted.push(&mut packets, Instant::ZERO, id);
                    model.push((key, flow, number));
                    continue;
                }
            };
            prop_assert_eq!(taken.map(|id| packets[id].sequence), expected.map(|entry| entry.2));
            if let Some(id) = taken {
                packets.remove(id);
            }
        }
    }
}

/// Each departure is the smallest by `rank` of those that had come when it began.
fn check_choice<K: Ord + std::fmt::Debug>(
    arrivals: &[Arrival],
    left: &[(usize, u64)],
    rank: impl Fn(usize) -> K,
) {
    let mut waiting: Vec<usize> = (0..arrivals.len()).collect();
    for &(index, departure) in left {
        let present = present_with(arrivals, index, departure);
        let best = waiting
            .iter()
            .filter(present)
            .map(|other| rank(*other))
            .min();
        assert_eq!(Some(rank(index)), best);
        waiting.retain(|other| *other != index);
    }
}

#[test]
fn the_oracle_finds_a_clock_of_real_time() {
    // A "virtual clock" that starts packets at the real time of arrival (as some simulators do) punishes a class for
    // line time that no other class wanted: class 0 sends alone, then both do, and class 1 goes first for long.
    let arrivals: Vec<Arrival> = (0..40)
        .map(|index| (index * time_of(LARGEST), 0, LARGEST))
        .chain((0..40).map(|_| (39 * time_of(LARGEST), 0, LARGEST)))
        .chain((0..40).map(|_| (39 * time_of(LARGEST), 1, LARGEST)))
        .collect();
    let mut finish = [0.0f64; 2];
    let stamps: Vec<f64> = arrivals
        .iter()
        .map(|(at, class, bytes)| {
            let class = *class as usize;
            finish[class] = finish[class].max(*at as f64) + 2.0 * time_of(*bytes) as f64;
            finish[class]
        })
        .collect();
    let mut order: Vec<usize> = (0..40).collect();
    let mut rest: Vec<usize> = (40..120).collect();
    rest.sort_by(|a, b| stamps[*a].total_cmp(&stamps[*b]));
    order.extend(rest);
    let departures: Vec<(usize, u64)> = order
        .iter()
        .enumerate()
        .map(|(place, index)| (*index, (place as u64 + 1) * time_of(LARGEST)))
        .collect();
    let checked = std::panic::catch_unwind(|| check_against_fluid(&[1, 1], &arrivals, &departures));
    assert!(checked.is_err(), "the check finds the wrong order");
    let right = serve(&mut port(Order::Wfq, &[1, 1]), &arrivals, false);
    check_against_fluid(&[1, 1], &arrivals, &right);
}

#[test]
fn equal_finishes_go_to_the_higher_class() {
    let arrivals: Vec<Arrival> = [2, 0, 1, 1, 0, 2].map(|class| (0, class, 1000)).to_vec();
    let left = serve(&mut port(Order::Wfq, &[1, 1, 1]), &arrivals, false);
    let classes: Vec<u8> = left.iter().map(|(index, _)| arrivals[*index].1).collect();
    // The first to come is alone; the others are chosen among.
    assert_eq!(classes, [2, 0, 1, 0, 1, 2]);
}

/// Sends a packet of a class that is not paused, and queues another of its class; the class.
fn send_and_refill(
    port: &mut Discipline,
    packets: &mut Packets,
    now: &mut Instant,
    paused: u8,
) -> usize {
    let id = port.pop(packets, *now, paused).expect("each class waits");
    let class = packets[id].class;
    packets.remove(id);
    *now += Duration::from_ps(time_of(LARGEST));
    let id = packets.insert(packet(class, LARGEST));
    port.push(packets, *now, id);
    usize::from(class)
}

#[test]
fn virtual_time_wraps_without_notice() {
    let start = Instant::from_ps(u64::MAX >> 14);
    let mut port = port(Order::Wfq, &[8, 4, 1]);
    let mut packets = Packets::default();
    let mut sent = [0u32; 3];
    let mut now = start;
    for class in [0, 1, 2] {
        for _ in 0..3 {
            let id = packets.insert(packet(class, LARGEST));
            port.push(&mut packets, now, id);
        }
    }
    for _ in 0..13_000 {
        sent[send_and_refill(&mut port, &mut packets, &mut now, 0)] += 1;
    }
    for (sent, weight) in sent.iter().zip([8, 4, 1]) {
        assert!(
            sent.abs_diff(weight * 1000) <= weight,
            "{sent} of weight {weight}"
        );
    }
}
