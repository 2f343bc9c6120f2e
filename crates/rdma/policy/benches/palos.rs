//! What a decision of Palos costs: `cargo bench -p isolane-common-quantities --bench palos`.
//!
//! One operation is a whole turn: take a queue pair off the schedule queue, slice its message, put it back. Prints
//! nanoseconds per turn (the median of repeats, with the fastest and the slowest). Without `--bench` (as under
//! `cargo test`) every case runs a few turns, only to show that it works.

use isolane_common_quantities::units::{BitRate, Bytes, Duration, Instant};
use isolane_rdma_policy::palos::{
    GroupId, Label, LabelOptions, Message, Palos, PalosOptions, QueuePairId, Rest,
};
use std::hint::black_box;
use std::time::Instant as WallClock;

fn main() {
    let measured = std::env::args().any(|argument| argument == "--bench");
    println!("Palos, one turn, ns: median (fastest to slowest)");
    for pairs in [17, 1_024, 22_000] {
        let (mut palos, _) = scheduler(pairs, Label::None);
        case(&format!("slice, {pairs} queue pairs"), measured, || {
            serve(&mut palos, Instant::ZERO, LARGE)
        });
    }
    let (mut palos, _) = scheduler(1_024, Label::None);
    case("slice, a weight changes every time", measured, || {
        let pair = QueuePairId(5);
        palos
            .modify_queue_pair(pair, 3, Label::None)
            .expect("it exists");
        serve(&mut palos, Instant::ZERO, LARGE)
    });
    let (mut palos, _) = scheduler(1_024, Label::None);
    case("combine 16 messages of 256 B", measured, || {
        serve(&mut palos, Instant::ZERO, Bytes::new(256))
    });
    let (mut palos, _) = scheduler(64, Label::Latency);
    let mut now = Instant::ZERO;
    case("labelled, with the defence", measured, || {
        now += Duration::from_ns(200);
        serve(&mut palos, now, Bytes::new(64))
    });
}

/// `pairs` queue pairs with work, in 16 groups.
fn scheduler(pairs: u32, label: Label) -> (Palos, u32) {
    let mut palos = Palos::new(PalosOptions {
        quantum: UNIT,
        label: Some(LabelOptions::for_link(BitRate::from_gbps(100))),
    })
    .expect("the quantum is in range");
    for group in 0..GROUPS {
        palos
            .create_group(1 + group)
            .expect("the weight is in range");
    }
    for pair in 0..pairs {
        let group = GroupId(pair % GROUPS);
        let pair = palos
            .create_queue_pair(group, 1 + pair % 5, label)
            .expect("the group exists");
        palos.activate(Instant::ZERO, pair, Bytes::new(64));
    }
    (palos, pairs)
}

fn serve(palos: &mut Palos, now: Instant, size: Bytes) -> u32 {
    let turn = palos.next(now).expect("all have work");
    let message = Message {
        size,
        sent: Bytes::ZERO,
    };
    while palos.slice(now, turn.pair, message, UNIT) > Bytes::ZERO {}
    palos.finish(now, turn.pair, Rest::Ready(size));
    turn.pair.0
}

fn case<T>(name: &str, measured: bool, mut operation: impl FnMut() -> T) {
    let (repeats, operations) = if measured { (15, 500_000) } else { (1, 100) };
    let mut times: Vec<f64> = (0..repeats)
        .map(|_| {
            let start = WallClock::now();
            for _ in 0..operations {
                black_box(operation());
            }
            start.elapsed().as_nanos() as f64 / f64::from(operations)
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let (median, last) = (times[times.len() / 2], times[times.len() - 1]);
    println!("{name:<40} {median:>8.1} ({:.1} to {last:.1})", times[0]);
}

const GROUPS: u32 = 16;
const UNIT: Bytes = Bytes::new(4_096);
const LARGE: Bytes = Bytes::from_mib(2);
