//! Tests calls over a simple transport: pairs, rates and classes, and that every call is counted once.

use super::*;
use crate::discipline::Order;
use crate::network::Ordering;
use crate::packet::{NIL, Packet, PacketId, PacketKind};
use crate::run::drive_watched;
use crate::topology::Topology;
use isolane_common_quantities::units::BitRate;
use isolane_network_scenario::model::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Sends a message as one packet of at most 60,000 bytes, and answers it; the answer ends the message.
struct OnePacket;

impl Transport for OnePacket {
    fn send(&mut self, network: &mut Network, message: Message) {
        let payload = message.size.get().min(60_000) as u16;
        network.transmit(Packet {
            sent_at: network.now(),
            flow: message.token,
            next: NIL,
            to: message.to,
            from: message.from,
            bytes: payload + 40,
            payload,
            class: message.class,
            ..Packet::default()
        });
    }

    fn on_packet(&mut self, network: &mut Network, id: PacketId, ended: &mut Vec<Ended>) {
        let packet = network.packets[id];
        if packet.kind == PacketKind::Ack {
            network.free(id);
            ended.push(Ended {
                token: packet.flow,
                how: How::Acknowledged,
            });
            return;
        }
        let answer = &mut network.packets[id];
        (answer.from, answer.to) = (packet.to, packet.from);
        answer.kind = PacketKind::Ack;
        answer.bytes = 40;
        answer.payload = 0;
        network.answer(id);
    }

    fn on_timer(&mut self, _: &mut Network, _: Timer, _: &mut Vec<Ended>) {
        unreachable!("it sets none");
    }
}

fn open(load: f64) -> Arrivals {
    Arrivals::Open {
        load,
        burst: load,
        period: Duration::ZERO,
        bursts: BurstPhase::Together,
        poisson: true,
    }
}

fn traffic(pattern: Pattern, arrivals: Arrivals) -> Traffic {
    Traffic {
        name: "calls".to_owned(),
        pattern,
        mix: vec![0.5, 0.3, 0.2],
        sizes: vec![SizeDistribution::Fixed {
            size: Bytes::new(10_000),
        }],
        arrivals,
        start: Duration::ZERO,
        stop: None,
    }
}

fn scenario(hosts: u32, traffic: Vec<Traffic>) -> FabricScenario {
    let class = |(name, us): (&str, Option<u64>)| TrafficClass {
        name: name.to_owned(),
        weight: 1,
        buffer: None,
        slo: us.map(|us| CallSlo {
            target: Duration::from_us(us),
            per_mtu: false,
            percentile: 99.0,
        }),
    };
    FabricScenario {
        name: "test".to_owned(),
        description: String::new(),
        topology: FabricTopology {
            shape: Shape::SingleSwitch { hosts },
            host_rate: BitRate::from_gbps(100),
            nic_rate: BitRate::from_gbps(100),
            hop_delay: Duration::from_ns(200),
        },
        ports: PortSettings {
            scheduler: PortScheduler::Strict,
            mtu: Bytes::new(60_000),
            header: Bytes::new(40),
            buffer: Bytes::new(1 << 40),
            shared_buffer: false,
            ecn: None,
            pfc: None,
        },
        classes: [("high", Some(4)), ("middle", Some(8)), ("low", None)]
            .map(class)
            .into(),
        transport: TransportSpec {
            congestion: Congestion::None,
            recovery: Recovery::GoBackN,
            parameters: BTreeMap::new(),
        },
        policy: FabricPolicy {
            kind: FabricPolicyKind::None,
            parameters: BTreeMap::new(),
        },
        traffic,
        warmup: Duration::ZERO,
        duration: Duration::from_ms(2),
        calls: None,
        drain: Duration::from_ms(100),
        seed: 1,
        sample_interval: None,
        per_pair: false,
    }
}

fn results(scenario: &FabricScenario) -> CallResults {
    let (calls, end) = calls(scenario);
    calls.results(end)
}

/// The calls of a run through a network that delays each packet alike, and the run's end.
fn calls(scenario: &FabricScenario) -> (Calls, Instant) {
    let ordering = Ordering {
        order: Order::Strict,
        weights: &[1, 1, 1],
        seed: 1,
    };
    let topology = Topology::new(&scenario.topology);
    let mut network = Network::ordered(topology, &scenario.ports, ordering);
    let mut calls = Calls::new(scenario, &network).expect("sound parameters");
    drive_watched(&mut network, &mut OnePacket, &mut calls, &mut |_| true);
    network.assert_conservation();
    let end = network.now();
    (calls, end)
}

fn issued(results: &CallResults) -> u64 {
    results.classes.iter().map(|class| class.issued).sum()
}

fn everyone(hosts: u32) -> Vec<u32> {
    (0..hosts).collect()
}

