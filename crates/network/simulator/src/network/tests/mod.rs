//! What a network does with packets, and two small drivers: one that sends given packets at given times, and one that
//! keeps a fixed number of packets of each flow on the way.

mod lossless;
mod queues;
mod random;

use super::*;
use crate::topology::Topology;
use isolane_network_scenario::model::{FabricTopology, Pfc, PortScheduler, Shape};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Wire bytes of a full packet: 80 ps each at 100 Gb/s, so 400 ns.
const FULL: u16 = 5_000;

fn settings() -> PortSettings {
    PortSettings {
        scheduler: PortScheduler::Strict,
        mtu: Bytes::new(u64::from(FULL) - 40),
        header: Bytes::new(40),
        buffer: Bytes::from_kib(512),
        shared_buffer: false,
        ecn: None,
        pfc: None,
    }
}

fn with_pauses(xoff: u64, xon: u64) -> PortSettings {
    PortSettings {
        pfc: Some(Pfc {
            xoff: Bytes::new(xoff),
            xon: Bytes::new(xon),
            quanta: None,
        }),
        ..settings()
    }
}

fn topology(shape: Shape) -> Topology {
    Topology::new(&FabricTopology {
        shape,
        host_rate: BitRate::from_gbps(100),
        nic_rate: BitRate::from_gbps(100),
        hop_delay: Duration::from_ns(200),
    })
}

fn star(hosts: u32, settings: &PortSettings) -> Network {
    Network::new(topology(Shape::SingleSwitch { hosts }), settings)
}

fn packet(from: u16, to: u16, class: u8, bytes: u16) -> Packet {
    Packet {
        to: HostId(to),
        from: HostId(from),
        bytes,
        payload: bytes - 40,
        class,
        flags: flags::ECN_CAPABLE,
        ..Packet::default()
    }
}

/// Sends `packets` at their times (ns) and returns when (ns) each arrived, named by its place in the list.
fn send(network: &mut Network, packets: &[(u64, Packet)], end: Instant) -> Vec<(u32, u64)> {
    plan(network, packets);
    run(network, packets, end)
}

fn plan(network: &mut Network, packets: &[(u64, Packet)]) {
    for (index, &(at_ns, _)) in packets.iter().enumerate() {
        let timer = Timer {
            index: index as u32,
            what: 0,
        };
        network.set_timer(Instant::from_ps(at_ns * 1_000), Owner::Calls, timer);
    }
}

/// Runs what was planned until `end`.
fn run(network: &mut Network, packets: &[(u64, Packet)], end: Instant) -> Vec<(u32, u64)> {
    let mut arrived = Vec::new();
    loop {
        match network.step(end) {
            Step::Timer(_, timer) => {
                let mut packet = packets[timer.index as usize].1;
                packet.sequence = timer.index;
                network.transmit(packet);
            }
            Step::Packet(id) => {
                let at_ns = network.now().as_ps() / 1_000;
                arrived.push((network.packets[id].sequence, at_ns));
                network.free(id);
            }
            Step::Idle(_) => {}
            Step::Over => return arrived,
        }
    }
}

/// Keeps `window` packets of each flow (from, to, class) on the way until `end`; returns the packets delivered of each.
fn keep_sending(
    network: &mut Network,
    flows: &[(u16, u16, u8)],
    window: u32,
    end: Instant,
) -> BTreeMap<u32, u64> {
    let mut delivered = BTreeMap::new();
    for (flow, &(from, to, class)) in flows.iter().enumerate() {
        for _ in 0..window {
            let mut packet = packet(from, to, class, FULL);
            (packet.flow, packet.path) = (flow as u32, flow as u16);
            network.transmit(packet);
        }
    }
    loop {
        match network.step(end) {
            Step::Packet(id) => {
                let packet = network.packets[id];
                if packet.kind == PacketKind::Data {
                    *delivered.entry(packet.flow).or_default() += 1;
                    let answer = &mut network.packets[id];
                    (answer.from, answer.to) = (packet.to, packet.from);
                    (answer.bytes, answer.kind) = (64, PacketKind::Ack);
                    network.answer(id);
                } else {
                    network.free(id);
                    let (from, to, class) = flows[packet.flow as usize];
                    let mut next = super::tests::packet(from, to, class, FULL);
                    (next.flow, next.path) = (packet.flow, packet.path);
                    network.transmit(next);
                }
            }
            Step::Over => return delivered,
            other => panic!("unexpected event {other:?}"),
        }
    }
}

/// Small topologies: one switch with at least `least` hosts, or at least `least - 1` leaves or hosts per rack.
fn shapes(least: u32, uplink_rate: BitRate) -> impl Strategy<Value = Shape> {
    prop_oneof![
        (least..12).prop_map(|hosts| Shape::SingleSwitch { hosts }),
        (least - 1..4, 1_u32..4, 2_u32..5).prop_map(move |(leaves, spines, hosts_per_leaf)| {
            Shape::LeafSpine {
                leaves,
                spines,
                hosts_per_leaf,
                uplink_rate,
            }
        }),
        Just(Shape::FatTree { k: 4 }),
        (least - 1..6).prop_map(move |hosts_per_rack| Shape::TwoRacks {
            hosts_per_rack,
            uplink_rate
        }),
    ]
}
