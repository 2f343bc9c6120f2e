//! What the programs cost: nanoseconds per packet at 48 flows, from the kernel's own run-time statistics.
//!
//! Method: 48 connected UDP flows send through a TUN device with 8 queues, so that every packet passes egress,
//! steering and completion exactly once; the time of all programs is divided by the packets sent. A burst is how many
//! packets a flow sends before any is read: 1 is the worst case (a queue is chosen for every packet), TCP under load
//! sends many. The statistics' own reading of the clock is part of the figure.
//! Run as root: `cargo run --release -p isolane-ebpf --example cost`. Units: nanoseconds; medians of 21 rounds.
#![allow(unsafe_code)]

#[path = "../tests/support/mod.rs"]
mod support;

use isolane_ebpf::{
    Completion, Dqa, DqaSettings, Gate, LoadOptions, RunTime, RunTimeStatistics, WeightSource,
};
use std::net::UdpSocket;
use support::{Tun, ifindex, in_lab, ip};

const FLOWS: usize = 48;
const PACKETS: usize = 24_000;
const ROUNDS: usize = 21;

fn main() {
    in_lab("the measurement", |pins| {
        let tun = Tun::new("t0", 8);
        ip("addr add 10.2.0.1/24 dev t0");
        let options = LoadOptions {
            ifindex: ifindex("t0"),
            queues: 8,
            completion: Completion::Freed,
            hardware_segmentation: true,
            pins: pins.into(),
            flows: 0,
        };
        let mut dqa = Dqa::load(&options, &DqaSettings::default()).expect("loads");
        dqa.attach().expect("attaches");
        tun.steer(dqa.steering_program());
        let cost = dqa.run_time().expect("readable");
        println!(
            "verified instructions: egress {}, completed {}, dropped {}, steer {}",
            cost.egress.verified_instructions,
            cost.completed.verified_instructions,
            cost.dropped.verified_instructions,
            cost.steer.verified_instructions
        );
        let sockets: Vec<UdpSocket> = (0..FLOWS)
            .map(|flow| {
                let socket = UdpSocket::bind("10.2.0.1:0").expect("bind");
                let port = 5000 + flow as u16;
                socket.connect(("10.2.0.2", port)).expect("connect");
                socket
            })
            .collect();
        let statistics = RunTimeStatistics::enable().expect("statistics");
        let latency = DqaSettings {
            latency_queue: Some(0),
            ..DqaSettings::default()
        };
        let gate = DqaSettings {
            gate: Some(Gate {
                flow_bytes: 1 << 20,
                queue_bytes: 1 << 24,
            }),
            ..DqaSettings::default()
        };
        let dscp = DqaSettings {
            weights: WeightSource::Dscp,
            ..DqaSettings::default()
        };
        println!("burst  settings  egress ns  completed ns  steer ns  all ns per packet");
        for (name, settings) in [
            ("flow", DqaSettings::default()),
            ("latency", latency),
            ("gate", gate),
            ("dscp", dscp),
        ] {
            dqa.set(&settings).expect("set");
            for burst in [1, 4, 16] {
                let mut rounds: Vec<[f64; 4]> = (0..ROUNDS)
                    .map(|_| {
                        let before = dqa.run_time().expect("readable");
                        traffic(&tun, &sockets, burst);
                        per_packet(&before, &dqa.run_time().expect("readable"))
                    })
                    .collect();
                rounds.sort_by(|left, right| left[3].total_cmp(&right[3]));
                let [egress, completed, steer, all] = rounds[ROUNDS / 2];
                println!(
                    "{burst:>5}  {name:<8}  {egress:>9.1}  {completed:>12.1}  {steer:>8.1}  {all:>6.1}"
                );
            }
        }
        println!("{:?}", dqa.counters().expect("readable"));
        println!("{:?}", dqa.run_time().expect("readable"));
        drop(statistics);
        dqa.detach().expect("detaches");
    });
}

fn traffic(tun: &Tun, sockets: &[UdpSocket], burst: usize) {
    let payload = [0; 1400];
    for _ in 0..PACKETS / FLOWS / burst {
        for socket in sockets {
            for _ in 0..burst {
                socket.send(&payload).expect("send");
            }
        }
        for queue in 0..tun.queues.len() {
            while tun.read(queue).is_some() {}
        }
    }
}

/// Nanoseconds per packet sent: egress, completion and drops, steering, all.
fn per_packet(before: &RunTime, after: &RunTime) -> [f64; 4] {
    let time = |pick: fn(&RunTime) -> u64| (pick(after) - pick(before)) as f64;
    let packets = time(|cost| cost.egress.runs);
    let egress = time(|cost| cost.egress.time_ns) / packets;
    let completed = time(|cost| cost.completed.time_ns + cost.dropped.time_ns) / packets;
    let steer = time(|cost| cost.steer.time_ns) / packets;
    [egress, completed, steer, egress + completed + steer]
}
