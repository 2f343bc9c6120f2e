//! Nanoseconds per packet that a port's order costs, taking in and out together; the median of five runs each.
//!
//! `backlog`: three classes hold 64 packets each, and every packet that leaves comes back. `short`: packets find the
//! port idle or one packet ahead of them, as at a lightly loaded port, so classes begin and run dry all the time.
use isolane_common_quantities::units::{BitRate, Bytes, Instant};
use isolane_network_simulator::discipline::{Discipline, Order, PortOrder};
use isolane_network_simulator::packet::{HostId, Packet, Packets};
use std::time::Instant as Clock;

const BYTES: u16 = 5120;
const PS: u64 = 80 * BYTES as u64;
const PACKETS: u64 = 10_000_000;
const ORDERS: [(&str, Order); 6] = [
    ("arrival", Order::Arrival),
    ("strict", Order::Strict),
    ("wfq 8:4:1", Order::Wfq),
    ("virtual-clock 8:4:1", Order::VirtualClock),
    ("dwrr 8:4:1", Order::Dwrr),
    ("smallest-key", Order::SmallestKey),
];

fn main() {
    for (name, order) in ORDERS {
        report(&format!("discipline/{name} backlog"), || backlog(order));
    }
    for (name, order) in ORDERS {
        report(&format!("discipline/{name} short"), || short(order));
    }
}

fn report(name: &str, run: impl Fn() -> u64) {
    let mut costs: Vec<f64> = (0..5)
        .map(|_| {
            let start = Clock::now();
            let packets = run();
            start.elapsed().as_secs_f64() * 1e9 / packets as f64
        })
        .collect();
    costs.sort_by(f64::total_cmp);
    println!("{name} {:.1} ns per packet (median of 5)", costs[2]);
}

fn port(order: Order) -> Discipline {
    Discipline::new(&PortOrder {
        order,
        weights: &[8, 4, 1],
        rate: BitRate::from_gbps(100),
        largest: Bytes::new(u64::from(BYTES)),
    })
}

fn packet(number: u64) -> Packet {
    Packet {
        key: number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40,
        flow: (number % 16) as u32,
        from: HostId(1),
        bytes: BYTES,
        payload: BYTES - 40,
        class: (number % 3) as u8,
        ..Packet::default()
    }
}

fn backlog(order: Order) -> u64 {
    let mut packets = Packets::default();
    let mut port = port(order);
    let mut now = 0;
    for number in 0..192 {
        let id = packets.insert(packet(number));
        port.push(&mut packets, Instant::ZERO, id);
    }
    // A queue that is scanned for each packet is measured with fewer of them.
    let rounds = PACKETS / if order == Order::SmallestKey { 10 } else { 1 };
    for _ in 0..rounds {
        now += PS;
        let at = Instant::from_ps(now);
        let id = port.pop(&mut packets, at, 0).expect("192 packets wait");
        port.push(&mut packets, at, id);
    }
    rounds
}

fn short(order: Order) -> u64 {
    let mut packets = Packets::default();
    let mut port = port(order);
    let ids: Vec<_> = (0..3)
        .map(|number| packets.insert(packet(number)))
        .collect();
    let mut now = 0;
    for round in 0..PACKETS / 3 {
        // One finds the line idle, two wait behind it, then it rests.
        let at = Instant::from_ps(now);
        let first = ids[round as usize % 3];
        port.pass(at, &packets[first]);
        for id in [ids[(round as usize + 1) % 3], ids[(round as usize + 2) % 3]] {
            now += 1_000;
            port.push(&mut packets, Instant::from_ps(now), id);
        }
        for _ in 0..2 {
            now += PS;
            port.pop(&mut packets, Instant::from_ps(now), 0)
                .expect("two wait");
        }
        now += 2 * PS;
    }
    PACKETS
}
