//! Baselines allocate for the largest number of open flows, not for packets: a run ten times as long allocates hardly more.

use isolane_network_scenario::{FabricOverrides, parse_with};
use isolane_network_simulator::run::{Observers, run};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

/// Packets for each further block: lists and records that grow to their largest size later in the longer run.
const PACKETS_PER_BLOCK: u64 = 200;

const NETWORK: &str = include_str!("data/allocation.toml");

fn blocks(policy: &str, duration: &str) -> (u64, u64) {
    let overrides = FabricOverrides {
        policy: Some(policy.to_owned()),
        ..FabricOverrides::default()
    };
    let text = format!("duration = \"{duration}\"\n{NETWORK}");
    let scenario = parse_with(&text, "allocation.toml", &overrides);
    let scenario = scenario.unwrap_or_else(|error| panic!("{error}"));
    let before = dhat::HeapStats::get().total_blocks;
    let outcome = run(&scenario, Observers::default()).unwrap_or_else(|error| panic!("{error}"));
    let after = dhat::HeapStats::get().total_blocks;
    (after - before, outcome.result.packets.sent)
}

/// One test: the profiler counts for the whole process.
fn nothing_is_allocated_per_packet() {
    let _profiler = dhat::Profiler::builder().testing().build();
    for policy in ["pfabric", "qjump", "d3", "pdq", "homa"] {
        let (short, few) = blocks(policy, "1ms");
        let (long, many) = blocks(policy, "10ms");
        assert!(many > 7 * few, "{policy}: {few} and {many} packets");
        let more = long.saturating_sub(short);
        assert!(
            more < (many - few) / PACKETS_PER_BLOCK,
            "{policy}: {short} blocks for {few} packets, {long} for {many}"
        );
    }
}

/// Without the test harness, whose own thread allocates while it waits, and is counted on a busy machine.
fn main() {
    nothing_is_allocated_per_packet();
    println!("test nothing_is_allocated_per_packet ... ok");
    println!("test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
}
