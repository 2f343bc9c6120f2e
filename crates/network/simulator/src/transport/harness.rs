//! A small world for the tests of transports: a network, messages that begin at given times, and packets lost at random
//! on arrival.

use super::d3::{self, D3};
use super::pdq::{self, Pdq};
use super::{How, Message, Transport};
use crate::network::{Network, Owner, Step};
use crate::packet::{HostId, Packet, Timer};
use crate::topology::Topology;
use isolane_common_quantities::rng::Stream;
use isolane_common_quantities::units::{BitRate, Bytes, Duration, Instant};
use isolane_network_scenario::model::{
    FabricPolicy, FabricPolicyKind, FabricTopology, PortScheduler, PortSettings, Shape,
};
use proptest::prelude::*;

/// A message and when it begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    pub(super) at_us: f64,
    pub(super) from: u16,
    pub(super) to: u16,
    pub(super) class: u8,
    pub(super) bytes: u64,
    pub(super) deadline_us: Option<f64>,
}

/// A message of `bytes` at `at_us` from host `from` to host `to`.
pub(super) fn start(at_us: f64, from: u16, to: u16, bytes: u64) -> Start {
    Start {
        at_us,
        from,
        to,
        class: 0,
        bytes,
        deadline_us: None,
    }
}

/// The same, due `deadline_us` later.
pub(super) fn due(at_us: f64, from: u16, to: u16, bytes: u64, deadline_us: f64) -> Start {
    Start {
        deadline_us: Some(deadline_us),
        ..start(at_us, from, to, bytes)
    }
}

/// Up to 15 messages between four hosts, some of them due in 150 us, where up to a fifth of the packets is lost.
pub(super) fn losses() -> impl Strategy<Value = (Vec<Start>, World)> {
    let message = (0u32..200, 0u16..4, 1u16..4, 1u64..300_000, any::<bool>());
    let message = message.prop_map(|(at, from, step, bytes, urgent)| Start {
        deadline_us: urgent.then_some(150.0),
        ..start(f64::from(at), from, (from + step) % 4, bytes)
    });
    let messages = proptest::collection::vec(message, 1..15);
    let world = (0u64..200, any::<u64>()).prop_map(|(lost_of_thousand, seed)| World {
        lost_of_thousand,
        seed,
    });
    (messages, world)
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Done {
    pub(super) took_us: f64,
    pub(super) how: How,
}

/// How each message ended.
pub(super) fn ends(done: &[Done]) -> Vec<How> {
    done.iter().map(|one| one.how).collect()
}

/// What happens to packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct World {
    /// Packets lost, of a thousand.
    pub(super) lost_of_thousand: u64,
    pub(super) seed: u64,
}

/// Nothing is lost but in full buffers.
pub(super) const CALM: World = World {
    lost_of_thousand: 0,
    seed: 1,
};

/// Hosts on one switch, 100 Gb/s, 200 ns a hop, packets of 5,080 B and 40 B of headers, `buffer` per port.
pub(super) fn settings(buffer: u64) -> PortSettings {
    PortSettings {
        scheduler: PortScheduler::Strict,
        mtu: Bytes::new(5_080),
        header: Bytes::new(40),
        buffer: Bytes::new(buffer),
        shared_buffer: false,
        ecn: None,
        pfc: None,
    }
}

pub(super) fn topology(hosts: u32) -> Topology {
    Topology::new(&FabricTopology {
        shape: Shape::SingleSwitch { hosts },
        host_rate: BitRate::from_gbps(100),
        nic_rate: BitRate::from_gbps(100),
        hop_delay: Duration::from_ns(200),
    })
}

pub(super) fn policy(kind: FabricPolicyKind, parameters: &[(&str, f64)]) -> FabricPolicy {
    let parameters = parameters.iter();
    FabricPolicy {
        kind,
        parameters: parameters
            .map(|&(name, value)| (name.to_owned(), value))
            .collect(),
    }
}

/// Runs until nothing happens any more or 10 simulated seconds have passed.
pub(super) fn run<T: Transport>(
    network: &mut Network,
    transport: &mut T,
    starts: &[Start],
    world: World,
) -> Vec<Option<Done>> {
    run_and_watch(network, transport, starts, world, |_, _| {})
}

