//! Measures the time of a decision and the memory of destinations: `cargo bench -p isolane-rpc-library --bench decide`.
//!
//! Each case makes one million decisions (names of 20 bytes, three classes) and prints nanoseconds per decision: once
//! on the table with given time and randomness, once through the C interface with the machine's clock and randomness.
//! It prints the median of 9 repeats, with the fastest and the slowest. The case of 100,000 destinations visits them in
//! an order that caches cannot predict. Without `--bench` each case runs once.
#![allow(unsafe_code, clippy::unwrap_used)]

use isolane_rpc::ffi;
use isolane_rpc::settings::{Settings, parse};
use isolane_rpc::table::{Ask, Table};
use std::hint::black_box;
use std::time::Instant;

const SETTINGS: &str = concat!(
    "mtu_bytes = 5080\ndestinations_max = 100000\n",
    include_str!("../tests/data/three-classes.toml")
);
const DESTINATIONS: usize = 100_000;

fn main() {
    let measured = std::env::args().any(|argument| argument == "--bench");
    let calls: u32 = if measured { 1_000_000 } else { 100_000 };
    let repeats = if measured { 9 } else { 1 };
    let settings = parse("bench", SETTINGS).unwrap();
    let table = Table::new(&settings, 1, 0);
    let names: Vec<Vec<u8>> = (0..DESTINATIONS)
        .map(|host| format!("host-{host:08}.rack:443").into_bytes()[..20].to_vec())
        .collect();
    for name in &names {
        table.decide(ask(name), 1, 0);
    }
    println!("ns per call: median (fastest to slowest)");
    let hot = || decide(&table, &names, calls, |_| 0);
    report("decision, one destination", repeats, calls, hot);
    let few = || decide(&table, &names, calls, |call| call % 64);
    report("decision, 64 destinations in turn", repeats, calls, few);
    let scattered = |call: u32| (call.wrapping_mul(0x9e37_79b1) as usize % DESTINATIONS) as u32;
    let many = || decide(&table, &names, calls, scattered);
    report(
        "decision, 100,000 destinations scattered",
        repeats,
        calls,
        many,
    );
    let ends = || {
        for call in 0..calls {
            let now_ns = u64::from(call);
            let verdict = table.decide(ask(&names[0]), now_ns, call);
            let _ = black_box(table.complete(verdict.ticket, 20_000, now_ns));
        }
    };
    report(
        "decision and completion, one destination",
        repeats,
        calls,
        ends,
    );
    two_threads(&table, &names, calls, repeats);
    interface(&names, calls, repeats);
    memory(&settings);
}

fn ask(name: &[u8]) -> Ask<'_> {
    Ask {
        destination: name,
        class: 0,
        bytes: 32_768,
    }
}

fn decide(table: &Table, names: &[Vec<u8>], calls: u32, which: impl Fn(u32) -> u32) {
    for call in 0..calls {
        let name = &names[which(call) as usize];
        let random = call.wrapping_mul(0x9e37_79b9);
        black_box(table.decide(ask(black_box(name)), u64::from(call), random));
    }
}

fn two_threads(table: &Table, names: &[Vec<u8>], calls: u32, repeats: usize) {
    let both = |first: usize, second: usize| {
        std::thread::scope(|scope| {
            for host in [first, second] {
                scope.spawn(move || decide(table, names, calls, |_| host as u32));
            }
        });
    };
    report(
        "decision, 2 threads, a destination each",
        repeats,
        calls,
        || both(0, 5_000),
    );
    report(
        "decision, 2 threads, the same destination",
        repeats,
        calls,
        || both(0, 0),
    );
}

fn interface(names: &[Vec<u8>], calls: u32, repeats: usize) {
    // SAFETY: pointers and lengths belong together.
    let handle = unsafe { ffi::isolane_rpc_open(SETTINGS.as_ptr().cast(), SETTINGS.len()) };
    assert!(!handle.is_null());
    let name = &names[0];
    let whole = || {
        let mut decision = ffi::CDecision::default();
        for _ in 0..calls {
            // SAFETY: pointers and lengths belong together, and the decision is ours.
            let code = unsafe {
                ffi::isolane_rpc_decide(handle, name.as_ptr(), name.len(), 0, 32_768, &mut decision)
            };
            assert_eq!(black_box(code), 0);
        }
    };
    report("decision through the C interface", repeats, calls, whole);
    ffi::isolane_rpc_close(handle);
}

fn memory(settings: &Settings) {
    let before = resident();
    let table = Table::new(settings, 1, 0);
    for host in 0..DESTINATIONS {
        table.decide(
            ask(format!("host-{host:08}.rack.example:443").as_bytes()),
            1,
            0,
        );
    }
    let bytes = resident().saturating_sub(before);
    println!(
        "{DESTINATIONS} destinations, 3 classes: {:.1} MB resident",
        bytes as f64 / 1e6
    );
    black_box(table.len());
}

/// Resident memory of this process, bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    let kilobytes: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kilobytes * 1_024
}

fn report(name: &str, repeats: usize, calls: u32, case: impl Fn()) {
    case();
    let mut times: Vec<f64> = (0..repeats)
        .map(|_| {
            let begin = Instant::now();
            case();
            begin.elapsed().as_secs_f64() * 1e9 / f64::from(calls)
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let (first, last) = (times[0], times[times.len() - 1]);
    println!(
        "  {name}: {:.1} ({first:.1} to {last:.1})",
        times[times.len() / 2]
    );
}
