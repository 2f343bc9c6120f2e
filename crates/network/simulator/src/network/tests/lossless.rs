//! Pauses: when they come, whom they hold, and that nothing is lost on trees under any traffic.

use super::*;
use expect_test::{Expect, expect};
use proptest::prelude::*;

#[test]
fn a_pause_holds_its_class_and_no_other() {
    let mut network = star(3, &with_pauses(1, 1));
    let classes = [0, 0, 0, 1, 0];
    let sends: Vec<_> = std::iter::once((0, packet(1, 2, 0, FULL)))
        .chain(classes.map(|class| (0, packet(0, 2, class, FULL))))
        .collect();
    // Host 0's first packet waits behind host 1's from 600 ns on; the pause comes back at 805 ns, while the third is on
    // the line. At 1,200 ns the fifth, of class 0, is held, and the fourth, of class 1, goes.
    let arrived = send(&mut network, &sends, Instant::MAX);
    let order: Vec<u32> = arrived.iter().map(|one| one.0).collect();
    assert_eq!(order, [0, 1, 2, 3, 4, 5]);
    assert!(network.counts().dropped.is_empty());

    let mut without = star(3, &settings());
    let arrived = send(&mut without, &sends, Instant::MAX);
    let order: Vec<u32> = arrived.iter().map(|one| one.0).collect();
    assert_eq!(order, [0, 1, 2, 3, 5, 4]);
}

#[test]
fn a_pause_takes_the_frame_and_the_link_and_so_does_its_end() {
    let mut network = star(3, &with_pauses(1, 1));
    let bulk = (0..3).map(|_| (0, packet(0, 2, 1, FULL)));
    let sends: Vec<_> = std::iter::once((0, packet(1, 2, 0, 9_000)))
        .chain(bulk)
        .collect();
    // Host 0's first packet has the line to host 2 from 600 to 1,000 ns, so host 1's, there since 920 ns, goes next,
    // until 1,720 ns. Host 0's second packet comes at 1,000 ns and waits: a frame of 64 bytes (5.12 ns) is at host 0
    // after 200 ns of link, and finds the third packet on the line. That leaves the switch at 2,120 ns.
    let arrived = send(&mut network, &sends, Instant::MAX);
    assert_eq!(arrived, [(1, 1_200), (0, 1_920), (2, 2_320), (3, 2_720)]);
    let port = network.port(PortId(0));
    let paused_ps = (port.paused_share * network.now().as_ps() as f64).round() as u64;
    assert_eq!(paused_ps, 2_120_000 - 1_000_000);
    // Both hosts were paused and released.
    assert_eq!(network.counts().pauses, 4);
}

fn check_headroom(settings: &PortSettings, classes: usize, expect: Expect) {
    let topology = topology(Shape::SingleSwitch { hosts: 4 });
    let said = match Network::check_headroom(&topology, settings, classes) {
        Ok(()) => "enough".to_owned(),
        Err(error) => error.to_string(),
    };
    expect.assert_eq(&said);
}

#[test]
fn too_little_headroom_is_refused_with_the_arithmetic() {
    let pauses = with_pauses(100_000, 80_000);
    check_headroom(&pauses, 3, expect!["enough"]);
    check_headroom(
        &pauses,
        8,
        expect![
            "a port's buffer of 512KiB is too small for pauses without loss: 8 classes of xoff 100000B and headroom 21024B (three packets of 5000B, 1KiB of pause frames, 5000B on the link of host3->switch there and back) need 968192B; enlarge `buffer` or lower `xoff` to 44512B at most"
        ],
    );
}

/// As much as hosts can send, in random order, sizes and classes, all to few receivers.
fn storm(shape: Shape, seed: u64, settings: &PortSettings, classes: u64) -> Network {
    let mut random = isolane_common_quantities::rng::Stream::named(seed, "storm");
    let mut network = Network::new(topology(shape), settings);
    let hosts = u64::from(network.topology().hosts);
    let receivers = 1 + random.below(3);
    let sends: Vec<_> = (0..2_000)
        .map(|_| {
            let to = random.below(receivers.min(hosts - 1));
            let from = to + 1 + random.below(hosts - 1 - to);
            let class = random.below(classes) as u8;
            let bytes = 64 + random.below(u64::from(FULL) - 63);
            let mut packet = packet(from as u16, to as u16, class, bytes as u16);
            packet.path = random.next_u64() as u16;
            (random.below(20_000), packet)
        })
        .collect();
    let arrived = send(&mut network, &sends, Instant::MAX);
    assert_eq!(arrived.len() as u64, network.counts().delivered);
    network
}