/// As [`run`]; every message ends, and no packet is left.
pub(super) fn run_to_the_end<T: Transport>(
    network: &mut Network,
    transport: &mut T,
    starts: &[Start],
    world: World,
) -> Vec<Done> {
    let done = run(network, transport, starts, world);
    assert_eq!(network.packets.live(), 0);
    let ends = done.into_iter();
    ends.map(|one| one.expect("every message ends")).collect()
}

/// Runs D3 or PDQ among `hosts` hosts on one switch; no flow stays open.
pub(super) fn run_with_deadlines(
    kind: FabricPolicyKind,
    hosts: u32,
    starts: &[Start],
    world: World,
) -> Vec<Done> {
    fn ends<T: Transport>(
        mut transport: T,
        mut network: Network,
        starts: &[Start],
        world: World,
    ) -> Vec<Done> {
        let done = run_to_the_end(&mut network, &mut transport, starts, world);
        let open = ("open_flows".to_owned(), 0.0);
        assert!(transport.figures().contains(&open));
        done
    }
    let mut network = Network::new(topology(hosts), &settings(1 << 20));
    let policy = policy(kind, &[]);
    match kind {
        FabricPolicyKind::D3 => {
            let settings = d3::Settings::new(&policy, &network).expect("defaults");
            let d3 = D3::new(settings, &mut network);
            ends(d3, network, starts, world)
        }
        _ => {
            let settings = pdq::Settings::new(&policy, &network).expect("defaults");
            let pdq = Pdq::new(settings, &mut network);
            ends(pdq, network, starts, world)
        }
    }
}

/// As [`run`]; shows every arriving packet, lost ones not.
pub(super) fn run_and_watch<T: Transport>(
    network: &mut Network,
    transport: &mut T,
    starts: &[Start],
    world: World,
    mut watch: impl FnMut(&Network, &Packet),
) -> Vec<Option<Done>> {
    let at = |us: f64| Instant::ZERO + Duration::from_ns_f64(us * 1e3);
    for (index, start) in starts.iter().enumerate() {
        let timer = Timer {
            index: index as u32,
            what: 0,
        };
        network.set_timer(at(start.at_us), Owner::Calls, timer);
    }
    let mut random = Stream::named(world.seed, "loss");
    let mut done = vec![None; starts.len()];
    let mut ended = Vec::new();
    loop {
        match network.step(at(1e7)) {
            Step::Packet(id) if random.chance(world.lost_of_thousand, 1_000) => network.free(id),
            Step::Packet(id) => {
                let packet = network.packets[id];
                watch(network, &packet);
                transport.on_packet(network, id, &mut ended);
            }
            Step::Timer(Owner::Transport, timer) => transport.on_timer(network, timer, &mut ended),
            Step::Timer(_, timer) => {
                let start = starts[timer.index as usize];
                let message = Message {
                    token: timer.index,
                    from: HostId(start.from),
                    to: HostId(start.to),
                    class: start.class,
                    size: Bytes::new(start.bytes),
                    deadline: start.deadline_us.map(|us| at(start.at_us + us)),
                };
                transport.send(network, message);
            }
            Step::Idle(host) => transport.on_idle(network, host),
            Step::Over => return done,
        }
        for one in ended.drain(..) {
            let begun = at(starts[one.token as usize].at_us);
            let took_us = network.now().saturating_since(begun).as_us_f64();
            let slot = &mut done[one.token as usize];
            assert!(slot.is_none(), "message {} ended twice", one.token);
            *slot = Some(Done {
                took_us,
                how: one.how,
            });
        }
    }
}

/// Time of `bytes` from host to host and of the answer, alone, microseconds.
pub(super) fn ideal_us(bytes: u64) -> f64 {
    let packets = bytes.div_ceil(5_080);
    let wire = bytes + 40 * packets;
    (wire + bytes.min(5_080) + 40 + 2 * 40) as f64 * 80e-6 + 4.0 * 0.2
}
