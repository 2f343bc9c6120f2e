//! Time per operation of the structures on hot paths: `cargo bench -p isolane-rpc-policy`.
//!
//! Prints nanoseconds per operation as the median of repeats, with the fastest and the slowest, and the ratio to the
//! first line of its group. Compare ratios within one run between machines. Without `--bench` (as under `cargo test`)
//! every case runs a few operations as a smoke test.

use isolane_common_quantities::rng::Stream;
use isolane_common_quantities::stats::{Histogram, SlidingQuantile, summary};
use isolane_common_quantities::units::{Duration, Instant, Ratio};
use isolane_rpc_policy::aequitas::{AdmitState, AequitasOptions};
use std::hint::black_box;
use std::time::Instant as WallClock;

fn main() {
    let mut bench = Bench::new(std::env::args().any(|argument| argument == "--bench"));
    quantiles(&mut bench);
    histograms(&mut bench);
    admission(&mut bench);
}

/// A push and a p99 query on windows full of microsecond latencies, some of them in a long tail.
fn quantiles(bench: &mut Bench) {
    bench.group("sliding quantile, push and p99");
    let latencies = latencies();
    for window in [1_000, 10_000, 100_000, 1_000_000] {
        let mut quantile = SlidingQuantile::with_target(window, Ratio::new(99, 100));
        let mut next = latencies.iter().cycle();
        for _ in 0..bench.warm_up(window) {
            quantile.push(*next.next().expect("a cycle has no end"));
        }
        bench.case(&format!("window of {window}"), || {
            quantile.push(*next.next().expect("a cycle has no end"));
            quantile.target_quantile()
        });
    }
    let mut quantile = SlidingQuantile::new(10_000);
    let mut next = latencies.iter().cycle();
    for _ in 0..bench.warm_up(10_000) {
        quantile.push(*next.next().expect("a cycle has no end"));
    }
    bench.case("window of 10000, push only", || {
        quantile.push(*next.next().expect("a cycle has no end"));
    });
    let mut sorted: Vec<u64> = latencies[..10_000].to_vec();
    sorted.sort_unstable();
    let mut at = 0;
    bench.case("sorted vector of 10000, push only", || {
        let (leaving, coming) = (latencies[at], latencies[(at + 10_000) % latencies.len()]);
        at = (at + 1) % latencies.len();
        let slot = sorted.partition_point(|&value| value < leaving);
        sorted.remove(slot.min(9_999));
        sorted.insert(sorted.partition_point(|&value| value < coming), coming);
    });
}

/// A decision and the completion of the call, over as many destinations as a busy host has.
fn admission(bench: &mut Bench) {
    bench.group("admission of calls (Aequitas)");
    let options = AequitasOptions::new(Duration::from_us(15), 99.9);
    for destinations in [1, 1_000, 100_000] {
        let mut states = vec![AdmitState::new(Instant::ZERO); destinations];
        let mut now = Instant::ZERO;
        let mut random = 1u32;
        let mut at = 0;
        bench.case(&format!("{destinations} destinations, decision"), || {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            now += Duration::from_us(1);
            at = (at + 7_919) % destinations;
            states[at].decide(&options, now, random)
        });
        bench.case(&format!("{destinations} destinations, completion"), || {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            now += Duration::from_us(1);
            at = (at + 7_919) % destinations;
            let latency = Duration::from_ns(u64::from(random % 32_768));
            states[at].on_completion(&options, now, latency, 1);
        });
    }
}

fn histograms(bench: &mut Bench) {
    bench.group("histogram");
    let latencies = latencies();
    let mut next = latencies.iter().cycle();
    let mut histogram = Histogram::new();
    bench.case("record", || {
        histogram.record(*next.next().expect("a cycle has no end"));
    });
    bench.case("p99", || histogram.quantile(0.99));
}

/// Two million latencies in picoseconds around 2 us; one in a hundred is up to 50 us late.
fn latencies() -> Vec<u64> {
    let mut stream = Stream::named(1, "bench");
    let mut late = Stream::named(1, "late");
    (0..2_000_000)
        .map(|_| {
            let tail = if late.chance(1, 100) {
                late.below(50_000_000)
            } else {
                0
            };
            2_000_000 + stream.below(400_000) + tail
        })
        .collect()
}

/// Runs cases and prints their lines.
struct Bench {
    /// Measure, or only try out.
    measures: bool,
    /// Nanoseconds per operation of the first case in the group.
    first_ns: Option<f64>,
}

impl Bench {
    fn new(measures: bool) -> Self {
        Self {
            measures,
            first_ns: None,
        }
    }

    /// How many operations of the wanted preparation to do.
    fn warm_up(&self, wanted: usize) -> usize {
        if self.measures {
            wanted
        } else {
            wanted.min(100)
        }
    }

    fn group(&mut self, title: &str) {
        self.first_ns = None;
        println!(
            "\n{title:<48} {:>9} {:>9} {:>9} {:>7}",
            "ns/op", "fastest", "slowest", "ratio"
        );
    }

    fn case<T>(&mut self, name: &str, mut operation: impl FnMut() -> T) {
        let (repeats, operations) = if self.measures {
            (REPEATS, OPERATIONS)
        } else {
            (1, 10)
        };
        let times: Vec<f64> = (0..repeats)
            .map(|_| {
                let start = WallClock::now();
                for _ in 0..operations {
                    black_box(operation());
                }
                start.elapsed().as_nanos() as f64 / f64::from(operations)
            })
            .collect();
        let ns = summary::median(&times).expect("there is at least one repeat");
        let fastest = times.iter().copied().fold(f64::INFINITY, f64::min);
        let slowest = times.iter().copied().fold(0.0, f64::max);
        let ratio = ns / *self.first_ns.get_or_insert(ns);
        println!("{name:<48} {ns:>9.1} {fastest:>9.1} {slowest:>9.1} {ratio:>7.2}");
    }
}

/// Repeats of a case: odd, so that the median is one of them.
const REPEATS: u32 = 9;
/// Operations of a repeat: some milliseconds, long against the clock's own cost.
const OPERATIONS: u32 = 200_000;
