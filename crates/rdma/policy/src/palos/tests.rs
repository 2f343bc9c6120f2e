//! Facts, one at a time.

use super::*;
use expect_test::expect;
use isolane_common_quantities::units::{BitRate, Duration, Ratio};

pub(super) const MTU: Bytes = Bytes::new(1_500);

pub(super) fn unlabelled() -> Palos {
    Palos::new(PalosOptions {
        quantum: MTU,
        label: None,
    })
    .unwrap()
}

fn labelled() -> Palos {
    Palos::new(PalosOptions {
        quantum: MTU,
        label: Some(LabelOptions::for_link(BitRate::from_gbps(100))),
    })
    .unwrap()
}

/// One group of two queue pairs, of which the second has the latency label.
fn labelled_pair() -> Palos {
    let mut palos = labelled();
    hierarchy(&mut palos, &[(1, &[1, 1])]);
    palos
        .modify_queue_pair(QueuePairId(1), 1, Label::Latency)
        .unwrap();
    palos
}

/// What each queue pair sends in `turns` turns, if all always have messages of their size.
fn serve(palos: &mut Palos, sizes: &[u64], turns: usize) -> Vec<u64> {
    let now = Instant::ZERO;
    let (mut sent, mut offsets) = (vec![0; sizes.len()], vec![0; sizes.len()]);
    for (pair, &size) in sizes.iter().enumerate() {
        palos.activate(now, QueuePairId(pair as u32), Bytes::new(size));
    }
    for _ in 0..turns {
        let turn = palos.next(now).expect("all have work");
        let pair = turn.pair.0 as usize;
        loop {
            let message = Message {
                size: Bytes::new(sizes[pair]),
                sent: Bytes::new(offsets[pair]),
            };
            let bytes = palos.slice(now, turn.pair, message, MTU).get();
            if bytes == 0 {
                break;
            }
            sent[pair] += bytes;
            offsets[pair] = (offsets[pair] + bytes) % sizes[pair];
        }
        palos.finish(now, turn.pair, Rest::Ready(Bytes::new(sizes[pair])));
    }
    sent
}

/// Groups with these weights, each with queue pairs of these weights.
fn hierarchy(palos: &mut Palos, groups: &[(u32, &[u32])]) {
    for &(weight, pairs) in groups {
        let group = palos.create_group(weight).unwrap();
        for &weight in pairs {
            palos.create_queue_pair(group, weight, Label::None).unwrap();
        }
    }
}

#[test]
fn large_and_small_messages_share_equally() {
    for small in [64, 256, 700, 1_024, 4_096] {
        let mut palos = unlabelled();
        hierarchy(&mut palos, &[(1, &[1; 17])]);
        let mut sizes = [small; 17];
        sizes[0] = 2 << 20;
        let sent = serve(&mut palos, &sizes, 17_000);
        for &bytes in &sent {
            assert!(bytes.abs_diff(1_000 * 1_500) <= 1_500, "{small}: {sent:?}");
        }
    }
}

#[test]
fn groups_share_by_weight_and_their_pairs_by_theirs() {
    let mut palos = unlabelled();
    let weights: Vec<u32> = (10..=25).collect();
    let groups: Vec<(u32, &[u32])> = weights
        .iter()
        .map(|&weight| (weight, &[2, 3][..]))
        .collect();
    hierarchy(&mut palos, &groups);
    let sent = serve(&mut palos, &[2 << 20; 32], 64_000);
    let total: u64 = sent.iter().sum();
    for (group, &weight) in weights.iter().enumerate() {
        for (pair, part) in [(0, 2), (1, 3)] {
            let exact = total as f64 * f64::from(weight * part) / f64::from(280 * 5);
            let bytes = sent[group * 2 + pair] as f64;
            assert!(
                (bytes - exact).abs() < 5_000.0,
                "{group} {pair}: {bytes} {exact}"
            );
        }
    }
}

