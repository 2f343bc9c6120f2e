//! A port allocates when it is made and while its longest queue grows, and at no other time.

use isolane_common_quantities::units::{BitRate, Bytes, Instant};
use isolane_network_simulator::discipline::{Discipline, Order, PortOrder};
use isolane_network_simulator::packet::{HostId, Packet, Packets};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

fn packet(number: u32) -> Packet {
    Packet {
        key: u64::from(number * 7 % 11),
        sequence: number,
        flow: number % 5,
        from: HostId(1),
        bytes: 40 + (number * 131 % 5_000) as u16,
        class: (number % 3) as u8,
        ..Packet::default()
    }
}

fn packets_come_and_go_without_allocation() {
    let orders = [
        Order::Arrival,
        Order::Strict,
        Order::Wfq,
        Order::Dwrr,
        Order::SmallestKey,
    ];
    let mut ports = orders.map(|order| {
        Discipline::new(&PortOrder {
            order,
            weights: &[8, 4, 1],
            rate: BitRate::from_gbps(100),
            largest: Bytes::new(5_120),
        })
    });
    let mut packets = Packets::default();
    for port in &mut ports {
        for number in 0..100 {
            let id = packets.insert(packet(number));
            port.push(&mut packets, Instant::ZERO, id);
        }
    }
    let _profiler = dhat::Profiler::builder().testing().build();
    for round in 0..20_000 {
        let now = Instant::from_ps(u64::from(round) * 200_000);
        for port in &mut ports {
            let id = port.pop(&mut packets, now, 0).expect("a hundred wait");
            packets.remove(id);
            let id = packets.insert(packet(round));
            port.push(&mut packets, now, id);
        }
    }
    assert_eq!(dhat::HeapStats::get().total_blocks, 0);
    assert_eq!(packets.live(), 500);
}

/// Without the test harness, whose own thread allocates while it waits, and is counted on a busy machine.
fn main() {
    packets_come_and_go_without_allocation();
    println!("test packets_come_and_go_without_allocation ... ok");
    println!("test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
}
