//! Single mechanisms, each on the smallest network that shows it.

use super::*;
use crate::network::agent::{PortAgent, Visit};
use isolane_network_scenario::model::Ecn;
use std::sync::{Arc, Mutex};

#[test]
fn a_lone_packet_takes_the_base_path_and_one_event_per_hop() {
    let uplink_rate = BitRate::from_gbps(160);
    for (shape, hops) in [
        (Shape::SingleSwitch { hosts: 4 }, 2),
        (
            Shape::TwoRacks {
                hosts_per_rack: 2,
                uplink_rate,
            },
            4,
        ),
        (Shape::FatTree { k: 4 }, 6),
    ] {
        let mut network = Network::new(topology(shape), &settings());
        let to = network.topology().hosts as u16 - 1;
        let base = network.base_path(
            HostId(0),
            HostId(to),
            Bytes::new(u64::from(FULL)),
            Bytes::new(64),
        );
        let arrived = send(&mut network, &[(0, packet(0, to, 0, FULL))], Instant::MAX);
        assert_eq!(arrived, [(0, base.one_way.as_ps() / 1_000)], "{shape:?}");
        assert_eq!(base.hops, hops);
        assert_eq!(
            network.counts().events,
            u64::from(hops) + 1,
            "with the timer"
        );
    }
}

#[test]
fn a_packet_behind_another_waits_for_its_last_bit_and_the_high_class_goes_first() {
    let mut network = star(3, &settings());
    // All reach host 2's port: the first at 600 ns; then one of each class waits from 650 ns on.
    let sends = [
        (0, packet(0, 2, 1, FULL)),
        (10, packet(0, 2, 1, FULL)),
        (20, packet(1, 2, 1, FULL)),
        (21, packet(1, 2, 0, FULL)),
    ];
    let arrived = send(&mut network, &sends, Instant::MAX);
    // The port is busy until 1,000 ns; 2 comes at 620 and 1 and 3 at 1,000 and 1,020.
    assert_eq!(arrived, [(0, 1_200), (2, 1_600), (3, 2_000), (1, 2_400)]);
}

#[test]
fn a_full_buffer_drops_at_the_tail_and_reports_it() {
    let settings = PortSettings {
        buffer: Bytes::new(2 * u64::from(FULL)),
        ..settings()
    };
    let mut network = star(9, &settings);
    let sends: Vec<_> = (0..8).map(|from| (0, packet(from, 8, 0, FULL))).collect();
    let arrived = send(&mut network, &sends, Instant::MAX);
    assert_eq!(
        arrived.iter().map(|one| one.0).collect::<Vec<_>>(),
        [0, 1, 2],
        "one on the line and two that fit"
    );
    let counts = network.counts();
    assert_eq!(counts.dropped["buffer-full"], 5);
    assert_eq!((counts.sent, counts.delivered, counts.in_flight), (8, 3, 0));
    let fullest = &network.port_counts().fullest[0];
    assert_eq!(
        (
            fullest.name.as_str(),
            fullest.queue_max_bytes,
            fullest.dropped
        ),
        ("switch->host8", 10_000, 5)
    );
}

/// With n ports congested, each may hold 1 / (1 + n) of the pool besides its own two packets.
#[test]
fn ports_of_a_shared_buffer_get_less_the_more_of_them_need_it() {
    const PACKETS: u64 = 64;
    let settings = PortSettings {
        buffer: Bytes::new(PACKETS * u64::from(FULL)),
        shared_buffer: true,
        ..settings()
    };
    let pool = (PACKETS - 2) * 15 * u64::from(FULL);
    for congested in [1_u64, 2, 3] {
        let mut network = star(15, &settings);
        let flows: Vec<_> = (0..congested as u16)
            .flat_map(|to| (0..4).map(move |sender| (3 + 4 * to + sender, to, 0)))
            .collect();
        keep_sending(&mut network, &flows, 1_000, Instant::from_ps(300_000_000));
        for receiver in 0..congested {
            let port = network.topology().ports_of[15][receiver as usize];
            let held = network.port(port).queue_max_bytes as f64;
            let fair = 2.0 * f64::from(FULL) + pool as f64 / (1 + congested) as f64;
            assert!(
                (0.98..1.01).contains(&(held / fair)),
                "{congested} ports: {held} of {fair}"
            );
        }
    }
}

