//! Simulated packets and messages per second of real time on one core; the median of five runs each.
use isolane_scenario::library::Library;
use isolane_scenario::measure::RunResult;
use std::time::Instant as Clock;

const BULK: &str = "
profile = \"cx5-100g-roce\"
duration = \"20ms\"
[[tenant]]
name = \"bulk\"
class = \"bandwidth\"
[[tenant.traffic]]
verb = \"write\"
size = \"1MiB\"
queue_pairs = 16
depth = 4
";

const SMALL: &str = "
profile = \"cx5-100g-roce\"
duration = \"5ms\"
[[tenant]]
name = \"small\"
class = \"throughput\"
[[tenant.traffic]]
verb = \"write\"
size = 8
inline = 8
queue_pairs = 4
processes = 8
post_list = 16
depth = 128
";

const LATENCY: &str = "
[policy]
name = \"justitia\"
[[tenant]]
name = \"pings\"
class = \"latency\"
[[tenant.traffic]]
verb = \"write\"
size = 16
inline = 16
depth = 1
arrival = \"ping-pong\"
";

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
}

/// Counts what is measured, without the warm-up, but charges the whole run's time: a lower bound.
fn report(name: &str, unit: &str, text: &str, count: impl Fn(&RunResult) -> f64) {
    let library = Library::embedded();
    let scenario = isolane_scenario::parse(text, "bench.toml", &library)
        .expect("the benchmark's scenario is valid");
    let profile = library
        .profile(&scenario.profile)
        .expect("a shipped profile");
    let mut rates: Vec<f64> = (0..5)
        .map(|_| {
            let start = Clock::now();
            let result = isolane_sim::rnic::run(&scenario, profile).expect("the policy exists");
            count(&result) / start.elapsed().as_secs_f64() / 1e6
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    println!("{name} {:.2} {unit} (median of 5)", rates[2]);
}