#[test]
fn weights_inside_a_group_do_not_concern_another_one() {
    for weight in 1..=6 {
        let mut palos = unlabelled();
        hierarchy(&mut palos, &[(1, &[2, 2, 2]), (1, &[3, 2, weight])]);
        let sent = serve(&mut palos, &[1 << 20; 6], 60_000);
        let (first, second) = (sent[..3].iter().sum::<u64>(), sent[3..].iter().sum::<u64>());
        assert!(
            first.abs_diff(second) < 20_000,
            "{weight}: {first} {second}"
        );
    }
}

#[test]
fn changing_a_weight_writes_one_entry_of_each_table() {
    let mut palos = unlabelled();
    let weights = vec![1; 2_200];
    let groups: Vec<(u32, &[u32])> = (0..10).map(|_| (1, &weights[..])).collect();
    hierarchy(&mut palos, &groups);
    let sizes = vec![1 << 20; 22_000];
    serve(&mut palos, &sizes, 44_000);
    let before = palos.table_writes();
    palos
        .modify_queue_pair(QueuePairId(7), 5, Label::None)
        .unwrap();
    serve(&mut palos, &sizes, 44_000);
    let after = palos.table_writes();
    assert_eq!(after.weights - before.weights, 1);
    assert_eq!(after.granularities - before.granularities, 1);
}

#[test]
fn an_idle_pair_leaves_its_share_to_its_group_and_an_idle_group_to_all() {
    let mut palos = unlabelled();
    hierarchy(&mut palos, &[(1, &[1, 1]), (1, &[1]), (2, &[1])]);
    let now = Instant::ZERO;
    // The second queue pair and the last group have no work.
    let mut sent = [0u64; 4];
    for pair in [0, 2] {
        palos.activate(now, QueuePairId(pair), MTU);
    }
    for _ in 0..1_000 {
        let pair = palos.next(now).unwrap().pair;
        let message = Message {
            size: Bytes::from_mib(1),
            sent: Bytes::ZERO,
        };
        sent[pair.0 as usize] += palos.slice(now, pair, message, MTU).get();
        palos.finish(now, pair, Rest::Ready(Bytes::from_mib(1)));
    }
    assert_eq!(sent, [750_000, 0, 750_000, 0]);
}

#[test]
fn pairs_that_come_and_go_gain_their_group_nothing() {
    // Each of a hundred queue pairs has one chunk of work at a time and drains it.
    let mut palos = unlabelled();
    hierarchy(&mut palos, &[(1, &[1]), (1, &[1; 100])]);
    let now = Instant::ZERO;
    let large = Bytes::from_mib(1);
    palos.activate(now, QueuePairId(0), large);
    let mut sent = [0u64; 2];
    for turn in 0..100_000u32 {
        let pair = palos.next(now).unwrap().pair;
        let message = Message {
            size: large,
            sent: Bytes::ZERO,
        };
        let bytes = palos.slice(now, pair, message, MTU).get();
        sent[usize::from(pair.0 > 0)] += bytes;
        let rest = if pair.0 == 0 {
            Rest::Ready(large)
        } else {
            Rest::Idle
        };
        palos.finish(now, pair, rest);
        for other in [1 + turn % 100, 1 + (turn * 7 + 3) % 100] {
            palos.activate(now, QueuePairId(other), large);
        }
    }
    let share = sent[1] as f64 / (sent[0] + sent[1]) as f64;
    assert!(share < 0.51, "{share}");
}

#[test]
fn a_stalled_pair_keeps_one_chunk_of_credit_and_an_idle_one_none() {
    let send = |rest: Rest| {
        let mut palos = unlabelled();
        hierarchy(&mut palos, &[(1, &[1])]);
        let (now, pair) = (Instant::ZERO, QueuePairId(0));
        let small = Message {
            size: Bytes::new(100),
            sent: Bytes::ZERO,
        };
        palos.activate(now, pair, small.size);
        for _ in 0..5 {
            let turn = palos.next(now).unwrap();
            palos.slice(now, turn.pair, small, MTU);
            palos.finish(now, pair, rest);
            palos.activate(now, pair, small.size);
        }
        palos.next(now).unwrap();
        std::iter::repeat_with(|| palos.slice(now, pair, small, MTU).get())
            .take_while(|&bytes| bytes > 0)
            .sum::<u64>()
    };
    assert_eq!(send(Rest::Stalled), 3_000);
    assert_eq!(send(Rest::Idle), 1_500);
}

