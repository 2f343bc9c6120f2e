//! No allocation per packet: a run ten times as long allocates no more blocks.
mod common;

use common::{bulk, profile, scenario, small};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

/// Queues that grow to their largest size a little later in the longer run, and time series that are as long.
const BLOCKS_MORE: u64 = 64;

fn blocks(text: &str) -> (u64, u64) {
    let scenario = scenario(text);
    let profile = profile(&scenario.profile);
    let before = dhat::HeapStats::get().total_blocks;
    let result = isolane_rdma_simulator::rnic::run(&scenario, &profile).expect("the policy exists");
    let after = dhat::HeapStats::get().total_blocks;
    (
        after - before,
        result.counters[0].values["tx_vport_rdma_unicast_packets"],
    )
}

/// One test: the profiler counts for the whole process.
fn nothing_is_allocated_per_packet() {
    let _profiler = dhat::Profiler::builder().testing().build();
    for policy in [
        "none",
        "justitia",
        "sw-chunking",
        "vl-qos",
        "sriov",
        "justitia+hw-tc",
        "hw-tc+sriov",
        "palos",
        "palos+hw-tc+sriov",
    ] {
        let text = |duration: &str| {
            format!(
                "duration = \"{duration}\"\n[policy]\nname = \"{policy}\"\n{}{}",
                if policy == "none" {
                    String::new()
                } else {
                    small("pings")
                },
                bulk("bulk", "1MiB", 16)
            )
        };
        let (short, few) = blocks(&text("2ms"));
        let (long, many) = blocks(&text("20ms"));
        assert!(many > 8 * few, "{policy}: {few} and {many} packets");
        assert!(
            long <= short + BLOCKS_MORE,
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