/// A buffer of exactly the computed size.
fn tight(shape: Shape, xoff: u64, classes: u64) -> PortSettings {
    let mut settings = with_pauses(xoff, xoff / 2 + 1);
    settings.buffer = Bytes::ZERO;
    let topology = topology(shape);
    let error = Network::check_headroom(&topology, &settings, classes as usize);
    settings.buffer = error.expect_err("no buffer is too little").need;
    settings
}

/// The parser's minimum beside full packets of 5,000 bytes: 2 x (5,000 + 8 x 64) x 8 / 512.
const QUANTA_LEAST: u16 = 173;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn pauses_lose_nothing_and_never_lock_a_tree(
        shape in shapes(3, BitRate::from_gbps(40)), seed: u64, xoff in 1_u64..60_000, classes in 1_u64..5,
        quanta in prop::option::of(QUANTA_LEAST..2_000),
    ) {
        let mut settings = tight(shape, xoff, classes);
        settings.pfc.as_mut().expect("with pauses").quanta = quanta;
        let network = storm(shape, seed, &settings, classes);
        let counts = network.counts();
        prop_assert!(counts.dropped.is_empty(), "{:?}", counts.dropped);
        prop_assert_eq!((counts.delivered, counts.in_flight), (2_000, 0));
        prop_assert!(network.ports.iter().all(|port| port.paused == 0), "all are released in the end");
    }
}

/// Hosts 0 and 1 send to host 2 without end, so both are paused again and again.
fn contended(quanta: Option<u16>) -> Network {
    let mut settings = with_pauses(5_000, 5_000);
    settings.pfc.as_mut().expect("with pauses").quanta = quanta;
    let mut network = star(3, &settings);
    let sends: Vec<_> = (0..400)
        .map(|index| (0, packet(index % 2, 2, 0, FULL)))
        .chain(std::iter::once((0, packet(0, 2, 1, 9_000))))
        .collect();
    assert_eq!(send(&mut network, &sends, Instant::MAX).len(), 401);
    network
}

#[test]
fn a_long_pause_is_requested_repeatedly() {
    // All is sent after 160 us, before half of the longest pause, 335 us, is over.
    let until_taken_back = contended(None).counts().pauses;
    assert_eq!(contended(Some(u16::MAX)).counts().pauses, until_taken_back);
    assert!(contended(Some(QUANTA_LEAST)).counts().pauses > until_taken_back);
}

/// Method: a pause frame without a sender arrives, so no port repeats it.
#[test]
fn a_pause_without_a_repeat_is_over_by_itself() {
    let mut settings = with_pauses(100_000, 50_000);
    settings.pfc.as_mut().expect("with pauses").quanta = Some(1_000);
    let mut network = star(2, &settings);
    network.obey(Instant::ZERO, PortId(0), 0, true);
    // 1,000 times 512 bits are 5,120 ns at 100 Gb/s; two packets' times and two links are over.
    let sends = [(0, packet(0, 1, 0, FULL)), (10, packet(0, 1, 0, FULL))];
    let arrived = send(&mut network, &sends, Instant::MAX);
    assert_eq!(arrived, [(0, 6_320), (1, 6_720)]);

    let mut forever = star(2, &with_pauses(100_000, 50_000));
    forever.obey(Instant::ZERO, PortId(0), 0, true);
    assert_eq!(send(&mut forever, &sends, Instant::MAX), []);
}

/// The check above can fail. A switch's memory is common, so more than a little must be missing.
#[test]
fn a_third_of_the_memory_loses_packets_in_spite_of_pauses() {
    let shape = Shape::SingleSwitch { hosts: 9 };
    let lost = |settings: &PortSettings| {
        let mut lost = 0;
        for seed in 0..40 {
            let counts = storm(shape, seed, settings, 1).counts();
            lost += counts.dropped.values().sum::<u64>();
        }
        lost
    };
    let mut settings = tight(shape, 5_000, 1);
    assert_eq!(lost(&settings), 0);
    settings.buffer = Bytes::new(settings.buffer.get() / 3);
    assert!(lost(&settings) > 0);
}