#[test]
fn a_label_goes_first_and_a_long_message_under_it_does_not() {
    let mut palos = labelled_pair();
    let now = Instant::ZERO;
    palos.activate(now, QueuePairId(0), Bytes::from_mib(1));
    palos.activate(now, QueuePairId(1), Bytes::new(16));
    let turn = palos.next(now).unwrap();
    assert_eq!((turn.pair.0, turn.priority), (1, true));
    let message = Message {
        size: Bytes::new(16),
        sent: Bytes::ZERO,
    };
    assert_eq!(palos.slice(now, turn.pair, message, MTU).get(), 16);
    assert_eq!(palos.slice(now, turn.pair, message, MTU).get(), 0);
    palos.finish(now, turn.pair, Rest::Ready(Bytes::new(1_025)));
    let turn = palos.next(now).unwrap();
    assert_eq!((turn.pair.0, turn.priority), (0, false));
}

#[test]
fn a_priority_turn_fits_between_two_pieces_of_a_normal_one() {
    let mut palos = labelled_pair();
    let now = Instant::ZERO;
    palos.activate(now, QueuePairId(0), Bytes::from_mib(1));
    let normal = palos.next(now).unwrap();
    palos.activate(now, QueuePairId(1), Bytes::new(16));
    assert!(palos.has_priority_work());
    let first = palos.next_priority(now).unwrap();
    palos.finish(now, first.pair, Rest::Idle);
    assert!(palos.allows(normal.pair));
    palos.finish(now, normal.pair, Rest::Idle);
    // Neither has work: the schedule queue empties, and the sums with it.
    assert_eq!(palos.next(now), None);
}

/// A link of 100 Gb/s, busy all the time: one honest labelled pair sends 64 B every 2 us, a bulk pair always has work,
/// an adversary labels what it has. The longest wait of an honest message, ps, and the adversary's part of the link.
fn attack(adversary: u64, honest_pairs: u32) -> (u64, f64) {
    let mut palos = labelled();
    for label in [Label::Latency, Label::None, Label::Latency] {
        let group = palos.create_group(1).unwrap();
        let pairs = if label == Label::None {
            16
        } else {
            honest_pairs
        };
        for _ in 0..pairs {
            palos.create_queue_pair(group, 1, label).unwrap();
        }
    }
    let honest = QueuePairId(0);
    let bulk = honest_pairs..honest_pairs + 16;
    let size = |pair: u32| match pair {
        0 => 64,
        pair if bulk.contains(&pair) => 1 << 20,
        pair if pair < honest_pairs => 64,
        _ => adversary,
    };
    let (mut now, mut due, mut posted, mut longest) = (0u64, 0, u64::MAX, 0);
    let (mut total, mut taken) = (0u64, 0u64);
    for pair in honest_pairs..2 * honest_pairs + 16 {
        palos.activate(Instant::ZERO, QueuePairId(pair), Bytes::new(size(pair)));
    }
    while now < 2_000_000_000 {
        let at = Instant::from_ps(now);
        if posted == u64::MAX && now >= due {
            palos.activate(at, honest, Bytes::new(64));
            (posted, due) = (now, now + 2_000_000);
        }
        let turn = palos.next(at).expect("bulk always has work");
        let bytes = size(turn.pair.0);
        let message = Message {
            size: Bytes::new(bytes),
            sent: Bytes::ZERO,
        };
        let mut sent = 0;
        loop {
            let slice = palos.slice(at, turn.pair, message, MTU).get();
            if slice == 0 {
                break;
            }
            sent += slice + 78;
            if turn.pair == honest {
                longest = longest.max(now - posted);
                posted = u64::MAX;
                break;
            }
        }
        let rest = if turn.pair == honest {
            Rest::Idle
        } else {
            Rest::Ready(Bytes::new(bytes))
        };
        palos.finish(at, turn.pair, rest);
        now += sent * 80;
        total += sent;
        taken += if turn.pair.0 >= bulk.end { sent } else { 0 };
    }
    (longest, taken as f64 / total as f64)
}

