//! The same scenario and seed give the same bytes; another seed gives others.
use crate::common::{bulk, run, small, tenant};

fn text(policy: &str, seed: u64) -> String {
    format!(
        "seed = {seed}\nduration = \"1ms\"\n[policy]\nname = \"{policy}\"\n{}{}{}",
        small("pings"),
        bulk("bulk", "1MiB", 4),
        tenant(
            "open",
            "throughput",
            "verb = \"send\"\nsize = 256\narrival = \"open\"\ninterval = \"2us\"\npoisson = true"
        ),
    )
}

fn serialised(policy: &str, seed: u64) -> String {
    serde_json::to_string(&run(&text(policy, seed))).expect("results are plain data")
}

#[test]
fn equal_seeds_give_equal_bytes_and_other_seeds_differ() {
    let stacks = ["justitia+hw-tc", "hw-tc+sriov", "palos+hw-tc"];
    for policy in isolane_rdma_simulator::rnic::POLICIES
        .iter()
        .copied()
        .chain(stacks)
    {
        let first = serialised(policy, 7);
        assert_eq!(first, serialised(policy, 7), "{policy}");
        assert_ne!(
            first.replace("\"seed\":7", ""),
            serialised(policy, 8).replace("\"seed\":8", ""),
            "{policy}"
        );
    }
}

#[test]
fn a_longer_run_begins_like_a_shorter_one() {
    let short = run(&text("none", 1).replace(
        "duration = \"1ms\"",
        "duration = \"1ms\"\nsample_interval = \"100us\"",
    ));
    let long = run(&text("none", 1).replace(
        "duration = \"1ms\"",
        "duration = \"2ms\"\nsample_interval = \"100us\"",
    ));
    for (short, long) in short.tenants.iter().zip(&long.tenants) {
        assert_eq!(
            short.goodput_series_gbps[..10],
            long.goodput_series_gbps[..10],
            "{}",
            short.name
        );
    }
}
