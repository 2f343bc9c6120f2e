//! What the programs cost: nanoseconds per packet at 48 flows.
//!
//! Method: 48 connected UDP flows send through a TUN device with 8 queues, so that every packet passes egress, steering
//! and completion exactly once. A burst is how many packets a flow sends before any is read: 1 is the worst case (a
//! queue is chosen for every packet), TCP under load sends many. Two ways:
//! * the kernel's run-time statistics. They include reading the clock twice a run, some 50 ns in a virtual machine;
//!   what a program costs that does nearly nothing (steering, 18 instructions) is taken off for the net figure;
//! * processor time of the sending and reading thread with and without the programs, in turns.
//!
//! Run as root: `cargo run --release -p isolane-ethernet-bpf --example cost`. Units: nanoseconds; medians of 21 and 11 rounds.
#![allow(unsafe_code)]

#[path = "../tests/it/support/mod.rs"]
mod support;

use isolane_ethernet_bpf::{DqaSettings, Gate, RunTime, RunTimeStatistics, WeightSource};
use std::net::UdpSocket;
use std::path::Path;
use support::{Tun, in_lab, ip, load};

const FLOWS: usize = 48;
const PACKETS: usize = 24_000;
const ROUNDS: usize = 21;
const PAIRS: usize = 11;

fn main() {
    in_lab("the measurement", |pins| {
        let tun = Tun::new("t0", 8);
        ip("addr add 10.2.0.1/24 dev t0");
        let sockets: Vec<UdpSocket> = (0..FLOWS)
            .map(|flow| {
                let socket = UdpSocket::bind("10.2.0.1:0").expect("bind");
                let port = 5000 + flow as u16;
                socket.connect(("10.2.0.2", port)).expect("connect");
                socket
            })
            .collect();
        statistics(&tun, &sockets, pins);
        with_and_without(&tun, &sockets, pins);
    });
}

fn statistics(tun: &Tun, sockets: &[UdpSocket], pins: &Path) {
    let mut dqa = load(tun, 8, pins, &DqaSettings::default());
    let _statistics = RunTimeStatistics::enable().expect("statistics");
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
    println!("settings  burst  egress ns  completion ns  steering ns  egress + completion, net ns");
    for (name, settings) in [
        ("flow", DqaSettings::default()),
        ("latency", latency),
        ("gate", gate),
        ("dscp", dscp),
    ] {
        dqa.set(&settings).expect("set");
        for burst in [1, 4, 16] {
            let rounds: Vec<[f64; 4]> = (0..ROUNDS)
                .map(|_| {
                    let before = dqa.run_time().expect("readable");
                    traffic(tun, sockets, burst);
                    per_packet(&before, &dqa.run_time().expect("readable"))
                })
                .collect();
            let middle = |pick: usize| median(rounds.iter().map(|round| round[pick]).collect());
            println!(
                "{name:<8}  {burst:>5}  {:>9.1}  {:>13.1}  {:>11.1}  {:>6.1}",
                middle(0),
                middle(1),
                middle(2),
                middle(3)
            );
        }
    }
    println!("{:?}", dqa.counters().expect("readable"));
    dqa.detach().expect("detaches");
}

fn with_and_without(tun: &Tun, sockets: &[UdpSocket], pins: &Path) {
    println!(
        "burst  without ns  with ns  difference ns  (processor time per packet, sent and read)"
    );
    for burst in [1, 16] {
        let mut times = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..PAIRS {
            let without = processor_time(|| traffic(tun, sockets, burst));
            let dqa = load(tun, 8, pins, &DqaSettings::default());
            traffic(tun, sockets, burst);
            let with = processor_time(|| traffic(tun, sockets, burst));
            dqa.detach().expect("detaches");
            times[0].push(without);
            times[1].push(with);
            times[2].push(with - without);
        }
        let [without, with, difference] = times.map(median);
        println!("{burst:>5}  {without:>10.1}  {with:>7.1}  {difference:>13.1}");
    }
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

/// Nanoseconds per packet sent: egress, completion and drops, steering; the first two less an empty program each.
fn per_packet(before: &RunTime, after: &RunTime) -> [f64; 4] {
    let time = |pick: fn(&RunTime) -> u64| (pick(after) - pick(before)) as f64;
    let packets = time(|cost| cost.egress.runs);
    let egress = time(|cost| cost.egress.time_ns) / packets;
    let completion = time(|cost| cost.completed.time_ns + cost.dropped.time_ns) / packets;
    let steering = time(|cost| cost.steer.time_ns) / packets;
    [
        egress,
        completion,
        steering,
        egress + completion - 2.0 * steering,
    ]
}

/// Nanoseconds of this thread's processor time per packet.
fn processor_time(work: impl FnOnce()) -> f64 {
    let now = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
    };
    let begin = now();
    work();
    (now() - begin) / PACKETS as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