#[test]
fn an_adversary_with_labelled_bulk_gains_nothing_and_delays_no_other() {
    // A message waits for the chunk under way and one message of the other label. The largest chunk is the
    // adversary's when its one pair has no priority: half of the round of 17 pairs.
    let chunk = 17 * 1_500 / 2 + 1_024;
    let (wait, share) = attack(1_024, 1);
    assert!(wait <= 80 * (chunk * 1_102 / 1_024 + 1_102), "{wait} ps");
    // Without the defence the adversary would have nearly all of the link; the fair part is a half.
    assert!(share < 0.55, "{share}");
    let (wait, share) = attack(1 << 20, 1);
    assert!(wait <= 80 * chunk * 1_578 / 1_500 + 80 * 1_578, "{wait} ps");
    assert!(share < 0.51, "{share}");
}

#[test]
fn many_labelled_pairs_of_an_adversary_delay_an_honest_one_by_one_message() {
    // Half of the round of 216 pairs is a bulk pair's and an adversary's sixteenth at most.
    let (wait, share) = attack(1_024, 200);
    let chunk = 216 * 1_500 / 2 / 16 + 1_500;
    assert!(wait <= 80 * (chunk * 1_102 / 1_024 + 1_102), "{wait} ps");
    assert!(share < 0.55, "{share}");
}

#[test]
fn no_share_of_the_link_means_no_priority() {
    let mut options = LabelOptions::for_link(BitRate::from_gbps(100));
    options.share_max = Ratio::new(0, 1);
    let mut palos = Palos::new(PalosOptions {
        quantum: MTU,
        label: Some(options),
    })
    .unwrap();
    let group = palos.create_group(1).unwrap();
    let pair = palos.create_queue_pair(group, 1, Label::Latency).unwrap();
    palos.activate(Instant::ZERO, pair, Bytes::new(16));
    assert!(!palos.next(Instant::ZERO).unwrap().priority);
}

#[test]
fn bad_input_is_refused_with_object_value_and_remedy() {
    let mut palos = unlabelled();
    let group = palos.create_group(1).unwrap();
    let mut messages = String::new();
    for error in [
        palos.create_group(0).unwrap_err(),
        palos.create_group(WEIGHT_MAX + 1).unwrap_err(),
        palos
            .create_queue_pair(GroupId(4), 1, Label::None)
            .unwrap_err(),
        palos.create_queue_pair(group, 0, Label::None).unwrap_err(),
        palos
            .modify_queue_pair(QueuePairId(0), 1, Label::None)
            .unwrap_err(),
        palos.planned_round(group).unwrap_err(),
    ] {
        messages += &format!("{error}\n");
    }
    expect![[r#"
        group 1: weight 0 is not 1 to 1048576: choose a weight in this range
        group 1: weight 1048577 is not 1 to 1048576: choose a weight in this range
        group 4 does not exist (numbers so far are below 1): create it first
        queue pair 0: weight 0 is not 1 to 1048576: choose a weight in this range
        queue pair 0 does not exist (numbers so far are below 0): create it first
        group 0 has no queue pairs, so no chunk size: create a queue pair in it first
    "#]]
    .assert_eq(&messages);
    let options = PalosOptions {
        quantum: Bytes::new(63),
        label: None,
    };
    expect!["option quantum is 63B; choose 64B to 1MiB"]
        .assert_eq(&Palos::new(options).unwrap_err().to_string());
}

#[test]
fn an_update_takes_as_long_as_the_paper_says() {
    let clock = Clock::new(Cycles::COUNTED, 100_000_000);
    assert_eq!(clock.naive_update(22_000), Duration::from_us(220));
    assert_eq!(clock.two_table_update(1), Duration::from_ns(20));
    let fast = Clock::new(Cycles::COUNTED, 250_000_000);
    assert_eq!(fast.decision(0), Duration::from_ns(28));
    assert_eq!(fast.interval(0), Duration::from_ns(20));
}