#[test]
fn marks_follow_the_queue() {
    let ecn = Ecn {
        min: Bytes::new(10 * u64::from(FULL)),
        max: Bytes::new(50 * u64::from(FULL)),
        max_probability: 0.4,
    };
    let mut marking = Marking::new(ecn, 7);
    let mut share = |packets: u64| {
        let marks = |_: &u32| marking.marks(packets * u64::from(FULL));
        (0..100_000).filter(marks).count() as f64 / 1e5
    };
    assert_eq!(
        [share(0), share(10), share(50), share(90)],
        [0.0, 0.0, 1.0, 1.0]
    );
    // Five standard deviations.
    for (queue, expected) in [(20, 0.1), (30, 0.2), (49, 0.39)] {
        let share = share(queue);
        assert!(
            (share - expected).abs() < 0.008,
            "{queue}: {share} marked, not {expected}"
        );
    }
}

#[test]
fn only_packets_that_understand_marks_are_marked_and_only_by_their_class() {
    let ecn = Ecn {
        min: Bytes::new(1),
        max: Bytes::new(1),
        max_probability: 1.0,
    };
    let settings = PortSettings {
        ecn: Some(ecn),
        ..settings()
    };
    let mut deaf = packet(3, 5, 0, FULL);
    deaf.flags = 0;
    // On the line, waiting, finding one that waits (marked), finding none of its class, not able.
    let mut sends: Vec<_> = (0..3).map(|from| (0, packet(from, 5, 0, FULL))).collect();
    sends.push((0, packet(4, 5, 1, FULL)));
    sends.push((0, deaf));
    let mut network = star(6, &settings);
    send(&mut network, &sends, Instant::MAX);
    assert_eq!(network.counts().marked, 1);
}

#[test]
fn telemetry_has_each_hop_and_an_answer_returns_it() {
    let mut network = star(3, &settings());
    for (from, flags) in [(0, 0), (0, 0), (1, flags::TELEMETRY)] {
        let packet = packet(from, 2, 0, FULL);
        network.transmit(Packet { flags, ..packet });
    }
    let mut seen = Vec::new();
    loop {
        match network.step(Instant::MAX) {
            Step::Packet(id) if network.packets[id].kind == PacketKind::Data => {
                let packet = &mut network.packets[id];
                (packet.from, packet.to) = (packet.to, packet.from);
                (packet.kind, packet.bytes) = (PacketKind::Ack, 64);
                network.answer(id);
            }
            Step::Packet(id) => {
                seen.extend_from_slice(network.telemetry(id));
                network.free(id);
            }
            Step::Over => break,
            other => panic!("unexpected event {other:?}"),
        }
    }
    let hop = |queue_bytes, sent_bytes, at_ns: u64| HopTelemetry {
        queue_bytes,
        sent_bytes,
        at: Instant::from_ps(at_ns * 1_000),
        ps_per_byte: 80,
    };
    // At the switch the packet waits for host 0's first one, while its second one comes.
    assert_eq!(seen, [hop(0, 0, 0), hop(5_000, 5_000, 1_000)]);
}

#[test]
fn a_dry_port_is_told_of_once_and_only_to_those_who_ask() {
    let mut network = star(2, &settings());
    network.transmit(packet(0, 1, 0, FULL));
    network.transmit(packet(1, 0, 0, FULL));
    network.tell_when_idle(HostId(0), true);
    assert!(network.is_busy(HostId(0)) && network.is_busy(HostId(1)));
    assert_eq!(network.step(Instant::MAX), Step::Idle(HostId(0)));
    assert_eq!(network.now(), Instant::from_ps(400_000));
    assert!(!network.is_busy(HostId(0)));
    let rest: Vec<Step> = std::iter::from_fn(|| match network.step(Instant::MAX) {
        Step::Over => None,
        step => Some(step),
    })
    .collect();
    assert!(
        matches!(rest[..], [Step::Packet(_), Step::Packet(_)]),
        "{rest:?}"
    );
}