#[test]
fn all_to_all_has_its_load_its_mix_and_every_pair() {
    let hosts = everyone(8);
    let mut scenario = scenario(8, vec![traffic(Pattern::AllToAll { hosts }, open(0.5))]);
    scenario.per_pair = true;
    let results = results(&scenario);
    // 8 hosts at half of 12.5 GB/s in calls of 10 kB over 2 ms: 10,000 calls, four standard deviations of 100.
    let issued = issued(&results);
    assert!((9_600..10_400).contains(&issued), "{issued}");
    assert_eq!(results.utilisation, 1.0);
    let shares: Vec<f64> = results
        .classes
        .iter()
        .map(|class| class.asked_share)
        .collect();
    for (share, mix) in shares.iter().zip([0.5, 0.3, 0.2]) {
        assert!((share - mix).abs() < 0.02, "{shares:?}");
    }
    assert_eq!(results.pairs.len(), 8 * 7 * 3);
    assert_eq!(
        results.pairs.iter().map(|pair| pair.issued).sum::<u64>(),
        issued
    );
    assert!(results.pairs.iter().all(|pair| pair.from != pair.to));
}

/// Calls in the highest class: `outstanding` at once and `calls` in all between each pair of `hosts` hosts.
fn closed_loop(hosts: u32, pattern: Pattern, outstanding: u32, calls: u64) -> CallResults {
    let closed = Arrivals::Closed {
        outstanding,
        calls_per_pair: Some(calls),
    };
    let mut scenario = scenario(hosts, vec![traffic(pattern, closed)]);
    scenario.per_pair = true;
    scenario.traffic[0].mix = vec![1.0, 0.0, 0.0];
    results(&scenario)
}

#[test]
fn a_permutation_calls_each_host_once() {
    let hosts = everyone(16);
    let results = closed_loop(16, Pattern::Permutation { hosts }, 1, 3);
    assert_eq!(issued(&results), 3 * 16);
    let mut called: Vec<u32> = results.pairs.iter().map(|pair| pair.to).collect();
    called.sort_unstable();
    assert_eq!(called, everyone(16));
    assert!(
        results
            .pairs
            .iter()
            .all(|pair| pair.from != pair.to && pair.issued == 3)
    );
}

#[test]
fn a_shuffle_moves_the_same_amount_between_all_pairs() {
    let hosts = everyone(5);
    let results = closed_loop(5, Pattern::Shuffle { hosts }, 2, 4);
    assert_eq!(results.pairs.len(), 20);
    assert!(results.pairs.iter().all(|pair| pair.issued == 4));
    assert!(
        results.measured < Duration::from_ms(1),
        "it ends with its last call"
    );
}

#[test]
fn a_closed_loop_keeps_its_calls_in_flight() {
    let pattern = Pattern::Incast {
        senders: vec![1, 2, 3],
        receiver: 0,
    };
    let closed = Arrivals::Closed {
        outstanding: 2,
        calls_per_pair: None,
    };
    let mut scenario = scenario(4, vec![traffic(pattern, closed)]);
    scenario.traffic[0].mix = vec![1.0, 0.0, 0.0];
    let results = results(&scenario);
    let high = &results.classes[0];
    assert_eq!(
        high.outstanding_p50, 5.0,
        "the one that begins does not see itself"
    );
    assert!(
        high.goodput_gbps > 98.0,
        "{} Gb/s into one port",
        high.goodput_gbps
    );
}

#[test]
fn after_the_limit_no_call_begins() {
    let hosts = everyone(4);
    let mut scenario = scenario(4, vec![traffic(Pattern::AllToAll { hosts }, open(0.5))]);
    scenario.calls = Some(777);
    let results = results(&scenario);
    assert_eq!(issued(&results), 777);
    assert_eq!(results.utilisation, 1.0);
}

#[test]
fn calls_of_the_warm_up_are_not_counted() {
    let hosts = everyone(4);
    let all = scenario(4, vec![traffic(Pattern::AllToAll { hosts }, open(0.5))]);
    let mut later = all.clone();
    later.warmup = Duration::from_ms(1);
    later.duration = Duration::from_ms(1);
    let (all, later) = (results(&all), results(&later));
    let part = issued(&later) as f64 / issued(&all) as f64;
    assert!((0.45..0.55).contains(&part), "{part}");
    assert_eq!(later.measured, Duration::from_ms(1));
}

