//! Simulated packets and messages per second of real time on one core; the median of five runs each.
use isolane_rdma_scenario::library::Library;
use isolane_rdma_simulator::rnic::arbiter::{Arbiter, Sharing};
use isolane_study_results::rdma::RunResult;
use std::time::Instant as Clock;

const BULK: &str = include_str!("data/bulk.toml");

const SMALL: &str = include_str!("data/small.toml");

const LATENCY: &str = include_str!("data/latency.toml");

fn main() {
    let packets = |result: &RunResult| -> f64 {
        result
            .counters
            .iter()
            .map(|counters| counters.values["tx_vport_rdma_unicast_packets"] as f64)
            .sum()
    };
    let messages = |result: &RunResult| -> f64 {
        result
            .tenants
            .iter()
            .map(|tenant| tenant.message_rate_per_s * result.measured_s)
            .sum()
    };
    // The policy's table must come before the tenants.
    let justitia = |text: &str| text.replacen("[[tenant]]", &format!("{LATENCY}[[tenant]]"), 1);
    report("rnic/bulk-16-pairs", "million packets/s", BULK, packets);
    report("rnic/small-messages", "million messages/s", SMALL, messages);
    report(
        "rnic/bulk-16-pairs-justitia",
        "million packets/s",
        &justitia(BULK),
        packets,
    );
    report(
        "rnic/small-messages-justitia",
        "million messages/s",
        &justitia(SMALL),
        messages,
    );
    let entries = |classes: std::ops::Range<u8>| classes.map(|class| (class, 64)).collect();
    decisions("rnic/arbiter-weighted", &Sharing::weighted(vec![4_352; 8]));
    let tables = Sharing::Tables {
        high: entries(0..3),
        low: entries(3..8),
        high_limit: Some(40_960),
    };
    decisions("rnic/arbiter-tables", &tables);
}

/// Nanoseconds of one choice and its charge, with eight classes; some always have work.
fn decisions(name: &str, sharing: &Sharing) {
    const DECISIONS: u64 = 10_000_000;
    let mut times: Vec<f64> = (0..5)
        .map(|_| {
            let mut arbiter = Arbiter::new(sharing);
            let start = Clock::now();
            for step in 0..DECISIONS {
                let ready = 0b1001_0110 | (step as u16 & 0xff);
                let choice = arbiter.choose(ready).expect("some class has work");
                arbiter.charge(std::hint::black_box(choice).class, 4_154);
            }
            start.elapsed().as_secs_f64() * 1e9 / DECISIONS as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!("{name} {:.2} ns per decision (median of 5)", times[2]);
}

/// Counts what is measured, without the warm-up, but charges the whole run's time: a lower bound.
fn report(name: &str, unit: &str, text: &str, count: impl Fn(&RunResult) -> f64) {
    let library = Library::embedded();
    let scenario = isolane_rdma_scenario::parse(text, "bench.toml", &library)
        .expect("the benchmark's scenario is valid");
    let profile = library
        .profile(&scenario.profile)
        .expect("a shipped profile");
    let mut rates: Vec<f64> = (0..5)
        .map(|_| {
            let start = Clock::now();
            let result =
                isolane_rdma_simulator::rnic::run(&scenario, profile).expect("the policy exists");
            count(&result) / start.elapsed().as_secs_f64() / 1e6
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    println!("{name} {:.2} {unit} (median of 5)", rates[2]);
}
