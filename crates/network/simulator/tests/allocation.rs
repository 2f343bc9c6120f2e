//! No allocation per packet or call: a run ten times as long allocates no more blocks, on a network with marks and
//! pauses, under every congestion control.

use isolane_network_scenario::parse;
use isolane_network_simulator::run::{Observers, run};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

/// Queues, slabs and histograms that reach their largest size a little later in the longer run.
const BLOCKS_MORE: u64 = 96;

fn blocks(congestion: &str, recovery: &str, calls: u32) -> (u64, u64) {
    let text = format!(
        r#"
calls = {calls}
warmup = "0us"
duration = "1s"
[fabric]
topology = "leaf-spine"
leaves = 2
spines = 2
hosts_per_leaf = 4
[ports]
ecn = {{ min = "20KiB", max = "80KiB", max_probability = 0.2 }}
pfc = {{ xoff = "100KiB", xon = "80KiB" }}
[[class]]
name = "high"
weight = 4
slo = {{ target = "15us", per_mtu = false }}
[[class]]
name = "low"
[transport]
congestion = "{congestion}"
recovery = "{recovery}"
[policy]
name = "aequitas"
[[traffic]]
pattern = "all-to-all"
mix = [0.5, 0.5]
sizes = "32KiB"
load = 0.6
"#
    );
    let scenario = parse(&text, "allocation.toml").expect("a valid scenario");
    let before = dhat::HeapStats::get().total_blocks;
    let outcome = run(&scenario, Observers::default()).expect("the scenario runs");
    let after = dhat::HeapStats::get().total_blocks;
    (after - before, outcome.result.packets.sent)
}

/// One test: the profiler counts for the whole process.
fn nothing_is_allocated_per_packet() {
    let _profiler = dhat::Profiler::builder().testing().build();
    for congestion in [
        "none", "window", "swift", "dcqcn", "dctcp", "timely", "hpcc",
    ] {
        for recovery in ["go-back-n", "selective"] {
            let (short, few) = blocks(congestion, recovery, 1_000);
            let (long, many) = blocks(congestion, recovery, 10_000);
            assert!(many > 8 * few, "{congestion}: {few} and {many} packets");
            assert!(
                long <= short + BLOCKS_MORE,
                "{congestion}, {recovery}: {short} blocks for {few} packets, {long} for {many}"
            );
        }
    }
}

/// Without the test harness, whose own thread allocates while it waits, and is counted on a busy machine.
fn main() {
    nothing_is_allocated_per_packet();
    println!("test nothing_is_allocated_per_packet ... ok");
    println!("test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
}