#[test]
fn admission_changes_classes_and_not_the_calls() {
    let pattern = Pattern::Incast {
        senders: vec![1, 2],
        receiver: 0,
    };
    let mut scenario = scenario(3, vec![traffic(pattern, open(0.6))]);
    scenario.sample_interval = Some(Duration::from_us(100));
    scenario.per_pair = true;
    let free = results(&scenario);
    scenario.policy.kind = FabricPolicyKind::Aequitas;
    let gated = results(&scenario);
    let asked = |results: &CallResults| -> Vec<(u64, f64)> {
        let one = |class: &ClassResult| (class.issued, class.asked_share);
        results.classes.iter().map(one).collect()
    };
    assert_eq!(asked(&free), asked(&gated));
    assert_eq!(free.classes[1].downgraded, 0);
    assert!(
        gated.classes[1].downgraded > 0,
        "overload at the port to host 0"
    );
    assert_eq!(
        gated.classes[2].downgraded, 0,
        "the lowest class is never gated"
    );
    let moved = gated.classes[0].downgraded + gated.classes[1].downgraded;
    let ran = gated.classes[2].rnl_us.map_or(0, |rnl| rnl.count);
    assert_eq!(
        ran,
        free.classes[2].issued + moved,
        "to the lowest class only"
    );
    let series = gated.series.expect("a requested series");
    assert_eq!(series.values["admit/1->0/middle"].len(), 20);
    assert!(series.values.contains_key("queue_bytes/switch->host0"));
}

#[test]
fn points_of_a_series_are_bounded() {
    let hosts = everyone(2);
    let mut scenario = scenario(2, vec![traffic(Pattern::AllToAll { hosts }, open(0.01))]);
    scenario.sample_interval = Some(Duration::from_ns(100));
    let series = results(&scenario).series.expect("a requested series");
    assert_eq!(series.interval_us, 0.8, "doubled until 2 ms fit");
    let points = series.values["goodput_gbps/high"].len();
    assert!(
        (2_400..=2_500).contains(&points),
        "{points}: until the last call ends"
    );
}

#[test]
fn memory_does_not_grow_with_calls() {
    let hosts = everyone(4);
    let slots = |duration| {
        let mut scenario = scenario(
            4,
            vec![traffic(
                Pattern::AllToAll {
                    hosts: hosts.clone(),
                },
                open(0.3),
            )],
        );
        scenario.duration = duration;
        let (calls, _) = calls(&scenario);
        calls.in_flight.slots()
    };
    let (short, long) = (slots(Duration::from_ms(5)), slots(Duration::from_ms(100)));
    assert!(
        long < 2 * short + 64,
        "{short} slots after 5 ms, {long} after 100"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Goal: each call is counted once, for any mix of groups; issued = ended + unfinished.
    #[test]
    fn every_call_is_counted_once(
        seed: u64,
        load in 0.05f64..1.5,
        burst in 1.0f64..3.0,
        outstanding in 1u32..4,
        drain_us in 0u64..200,
        limit in prop::option::of(1u64..2_000),
    ) {
        let bursty = Arrivals::Open {
            load,
            burst: load * burst,
            period: Duration::from_us(100),
            bursts: [BurstPhase::Together, BurstPhase::PerHost, BurstPhase::PerPair]
                [(seed / 2 % 3) as usize],
            poisson: seed % 2 == 0,
        };
        let closed = Arrivals::Closed { outstanding, calls_per_pair: Some(9) };
        let mut second = traffic(Pattern::Shuffle { hosts: vec![0, 2, 4] }, closed);
        second.name = "second".to_owned();
        second.start = Duration::from_us(50);
        let mut scenario = scenario(
            5,
            vec![traffic(Pattern::AllToAll { hosts: everyone(5) }, bursty), second],
        );
        scenario.seed = seed;
        scenario.duration = Duration::from_us(500);
        scenario.drain = Duration::from_us(drain_us);
        scenario.calls = limit;
        scenario.policy.kind = FabricPolicyKind::Aequitas;
        scenario.per_pair = true;
        let results = results(&scenario);
        let ended: u64 = results
            .classes
            .iter()
            .filter_map(|class| class.rnl_us)
            .map(|summary| summary.count)
            .sum();
        let open: u64 = results.classes.iter().map(|class| class.unfinished).sum();
        prop_assert_eq!(issued(&results), ended + open);
        prop_assert!(limit.is_none_or(|limit| issued(&results) <= limit));
        let by_pair: u64 = results.pairs.iter().map(|pair| pair.issued).sum();
        prop_assert_eq!(by_pair, issued(&results));
    }
}

#[test]
fn given_pairs_share_the_load_of_their_caller() {
    let pairs = vec![(0, 1), (0, 2), (2, 1)];
    let mut scenario = scenario(3, vec![traffic(Pattern::Pairs { pairs }, open(0.4))]);
    scenario.per_pair = true;
    let results = results(&scenario);
    let mut seen: Vec<(u32, u32)> = results
        .pairs
        .iter()
        .map(|pair| (pair.from, pair.to))
        .collect();
    seen.dedup();
    assert_eq!(seen, [(0, 1), (0, 2), (2, 1)]);
    let of = |from| -> u64 {
        let from = results.pairs.iter().filter(|pair| pair.from == from);
        from.map(|pair| pair.issued).sum()
    };
    let ratio = of(0) as f64 / of(2) as f64;
    assert!(
        (0.8..1.25).contains(&ratio),
        "the load is the caller's, not the pair's: {ratio}"
    );
}
