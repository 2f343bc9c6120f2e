//! Runs scenario files and prints a line for each application: `try [POLICY,...] FILE...`.
use isolane_scenario::mem::parse::{MemOverrides, parse_with};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let policies = arguments.next().expect("policies");
    for file in arguments {
        let text = std::fs::read_to_string(&file).expect("a file");
        for policy in policies.split(',') {
            let overrides = MemOverrides {
                policy: Some(policy.to_owned()),
                ..MemOverrides::default()
            };
            let scenario = parse_with(&text, &file, &overrides).unwrap_or_else(|e| panic!("{e}"));
            let result = isolane_mem_sim::run(&scenario);
            println!("{} {policy}", scenario.name);
            for app in &result.apps {
                println!(
                    "  {:10} {:>7.1} ns {:>7.2} GB/s {:>12.3} {}/s met {:.3} near {:>6.2} far {:>6.2} GB cpu {:.2} \
                     moved {:.1}/{:.1} GB {:?} {:?} profile {:?}",
                    app.name,
                    app.latency_ns,
                    app.bandwidth_gb_per_s,
                    app.throughput,
                    app.operation,
                    app.slo_met_share,
                    app.local_bytes as f64 / 1e9,
                    app.far_bytes as f64 / 1e9,
                    app.cpu_share,
                    app.promoted_bytes as f64 / 1e9,
                    app.demoted_bytes as f64 / 1e9,
                    app.verdict,
                    app.last_reason,
                    app.profile.map(|p| (
                        p.admissible,
                        p.local_bytes as f64 / 1e9,
                        p.cpu_share,
                        p.bandwidth_gb_per_s
                    )),
                );
            }
            for tier in &result.tiers {
                println!(
                    "  {:10} {:>7.1} ns {:>7.2} GB/s {:.2} full {:.2}",
                    tier.name,
                    tier.latency_ns,
                    tier.bandwidth_gb_per_s,
                    tier.utilisation,
                    tier.queue_full_share
                );
            }
            println!("  {:?}", result.machine_wide);
        }
    }
}
