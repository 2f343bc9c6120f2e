//! Every message completes once and in order, with any losses, delays and repeats of the network.

use super::*;
use crate::network::Step;
use crate::packet::HostId;
use crate::topology::Topology;
use isolane_common_quantities::rng::Stream;
use isolane_common_quantities::units::{BitRate, Bytes};
use isolane_network_scenario::model::{
    Congestion, FabricTopology, PortScheduler, PortSettings, Shape,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// What the network of a test does to packets that arrive.
#[derive(Clone, Copy, Debug, Default)]
struct Weather {
    lost_percent: u64,
    held_percent: u64,
    seed: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Seen {
    /// When each message ended.
    ended: Vec<(u32, Instant)>,
    /// Packets of each channel that reached its receiver.
    delivered: BTreeMap<u32, BTreeSet<u32>>,
    events: u64,
    figures: Vec<(String, f64)>,
}

fn network(hosts: u32) -> Network {
    let topology = FabricTopology {
        shape: Shape::SingleSwitch { hosts },
        host_rate: BitRate::from_gbps(100),
        nic_rate: BitRate::from_gbps(100),
        hop_delay: Duration::from_ns(200),
    };
    let ports = PortSettings {
        scheduler: PortScheduler::Strict,
        mtu: Bytes::new(1000),
        header: Bytes::new(40),
        buffer: Bytes::from_mib(64),
        shared_buffer: false,
        ecn: None,
        pfc: None,
    };
    Network::new(Topology::new(&topology), &ports)
}

fn spec(congestion: Congestion, recovery: Recovery, parameters: &[(&str, f64)]) -> TransportSpec {
    TransportSpec {
        congestion,
        recovery,
        parameters: parameters
            .iter()
            .map(|&(name, value)| (name.to_owned(), value))
            .collect(),
    }
}

/// Runs until all messages ended or half a simulated second is over.
fn run(spec: &TransportSpec, messages: &[Message], weather: Weather) -> Seen {
    let mut network = network(4);
    let mut channels = Channels::new(spec, &network).unwrap();
    let mut stream = Stream::named(weather.seed, "weather");
    let mut seen = Seen::default();
    let (mut ended, mut held) = (Vec::new(), Vec::new());
    for &message in messages {
        channels.send(&mut network, message);
    }
    let end = Instant::ZERO + Duration::from_ms(500);
    loop {
        match network.step(end) {
            Step::Packet(id) => {
                if stream.below(100) < weather.lost_percent {
                    network.free(id);
                } else if stream.below(100) < weather.held_percent {
                    held.push(id);
                } else {
                    deliver(&mut network, &mut channels, id, &mut seen, &mut ended);
                    // What was held comes later than what left after it.
                    if !held.is_empty() && stream.below(4) == 0 {
                        let id = held.swap_remove(stream.below(held.len() as u64) as usize);
                        deliver(&mut network, &mut channels, id, &mut seen, &mut ended);
                    }
                }
            }
            Step::Timer(_, timer) => channels.on_timer(&mut network, timer, &mut ended),
            Step::Idle(host) => channels.on_idle(&mut network, host),
            Step::Over => break,
        }
        let now = network.now();
        for one in ended.drain(..) {
            let channel = messages.iter().position(|m| m.token == one.token);
            assert!(channel.is_some(), "unknown message {}", one.token);
            seen.ended.push((one.token, now));
        }
    }
    seen.events = network.counts().events;
    seen.figures = channels.figures();
    seen
}

fn deliver(
    network: &mut Network,
    channels: &mut Channels,
    id: PacketId,
    seen: &mut Seen,
    ended: &mut Vec<Ended>,
) {
    let packet = network.packets[id];
    if packet.kind == PacketKind::Data {
        // The slow model of a receiver: a set of all that came.
        seen.delivered
            .entry(packet.flow)
            .or_default()
            .insert(packet.sequence);
    }
    channels.on_packet(network, id, ended);
}

fn message(token: u32, from: u16, to: u16, class: u8, size: u64) -> Message {
    Message {
        token,
        from: HostId(from),
        to: HostId(to),
        class,
        size: Bytes::new(size),
        deadline: None,
    }
}

/// Each message ended once, in the order of its channel, and nothing of it was missing.
fn complete(messages: &[Message], seen: &Seen) -> Result<(), TestCaseError> {
    let tokens: BTreeSet<u32> = seen.ended.iter().map(|&(token, _)| token).collect();
    prop_assert_eq!(tokens.len(), seen.ended.len(), "a message ended twice");
    prop_assert_eq!(seen.ended.len(), messages.len(), "a message never ended");
    let mut order: BTreeMap<(u16, u16, u8), Vec<u32>> = BTreeMap::new();
    for &(token, _) in &seen.ended {
        let one = messages.iter().find(|m| m.token == token).unwrap();
        order
            .entry((one.from.0, one.to.0, one.class))
            .or_default()
            .push(token);
    }
    for (channel, ended) in &order {
        let sent: Vec<u32> = messages
            .iter()
            .filter(|m| (m.from.0, m.to.0, m.class) == *channel)
            .map(|m| m.token)
            .collect();
        prop_assert_eq!(ended, &sent);
    }
    let packets: u64 = messages.iter().map(|m| m.size.get().div_ceil(1000)).sum();
    let delivered: usize = seen.delivered.values().map(BTreeSet::len).sum();
    prop_assert_eq!(delivered as u64, packets);
    for numbers in seen.delivered.values() {
        prop_assert_eq!(numbers.last().map(|&n| n as usize + 1), Some(numbers.len()));
    }
    Ok(())
}

fn any_control() -> impl Strategy<Value = Congestion> {
    prop_oneof![
        Just(Congestion::None),
        Just(Congestion::Window),
        Just(Congestion::Swift),
        Just(Congestion::Dctcp),
        Just(Congestion::Dcqcn),
        Just(Congestion::Timely),
        Just(Congestion::Hpcc),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn every_message_completes_once_and_in_order_under_loss_and_reordering(
        control in any_control(),
        selective in any::<bool>(),
        fast in any::<bool>(),
        lost_percent in 0u64..20,
        held_percent in 0u64..20,
        seed in any::<u64>(),
        sizes in prop::collection::vec((1u64..40_000, 0u16..3, 0u8..2), 1..25),
    ) {
        let recovery = if selective { Recovery::Selective } else { Recovery::GoBackN };
        let messages: Vec<Message> = sizes
            .iter()
            .enumerate()
            .map(|(i, &(size, to, class))| message(i as u32, 3, to, class, size))
            .collect();
        let parameters = [("timeout_us", 100.0), ("fast_repeat", f64::from(u8::from(fast)))];
        let weather = Weather { lost_percent, held_percent, seed };
        let seen = run(&spec(control, recovery, &parameters), &messages, weather);
        complete(&messages, &seen)?;
    }
}

#[test]
fn equal_runs_give_equal_bytes() {
    let messages: Vec<Message> = (0..40)
        .map(|i| message(i, 3, (i % 3) as u16, 0, 20_000))
        .collect();
    let weather = Weather {
        lost_percent: 3,
        held_percent: 3,
        seed: 7,
    };
    let spec = spec(Congestion::Swift, Recovery::Selective, &[]);
    assert_eq!(
        run(&spec, &messages, weather),
        run(&spec, &messages, weather)
    );
}

#[test]
fn a_lone_message_takes_the_time_of_its_bytes_and_its_way() {
    // Ten packets of 1,040 B at 80 ps, two hops of 200 ns, store and forward at the switch, and the answer's way back.
    let spec = spec(Congestion::None, Recovery::GoBackN, &[]);
    let seen = run(&spec, &[message(0, 0, 1, 0, 10_000)], Weather::default());
    let (full, answer, hops) = (1040 * 80, 40 * 80, 4 * 200_000);
    assert_eq!(
        seen.ended,
        [(0, Instant::from_ps(11 * full + 2 * answer + hops))]
    );
}

/// Packets sent again when the weather loses exactly the packets named.
fn repeated(recovery: Recovery, lose: &[u32]) -> (u64, Instant) {
    let mut network = network(2);
    let spec = spec(Congestion::Window, recovery, &[("window_packets", 32.0)]);
    let mut channels = Channels::new(&spec, &network).unwrap();
    let (mut ended, mut lose) = (Vec::new(), lose.to_vec());
    channels.send(&mut network, message(0, 0, 1, 0, 20_000));
    while ended.is_empty() {
        match network.step(Instant::MAX) {
            Step::Packet(id) => {
                let packet = network.packets[id];
                let hit = lose.iter().position(|&n| n == packet.sequence);
                match hit.filter(|_| packet.kind == PacketKind::Data) {
                    Some(which) => {
                        lose.swap_remove(which);
                        network.free(id);
                    }
                    None => channels.on_packet(&mut network, id, &mut ended),
                }
            }
            Step::Timer(_, timer) => channels.on_timer(&mut network, timer, &mut ended),
            Step::Idle(_) => {}
            Step::Over => panic!("the message never ended"),
        }
    }
    (channels.figures.repeated, network.now())
}

#[test]
fn go_back_n_repeats_all_that_followed_the_gap_and_selective_only_the_gap() {
    let before_a_timeout = Instant::ZERO + Duration::from_us(450);
    // All twenty packets have left when the gap at the sixth is reported.
    let (again, at) = repeated(Recovery::GoBackN, &[5]);
    assert_eq!(again, 15);
    assert!(at < before_a_timeout);
    let (again, at) = repeated(Recovery::Selective, &[5]);
    assert_eq!(again, 1);
    assert!(at < before_a_timeout);
}

#[test]
fn the_last_packet_s_loss_and_a_lost_repeat_wait_for_the_timeout() {
    let timeout = Instant::ZERO + Duration::from_us(450);
    for recovery in [Recovery::GoBackN, Recovery::Selective] {
        let (again, at) = repeated(recovery, &[19]);
        assert_eq!(again, 1);
        assert!(at > timeout);
        let (_, at) = repeated(recovery, &[5, 5]);
        assert!(at > timeout);
    }
}

#[test]
fn messages_of_one_channel_reuse_their_slots() {
    let mut network = network(2);
    let spec = spec(Congestion::Window, Recovery::GoBackN, &[]);
    let mut channels = Channels::new(&spec, &network).unwrap();
    let mut ended = Vec::new();
    for token in 0..1000 {
        channels.send(&mut network, message(token, 0, 1, 0, 5_000));
        while ended.is_empty() {
            match network.step(Instant::MAX) {
                Step::Packet(id) => channels.on_packet(&mut network, id, &mut ended),
                Step::Timer(_, timer) => channels.on_timer(&mut network, timer, &mut ended),
                Step::Idle(_) => {}
                Step::Over => panic!("the message never ended"),
            }
        }
        assert_eq!(
            ended.drain(..).map(|one| one.token).collect::<Vec<_>>(),
            [token]
        );
    }
    assert_eq!(channels.messages.slots(), 1);
    assert_eq!(network.packets.live(), 0);
}
