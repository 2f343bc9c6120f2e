//! Classes that the peer pauses: they keep their place, and neither gain nor lose by it.

use super::*;

#[test]
fn a_paused_turn_of_deficit_round_robin_is_lost() {
    let mut port = port(Order::Dwrr, &[4, 1]);
    let mut packets = Packets::default();
    for class in [0, 1] {
        for _ in 0..20 {
            let id = packets.insert(packet(class, LARGEST));
            port.push(&mut packets, Instant::ZERO, id);
        }
    }
    let mut take = |paused| {
        let id = port
            .pop(&mut packets, Instant::ZERO, paused)
            .expect("waits");
        packets[id].class
    };
    assert_eq!([take(0), take(0)], [0, 0]);
    assert_eq!([take(1), take(1), take(1)], [1, 1, 1]);
    // Back again: a fresh turn of four, not the two that were left as well.
    assert_eq!([0; 5].map(|_| take(0)), [0, 0, 0, 0, 1]);
}

#[test]
fn a_class_that_was_paused_neither_catches_up_nor_loses_its_turn() {
    let mut port = port(Order::Wfq, &[2, 1, 1]);
    let mut packets = Packets::default();
    for class in [0, 1, 2] {
        for _ in 0..100 {
            let id = packets.insert(packet(class, LARGEST));
            port.push(&mut packets, Instant::ZERO, id);
        }
    }
    let mut now = Instant::ZERO;
    let mut sent_of = |choices: usize, paused: u8| {
        let mut sent = [0; 3];
        for _ in 0..choices {
            sent[send_and_refill(&mut port, &mut packets, &mut now, paused)] += 1;
        }
        sent
    };
    let near = |sent: [i32; 3], fair: [i32; 3]| {
        let off = sent
            .iter()
            .zip(fair)
            .map(|(sent, fair)| (sent - fair).abs());
        assert!(off.max() <= Some(1), "{sent:?}, not {fair:?}");
    };
    near(sent_of(40, 0), [20, 10, 10]);
    near(sent_of(90, 0b001), [0, 45, 45]);
    near(sent_of(40, 0), [20, 10, 10]);
    near(sent_of(30, 0b010), [20, 0, 10]);
    near(sent_of(30, 0b100), [20, 10, 0]);
    near(sent_of(40, 0), [20, 10, 10]);
}

#[test]
fn what_arrives_during_a_pause_begins_where_the_class_stood() {
    let mut port = port(Order::Wfq, &[1, 1]);
    let mut packets = Packets::default();
    let add = |port: &mut Discipline, packets: &mut Packets, class, now| {
        let id = packets.insert(packet(class, LARGEST));
        port.push(packets, Instant::from_ps(now), id);
    };
    for _ in 0..20 {
        add(&mut port, &mut packets, 1, 0);
    }
    // Class 0 has nothing when it is paused; ten packets come meanwhile, over ten packet times.
    let mut now = 0;
    for _ in 0..10 {
        let id = port
            .pop(&mut packets, Instant::from_ps(now), 0b01)
            .expect("class 1");
        assert_eq!(packets[id].class, 1);
        now += time_of(LARGEST);
        add(&mut port, &mut packets, 0, now);
    }
    let mut classes = Vec::new();
    for _ in 0..6 {
        let id = port
            .pop(&mut packets, Instant::from_ps(now), 0)
            .expect("both");
        classes.push(packets[id].class);
        now += time_of(LARGEST);
    }
    assert_eq!(
        classes.iter().filter(|class| **class == 0).count(),
        3,
        "{classes:?}"
    );
}

#[test]
fn a_pause_that_ends_unseen_leaves_nothing_behind() {
    let mut port = port(Order::Wfq, &[1, 1]);
    let mut packets = Packets::default();
    let id = packets.insert(packet(1, LARGEST));
    port.push(&mut packets, Instant::ZERO, id);
    assert_eq!(port.pop(&mut packets, Instant::ZERO, 0b01), Some(id));
    // Class 0 is let go while nothing waits, and sends on the idle line; two of each come behind it.
    let now = Instant::from_ps(3 * time_of(LARGEST));
    port.pass(now, &packet(0, LARGEST));
    let half = now + Duration::from_ps(time_of(LARGEST) / 2);
    for class in [0, 0, 1, 1] {
        let id = packets.insert(packet(class, LARGEST));
        port.push(&mut packets, half, id);
    }
    let mut classes = Vec::new();
    let end = now + Duration::from_ps(time_of(LARGEST));
    while let Some(id) = port.pop(&mut packets, end, 0) {
        classes.push(packets[id].class);
    }
    assert_eq!(
        classes,
        [1, 0, 1, 0],
        "class 0 has had its turn on the idle line"
    );
}

/// A class has sent in an earlier busy period, has nothing now and is paused: what comes meanwhile begins where the pause
/// found virtual time, not behind what the class sent before.
#[test]
fn a_pause_does_not_bring_an_earlier_busy_period_back() {
    let mut port = port(Order::Wfq, &[1, 1]);
    let mut packets = Packets::default();
    let at = |halves: u64| Instant::from_ps(halves * time_of(LARGEST) / 2);
    let push = |port: &mut Discipline, packets: &mut Packets, halves, class| {
        let id = packets.insert(packet(class, LARGEST));
        port.push(packets, at(halves), id);
        id
    };
    port.pass(at(0), &packet(0, LARGEST));
    let second = push(&mut port, &mut packets, 1, 0);
    assert_eq!(port.pop(&mut packets, at(2), 0), Some(second));
    // The line rests, then class 1 has it.
    port.pass(at(10), &packet(1, LARGEST));
    let next = push(&mut port, &mut packets, 11, 1);
    push(&mut port, &mut packets, 11, 1);
    assert_eq!(port.pop(&mut packets, at(12), 0b01), Some(next));
    let paused = push(&mut port, &mut packets, 13, 0);
    assert_eq!(port.pop(&mut packets, at(14), 0), Some(paused));
}