#[test]
fn events_after_the_end_are_kept_for_later() {
    let mut network = star(2, &settings());
    network.transmit(packet(0, 1, 0, FULL));
    let earlier = Instant::from_ps(1_199_999);
    assert_eq!(network.step(earlier), Step::Over);
    assert_eq!(network.counts().in_flight, 1);
    assert!(matches!(
        network.step(Instant::from_ps(1_200_000)),
        Step::Packet(_)
    ));
}

#[derive(Debug, Default)]
struct Diary(Arc<Mutex<Vec<String>>>);

impl Tap for Diary {
    fn saw(&mut self, at: Instant, port: PortId, moment: TapMoment, packet: &Packet) {
        let line = format!("{} {port:?} {moment:?} {}", at.as_ps(), packet.sequence);
        self.0.lock().expect("one thread").push(line);
    }
}

#[test]
fn a_tap_sees_packets_leave_arrive_and_be_dropped() {
    let settings = PortSettings {
        buffer: Bytes::ZERO,
        ..settings()
    };
    let mut network = star(3, &settings);
    let lines = Arc::default();
    network.set_tap(Box::new(Diary(Arc::clone(&lines))));
    let sends = [(0, packet(0, 2, 0, FULL)), (0, packet(1, 2, 0, FULL))];
    send(&mut network, &sends, Instant::MAX);
    assert_eq!(
        *lines.lock().expect("one thread"),
        [
            "0 PortId(0) Left 0",
            "0 PortId(1) Left 1",
            "600000 PortId(5) Left 0",
            "600000 PortId(5) Dropped(BufferFull) 1",
            "1200000 PortId(2) Arrived 0"
        ]
    );
}

#[derive(Debug)]
struct Stamp;

impl PortAgent for Stamp {
    fn visit(&mut self, visit: Visit, packet: &mut Packet) {
        packet.extra = packet.extra * 10 + 1 + u64::from(packet.hops);
        let back = visit.back.map_or(99, |port| u64::from(port.0));
        packet.key = packet.key * 100 + back;
    }
}

#[test]
fn an_agent_sees_packets_that_ask_for_it_at_every_node() {
    let mut network = star(3, &settings());
    network.set_agent(Box::new(Stamp));
    let mut visiting = packet(0, 2, 0, FULL);
    visiting.flags = flags::VISIT_PORTS;
    network.transmit(visiting);
    network.transmit(packet(0, 2, 0, FULL));
    let mut stamps = Vec::new();
    while let Step::Packet(id) = network.step(Instant::MAX) {
        stamps.push((network.packets[id].extra, network.packets[id].key));
    }
    // Host 0, the switch (whose port 3 leads back to host 0), host 2 (whose port 2 leads back).
    assert_eq!(stamps, [(123, 99_03_02), (0, 0)]);
}

/// Host 0 fills the low class of host 2's port first; then host 1 sends in the high class. Without a limit of its own the low
/// class leaves no room.
#[test]
fn a_class_with_a_limit_leaves_room_for_the_others() {
    let lost = |limit: Option<u64>| {
        let mut settings = settings();
        settings.buffer = Bytes::new(8 * u64::from(FULL));
        let mut network = star(3, &settings);
        network.limit_classes([None, limit.map(Bytes::new)]);
        let low = (0..40).map(|index| (index, packet((index % 2) as u16, 2, 1, FULL)));
        let high = (0..6).map(|index| (5_000 + index, packet((index % 2) as u16, 2, 0, FULL)));
        let sends: Vec<_> = low.chain(high).collect();
        let arrived = send(&mut network, &sends, Instant::MAX);
        let high = arrived.iter().filter(|(index, _)| *index >= 40).count();
        (high, network.counts().dropped)
    };
    let (high, dropped) = lost(None);
    assert!(high < 6, "the low class has taken the room: {high}");
    assert_eq!(dropped.keys().collect::<Vec<_>>(), ["buffer-full"]);
    let (high, dropped) = lost(Some(4 * u64::from(FULL)));
    assert_eq!(high, 6);
    assert_eq!(dropped.keys().collect::<Vec<_>>(), ["class-full"]);
}
