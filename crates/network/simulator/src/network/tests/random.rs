//! Whole networks under random traffic: nothing is lost track of, symmetric flows get equal parts, and the same run
//! gives the same bytes.

use super::*;
use isolane_common_quantities::rng::Stream;
use isolane_common_quantities::stats::fairness::{WeightedBytes, jain_index};
use isolane_network_scenario::model::Ecn;
use proptest::prelude::*;

fn orders() -> impl Strategy<Value = Order> {
    prop_oneof![
        Just(Order::Arrival),
        Just(Order::Strict),
        Just(Order::Wfq),
        Just(Order::Dwrr),
        Just(Order::SmallestKey)
    ]
}

/// Any hosts to any hosts; sizes, keys, paths and flags at random.
fn traffic(hosts: u64, gap_ns: u64, seed: u64) -> Vec<(u64, Packet)> {
    let mut random = Stream::named(seed, "traffic");
    (0..3_000)
        .map(|_| {
            let from = random.below(hosts);
            let to = (from + 1 + random.below(hosts - 1)) % hosts;
            let bytes = 64 + random.below(u64::from(FULL) - 63) as u16;
            let mut packet = packet(from as u16, to as u16, random.below(4) as u8, bytes);
            packet.path = random.next_u64() as u16;
            packet.key = random.below(50);
            packet.flow = random.below(100) as u32;
            if random.chance(1, 4) {
                packet.flags |= flags::TELEMETRY;
            }
            (random.below(3_000 * gap_ns), packet)
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    /// The network asserts conservation itself whenever it stops: in the middle and at the end.
    #[test]
    fn packets_are_delivered_dropped_or_on_their_way(
        shape in shapes(2, BitRate::from_gbps(25)), order in orders(), shared: bool, ecn: bool, pauses: bool,
        buffer in 0_u64..40_000, gap_ns in 10_u64..400, stops in prop::collection::vec(0_u64..1_000, 3), seed: u64,
    ) {
        let base = if pauses { with_pauses(20_000, 10_000) } else { settings() };
        let ecn = ecn.then_some(Ecn {
            min: Bytes::new(5_000), max: Bytes::new(20_000), max_probability: 0.5,
        });
        let settings = PortSettings { buffer: Bytes::new(buffer), shared_buffer: shared, ecn, ..base };
        let stopped_at = |stops: &[u64]| {
            let ordering = Ordering { order, weights: &[8, 4, 2, 1], seed };
            let mut network = Network::ordered(topology(shape), &settings, ordering);
            let sends = traffic(u64::from(network.topology().hosts), gap_ns, seed);
            plan(&mut network, &sends);
            let stops = stops.iter().map(|us| Instant::from_ps(us * 1_000_000));
            let arrived: Vec<_> = stops
                .chain([Instant::MAX])
                .flat_map(|stop| run(&mut network, &sends, stop))
                .collect();
            (arrived, network.counts(), network.port_counts(), network.packets.live())
        };
        let (arrived, counts, ports, live) = stopped_at(&stops);
        prop_assert_eq!(counts.in_flight, 0, "all is over");
        prop_assert_eq!(counts.sent, 3_000);
        prop_assert_eq!(live, 0);
        prop_assert_eq!(stopped_at(&[]), (arrived, counts, ports, 0), "stopping changes nothing");
    }
}

#[test]
fn symmetric_flows_get_equal_parts() {
    let uplink_rate = BitRate::from_gbps(100);
    let incast: Vec<_> = (1..9).map(|from| (from, 0, 0)).collect();
    let ring: Vec<_> = (0..16).map(|from| (from, (from + 5) % 16, 0)).collect();
    let racks: Vec<_> = (0..8).map(|from| (from, from + 8, 0)).collect();
    let cases = [
        (Shape::SingleSwitch { hosts: 9 }, incast),
        (Shape::SingleSwitch { hosts: 16 }, ring),
        (
            Shape::TwoRacks {
                hosts_per_rack: 8,
                uplink_rate,
            },
            racks,
        ),
    ];
    for (shape, flows) in cases {
        let mut network = Network::new(topology(shape), &settings());
        let end = Instant::ZERO + Duration::from_ms(5);
        let delivered = keep_sending(&mut network, &flows, 8, end);
        let bytes: Vec<WeightedBytes> = delivered
            .values()
            .map(|&packets| WeightedBytes {
                sent: Bytes::new(packets * u64::from(FULL)),
                weight: 1,
            })
            .collect();
        assert_eq!(bytes.len(), flows.len());
        let jain = jain_index(&bytes).expect("flows");
        assert!(jain > 0.999_999, "{shape:?}: {jain}");
    }
}
